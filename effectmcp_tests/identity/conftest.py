"""One provider and one browser for each test module, and a new user for each test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from ..npm import Unavailable
from . import chromium as browsers
from . import provider as providers
from .chromium import Chromium, User
from .desks import Desk, desk
from .provider import Packages, Provider
from .shops import Shop, shop


def _do_without(reason: Unavailable) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(str(reason))
    pytest.skip(str(reason))


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    """The packages of npm, from the cache if there is one."""
    cache = os.environ.get("EFFECTMCP_CONFORMANCE_CACHE")
    try:
        place = Path(cache) if cache else tmp_path_factory.mktemp("cache")
        return providers.install(place.resolve())
    except Unavailable as exc:
        _do_without(exc)


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """A browser, which starts slowly."""
    try:
        program = browsers.find()
    except Unavailable as exc:
        _do_without(exc)
    with Chromium.running(program, tmp_path_factory.mktemp("chromium")) as found:
        yield found


@pytest.fixture(scope="module")
def module_provider(
    packages: Packages, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Provider]:
    """A provider for all tests of a module."""
    log = tmp_path_factory.mktemp("provider") / "log"
    with providers.running(packages, log) as found:
        yield found


@pytest.fixture
def provider(module_provider: Provider) -> Provider:
    """The provider as if it were new; registered clients stay."""
    module_provider.set(lifetime=3600, algorithm="ES256", fails=False)
    module_provider.counts()
    return module_provider


@pytest.fixture(scope="module")
def plain_shop(
    module_provider: Provider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shop]:
    """A server for all tests of a module, with the options of the command line."""
    with shop(module_provider, tmp_path_factory.mktemp("shop")) as found:
        yield found


@pytest.fixture
def user(chromium: Chromium) -> User:
    return chromium.user()


@pytest.fixture
def ann(user: User, tmp_path: Path) -> Iterator[Desk]:
    """The machine of a user who has never logged in."""
    with desk(user, tmp_path / "state") as found:
        yield found
