"""`effectmcp tasks`, on a file of tasks."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
import trio

from effectmcp import Elicit, Flow, Server, Sleep, Step
from effectmcp.cli import main
from effectmcp.drivers import trio as loop
from effectmcp.effects.local import CallerInfo
from effectmcp.engine.journal import Entry, Journal, Place
from effectmcp.exchange.task_rows import Mail, TaskRow
from effectmcp.tasks import SqliteTasks, holders
from effectmcp.tasks.operators import open_store
from effectmcp.transports.working import working

Output = pytest.CaptureFixture[str]

ID = "3f2a" + "0" * 36
#: The time that the command reads.
NOW = 2e9
#: Clears the screen, on a terminal that gets it.
CLEAR = "\x1b[2J\x9b2J\u202e"


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("effectmcp.cli.tasks.time", SimpleNamespace(time=lambda: NOW))


def row(**changes: Any) -> TaskRow:
    now = NOW - 90
    plain = TaskRow(
        id=ID,
        tool="ship",
        arguments={"size": 3},
        owner=None,
        capabilities={},
        caller=CallerInfo(),
        flow_id=bytes(16),
        is_whole=True,
        created=now,
        updated=now,
        ttl=3_600,
        wake=now + 3_600,
    )
    return attrs.evolve(plain, **changes)


def keep(path: Path, *rows: TaskRow) -> str:
    tasks = SqliteTasks(path)
    tasks.open()
    for one in rows:
        tasks.create(one)
    tasks.close()
    return str(path)


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., str]:
    """Keep tasks in a file; return its path."""
    return lambda *rows: keep(tmp_path / "tasks.db", *rows)


def tasks(*argv: str, status: int = 0) -> None:
    assert main(["tasks", *argv]) == status


def shown(capsys: Output, *argv: str) -> str:
    tasks(*argv)
    out, err = capsys.readouterr()
    assert err == ""
    return out


def problem(capsys: Output, *argv: str) -> str:
    tasks(*argv, status=2)
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    return line.removeprefix("effectmcp: ")


# ---- list ----


def asked(*names: str) -> dict[str, Any]:
    return {one: {"method": "elicitation/create", "params": {}} for one in names}


BEGUN = Journal(places={"step-1": Place(begun=1)}).dumps()


@pytest.mark.parametrize(
    ("changes", "status", "waits"),
    [
        ({"status": "completed", "wake": None}, "completed", "-"),
        (
            {"status": "input_required", "questions": asked("elicit-1", "elicit-2")},
            "input_required",
            "answers: elicit-1, elicit-2, for 1m30s",
        ),
        (
            {"report": "it differs", "message": "It has stopped."},
            "parked",
            "its operator, for 1m30s",
        ),
        ({"wake": 0.0}, "working", "a process to run it, for 1m30s"),
        (
            {"wake": 0.0, "journal": BEGUN},
            "working",
            "a process to run it, for 1m30s",
        ),
        (
            {
                "journal": BEGUN,
                "tries": {"step-1": (2, NOW + 86_400)},
            },
            "working",
            "the next try of step-1, for 1m30s, due in 1d",
        ),
        (
            {
                "journal": Journal(
                    places={"sleep-1": Place(due=NOW + 3 * 86_400)}
                ).dumps()
            },
            "working",
            "a time: sleep-1, for 1m30s, due in 3d",
        ),
        (
            {"journal": b"of the future"},
            "working",
            "a process to run it, for 1m30s, due in 58m30s",
        ),
    ],
)
def test_list_shows_what_a_task_waits_for(
    file: Callable[..., str],
    capsys: Output,
    changes: dict[str, Any],
    status: str,
    waits: str,
) -> None:
    head, line = shown(capsys, "list", "--tasks", file(row(**changes))).splitlines()
    assert head.split() == ["ID", "TOOL", "STATUS", "AGE", "WAITS", "FOR", "MESSAGE"]
    assert line[:14] == "3f2a0000  ship"
    assert line[16:].startswith(f"{status}  ")
    assert line.partition("  1m30s  ")[2].split("  ")[0] == waits


def test_list_shows_enough_of_each_id(file: Callable[..., str], capsys: Output) -> None:
    others = [row(id="3f2a" + "0" * 10 + end * 26) for end in "ab"]
    lines = shown(capsys, "list", "--tasks", file(row(), *others)).splitlines()
    assert {line.split()[0] for line in lines[1:]} == {
        "3f2a0000000000" + end for end in "0ab"
    }


def test_list_is_for_programs_too(file: Callable[..., str], capsys: Output) -> None:
    path = file(
        row(message=CLEAR, owner="ann"),
        row(id="b" * 40, report="x", status="input_required", questions=asked("a")),
    )
    text = shown(capsys, "list", "--json", "--tasks", path)
    assert text.replace("\n", " ").isprintable()
    parked, plain = json.loads(text)
    assert (plain["taskId"], plain["owner"], plain["statusMessage"]) == (
        ID,
        "ann",
        CLEAR,
    )
    assert plain["waitsFor"]["kind"] == "turn"
    assert parked["isParked"]
    assert "inputRequests" not in parked
    assert json.loads(shown(capsys, "list", "--json", "--limit", "1", "--tasks", path))


def test_list_of_nothing(file: Callable[..., str], capsys: Output) -> None:
    path = file()
    assert json.loads(shown(capsys, "list", "--json", "--tasks", path)) == []
    tasks("list", "--tasks", path)
    assert capsys.readouterr() == ("", "effectmcp: there are no tasks\n")


def test_list_fits_a_terminal(
    file: Callable[..., str], capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = file(row(message="船" * 100, status="failed"))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    line = shown(capsys, "list", "--tasks", path).splitlines()[1]
    assert line.endswith("船…")
    assert len(line) < 80


def test_list_leaves_out_tasks_of_a_newer_version(
    file: Callable[..., str], capsys: Output, caplog: pytest.LogCaptureFixture
) -> None:
    path = file(row(), row(id="b" * 40))
    with sqlite3.connect(path) as db:
        db.execute("UPDATE tasks SET data = x'7b7d' WHERE id = ?", (ID,))
    db.close()
    assert len(shown(capsys, "list", "--tasks", path).splitlines()) == 2
    assert f"task '{ID}' is left to a newer version: " in caplog.text


# ---- show ----


def test_show_everything(file: Callable[..., str], capsys: Output) -> None:
    entries = (
        Entry("step-1", b"", b"", "done", b'"receipt"'),
        Entry(
            "gather-1",
            b"",
            b"",
            "gather",
            branches=((Entry("now-1", b"", b"", "chance", b"5"),), ()),
        ),
    )
    journal = Journal(
        entries=entries,
        places={
            "sleep-1": Place(due=NOW + 60),
            "step-2": Place(begun=2),
            "step-3": Place(begun=1),
        },
        generation=1,
    )
    path = file(
        row(
            version="v2",
            trace="00-1",
            owner="ann",
            message="building",
            journal=journal.dumps(),
            status="input_required",
            questions={
                "elicit-1": {
                    "method": "elicitation/create",
                    "params": {"message": "Name it"},
                },
                "roots-1": {"method": "roots/list"},
            },
            tries={"step-2": (1, NOW + 30), "step-3": (3, NOW + 31)},
            cancelled_at=NOW - 5,
            is_expired=True,
            report="DivergenceError:\n  shop.py:5",
        )
    )
    store = SqliteTasks(path)
    store.post(ID, [Mail("answer:roots-1", "answer", "roots-1", {})])
    store.post(ID, [Mail("cancel", "cancel")])
    store.close()
    text = shown(capsys, "show", "3f", "--tasks", path)
    for line in [
        f"task      {ID}",
        "tool      ship, version v2",
        "status    parked",
        "message   building",
        "owner     ann",
        "mail      answer, cancel: not read yet",
        'arguments {"size": 3}',
        "trace     00-1",
        'asked     elicit-1: "Name it"',
        "started   step-2, 2 times, and it has no outcome",
        "started   step-3, once, and it has no outcome",
        "restarts  1",
        '  step-1 done "receipt"',
        "  gather-1 gather",
        "    branch 0",
        "      now-1 chance 5",
        "report",
        "  DivergenceError:",
        "    shop.py:5",
    ]:
        assert f"{line}\n" in text
    assert "roots-1" not in text
    for start, end in [
        ("due       sleep-1 ", "(in 1m)"),
        ("failed    step-2, once; the next try is ", "(in 30s)"),
        ("failed    step-3, 3 times; the next try is ", "(in 31s)"),
        ("cancelled ", "(5s ago), because it expired"),
        ("created   ", "ago)"),
        ("expires   ", ")"),
    ]:
        (line,) = [one for one in text.splitlines() if one.startswith(start)]
        assert line.endswith(end)
    found = json.loads(shown(capsys, "show", "3f", "--json", "--tasks", path))
    assert found["mail"] == ["answer", "cancel"]
    assert found["inputRequests"].keys() == {"elicit-1"}
    assert found["report"] == "DivergenceError:\n  shop.py:5"
    assert found["begun"] == {"step-2": 2, "step-3": 1}
    assert found["tries"]["step-3"]["failed"] == 3
    assert found["due"][0]["place"] == "sleep-1"
    assert found["journal"][1]["branches"][0][0] == {
        "key": "now-1",
        "tag": "chance",
        "value": 5,
    }


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"result": {"content": []}, "status": "completed"},
            'result    {"content": []}',
        ),
        ({"error": {"code": 5}, "status": "failed"}, 'error     {"code": 5}'),
        ({"ttl": None}, "expires   never"),
        ({"ttl": 1e300}, "expires   never"),
        (
            {"journal": b"of the future"},
            "journal   of a format that this version cannot read",
        ),
        ({"questions": {"x": 5}}, "asked     x: "),
    ],
)
def test_show_an_end(
    file: Callable[..., str], capsys: Output, changes: dict[str, Any], line: str
) -> None:
    path = file(row(**changes))
    assert line in shown(capsys, "show", ID, "--tasks", path).splitlines()


def test_strings_in_tasks_do_not_control_the_terminal(
    file: Callable[..., str], capsys: Output
) -> None:
    """A terminal obeys control characters, and users and models can send them."""
    bad = CLEAR
    path = file(
        row(
            tool=bad,
            owner=bad,
            arguments={bad: bad},
            message=bad,
            version=bad,
            trace=bad,
            status="input_required",
            questions={bad: {"method": bad, "params": {"message": bad}}},
            report=f"{bad}\n{bad}",
            journal=Journal(
                entries=(Entry(bad, b"", b"", "done", json.dumps(bad).encode()),),
                places={bad: Place(due=1.0, begun=1)},
            ).dumps(),
            tries={bad: (1, 5.0)},
            error={"message": bad},
        )
    )
    for argv in (["list"], ["show", ID], ["list", "--json"], ["show", ID, "--json"]):
        text = shown(capsys, *argv, "--tasks", path)
        assert text.replace("\n", "").isprintable()


# ---- finding a task ----


@pytest.mark.parametrize("action", ["show", "cancel", "retry"])
def test_an_id_that_does_not_name_one_task(
    file: Callable[..., str], capsys: Output, action: str
) -> None:
    path = file(row(), row(id="3f2b" + "0" * 36))
    for start, words in [
        ("3f2", "several tasks start with '3f2': give more of the id"),
        ("", "there is no task ''"),
        ("4", "there is no task '4'"),
        ("\x1b", "there is no task '\\x1b'"),
    ]:
        assert problem(capsys, action, start, "--tasks", path) == words


# ---- cancel, retry ----


def mail_in(path: str) -> tuple[str, ...]:
    with open_store(path) as opened:
        return opened.look_up()[0].mail


def test_cancel_is_mail(file: Callable[..., str], capsys: Output) -> None:
    path = file(row())
    assert shown(capsys, "cancel", "3f", "--tasks", path) == (
        f"task {ID} is asked to end\n"
    )
    asked = json.loads(shown(capsys, "cancel", ID, "--json", "--tasks", path))
    assert (asked["taskId"], asked["waitsFor"]["kind"]) == (ID, "turn")
    assert mail_in(path) == ("cancel",)


def test_cancel_of_a_task_that_has_ended(
    file: Callable[..., str], capsys: Output
) -> None:
    path = file(row(status="failed"))
    assert problem(capsys, "cancel", ID, "--tasks", path) == (
        f"task {ID} has ended: it is failed"
    )


def test_retry_is_for_parked_tasks(file: Callable[..., str], capsys: Output) -> None:
    path = file(row(), row(id="b" * 40, report="it differs"))
    assert problem(capsys, "retry", ID, "--tasks", path).startswith(
        f"task {ID} is not parked: it is working. Only a parked task"
    )
    said = shown(capsys, "retry", "b", "--tasks", path)
    assert said == f"task {'b' * 40} is tried again\n"
    assert mail_in(path) == ("retry",)
    shown(capsys, "retry", "b", "--tasks", path)
    assert mail_in(path) == ("retry",)


async def run_main(*argv: str) -> None:
    """Run the command as if in another process, while this loop continues."""
    assert await trio.to_thread.run_sync(main, ["tasks", *argv]) == 0


async def until(store: SqliteTasks, reached: Callable[[TaskRow], bool]) -> TaskRow:
    with trio.fail_after(60):
        while True:
            (found,) = store.find()
            if reached(found):
                return found
            await trio.sleep(0.002)


async def test_park_retry_and_cancel_beside_a_server(
    tmp_path: Path, capsys: Output
) -> None:
    """An edited handler parks the task; the handler that started it continues it."""
    path = str(tmp_path / "tasks.db")

    def first() -> Flow[str]:
        yield from Step(str, "one")
        yield from Elicit("Name it", str)
        return "done"

    def edited() -> Flow[str]:
        yield from Sleep(0)
        yield from Elicit("Name it", str)
        return "done"

    def serving(function: Any) -> tuple[Server, SqliteTasks]:
        store = SqliteTasks(path)
        app = Server("shop", tasks=store)
        app.tool(name="ship", task="required")(function)
        return app, store

    begun = row(
        arguments={}, ttl=None, wake=0.0, capabilities={"elicitation": {"form": {}}}
    )
    app, store = serving(first)
    async with loop.running(app), working(loop, app):
        store.create(begun)
        await until(store, lambda one: bool(one.questions))
    app, store = serving(edited)
    async with loop.running(app), working(loop, app):
        store.post(ID, [Mail("answer:elicit-1", "answer", "elicit-1", 5)])
        await until(store, lambda one: one.is_parked)
        await run_main("list", "--tasks", path)
        await run_main("show", "3f", "--tasks", path)
        said = capsys.readouterr().out
        assert "  parked  " in said
        print(said)
    app, store = serving(first)
    async with loop.running(app), working(loop, app):
        await run_main("retry", "3f", "--tasks", path)
        asks = await until(store, lambda one: "elicit-1~2" in one.questions)
        assert asks.message is None
        await run_main("cancel", "3f", "--tasks", path)
        await until(store, lambda one: one.status == "cancelled")


# ---- a file that cannot be used ----


def test_a_path_without_tasks(tmp_path: Path, capsys: Output) -> None:
    """A wrong path is reported, and no file appears there."""
    empty = tmp_path / "empty.db"
    empty.touch()
    gone = tmp_path / "gone.db"
    for path, words in [
        (gone, f"there is no file '{gone}'"),
        (tmp_path, f"'{tmp_path}' is not a file"),
        (empty, f"'{empty}' is empty: no server has kept tasks in it"),
        (tmp_path / ("x" * 300), "File name too long"),
    ]:
        assert words in problem(capsys, "list", "--tasks", str(path))
    assert os.listdir(tmp_path) == ["empty.db"]


def test_a_file_of_another_program(tmp_path: Path, capsys: Output) -> None:
    path = tmp_path / "other.db"
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE tasks (id)")
    db.execute("PRAGMA user_version = 1")
    db.close()
    before = path.read_bytes()
    assert problem(capsys, "list", "--tasks", str(path)) == (
        f"{path} is a database of something else"
    )
    assert path.read_bytes() == before
    text = tmp_path / "text"
    text.write_text("tasks! " * 1_000)
    assert problem(capsys, "list", "--tasks", str(text)) == (
        f"{text} cannot be opened as a store of tasks: file is not a database"
    )


def test_a_file_of_a_newer_version(file: Callable[..., str], capsys: Output) -> None:
    path = file(row())
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    assert problem(capsys, "list", "--tasks", path) == (
        f"{path} was written by a newer version of effectmcp (tables of version 99, this"
        " one knows 2): upgrade this one"
    )


def test_a_file_on_the_network(
    file: Callable[..., str], capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = file(row())
    monkeypatch.setattr(holders, "file_system", lambda *_: "nfs4")
    assert "is on a network file system (nfs4)" in (
        problem(capsys, "list", "--tasks", path)
    )


def test_a_file_that_may_not_be_written(
    file: Callable[..., str], capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = file(row())
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everything
    assert problem(capsys, "list", "--tasks", path) == (
        f"'{path}' may not be read and written by this user"
    )


def test_a_folder_that_cannot_be_made(file: Callable[..., str], capsys: Output) -> None:
    path = file(row())
    Path(f"{path}-holders").rmdir()
    Path(f"{path}-holders").touch()
    assert problem(capsys, "list", "--tasks", path).startswith(
        f"{path}-holders: no file can be locked: "
    )


@pytest.mark.parametrize(
    "argv", [["list"], ["show", "--tasks", "x"], ["find", "--tasks", "x"], []]
)
def test_missing_arguments(argv: list[str], capsys: Output) -> None:
    with pytest.raises(SystemExit):
        main(["tasks", *argv])
    assert "usage: effectmcp tasks" in capsys.readouterr().err


def test_a_limit_below_one(capsys: Output) -> None:
    assert problem(capsys, "list", "--limit", "0", "--tasks", "x") == (
        "--limit: give 1 or more"
    )
