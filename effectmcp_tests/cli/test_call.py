"""`effectmcp call` and `effectmcp list`, with and without a user at a terminal."""

from __future__ import annotations

import functools
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from effectmcp.cli import main
from effectmcp.cli.printing import DECLINED, ERROR, FAILED, UNWRITTEN
from effectmcp.engine import UnperformedEffectWarning
from effectmcp.server.loop_name import LOOPS
from effectmcp.state import make_key

from ..client.test_tasks import announced, described
from ..client.ways import SHELF, Scripted, asking

ROOT = Path(__file__).parents[2]
BOOKSHOP = str(ROOT / "examples" / "bookshop.py")
EVERYTHING = str(ROOT / "examples" / "everything.py")
ANSWERS = ("--answer", 'elicit-1="Ann"', "--answer", 'elicit-2="2026-12-01"')

Output = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EFFECTMCP_STATE_KEYS", make_key(bytes(range(32))))
    monkeypatch.setattr(sys, "path", list(sys.path))


def order(*argv: str) -> int:
    return main(["call", BOOKSHOP, "order", "title=Dune", *argv])


# ---- without a terminal ----


def test_answers_on_the_command_line(capsys: Output) -> None:
    assert order(*ANSWERS, "--answer", "confirm-1=true") == 0
    assert capsys.readouterr().out.startswith("Ordered: receipt ")


@pytest.mark.parametrize(
    "argv",
    [
        ("--trace", "order", "title=Dune"),
        ("order", "--trace", "title=Dune"),
        ("order", "--answer", "a=1", "title=Dune", "--trace"),
    ],
)
def test_options_may_be_anywhere(argv: tuple[str, ...], capsys: Output) -> None:
    decline = ("--answer", 'elicit-1={"action": "decline"}')
    assert main(["call", BOOKSHOP, *argv, *decline]) == DECLINED


def test_an_unknown_option(capsys: Output) -> None:
    with pytest.raises(SystemExit):
        order("--trice", "a=b")
    assert "unrecognized arguments: --trice" in capsys.readouterr().err


def test_answers_in_a_file(tmp_path: Path, capsys: Output) -> None:
    file = tmp_path / "answers.json"
    answers = {
        "elicit-1": {"value": "Ann"},
        "elicit-2": "2026-12-01",
        "confirm-1": True,
    }
    file.write_text(json.dumps(answers))
    assert order("--answers", str(file)) == 0
    assert "Ordered" in capsys.readouterr().out


@pytest.mark.parametrize("answer", ['{"action": "decline"}', '{"action": "cancel"}'])
def test_the_user_declines(answer: str, capsys: Output) -> None:
    assert order("--answer", f"elicit-1={answer}") == DECLINED
    assert capsys.readouterr().out.startswith("The user d")


def test_a_user_who_declines_and_gets_a_result_all_the_same(capsys: Output) -> None:
    assert order(*ANSWERS, "--answer", "confirm-1=false") == 0
    assert capsys.readouterr().out == "Nothing ordered.\n"


def test_questions_are_listed_where_no_user_can_answer(capsys: Output) -> None:
    assert order() == 2
    said = capsys.readouterr().err
    assert "there is no terminal" in said
    assert "elicit-1 (value): 'Who is it for?'" in said


DATE = '{"value": {"type": "string", "format": "date", "title": "Answer"}}'


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ("5", "value must be text"),
        ('"2026-13-01"', "value must be a date that is in the calendar"),
        ('{"day": "2026-12-01"}', "value is required"),
    ],
)
def test_answer_that_does_not_fit_is_reported_with_what_fits(
    answer: str, problem: str, capsys: Output
) -> None:
    assert order(*ANSWERS[:2], "--answer", f"elicit-2={answer}") == 2
    assert capsys.readouterr().err == (
        f"effectmcp: --answer elicit-2: {problem}. What fits: {DATE}\n"
    )


def test_each_problem_of_an_answer_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    """Fields with a schema that forms do not have are for the server to check."""
    fields = {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 18},
        "menu": {"type": "string", "enum": ["meat", "fish"]},
        "note": {"type": "string"},
        "nested": {"type": "object"},
        "broken": 3,
    }
    schema = {"type": "object", "properties": fields, "required": ["name", "nested"]}
    params = {"message": "Who?", "requestedSchema": schema}
    asked = asking({"a": {"method": "elicitation/create", "params": params}})
    fits = {"name": "Ann", "age": 18, "nested": {}, "broken": 5, "unknown": 1}
    argv = ("--answer", f"a={json.dumps(fits)}")
    assert called(monkeypatch, asked, {"content": []}, argv=argv)[0] == 0
    capsys.readouterr()
    argv = ("--answer", 'a={"age": 17, "menu": "eggs", "nested": {}}')
    assert called(monkeypatch, asked, argv=argv)[0] == 2
    shown = json.dumps({name: fields[name] for name in ("name", "age", "menu")})
    assert capsys.readouterr().err == (
        "effectmcp: --answer a: name is required; age must be at least 18; menu must be"
        f" one of 'meat', 'fish'. What fits: {shown}\n"
    )


@pytest.mark.parametrize(
    ("version", "key", "again"),
    [
        ("2026-07-28", "elicit-1", "elicit-1~2"),
        ("2025-11-25", "question-1", "question-2"),
    ],
)
def test_whole_response_that_the_server_refuses_is_reported_by_its_key(
    version: str, key: str, again: str, capsys: Output
) -> None:
    """A script may test what the server does with it; so it is sent unchecked, once."""
    response = '{"action": "accept", "content": {"value": 5}}'
    assert order("--version", version, "--answer", f"{key}={response}") == 2
    assert capsys.readouterr().err == (
        f"effectmcp: --answer {key}: the server asks again, as {again} (value): 'Who is"
        " it for?\\n\\nYour last answer did not fit:\\n- value: must be text'\n"
    )


def test_question_with_the_key_of_an_answered_one_is_reported_as_asked_again(
    monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    """A new question beside it is not."""
    first = {"method": "elicitation/create", "params": {"message": "Sure?"}}
    other = {"method": "elicitation/create", "params": {"message": "Really?"}}
    rounds = [asking({"a": first}), asking({"a": first, "b": other})]
    assert called(monkeypatch, *rounds, argv=("--answer", "a=true"))[0] == 2
    assert capsys.readouterr().err == (
        "effectmcp: --answer a: the server asks again, as a (yes or no: true or false):"
        " 'Sure?'; the server asks, and there is no terminal. Give --answer KEY=JSON for"
        " b (yes or no: true or false): 'Really?'\n"
    )


# ---- sampling ----


def sample(*argv: str) -> int:
    return main(["call", EVERYTHING, "test_sampling", "prompt=Say hello.", *argv])


def test_sampling_is_answered_with_text(capsys: Output) -> None:
    assert sample("--answer", 'sample-1="Hello"') == 0
    assert capsys.readouterr().out == "LLM response: Hello\n"


def test_sampling_without_an_answer_shows_its_prompt(capsys: Output) -> None:
    assert sample() == 2
    assert capsys.readouterr().err == (
        "effectmcp: the server asks, and there is no terminal. Give --answer KEY=JSON for"
        " sample-1 (the text that the model writes, as --answer 'sample-1=\"TEXT\"'):"
        " 'user: Say hello.'\n"
    )


@pytest.mark.parametrize("answer", ["true", "[]", "{}", "5"])
def test_answer_to_sampling_of_another_type_is_refused(
    answer: str, capsys: Output
) -> None:
    assert sample("--answer", f"sample-1={answer}") == 2
    assert capsys.readouterr().err == (
        "effectmcp: --answer sample-1: give the text that the model writes, as --answer"
        " 'sample-1=\"TEXT\"'\n"
    )


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_declined_sampling_ends_the_call(action: str, capsys: Output) -> None:
    """In 2026-07-28, a server does not wait for a response, and is sent none."""
    argv = ("--answer", f'sample-1={{"action": "{action}"}}')
    assert sample(*argv, "--raw") == DECLINED
    printed = capsys.readouterr()
    assert printed.err.endswith(
        "\neffectmcp: sample-1 was declined, so the call has ended\n"
    )
    assert printed.err.count('"method": "tools/call"') == 1
    assert printed.out == ""


def test_declined_sampling_is_reported_in_a_session(capsys: Output) -> None:
    argv = ("--answer", 'question-1={"action": "decline"}')
    assert sample(*argv, "--version", "2025-11-25") == DECLINED
    assert capsys.readouterr().out == "The user declined.\n"


def test_declined_sampling_cancels_a_task(
    monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    asked = {"s": {"method": "sampling/createMessage", "params": {"messages": []}}}
    working = announced(pollIntervalMs=0)
    asks = described("input_required", inputRequests=asked)
    argv = ("--answer", 's={"action": "decline"}')
    status, channel = called(monkeypatch, working, asks, {}, argv=argv)
    assert status == DECLINED
    assert channel.sent[-1].message["method"] == "tasks/cancel"
    assert capsys.readouterr().err.endswith("s was declined, so the call has ended\n")


# ---- mistakes ----


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (
            ["call", BOOKSHOP, "ordr", "title=x"],
            "there is no tool 'ordr'; there is order",
        ),
        (["call", BOOKSHOP, "order", "title"], "'title': write NAME=VALUE"),
        (
            ["call", BOOKSHOP, "order", "--answer", "a=Ann"],
            "a string needs quotes: a='\"Ann\"'",
        ),
        (
            ["call", BOOKSHOP, "order", "--answers", "/gone.json"],
            "--answers /gone.json: ",
        ),
        (["call", BOOKSHOP, "order", "--header", "a: b"], "--header is for a URL"),
        *(
            (
                ["call", "http://127.0.0.1:1", "order", "--header", header],
                "write NAME: VALUE, in plain ASCII",
            )
            for header in ("a", "a b: c", ": c", "a: é", "a: b\nc", "a: \udcff")
        ),
        *(
            (
                ["call", BOOKSHOP, "order", "--timeout", seconds],
                f"--timeout {seconds}: give seconds, more than 0",
            )
            for seconds in ("nan", "-1", "0")
        ),
        (["call", BOOKSHOP, "order", "title=\udcff"], "at /arguments/title: a lone"),
        (["call", BOOKSHOP, "order", "\udcff=1"], "at /arguments: a lone surrogate"),
        (["call", BOOKSHOP, "\udcff"], "there is no tool '\\udcff'"),
        (["call", BOOKSHOP, "--prompt", "\udcff"], "at /name: a lone surrogate"),
        (["call", BOOKSHOP, "--resource", "\udcff"], "at /uri: a lone surrogate"),
        (["call", BOOKSHOP, "ordr"], "there is no tool 'ordr'; there is order"),
        (
            ["call", BOOKSHOP, "order", "--answer", "a=NaN"],
            "--answer a=NaN: 'NaN' is not JSON",
        ),
        (
            ["call", BOOKSHOP, "order", "--answer", f"a={'[' * 100_000}"],
            "is not JSON",
        ),
        (["call", "gone.py", "order"], "there is no file 'gone.py'"),
        (["call", "'", "order"], "is no command"),
        (["call", "http://a/\udcff", "order"], "is not a URL: write it in UTF-8"),
        (["call", " ", "order"], "give a URL"),
        (
            ["call", BOOKSHOP, "--resource", "a://b", "c=d"],
            "a resource takes no arguments",
        ),
    ],
)
def test_mistakes(argv: list[str], message: str, capsys: Output) -> None:
    assert main(argv) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("answers", [b"{", b"\xff", b"[]", b"[" * 100_000])
def test_an_invalid_file_of_answers(
    answers: bytes, tmp_path: Path, capsys: Output
) -> None:
    file = tmp_path / "answers.json"
    file.write_bytes(answers)
    assert order("--answers", str(file)) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"effectmcp: --answers {file}: ")
    assert said.count("\n") == 1


def test_an_argument_that_json_cannot_carry_is_sent_as_a_string(
    tmp_path: Path, capsys: Output
) -> None:
    """The server then reports the type that it requires."""
    file = tmp_path / "numbers_wanted.py"
    file.write_text(
        "from effectmcp import Server\n"
        "app = Server('numbers')\n"
        "@app.tool\n"
        "def double(x: float) -> float:\n"
        "    return 2 * x\n"
    )
    for text in ("NaN", "Infinity", "1e999", '"\\ud800"', "[" * 100_000):
        assert main(["call", str(file), "double", f"x={text}"]) == FAILED
        assert "x: must be a number" in capsys.readouterr().out


def test_a_tool_that_fails(capsys: Output) -> None:
    assert main(["call", EVERYTHING, "test_error_handling"]) == FAILED
    assert capsys.readouterr().out


@pytest.mark.parametrize(
    "target",
    ["http://127.0.0.1:1/mcp", f"{sys.executable} -c pass"],
)
def test_a_server_that_is_not_there(target: str, capsys: Output) -> None:
    assert main(["call", target, "order"]) == ERROR
    assert capsys.readouterr().err.startswith("effectmcp: ")


def test_a_command_that_is_not_there(capsys: Output) -> None:
    assert main(["call", "nowhere", "order"]) == 2
    said = "effectmcp: there is no command 'nowhere'; a module is written nowhere:app"
    assert capsys.readouterr().err.startswith(said)


def test_a_forgotten_yield_from_is_reported(tmp_path: Path, capsys: Output) -> None:
    file = tmp_path / "forgetful.py"
    file.write_text(FORGETFUL)
    with pytest.warns(UnperformedEffectWarning, match=r"forgetful.py:7: .*yield from"):
        assert main(["call", str(file), "greet"]) == 0


FORGETFUL = """
from effectmcp import Elicit, Flow, Log, Server
app = Server("forgetful")
@app.tool
def greet() -> Flow[str]:
    yield from Log("info", "hello")
    name = Elicit("Who?", str)
    return f"Hello, {name}"
"""


def test_an_error_of_the_protocol(capsys: Output) -> None:
    assert main(["call", EVERYTHING, "--resource", "gone://x"]) == ERROR
    assert "Resource not found (-32602)" in capsys.readouterr().err


def test_prompts_and_resources(capsys: Output) -> None:
    argv = ["call", EVERYTHING, "--prompt", "test_prompt_with_arguments"]
    assert main([*argv, "arg1=a", "arg2=b"]) == 0
    assert main(["call", EVERYTHING, "--resource", "test://static-text"]) == 0
    assert "a" in capsys.readouterr().out


def test_media_are_saved_and_nothing_is_written_over(
    tmp_path: Path, capsys: Output
) -> None:
    argv = [
        "call",
        EVERYTHING,
        "test_image_content",
        "--save-to",
        str(tmp_path / "out"),
    ]
    assert main(argv) == main(argv) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == f"saved as {tmp_path / 'out' / 'result-1.png'}"
    assert (tmp_path / "out" / "result-1.png").read_bytes().startswith(b"\x89PNG")
    assert second.endswith("result-2.png")


def test_media_that_cannot_be_saved_are_printed(tmp_path: Path, capsys: Output) -> None:
    file = tmp_path / "file"
    file.touch()
    argv = ["call", EVERYTHING, "test_image_content", "--save-to", str(file)]
    assert main(argv) == UNWRITTEN
    printed = capsys.readouterr()
    assert printed.err.startswith(f"effectmcp: --save-to {file}: ")
    assert json.loads(printed.out)["type"] == "image"


def test_trace_shows_rounds_and_states_but_only_the_types_of_answers(
    capsys: Output,
) -> None:
    assert order(*ANSWERS, "--answer", "confirm-1=true", "--trace") == 0
    said = capsys.readouterr().err
    assert "round 2: a state of " in said
    assert ", which replays 1 entries" in said
    assert '  elicit-1 → {"action": "accept", "content": {"value": "<text>"}}' in said
    assert said.endswith("round 4: done\n")
    assert order("--answer", 'elicit-1={"action": "decline"}', "--trace") == DECLINED
    assert '  elicit-1 → {"action": "decline"}' in capsys.readouterr().err


def test_trace_opens_the_states_of_an_app_without_keys(
    monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    monkeypatch.delenv("EFFECTMCP_STATE_KEYS")
    order(*ANSWERS, "--answer", "confirm-1=true", "--trace")
    assert ", which replays 1 entries" in capsys.readouterr().err


def test_trace_shows_answers_with_its_option(capsys: Output) -> None:
    order(*ANSWERS, "--answer", "confirm-1=true", "--trace", "--show-answers")
    said = capsys.readouterr().err
    assert '  elicit-1 → {"action": "accept", "content": {"value": "Ann"}}' in said


def test_unused_answers_are_reported(capsys: Output) -> None:
    argv = ("--answer", 'elicit-1={"action": "decline"}', "--answer", "elicit_2=1")
    assert order(*argv) == DECLINED
    assert capsys.readouterr().err == (
        "effectmcp: no question had the key 'elicit_2'\n"
    )


def test_raw_prints_the_messages(capsys: Output) -> None:
    order(*ANSWERS, "--answer", "confirm-1=true", "--raw")
    captured = capsys.readouterr()
    sent = [
        json.loads(line[2:]) for line in captured.err.splitlines() if line[0] == ">"
    ]
    assert [one["method"] for one in sent] == ["tools/list", *["tools/call"] * 4]
    assert captured.out.startswith("Ordered")


def test_progress_and_logs_go_to_standard_error(capsys: Output) -> None:
    assert main(["call", EVERYTHING, "test_tool_with_progress"]) == 0
    assert main(["call", EVERYTHING, "test_logging_tool"]) == 0
    said = capsys.readouterr().err
    assert "100%" in said
    assert "info: " in said


def test_list(capsys: Output) -> None:
    assert main(["list", BOOKSHOP]) == 0
    assert capsys.readouterr().out == "tools\n  order title\n      Order a book.\n"
    assert main(["list", EVERYTHING, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"tools", "prompts", "resources", "templates"}
    assert main(["list", "http://127.0.0.1:1/mcp"]) == ERROR


# ---- the revision ----


@pytest.mark.parametrize("version", ["2025-11-25", "2025-03-26"])
def test_version_names_the_revision_to_speak(version: str, capsys: Output) -> None:
    """A session is initialized at once, without a probe."""
    argv = ("--version", version, "--raw")
    assert main(["list", BOOKSHOP, *argv]) == 0
    first = capsys.readouterr().err.splitlines()[0]
    assert json.loads(first[2:])["params"]["protocolVersion"] == version
    assert main(["call", EVERYTHING, "test_simple_text", *argv]) == 0
    first = capsys.readouterr().err.splitlines()[0]
    assert json.loads(first[2:])["params"]["protocolVersion"] == version


def test_version_with_a_session_numbers_the_questions(capsys: Output) -> None:
    answers = ('question-1="Ann"', 'question-2="2026-12-01"', "question-3=true")
    argv = [one for text in answers for one in ("--answer", text)]
    assert order("--version", "2025-11-25", *argv) == 0
    assert capsys.readouterr().out.startswith("Ordered: receipt ")


@pytest.mark.parametrize("command", [("call", BOOKSHOP, "order"), ("list", BOOKSHOP)])
def test_unknown_version_is_refused_with_the_known_ones(
    command: tuple[str, ...], capsys: Output
) -> None:
    with pytest.raises(SystemExit) as caught:
        main([*command, "--version", "2024-11-05"])
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert "2024-11-05" in said
    for version in ("2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"):
        assert version in said


#: As Python servers report that they can ask only in a session: FastMCP 4.1 in the
#: result of the tool, and version 2.3 of the SDK in an error.
UNABLE = "elicitation via server-initiated requests is unavailable on 2026-07-28 connections."
NO_CHANNEL = (
    "Cannot send 'elicitation/create': this transport context has no back-channel for"
    " server-initiated requests."
)
ADVICE = "effectmcp: this server cannot ask questions in 2026-07-28; try --version 2025-11-25"


def unable(tmp_path: Path) -> str:
    file = tmp_path / f"{tmp_path.name}.py"  # the name of a module is used once
    file.write_text(
        "from effectmcp import ProtocolError, Server, ToolError\n"
        "app = Server('unable')\n"
        "@app.tool\n"
        "def in_result() -> str:\n"
        f"    raise ToolError({UNABLE!r})\n"
        "@app.tool\n"
        "def in_error() -> str:\n"
        f"    raise ProtocolError(-32600, {NO_CHANNEL!r})\n"
        "@app.tool\n"
        "def answers() -> str:\n"
        f"    return {UNABLE!r}\n"
    )
    return str(file)


@pytest.mark.parametrize(
    ("tool", "status"), [("in_result", FAILED), ("in_error", ERROR), ("answers", 0)]
)
def test_earlier_version_is_advised_if_the_server_can_ask_only_there(
    tool: str, status: int, tmp_path: Path, capsys: Output
) -> None:
    assert main(["call", unable(tmp_path), tool]) == status
    assert (ADVICE in capsys.readouterr().err.splitlines()) is (status != 0)


@pytest.mark.parametrize("tool", ["in_result", "in_error"])
def test_earlier_version_is_not_advised_in_a_session(
    tool: str, tmp_path: Path, capsys: Output
) -> None:
    """There, another revision would not help."""
    assert main(["call", unable(tmp_path), tool, "--version", "2025-06-18"])
    assert "--version" not in capsys.readouterr().err


# ---- a client that lacks a capability ----


@pytest.mark.parametrize(
    ("capability", "name"),
    [
        ("elicitation", "elicitation"),
        ("elicitation.form", "elicitation.form"),
        ("elicitation.url", None),
        ("sampling", None),
        ("roots", None),
        ("tasks", None),
    ],
)
def test_without_a_capability_the_server_refuses_what_needs_it(
    capability: str, name: str | None, capsys: Output
) -> None:
    argv = (*ANSWERS, "--answer", "confirm-1=true", "--without", capability)
    assert order(*argv) == (0 if name is None else ERROR)
    said = capsys.readouterr().err
    assert (f"This tool asks its user a question ({name}), " in said) is bool(name)


def test_without_several_capabilities_in_a_session(
    tmp_path: Path, capsys: Output
) -> None:
    """Folders are given, and yet not declared."""
    lacking = [f"--without={one}" for one in ("elicitation", "sampling", "roots")]
    session = ["--version", "2025-11-25", "--root", str(tmp_path), "--raw"]
    assert order(*session, *lacking) == FAILED
    printed = capsys.readouterr()
    first = json.loads(printed.err.splitlines()[0][2:])
    assert first["params"]["capabilities"] == {}
    assert "does not declare the capability elicitation." in printed.out


def test_without_tasks_a_call_becomes_none(capsys: Output) -> None:
    assert bind(*CHOSEN, "--without", "tasks") == 0
    assert capsys.readouterr().out == "3 in red (no task)\n"


def test_unknown_capability_is_refused_with_the_known_ones(capsys: Output) -> None:
    with pytest.raises(SystemExit):
        order("--without", "telepathy")
    said = capsys.readouterr().err
    assert "telepathy" in said
    assert "roots" in said


# ---- consent ----


@pytest.mark.parametrize("answer", ['"no"', "null", "[]", "1", '{"value": true}'])
def test_consent_is_true_and_nothing_else(answer: str, capsys: Output) -> None:
    assert order(*ANSWERS, "--answer", f"confirm-1={answer}") == 2
    assert "--answer confirm-1: give true or false" in capsys.readouterr().err


def test_a_command_may_end_with_py(tmp_path: Path, capsys: Output) -> None:
    file = tmp_path / "server.py"
    file.write_text(
        f"import runpy, sys\nsys.argv = ['effectmcp', 'serve', {BOOKSHOP!r}]\n"
        "runpy.run_module('effectmcp', run_name='__main__')\n"
    )
    argv = ["call", f"{sys.executable} {file}", "order", "title=Dune"]
    assert main([*argv, "--answer", 'elicit-1={"action": "decline"}']) == DECLINED


def test_a_command_is_not_given_the_keys(tmp_path: Path, capsys: Output) -> None:
    file = tmp_path / "keys_wanted.py"
    file.write_text(
        "import os\n"
        "from effectmcp import Server\n"
        "app = Server('keys')\n"
        "@app.tool\n"
        "def has_keys() -> str:\n"
        "    return str('EFFECTMCP_STATE_KEYS' in os.environ)\n"
    )
    command = f"{sys.executable} -m effectmcp serve {file}"
    assert main(["call", command, "has_keys"]) == 0
    assert capsys.readouterr().out == "False\n"


# ---- servers that do what they like ----


TOOLS = {
    "resultType": "complete",
    "tools": [{"name": "tool", "inputSchema": {"type": "object"}}],
}


def called(
    monkeypatch: pytest.MonkeyPatch, *answers: Any, argv: tuple[str, ...] = ()
) -> tuple[int, Scripted]:
    """A call of the tool of a server that answers like this."""
    channel = Scripted([TOOLS, *answers])
    monkeypatch.setattr("effectmcp.cli.call.channel_to", lambda *of: channel)
    return main(["call", "server", "tool", *argv]), channel


LINK = {"mode": "url", "message": "Pay", "url": "https://shop.example/pay"}


@pytest.mark.parametrize(
    "question",
    [
        {"method": "elicitation/steal"},
        {"method": "elicitation/create", "params": {"mode": []}},
        {"method": "roots/list"},
    ],
)
def test_a_question_that_was_not_declared(
    question: Any, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    argv = ("--answer", 'a={"action": "accept"}')
    assert called(monkeypatch, asking({"a": question}), argv=argv)[0] == ERROR
    assert capsys.readouterr().err == (
        "effectmcp: the server's answer cannot be used:"
        f" {question['method']} was asked, which this client did not say it can answer\n"
    )


@pytest.mark.parametrize(
    ("capability", "question"),
    [
        ("elicitation.form", {"method": "elicitation/create"}),
        ("elicitation.url", {"method": "elicitation/create", "params": LINK}),
        ("sampling", {"method": "sampling/createMessage"}),
    ],
)
def test_question_that_needs_a_capability_that_was_not_declared(
    capability: str, question: Any, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    """A server that ignores the capabilities gets no answer, though one is given."""
    argv = ("--answer", 'a={"action": "accept"}', "--without", capability)
    assert called(monkeypatch, asking({"a": question}), argv=argv)[0] == ERROR
    assert "which this client did not say it can answer" in capsys.readouterr().err


def test_a_server_that_only_gives_its_state_is_given_time(
    monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    clock = MockClock(autojump_threshold=0)
    monkeypatch.setattr(trio, "run", functools.partial(trio.run, clock=clock))
    began = clock.current_time()
    states = [asking(None, requestState=str(n)) for n in range(200)]
    status, channel = called(monkeypatch, *states)
    assert status == ERROR
    assert capsys.readouterr().err == (
        "effectmcp: the server asked 100 times and is not done\n"
    )
    assert len(channel.sent) == 1 + 101
    assert clock.current_time() - began > 100


def test_a_state_that_is_rejected(
    monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    def rejected(message: Any) -> Any:
        error = {"code": -32602, "message": "Invalid requestState"}
        return {"jsonrpc": "2.0", "id": message["id"], "error": error}

    status, _ = called(monkeypatch, asking({}, requestState="a"), rejected)
    assert status == ERROR
    assert capsys.readouterr().err.endswith("expired; call again to restart\n")


EMPTY: dict[str, Any] = {"prompts": [], "resources": [], "resourceTemplates": []}


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        ({"inputSchema": []}, "a"),
        ({"inputSchema": {"properties": 3, "required": {}}}, "a"),
        ({"inputSchema": {"properties": {"x": 1}, "required": "x"}}, "a x?"),
        ({"inputSchema": {"properties": {"x": None}, "required": [[], "x"]}}, "a x"),
        ({"arguments": 3, "description": ["b"]}, "a\n      ['b']"),
        ({"arguments": [3, {"required": 1}]}, "a ?? ?"),
    ],
)
def test_items_with_invalid_fields_are_listed_by_their_valid_fields(
    entry: Any, line: str, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    channel = Scripted([{**EMPTY, "tools": [{"name": "a", **entry}]}] * 4)
    monkeypatch.setattr("effectmcp.cli.listing.channel_to", lambda *of: channel)
    assert main(["list", "server"]) == 0
    assert capsys.readouterr().out == f"tools\n  {line}\n"


def test_an_entry_without_a_name_is_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    channel = Scripted([{**EMPTY, "tools": [], "prompts": [{}]}] * 4)
    monkeypatch.setattr("effectmcp.cli.listing.channel_to", lambda *of: channel)
    assert main(["list", "server"]) == 0
    assert capsys.readouterr().out == "prompts\n  ?\n"


@pytest.mark.parametrize(
    "schema",
    [
        [],
        {"properties": []},
        {"properties": {"x": 1}},
        {"properties": {"x": {"anyOf": None}}},
        {"properties": {"x": {"type": {}, "anyOf": [[], {"type": ["null"]}]}}},
    ],
)
def test_a_tool_with_an_invalid_schema_can_be_called(
    schema: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = {"tools": [{"name": "tool", "inputSchema": schema}]}
    channel = Scripted([tools, {"content": []}])
    monkeypatch.setattr("effectmcp.cli.call.channel_to", lambda *of: channel)
    assert main(["call", "server", "tool", "x=1"]) == 0
    assert channel.sent[-1].message["params"]["arguments"] == {"x": 1}


def test_a_server_that_offers_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    channel = Scripted([{**EMPTY, "tools": []}] * 4)
    monkeypatch.setattr("effectmcp.cli.listing.channel_to", lambda *of: channel)
    assert main(["list", "server"]) == 0
    assert capsys.readouterr() == (
        "",
        "effectmcp: the server has no tools, prompts, resources or templates\n",
    )


def test_a_list_that_takes_too_long(
    monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    channel = Scripted([TimeoutError()])
    monkeypatch.setattr("effectmcp.cli.listing.channel_to", lambda *of: channel)
    assert main(["list", "server", "--timeout", "5"]) == ERROR
    assert capsys.readouterr().err == "effectmcp: it took too long\n"
    assert main(["list", "server", "--timeout", "nan"]) == 2


@pytest.mark.parametrize(
    ("type_", "suffix"),
    [
        ("image/png; quality=1", ".png"),
        ("IMAGE/PNG", ".png"),
        ("../../evil.sh", ".bin"),
        ("", ".bin"),
        (None, ".bin"),
    ],
)
def test_saved_files_are_named_by_the_client(
    type_: Any, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = [{"type": "image", "data": "aGk=", "mimeType": type_}]
    argv = ("--save-to", str(tmp_path))
    assert called(monkeypatch, {"content": content}, argv=argv)[0] == 0
    assert [one.name for one in tmp_path.iterdir()] == [f"result-1{suffix}"]


def test_folders_have_the_names_that_they_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = asking({"a": {"method": "roots/list"}})
    status, channel = called(
        monkeypatch, asked, {"content": []}, argv=("--root", ".", "--root", "/")
    )
    assert status == 0
    assert channel.sent[-1].message["params"]["inputResponses"]["a"] == {
        "roots": [
            {"uri": tmp_path.as_uri(), "name": tmp_path.name},
            {"uri": "file:///"},
        ]
    }


# ---- calls that become tasks ----

CHOSEN = ("--answer", "confirm-1=true", "--answer", 'elicit-1="red"')


def bind(*argv: str) -> int:
    return main(["call", str(SHELF), "bind", "copies=3", *argv])


def test_status_of_a_task_is_printed_in_lines(capsys: Output) -> None:
    assert bind(*CHOSEN) == 0
    printed = capsys.readouterr()
    assert printed.out == "3 in red (a task)\n"
    lines = printed.err.splitlines()
    assert lines.index("working") < lines.index("input required: it sews")
    assert "\r" not in printed.err


def test_questions_of_a_task_are_traced_as_rounds(capsys: Output) -> None:
    assert bind(*CHOSEN, "--trace") == 0
    said = capsys.readouterr().err
    assert "round 2: the task " in said
    assert '  elicit-1 → {"action": "accept", "content": {"value": "<text>"}}' in said
    assert said.endswith("round 3: done\n")


def test_question_of_a_task_without_an_answer_cancels_it(capsys: Output) -> None:
    assert bind(*CHOSEN[:2], "--raw") == 2
    said = capsys.readouterr().err
    assert "elicit-1 (value): 'Which color?'" in said
    assert '"method": "tasks/cancel"' in said


def test_user_who_declines_the_question_of_a_task(capsys: Output) -> None:
    argv = (*CHOSEN[:2], "--answer", 'elicit-1={"action": "decline"}')
    assert bind(*argv, "--raw") == DECLINED
    printed = capsys.readouterr()
    assert "declined" in printed.out
    assert "tasks/cancel" not in printed.err


@pytest.mark.parametrize("message", ["\x1b[2J\ngone", "x" * 10_000])
def test_status_message_of_any_kind_is_one_line(
    message: str, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    first = announced(statusMessage=message, pollIntervalMs=0)
    end = described("cancelled", statusMessage=message)
    status, _ = called(monkeypatch, first, end)
    assert status == ERROR
    shown, last = capsys.readouterr().err.splitlines()
    assert shown.startswith("working: ")
    assert len(shown) <= 500
    assert last.startswith("effectmcp: the task t was cancelled: ")
    assert last.isprintable()


# ---- at a terminal ----

pexpect: Any = pytest.importorskip("pexpect", reason="there is no pexpect")


def spawned(*argv: str, rows: int = 40, **environment: str) -> Any:
    return pexpect.spawn(
        sys.executable,
        ["-m", "effectmcp", *argv],
        cwd=str(ROOT),
        env={**os.environ, **environment, "TERM": "xterm", "BROWSER": "true"},
        encoding="utf-8",
        timeout=20,
        dimensions=(rows, 100),
    )


def ended(child: Any) -> tuple[int, str]:
    child.expect(pexpect.EOF)
    text: str = child.before
    child.close()
    return child.exitstatus, text


def test_a_conversation_in_the_terminal() -> None:
    child = spawned("call", BOOKSHOP, "order", "title=Dune")
    child.expect("Who is it for")
    child.send("Ann\r")
    child.expect("on which day")
    child.send("2026-13-01\r")
    child.expect("! Answer must be a date")
    child.send("\x7f" * 10 + "2026-12-01\r")
    child.expect("Order 'Dune' for Ann on 01 Dec")
    child.send("y")
    status, text = ended(child)
    assert status == 0
    assert "Ordered: receipt" in text


@pytest.mark.parametrize(("key", "said"), [("\x04", "declined"), ("\x1b", "dismissed")])
def test_keys_that_decline(key: str, said: str) -> None:
    child = spawned("call", BOOKSHOP, "order", "title=Dune")
    child.expect("Who is it for")
    child.send(key)
    status, text = ended(child)
    assert status == DECLINED
    assert said in text


def test_key_that_declines_sampling() -> None:
    child = spawned("call", EVERYTHING, "test_sampling", "prompt=Hello")
    child.expect("user: Hello")
    child.send("\x04")
    status, text = ended(child)
    assert status == DECLINED
    assert "sample-1 was declined, so the call has ended" in text


@pytest.mark.parametrize("loop", LOOPS)
def test_ctrl_c_ends_it_and_leaves_the_terminal_as_it_was(loop: str) -> None:
    child = spawned("call", BOOKSHOP, "order", "title=Dune", "--loop", loop)
    child.expect("Esc close")
    child.sendintr()
    status, _ = ended(child)
    assert status == 130


def test_status_of_a_task_is_one_line_that_changes() -> None:
    child = spawned("call", str(SHELF), "bind", "copies=3")
    child.expect("Bind 3 copies")
    child.send("y")
    child.expect(r"\r\x1b\[Kworking")
    child.expect(r"\r\x1b\[Kinput required: it sews")
    child.expect("Which color")
    child.send("red\r")
    child.expect(r"3 in red \(a task\)")
    assert ended(child)[0] == 0


def test_ctrl_c_cancels_a_task() -> None:
    child = spawned("call", str(SHELF), "bind", "copies=3", "--raw", *CHOSEN[:2])
    child.expect("Which color")
    child.send("slow\r")
    child.expect("working: it glues")
    child.sendintr()
    child.expect('"method": "tasks/cancel"')
    child.expect('< {"jsonrpc"')
    assert ended(child)[0] == 130


#: A shell that reports the echo of its terminal, and how its child process ended.
WATCHED = """
import os, signal, subprocess, sys, termios
def has_echo():
    return bool(termios.tcgetattr(0)[3] & termios.ECHO)
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
child = subprocess.Popen(sys.argv[1:], process_group=0)
os.tcsetpgrp(0, child.pid)
while True:
    _, status = os.waitpid(child.pid, os.WUNTRACED)
    os.tcsetpgrp(0, os.getpgrp())
    if not os.WIFSTOPPED(status):
        break
    print("stopped, echo", has_echo())
    sys.stdin.readline()
    os.tcsetpgrp(0, child.pid)
    os.kill(child.pid, signal.SIGCONT)
print("ended", os.waitstatus_to_exitcode(status), "echo", has_echo())
"""


def watched() -> tuple[Any, int]:
    """A call at its first question, under such a shell; and its process's number."""
    code = "import os; print('number', os.getpid(), flush=True);"
    code += "from effectmcp.cli import main; import sys; sys.exit(main())"
    called = [sys.executable, "-c", code, "call", BOOKSHOP, "order", "title=Dune"]
    child = pexpect.spawn(
        sys.executable,
        ["-c", WATCHED, *called],
        encoding="utf-8",
        timeout=20,
        dimensions=(40, 100),
    )
    child.expect(r"number (\d+)")
    number = int(child.match.group(1))
    child.expect("Esc close")
    return child, number


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGQUIT", "SIGINT"])
def test_a_signal_that_ends_it_leaves_the_terminal_as_it_was(name: str) -> None:
    child, number = watched()
    end = getattr(signal, name)
    os.kill(number, end)
    child.expect(r"ended (\S+) echo True")
    assert int(child.match.group(1)) == (130 if end == signal.SIGINT else -end)
    ended(child)


def test_ctrl_z_gives_the_terminal_back_and_asks_again_when_resumed() -> None:
    child, _ = watched()
    child.send("An")
    child.expect("An▏")
    child.send("\x1a")
    child.expect("stopped, echo True")
    child.send("\n")
    # From where the shell left the cursor, and not up into what it wrote.
    child.expect(r"\n\r\x1b\[JWho is it for")
    child.expect("An▏")
    child.expect("Esc close")
    child.send("n\r")
    child.expect("Deliver to Ann")
    child.sendintr()
    ended(child)


def test_a_resized_window_is_drawn_again() -> None:
    child, _ = watched()
    child.setwinsize(40, 50)
    child.expect("choose ·\r\r\nCtrl-D")
    child.sendintr()
    ended(child)


def test_an_answer_that_the_server_refuses_is_asked_again_with_the_reason(
    tmp_path: Path,
) -> None:
    file = tmp_path / "guests_refused.py"
    file.write_text(
        "from attrs import field, frozen\n"
        "from effectmcp import Elicit, Flow, Server\n"
        "app = Server('guests')\n"
        "def even(guest, attribute, value):\n"
        "    if value % 2:\n"
        "        raise ValueError('must be even')\n"
        "@frozen\n"
        "class Guest:\n"
        "    age: int = field(validator=even)\n"
        "@app.tool\n"
        "def greet() -> Flow[str]:\n"
        "    guest = yield from Elicit('How old?', Guest)\n"
        "    return f'{guest.age} years'\n"
    )
    child = spawned("call", str(file), "greet")
    child.expect("How old")
    child.send("3\r")
    child.expect("Your last answer did not fit:")
    child.expect("age: must be even")
    child.send("4\r")
    status, text = ended(child)
    assert (status, "4 years" in text) == (0, True)


def test_a_form_that_is_taller_than_the_terminal(tmp_path: Path) -> None:
    file = tmp_path / "tall_form.py"
    fields = "".join(f"    field_{n}: str = ''\n" for n in range(30))
    file.write_text(
        "from attrs import frozen\n"
        "from effectmcp import Elicit, Flow, Server\n"
        "app = Server('tall')\n"
        "@frozen\n"
        f"class Tall:\n{fields}"
        "@app.tool\n"
        "def fill() -> Flow[str]:\n"
        "    tall = yield from Elicit('Fill in', Tall)\n"
        "    return f'last: {tall.field_29}'\n"
    )
    child = spawned("call", str(file), "fill", rows=10)
    child.expect("Fill in")
    child.expect("more below")
    child.expect("Esc close")
    child.send("\x1b[A")  # around, to the last
    # Up by the height of the drawing and no more: all of it is on the screen.
    child.expect(r"\x1b\[9A\r\x1b\[J")
    child.expect("more above")
    child.expect(r"field_29[^\n]*▏")
    child.send("end\r")
    status, text = ended(child)
    assert (status, "last: end" in text) == (0, True)


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        number: int = sock.getsockname()[1]
    return number


def served(port: int, target: str = BOOKSHOP) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "effectmcp", "serve", target),
            *("--http", f"127.0.0.1:{port}"),
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if f":{port}" in line:
            break
    return process


@pytest.fixture
def killing() -> Iterator[list[subprocess.Popen[str]]]:
    running: list[subprocess.Popen[str]] = []
    yield running
    for process in running:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def test_a_server_may_be_killed_between_rounds(
    port: int, killing: list[subprocess.Popen[str]]
) -> None:
    killing.append(served(port))
    child = spawned("call", f"http://127.0.0.1:{port}/mcp", "order", "title=Dune")
    child.expect("Who is it for")
    killing[0].send_signal(signal.SIGKILL)
    killing[0].wait()
    killing.append(served(port))
    child.send("Ann\r")
    child.expect("on which day")
    child.send("2026-12-01\r")
    child.expect("Order 'Dune'")
    child.send("y")
    status, text = ended(child)
    assert (status, "Ordered: receipt" in text) == (0, True)


def test_server_may_be_killed_during_a_task(
    port: int, killing: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    file = tmp_path / "bindery.py"
    file.write_text(
        "from effectmcp import Detach, Elicit, Flow, Server\n"
        "from effectmcp.tasks import SqliteTasks\n"
        f"app = Server('bindery', tasks=SqliteTasks({str(tmp_path / 't.db')!r}))\n"
        "@app.tool\n"
        "def bind() -> Flow[str]:\n"
        "    yield from Detach(poll_interval=0.1)\n"
        "    color = yield from Elicit('Which color?', str)\n"
        "    return f'bound in {color}'\n"
    )
    killing.append(served(port, str(file)))
    child = spawned("call", f"http://127.0.0.1:{port}/mcp", "bind")
    child.expect("Which color")
    killing[0].send_signal(signal.SIGKILL)
    killing[0].wait()
    killing.append(served(port, str(file)))
    child.send("red\r")
    status, text = ended(child)
    assert (status, "bound in red" in text) == (0, True)


@pytest.mark.parametrize(
    "keys", ["\x1bOP", "\x1bb", "\x1b[3~", "\x1b[1;5C", "\x1b[200~"], ids=repr
)
def test_other_keys_do_nothing(keys: str) -> None:
    child = spawned("call", BOOKSHOP, "order", "title=Dune")
    child.expect("Esc close")
    child.send(keys)
    child.send("Ann\r")
    child.expect("Deliver to Ann on which day")
    child.sendintr()
    assert ended(child)[0] == 130


def test_pasted_text_does_not_answer_the_next_question(tmp_path: Path) -> None:
    file = tmp_path / "pasted_twice.py"
    file.write_text(
        "from effectmcp import Confirm, Elicit, Flow, Gather, Server\n"
        "app = Server('shop')\n"
        "@app.tool\n"
        "def both() -> Flow[str]:\n"
        "    name, sure = yield from Gather(\n"
        "        Elicit('Who?', str), Confirm('Delete all?')\n"
        "    )\n"
        "    return f'{name} {sure}'\n"
    )
    child = spawned("call", str(file), "both")
    child.expect("Esc close")
    child.send("Ann\nyes please\n")
    child.expect("✓ Who")
    child.expect("y / n")
    child.send("n")
    status, text = ended(child)
    assert (status, "Ann False" in text) == (0, True)
