"""The pinned versions; the packages themselves are not needed."""

from __future__ import annotations

import json
from typing import Any

from .provider import HERE


def test_the_lock_pins_everything_and_names_no_host() -> None:
    """npm takes the pinned packages from its configured registry."""
    lock: Any = json.loads((HERE / "package-lock.json").read_text("utf-8"))
    (root, *packages) = lock["packages"].values()
    wanted: Any = json.loads((HERE / "package.json").read_text("utf-8"))
    assert root["dependencies"] == wanted["dependencies"]
    for package in packages:
        assert "resolved" not in package
        assert package["integrity"].startswith("sha512-")
