"""Every era, behind every transport, with our client and with another client.

The table of what works, and of the errors otherwise, is in docs/compatibility.md: this
checks that table, cell by cell.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import define, field

from effectmcp import ProtocolError, Root
from effectmcp.client import Channel, Client, OverHttp, OverPipes

from .raw_clients import EVERYTHING, Raw, RawError, over_http, over_pipes
from .servers import COMMAND, ENVIRONMENT, WAYS, url_of

ERAS = ("2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2026-06-XX")
PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"


def table_of(heading: str) -> dict[str, dict[str, str]]:
    """A table of the page: by the first cell of a row, its cells by their columns."""
    text = PAGE.read_text("utf-8")
    section = text[text.index(heading) :]
    found = re.search(r"((?:^\|.*\n)+)", section, re.M)
    assert found is not None
    rows = [
        [cell.strip().strip("`") for cell in line.strip("|\n").split("|")]
        for line in found[1].splitlines()
    ]
    columns, _, *lines = rows
    return {first: dict(zip(columns[1:], rest, strict=True)) for first, *rest in lines}


#: By feature, by era.
TABLE = table_of("## What works")

#: By feature: the tool that shows it, and whether the client can be asked.
FEATURES = {
    "a form": "form",
    "a form with several choices": "choices",
    "a page to open": "page",
    "the client's model": "model",
    "the user's folders": "folders",
    "questions side by side": "together",
    "`otherwise=`": "otherwise",
    "structured content": "structured",
    "progress": "progress",
}
CANNOT = "a client that cannot be asked"


@define
class Seen:
    """The outcome of a call."""

    result: Mapping[str, Any]
    asked: int
    told: list[Any] = field(factory=list)


def outcome(tool: str, seen: Seen) -> str:
    """The word that the table has for it."""
    text = seen.result["content"][0]["text"]
    if seen.result.get("isError"):
        assert text.startswith("This needs to ask"), text
        assert seen.asked == 0
        return "told"
    if tool == "structured":
        return "yes" if "structuredContent" in seen.result else "as text"
    if tool == "progress":
        return "yes" if seen.told else "no"
    if tool == "otherwise" and not seen.asked:
        return "otherwise"
    assert text.startswith("Hello")
    assert seen.asked == (2 if tool == "together" else 1)
    return "asked"


def test_the_page_has_a_row_for_each_feature() -> None:
    rows = {one.strip("`") for one in [*FEATURES, CANNOT]}
    assert TABLE.keys() == rows
    for cells in TABLE.values():
        assert tuple(cells) == ERAS


@pytest.fixture(scope="module", params=WAYS)
def url(request: pytest.FixtureRequest) -> Iterator[str | None]:
    """The shop behind one transport."""
    with url_of(request.param) as found:
        yield found


# ---- clients that are not ours ------------------------------------------------------


def connect(
    url: str | None, era: str, capabilities: Mapping[str, Any] = EVERYTHING
) -> AbstractContextManager[Raw]:
    if url is not None:
        return over_http(url, era, capabilities)
    command = [sys.executable, *COMMAND]
    return over_pipes(command, ENVIRONMENT, era, capabilities)


@pytest.mark.parametrize("era", ERAS)
def test_raw_messages(url: str | None, era: str) -> None:
    found = {}
    with connect(url, era) as client:
        for name, tool in FEATURES.items():
            client.asked.clear()
            client.told.clear()
            result = client.call(tool)
            told = [one for one in client.told if "progress" in one["method"]]
            found[name.strip("`")] = outcome(
                tool, Seen(result, len(client.asked), told)
            )
        # By retry, no request of the server's ever leaves.
        assert (client.requested == []) == (era in ("2026-07-28", "2026-06-XX"))
    with connect(url, era, {}) as client:
        try:
            found[CANNOT] = outcome("form", Seen(client.call("form"), 0))
        except RawError as exc:
            found[CANNOT] = str(exc.args[0])
    assert found == {name: cells[era] for name, cells in TABLE.items()}


# ---- our client ---------------------------------------------------------------------


def channel_of(url: str | None) -> Channel:
    if url is not None:
        return OverHttp(url)
    return OverPipes([sys.executable, *COMMAND], env=ENVIRONMENT)


@define
class User:
    """Answers everything, and counts."""

    asked: int = 0
    told: list[Any] = field(factory=list)

    def says(self, value: Any) -> Callable[..., Any]:
        def say(question: Any) -> Any:
            self.asked += 1
            return value(question)

        return say


@pytest.mark.parametrize("era", ERAS)
def test_our_client(url: str | None, era: str) -> None:
    user = User()
    is_draft = era == "2026-06-XX"
    how: Any = {"drafts": True} if is_draft else {"version": era}

    def fill_in(form: Any) -> Any:
        ((name, schema),) = form.fields.items()
        return {name: ["s", "l"] if schema["type"] == "array" else "Ann"}

    def where() -> Any:
        user.asked += 1
        return [Root("file:///home")]

    async def main() -> dict[str, str]:
        found = {}
        async with Client(
            channel_of(url),
            elicit=user.says(fill_in),
            open_url=user.says(lambda link: True),
            sample=user.says(lambda sampling: "you"),
            roots=where,
            on_progress=user.told.append,
            **how,
        ) as client:
            for name, tool in FEATURES.items():
                user.asked = 0
                user.told.clear()
                result = await client.call_tool(tool)
                seen = Seen(result.fields, user.asked, list(user.told))
                found[name.strip("`")] = outcome(tool, seen)
        async with Client(channel_of(url), **how) as client:
            try:
                result = await client.call_tool("form")
                found[CANNOT] = outcome("form", Seen(result.fields, 0))
            except ProtocolError as exc:
                found[CANNOT] = str(exc.code)
        return found

    found = trio.run(main)
    assert found == {name: cells[era] for name, cells in TABLE.items()}


def test_our_client_finds_out(url: str | None) -> None:
    """Unless told, it speaks the newest revision that both know."""

    async def main() -> None:
        async with Client(channel_of(url)) as client:
            assert (await client.discover())["supportedVersions"] == ["2026-07-28"]

    trio.run(main)
