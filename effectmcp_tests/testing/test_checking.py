from __future__ import annotations

import functools
import logging
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from os import _exit
from pathlib import Path
from random import Random
from typing import Any, Final, Literal

import attrs
import pytest
from attrs import field, frozen
from attrs.validators import ge
from hypothesis import Phase, find, settings
from hypothesis import strategies as st

from effectmcp import (
    Accepted,
    Checkpoint,
    Confirm,
    Declined,
    Elicit,
    Flow,
    Gather,
    IdempotencyKey,
    Message,
    Now,
    Outcome,
    Restart,
    Sample,
    Server,
    StepFailed,
    ToolError,
    TooManyRounds,
    Unsupported,
    UsageError,
    step,
)
from effectmcp.compat import Context, awaits_effects
from effectmcp.testing import Checked, CheckError, Finding, check, conversation
from effectmcp.testing.conversations import RecordedPartner, run_conversation
from effectmcp.testing.drawn_conversations import Unsteady
from effectmcp.testing.endings import found_in
from effectmcp.testing.replay_workers import ReplayWorkers
from effectmcp.testing.subjects import subject_of
from effectmcp.testing.transcripts import AskedQuestion, Ending, Transcript

from .test_conversations import HEALTHY, Obliging, had, remembers

Handler = Callable[..., Any]

# ---- steps --------------------------------------------------------------------------


class CardError(Exception):
    """The bank said no."""


@frozen
class Receipt:
    number: int = field(validator=ge(0))


@step(raises=(CardError,))
def pay(amount: int) -> str:
    raise OSError("no test should get here")


@step
def receipt_of(name: str) -> Receipt:
    raise OSError("no test should get here")


@step
def hold(title: str, key: str) -> None:
    raise OSError("no test should get here")


# ---- handlers with something to find ------------------------------------------------


def crashes_on_a_refusal() -> Flow[str]:
    answer = yield from Elicit("Who?", str, otherwise=None)
    return answer.upper()  # type: ignore[union-attr]  # as it should not


def crashes_on_a_value(amount: int) -> Flow[str]:
    sure = yield from Confirm("Sure?", otherwise=False)
    return f"{100 // amount} {sure}"


def crashes_at_once(title: str) -> Flow[str]:
    if title:
        raise LookupError(title)
    return (yield from Elicit("Who?", str, otherwise=""))


def leaves() -> Flow[str]:
    yield from Confirm("Sure?", otherwise=False)
    raise SystemExit(3)


def grows() -> Flow[str]:
    texts = yield from Gather.each(
        Elicit(f"Text {n}?", str, otherwise="") for n in range(3)
    )
    many = "".join(map(str, range(60_000)))
    yield from Confirm("Sure?", otherwise=False)
    yield from hold(many, "key")
    yield from Elicit("And?", str, otherwise="")
    return "".join(texts)


@step
def fetch(title: str) -> str:
    raise OSError("no test should get here")


def carries() -> Flow[str]:
    yield from Elicit("Title?", str, otherwise="")
    page = yield from fetch("title")
    yield from Confirm("Sure?", otherwise=False)
    return page[:3]


def is_misused() -> Flow[str]:
    yield from Confirm("Sure?", otherwise=False)
    yield "an effect"  # type: ignore[misc]  # as it is not
    return "."


def asks_for_a_set() -> Flow[str]:
    yield from Confirm("Sure?", otherwise=False)
    return str((yield from Elicit("Which?", dict, otherwise=None)))


def breaks_its_promise(amount: int) -> Flow[int]:
    yield from Confirm("Sure?", otherwise=False)
    if amount > 3:
        return "many"  # type: ignore[return-value]  # as it should not
    return amount


def asks_too_often() -> Flow[str]:
    for n in range(12):
        yield from Elicit(f"Name {n}?", str, otherwise="")
    return "."


def pauses_too_often() -> Flow[str]:
    for _ in range(4):
        yield from Checkpoint()
    return (yield from Elicit("Who?", str, otherwise=""))


def forgets_an_effect() -> Flow[str]:
    name = yield from Elicit("Who?", str, otherwise="")
    pay(len(name))
    return name


_runs = 0
_counted = 0
_table: dict[str, int] = {}


def counts_its_runs() -> Flow[str]:
    global _runs
    _runs += 1
    name = yield from Elicit("Who?", str, otherwise="")
    if _runs % 2:
        yield from Confirm(f"{name}?", otherwise=False, key="odd")
    yield from Elicit("And?", str, otherwise="")
    return name


def counts_in_vain() -> Flow[str]:
    global _counted
    _counted += 1
    _table["runs"] = _counted
    return (yield from Elicit("Who?", str, otherwise=""))


def fills_a_default(
    found: list[str] = [],  # noqa: B006  # as it should not
) -> Flow[str]:
    found.append("a")
    return (yield from Elicit("Who?", str, otherwise=""))


def swallows_everything() -> Flow[str]:
    name = ""
    while not name:
        try:
            name = (yield from Elicit("Who?", str)) + "."
        except:  # noqa: E722  # as it should not
            continue
    return name


def swallows_in_the_end() -> Flow[str]:
    while True:
        try:
            return (yield from Elicit("Who?", str, otherwise=""))
        finally:
            continue  # noqa: B012  # as it should not


_changing: list[int] = []


def rewords() -> Flow[str]:
    """Ask another question in each run, without any answer between two runs."""
    _changing.append(1)
    return (yield from Elicit(f"Who, in run {len(_changing)}?", str, otherwise=""))


def depends_on_a_branch() -> Flow[str]:
    shared: dict[str, str] = {}

    def first() -> Flow[None]:
        shared["name"] = yield from Elicit("Name?", str, otherwise="")

    def second() -> Flow[str]:
        yield from Elicit("Dish?", str, otherwise="")
        who = "a name" if "name" in shared else "nobody"
        return (yield from Elicit(f"And {who}?", str, otherwise=""))

    _, dish = yield from Gather(first(), second())
    return dish


def depends_on_hashes() -> Flow[str]:
    taken = []
    for name in {"bread", "cheese", "grapes", "olives", "salad"}:
        if (yield from Confirm(f"Some {name}?", otherwise=False)):
            taken.append(name)
    return ", ".join(sorted(taken))


def reads_the_environment() -> Flow[str]:
    import os

    name = yield from Elicit("Who?", str, otherwise="")
    return f"{name} at {os.environ['PATH']}"


# ---- handlers with nothing to find --------------------------------------------------


def tells_the_model(amount: int) -> Flow[str]:
    if not (yield from Confirm("Sure?", otherwise=False)):
        raise ToolError("Not without you.")
    return str(amount)


def lets_a_step_fail() -> Flow[str]:
    if not (yield from Confirm("Sure?", otherwise=False)):
        return "."
    return (yield from pay(3))


def lets_a_refusal_pass() -> Flow[str]:
    return (yield from Elicit("Who?", str))


def handles_too_many_rounds() -> Flow[str]:
    try:
        for n in range(12):
            yield from Elicit(f"Name {n}?", str, otherwise="")
    except TooManyRounds:
        return "enough"
    return "all"


def pays_first() -> Flow[str]:
    receipt = yield from pay(3)
    kept = yield from Confirm(f"{receipt}?", otherwise=False)
    return f"{receipt} {kept}"


def pays_before_a_gate() -> Flow[str]:
    yield from Elicit("Who?", str, otherwise="")
    receipt = yield from receipt_of("a")
    drafted = yield from Sample("Write.")
    return f"{receipt.number} {drafted.text}"


def pays_between_two_questions() -> Flow[str]:
    name = yield from Elicit("Who?", str)
    receipt = yield from pay(len(name))
    return receipt + (yield from Elicit("Sure?", str))


def takes_a_receipt(title: str) -> Flow[str]:
    if not (yield from Confirm(f"{title}?", otherwise=False)):
        return "."
    found = yield from receipt_of(title)
    if found.number > 100:
        raise ValueError("many")
    return title


def begins_in_another_way(title: str) -> Flow[str]:
    if not (yield from Confirm(title, otherwise=False)):
        return "."
    return (yield from Restart(takes_a_receipt, title))


@awaits_effects
async def waits(title: str, ctx: Context) -> str:
    answer = await ctx.elicit(f"Who wants {title}?", str)
    key = await IdempotencyKey("pay")
    await ctx.info(key)
    receipt = await receipt_of(key)
    return f"{answer.data} {receipt.number} {await Now()}"


@awaits_effects
async def waits_in_vain() -> str:
    answer = await Elicit("Who?", str, otherwise=None)
    return answer.upper()  # type: ignore[union-attr]  # as it should not


# ---- servers ------------------------------------------------------------------------

app = Server("checked", version="1.0")


@app.tool
def tool(title: str) -> Flow[str]:
    match (yield from Outcome(Elicit(f"Who wants {title}?", str))):
        case Accepted(name):
            return name
        case _:
            return "nobody"


@app.tool
def plain(title: str) -> str:
    return title


@app.prompt
def prompt(title: str, count: int = 1) -> Flow[list[Message]]:
    name = yield from Elicit(f"{count} of {title} for whom?", str, otherwise="")
    return [Message(f"{title} for {name}")]


@app.resource("shop://menu")
def menu() -> Flow[str]:
    return "menu" if (yield from Confirm("Really?", otherwise=False)) else "no menu"


@app.resource("shop://books/{title}")
def book(title: str) -> Flow[dict[str, str]]:
    return {title: (yield from Elicit("Who reads?", str, otherwise=""))}


broken = Server("broken", version="1.0")
broken.tool(tool)


@broken.prompt
def broken_prompt() -> Flow[Any]:
    yield from Confirm("Really?", otherwise=False)
    return 3


@broken.resource("shop://broken/{title}")
def broken_book(title: str) -> Flow[str]:
    name = yield from Elicit("Who?", str, otherwise=None)
    return name.upper()  # type: ignore[union-attr]  # as it should not


# ---- helpers ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def one() -> Iterator[ReplayWorkers]:
    with ReplayWorkers(1) as running:
        yield running


def found(workers: ReplayWorkers, handler: Any, **options: Any) -> Finding:
    checked = check(
        handler, **{"conversations": 60, "workers": workers, **options}, raises=False
    )
    (finding,) = checked.findings
    return finding


def nothing(workers: ReplayWorkers, handler: Any, **options: Any) -> Checked:
    checked = check(
        handler, **{"conversations": 25, "workers": workers, **options}, raises=False
    )
    assert checked.findings == (), str(checked)
    return checked


def line(function: Any, offset: int = 0) -> str:
    code = function.__code__
    return f"{code.co_filename}:{code.co_firstlineno + offset}"


# ---- findings -----------------------------------------------------------------------

KINDS: Final = {
    crashes_on_a_refusal: ("crash", 2, "it raises AttributeError: 'NoneType' object"),
    crashes_on_a_value: ("crash", 2, "it raises ZeroDivisionError"),
    crashes_at_once: ("crash", 2, "it raises LookupError"),
    leaves: ("crash", 2, "it raises SystemExit: 3"),
    is_misused: ("misuse", 2, "'an effect'"),
    asks_for_a_set: ("misuse", 2, "dict"),
    breaks_its_promise: ("result", 3, "its result is not what it promised"),
    asks_too_often: ("rounds", 2, "it asks in more rounds than clients tolerate"),
    pauses_too_often: ("rounds", 2, "it asks in more rounds than clients tolerate"),
    forgets_an_effect: ("forgotten", 2, "it builds pay("),
    fills_a_default: (
        "default",
        1,
        "the default found of fills_a_default() was [] and",
    ),
    swallows_everything: (
        "swallows",
        5,
        "it continues to yield while it is being ended",
    ),
    swallows_in_the_end: (
        "swallows",
        3,
        "it continues to yield while it is being ended",
    ),
    depends_on_a_branch: ("timing", 9, "it wants Elicit(message='And a name?'"),
    depends_on_hashes: ("elsewhere", 3, "it does something else in another process"),
    reads_the_environment: ("unrecorded", 4, "os.environ is not recorded"),
}


@pytest.mark.parametrize("handler", KINDS, ids=lambda each: each.__name__)
def test_every_kind_of_finding(one: ReplayWorkers, handler: Handler) -> None:
    kind, offset, problem = KINDS[handler]
    finding = found(one, handler)
    assert finding.kind == kind
    assert finding.where == line(handler, offset)
    assert problem in finding.problem
    assert finding.subject == handler.__name__
    assert finding.transcript is not None
    assert f"{handler.__name__}: {finding.problem}" in str(finding)


def breaks_in_two_ways(amount: int) -> Flow[int]:
    yield from Confirm("Sure?", otherwise=False)
    if amount > 3:
        return "many"  # type: ignore[return-value]  # as it should not
    return 100 // amount


def test_of_several_findings_the_shortest_is_reported(one: ReplayWorkers) -> None:
    finding = found(one, breaks_in_two_ways)
    assert finding.kind in ("crash", "result")


def tells(name: str) -> Flow[None]:
    yield from Confirm(f"Shall I tell {name}?", otherwise=False)


def forgets_a_flow() -> Flow[str]:
    name = yield from Elicit("Who?", str, otherwise="")
    tells(name)
    return name


def forgets_a_flow_further_down() -> Flow[str]:
    return (yield from forgets_a_flow())


@pytest.mark.parametrize("handler", [forgets_a_flow, forgets_a_flow_further_down])
def test_a_flow_that_is_never_run(one: ReplayWorkers, handler: Handler) -> None:
    """A generator that is never started is silent: the source is read."""
    finding = found(one, handler, conversations=5)
    assert (finding.kind, finding.where) == ("forgotten", line(forgets_a_flow, 2))
    assert "tells(...)" in finding.problem


@attrs.define
class Unhashable:
    """An object that compares by its fields, and so has no hash."""

    name: str = "Ann"

    def __call__(self) -> Flow[str]:
        return (yield from Elicit(f"{self.name}?", str, otherwise=""))


def test_a_handler_without_a_hash(one: ReplayWorkers) -> None:
    nothing(one, Unhashable(), conversations=3)


def test_an_async_handler_that_crashes(one: ReplayWorkers) -> None:
    finding = found(one, waits_in_vain)
    inner: Any = waits_in_vain
    assert (finding.kind, finding.where) == ("crash", line(inner.__wrapped__, 3))


def test_a_state_that_is_too_large(one: ReplayWorkers) -> None:
    large = st.just("".join(map(str, range(60_000))))
    finding = found(one, carries, steps={fetch: large})
    assert finding.kind == "size"
    assert finding.where == line(carries, 2), "the step whose result is so large"
    assert "clients need not carry more than" in finding.problem


def test_a_handler_that_does_not_repeat_itself(one: ReplayWorkers) -> None:
    finding = found(one, counts_its_runs)
    assert finding.kind == "drifts"
    assert "Meanwhile the global _runs was" in finding.advice
    finding = found(one, rewords)
    assert finding.kind == "drifts"
    assert finding.where == line(rewords, 3)
    assert "Meanwhile the global _changing was [" in finding.advice


def test_a_repeated_request_with_two_outcomes(one: ReplayWorkers) -> None:
    """The end hangs on a list of the module's, so that no replay can show it."""
    seen: list[int] = []

    def handler() -> Flow[str]:
        seen.append(1)
        yield from Confirm("Sure?", otherwise=False)
        return str(len(seen))

    assert found(one, handler).kind == "drifts"


def test_a_replay_after_the_end(one: ReplayWorkers) -> None:
    """The handler repeats itself until it has returned once."""
    ended: list[str] = []

    def handler() -> Flow[str]:
        key = "later" if ended else "sooner"
        name = yield from Elicit("Who?", str, key=key, otherwise="")
        ended.append(name)
        return name

    finding = found(one, handler)
    assert (finding.kind, finding.where) == ("drifts", line(handler, 2))
    assert "no longer follows its journal" in finding.problem


_suspended: list[int] = []


def counts_its_rounds() -> Flow[str]:
    """Ask a second question, unless the end of a round was caught."""
    try:
        name = yield from Elicit("Who?", str, otherwise="")
    except BaseException:
        _suspended.append(1)
        raise
    if not _suspended:
        yield from Confirm("Live?", otherwise=False)
    _suspended.clear()
    return name


def test_a_handler_that_differs_with_a_kept_generator_drifts(
    one: ReplayWorkers,
) -> None:
    finding = found(one, counts_its_rounds)
    assert finding.kind == "drifts"
    assert "live: Confirm(message='Live?'" in finding.problem
    assert finding.where == line(counts_its_rounds, 8)


def test_the_finding_of_an_unsteady_handler() -> None:
    finding = found_in(
        Unsteady("this", "that", "a.py:3"),
        had(tells_the_model, amount=1),
        subject=subject_of(tells_the_model),
        changed={},
        returned_at=None,
    )
    assert finding is not None
    assert (finding.kind, finding.where) == ("drifts", "a.py:3")
    assert finding.problem.endswith(": first this, and then that, at a.py:3")


def test_the_shortest_conversation_is_reported(one: ReplayWorkers) -> None:
    finding = found(one, crashes_on_a_value)
    assert finding.transcript is not None
    assert finding.transcript.arguments == {"amount": 0}
    assert len(finding.transcript.rounds) == 2


def test_what_a_check_raises_reads_well(one: ReplayWorkers) -> None:
    with pytest.raises(CheckError) as caught:
        check(crashes_on_a_refusal, conversations=60, workers=one)
    assert isinstance(caught.value, AssertionError)
    lines = str(caught.value).splitlines()
    assert lines[-1].startswith("checked crashes_on_a_refusal: ")
    assert lines[:-1] == [
        (
            "crashes_on_a_refusal: it raises AttributeError: 'NoneType' object has no"
            " attribute 'upper'"
        ),
        f"  at {line(crashes_on_a_refusal, 2)}",
        (
            "  Clients learn only that it failed. Raise ToolError to tell them,"
            " or handle it."
        ),
        "  It shows in this conversation:",
        "    crashes_on_a_refusal()",
        "    round 1",
        "        Elicit(message='Who?', form=str) → declined",
        "    round 2",
        "    raised \"AttributeError: 'NoneType' object has no attribute 'upper'\"",
    ]


def test_a_finding_without_anything_else() -> None:
    assert str(Finding("a", "crash", "it crashes", None, "")) == "a: it crashes"
    assert str(Finding("a", "crash", "it crashes", "a.py:1", "Don't.")) == (
        "a: it crashes\n  at a.py:1\n  Don't."
    )


def test_long_conversations_are_cut(one: ReplayWorkers) -> None:
    finding = found(one, asks_too_often)
    assert finding.transcript is not None
    many = [*finding.transcript.rounds] * 4
    longer = attrs.evolve(
        finding, transcript=attrs.evolve(finding.transcript, rounds=tuple(many))
    )
    shown = str(longer).partition("It shows in this conversation:\n")[2].splitlines()
    assert len(shown) == 25
    (cut,) = [each for each in shown if each.startswith("    ... (")]
    assert cut.endswith(" more)")


# ---- no findings --------------------------------------------------------------------


@pytest.mark.parametrize(
    "handler",
    [
        *(tells_the_model, lets_a_step_fail, lets_a_refusal_pass),
        *(begins_in_another_way, functools.partial(tells_the_model, amount=3), waits),
    ],
)
def test_intended_failures_are_not_findings(
    one: ReplayWorkers, handler: Handler
) -> None:
    """A ToolError, a step that fails, a user who declines, with any `steps`."""
    below = st.builds(Receipt, st.integers(0, 100))
    nothing(one, handler, steps={receipt_of: below})


@pytest.mark.parametrize("handler", [each for each in HEALTHY if each is not remembers])
def test_healthy_handlers_are_left_alone(one: ReplayWorkers, handler: Handler) -> None:
    checked = nothing(one, handler, conversations=15)
    assert checked.subjects == (handler.__name__,)
    assert checked.conversations == 15


def test_handlers_with_a_state_of_their_own_are_left_alone(one: ReplayWorkers) -> None:
    nothing(one, remembers)


def test_a_failed_step_explains_only_its_own_exception(one: ReplayWorkers) -> None:
    def crashes() -> Flow[str]:
        try:
            yield from pay(3)
        except (CardError, OSError, RuntimeError, StepFailed) as error:
            raise KeyError("no receipt") from error
        return "."

    finding = found(one, crashes)
    assert (finding.kind, "KeyError" in finding.problem) == ("crash", True)


def test_warnings_and_logs_are_not_findings(
    one: ReplayWorkers, caplog: pytest.LogCaptureFixture
) -> None:
    def handler() -> Flow[str]:
        warnings.warn("old", DeprecationWarning, stacklevel=1)
        logging.getLogger(__name__).warning("what happens")
        return (yield from Elicit("Who?", str, otherwise=""))

    before = logging.root.manager.disable
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        nothing(one, handler, conversations=5)
    assert caplog.records == [], "nobody wants to read that a hundred times"
    assert logging.root.manager.disable == before


def test_rounds_wasted_by_clients_are_not_findings(one: ReplayWorkers) -> None:
    """Nine rounds are enough, but not for a client that leaves every answer out."""

    def handler() -> Flow[str]:
        for n in range(8):
            yield from Elicit(f"{n}?", str, otherwise="")
        return "."

    checked = nothing(one, handler, conversations=50)
    assert checked.notices == local_only("handler")


def local_only(name: str) -> tuple[str, ...]:
    return (
        (
            f"{name} was replayed in this process only: it is not an attribute of a module"
            " that can be imported"
        ),
    )


# ---- notices ------------------------------------------------------------------------


def test_a_step_before_the_first_question(one: ReplayWorkers) -> None:
    (notice,) = nothing(one, pays_first).notices
    assert notice == (
        f"pays_first: pay, at {line(pays_first, 1)}, is performed before the first"
        " question. A client that sends its first request again performs it again, and"
        " its IdempotencyKey is another one"
    )


def test_a_step_without_any_question(one: ReplayWorkers) -> None:
    def pays() -> Flow[str]:
        return (yield from pay(3))

    assert nothing(one, pays, conversations=5).notices == local_only("pays")


def test_a_step_before_a_question_that_not_every_client_takes(
    one: ReplayWorkers,
) -> None:
    receipt = {receipt_of: st.just(Receipt(3))}
    made = find(
        conversation(pays_before_a_gate, steps=receipt),
        lambda each: each.ending.error == Unsupported("Sample"),
        random=Random(7),
        settings=settings(phases=[Phase.generate], max_examples=500, database=None),
    )
    (notice,) = nothing(one, pays_before_a_gate, again=[made], conversations=1).notices
    assert notice == (
        f"pays_before_a_gate: receipt_of, at {line(pays_before_a_gate, 2)}, is"
        " performed for clients that cannot be asked the question after it."
        " Pass requires=(...) to refuse them first"
    )


def test_a_step_before_a_question_that_is_declined(one: ReplayWorkers) -> None:
    """By a client that lacks something else, which no handler asks for."""
    made = had(pays_between_two_questions, partner=Refusing())
    checked = nothing(one, pays_between_two_questions, conversations=1, again=[made])
    assert checked.notices == ()


class Refusing(Obliging):
    """A user who declines the second question, with a client that cannot sample."""

    lacks = frozenset({"Sample"})

    def __init__(self) -> None:
        super().__init__({"elicit-2": Declined()})


def test_rounds_that_are_counted(one: ReplayWorkers) -> None:
    (notice,) = nothing(one, handles_too_many_rounds).notices
    assert notice == (
        "handles_too_many_rounds can ask in more rounds than clients tolerate, and"
        " handles it"
    )


def test_a_global_that_changed_without_consequence(one: ReplayWorkers) -> None:
    notices = nothing(one, counts_in_vain, conversations=3).notices
    assert any("the global _counted was" in each for each in notices)
    assert any("the global _table was" in each for each in notices)
    assert all(
        each.endswith("The result did not change; in another process it is as it was")
        for each in notices
    )


def test_a_handler_that_cannot_be_found_elsewhere(one: ReplayWorkers) -> None:
    def local() -> Flow[str]:
        return (yield from Elicit("Who?", str, otherwise=""))

    assert nothing(one, local).notices == local_only("local")


def test_a_handler_whose_module_is_another_one_elsewhere(
    one: ReplayWorkers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "only_here.py"
    file.write_text(
        "from effectmcp import Elicit, Flow\n"
        "def asks() -> Flow[str]:\n"
        "    return (yield from Elicit('Who?', str, otherwise=''))\n"
    )
    import only_here  # type: ignore[import-not-found]

    file.write_text("raise OSError('not today')\n")
    try:
        (notice,) = nothing(one, only_here.asks, conversations=3).notices
    finally:
        del sys.modules["only_here"]
    assert notice == ("asks was replayed in this process only: OSError: not today")


def test_checked_handlers_are_reported(one: ReplayWorkers) -> None:
    checked = nothing(one, pays_first, conversations=7)
    first, second = str(checked).splitlines()
    assert first == "checked pays_first: 7 conversations"
    assert second.startswith("note: pays_first: pay, at ")
    assert str(Checked((), 0, (), ())) == "checked nothing: 0 conversations"


# ---- servers ------------------------------------------------------------------------


def test_all_of_a_server_is_checked(one: ReplayWorkers) -> None:
    checked = check(app, conversations=15, workers=one)
    assert checked.subjects == ("tool", "prompt", "shop://menu", "shop://books/{title}")
    assert checked.conversations == 60 - 15 + conversations_with_menu(one)
    assert checked.notices == ()


def conversations_with_menu(workers: ReplayWorkers) -> int:
    """There is not much that can happen, and Hypothesis notices."""
    return nothing(workers, app, only="shop://menu", conversations=15).conversations


def test_each_has_a_finding_of_its_own(one: ReplayWorkers) -> None:
    checked = check(broken, conversations=40, workers=one, raises=False)
    assert [(each.subject, each.kind) for each in checked.findings] == [
        ("broken_prompt", "result"),
        ("shop://broken/{title}", "crash"),
    ]
    assert checked.findings[0].where == line(broken_prompt, 3)
    assert checked.findings[1].where == line(broken_book, 3)


def test_only_some_of_a_server(one: ReplayWorkers) -> None:
    names = ["shop://menu", "tool"]
    checked = check(app, conversations=2, workers=one, only=iter(names))
    assert checked.subjects == ("shop://menu", "tool")
    assert check(app, conversations=2, workers=one, only="tool").subjects == ("tool",)
    assert check(app, workers=one, only=[]).subjects == ()


def test_only_refuses_unknown_names(one: ReplayWorkers) -> None:
    with pytest.raises(UsageError) as caught:
        check(app, workers=one, only=["tool", "plain", "other"])
    assert str(caught.value) == (
        "<Server 'checked'> has nothing that asks by the name of plain, other; there is"
        " tool, prompt, shop://menu, shop://books/{title}"
    )
    empty = Server("empty", version="1.0")
    with pytest.raises(UsageError, match="there is nothing at all"):
        check(empty, workers=one, only="tool")
    assert check(empty, workers=one).subjects == ()


def test_a_plain_function_is_refused() -> None:
    with pytest.raises(UsageError, match="yields no effects"):
        check(plain)


# ---- strategies ---------------------------------------------------------------------


def test_results_of_steps_from_given_strategies(one: ReplayWorkers) -> None:
    """A finding that depends on a result appears, and disappears."""
    below, above = st.integers(0, 100), st.integers(101, 200)
    for how in (receipt_of, receipt_of.fn):
        steps = {how: st.builds(Receipt, above)}
        assert found(one, takes_a_receipt, steps=steps).kind == "crash"
        nothing(one, takes_a_receipt, steps={how: st.builds(Receipt, below)})


def test_custom_arguments(one: ReplayWorkers) -> None:
    """Each of several handlers takes the arguments that it knows."""
    nothing(one, crashes_on_a_value, arguments={"amount": st.integers(1, 5)})
    check(app, conversations=2, workers=one, arguments={"title": st.just("Dune")})


@step
def is_done() -> int:
    raise OSError("no test should get here")


def waits_for_a_number() -> Flow[str]:
    if not (yield from Confirm("Begin?", otherwise=False)):
        return "."
    while (yield from is_done()) != 123_456:
        pass
    return "."


def test_a_loop_that_random_values_hardly_end(one: ReplayWorkers) -> None:
    steps = {is_done: st.just(123_456)}
    assert nothing(one, waits_for_a_number, steps=steps).notices == ()
    (notice, *_) = check(
        waits_for_a_number, conversations=10, workers=one, raises=False
    ).notices
    assert notice == (
        "waits_for_a_number: is_done() is performed in a loop that drawn values rarely"
        " end. Pass its results in steps="
    )


@frozen
class Code:
    text: str = field()

    @text.validator
    def _check(self, attribute: Any, value: str) -> None:
        if value != "A-113":
            raise ValueError("must be a code")


def takes_a_code() -> Flow[str]:
    return (yield from Elicit("Which code?", Code, otherwise=Code("A-113"))).text


def test_what_users_fill_in(one: ReplayWorkers) -> None:
    answers = {Code: st.just(Code("A-113"))}
    checked = nothing(one, takes_a_code, answers=answers)
    assert checked.notices == ()


def test_what_cannot_be_drawn(one: ReplayWorkers) -> None:
    finding = found(one, crashes_at_once, arguments={"title": st.nothing()})
    assert (finding.kind, finding.where) == ("undrawn", line(crashes_at_once))
    assert finding.transcript is None


def fails_in_two_ways(title: str) -> str:
    if title.startswith("0"):
        raise KeyError(title)
    if title:
        raise ValueError(title)
    return title


def test_a_strategy_that_fails_is_not_hidden(one: ReplayWorkers) -> None:
    strategy = st.text().map(fails_in_two_ways)
    with pytest.raises((KeyError, ValueError, ExceptionGroup)):
        check(tool, workers=one, arguments={"title": strategy}, raises=False)


# ---- again --------------------------------------------------------------------------


def test_conversations_that_failed_are_had_first(one: ReplayWorkers) -> None:
    """Saved conversations are tried once, if they still fail."""
    made = had(crashes_on_a_value, amount=0)
    finding = found(one, crashes_on_a_value, again=[made], conversations=0)
    assert finding.kind == "crash"
    assert finding.transcript is not None
    assert finding.transcript.arguments == {"amount": 0}
    checked = check(crashes_on_a_value, again=[made], workers=one, raises=False)
    assert checked.conversations == 1


def test_conversations_of_others_are_left_out(one: ReplayWorkers) -> None:
    made = had(crashes_on_a_value, amount=0)
    checked = nothing(one, lets_a_refusal_pass, again=[made], conversations=3)
    assert (checked.conversations, checked.notices) == (3, ())


def test_conversations_that_no_longer_fit(one: ReplayWorkers) -> None:
    made = attrs.evolve(had(crashes_on_a_value, amount=1), arguments={"amount": "a"})
    checked = nothing(
        one,
        crashes_on_a_value,
        again=iter([made]),
        conversations=3,
        arguments={"amount": st.just(1)},
    )
    (notice,) = checked.notices
    assert notice.startswith("a conversation that failed cannot be had again: ")


def test_a_handler_that_asks_other_questions_than_before(one: ReplayWorkers) -> None:
    """An old conversation ends at a question without a known answer: no finding."""
    old = attrs.evolve(had(lets_a_step_fail), target="tells_the_model")
    old = attrs.evolve(old, arguments={"amount": 3})
    other = attrs.evolve(had(pays_between_two_questions), target="lets_a_refusal_pass")
    unknown = attrs.evolve(
        other,
        rounds=(
            attrs.evolve(
                other.rounds[0],
                asked=(AskedQuestion("other", "Other?", None, Declined()),),
            ),
        ),
    )
    nothing(one, tells_the_model, again=[old], conversations=3)
    nothing(one, lets_a_refusal_pass, again=[unknown], conversations=3)


def test_conversations_of_other_flows(one: ReplayWorkers) -> None:
    """A recorded one has an id of its own, with which all is fingerprinted."""
    made = had(pays_between_two_questions)
    other = run_conversation(
        subject_of(pays_between_two_questions),
        {},
        Obliging(),
        flow_id=b"another flow's id",
    )
    assert made.ending == other.ending
    nothing(one, pays_between_two_questions, again=[other], conversations=1)


def test_early_answers_are_given_again(one: ReplayWorkers) -> None:
    def asks() -> Flow[str]:
        name = yield from Elicit("Who?", str, key="who", otherwise="")
        if name == "Ann":
            raise LookupError(name)
        return name

    early = (AskedQuestion("who", "Who?", None, Accepted({"value": "Ann"})),)
    made = attrs.evolve(had(asks), early=early)
    finding = found(one, asks, again=[made], conversations=1)
    assert finding.transcript is not None
    assert finding.transcript.early == early


def test_what_was_found_is_had_in_the_same_way(one: ReplayWorkers) -> None:
    finding = found(one, crashes_on_a_refusal)
    assert finding.transcript is not None
    read = Transcript.loads(finding.transcript.dumps())
    once_more = found(one, crashes_on_a_refusal, again=[read], conversations=0)
    assert once_more.transcript == finding.transcript


# ---- processes ----------------------------------------------------------------------


def test_processes_of_its_own_are_ended() -> None:
    checked = check(lets_a_refusal_pass, conversations=2, workers=1)
    assert (checked.conversations, checked.notices) == (2, ())


def ends_its_process() -> Flow[str]:
    """But only where it is replayed."""
    yield from Confirm("Sure?", otherwise=False)
    if "effectmcp.testing.replay_workers" in sys.orig_argv:
        sys.stdout.flush()
        _exit(7)
    return "."


def test_a_process_that_ends_is_reported() -> None:
    checked = check(ends_its_process, conversations=2, workers=1, raises=False)
    assert "ended with 7" in str(checked)


def test_no_processes_at_all() -> None:
    checked = check(lets_a_refusal_pass, conversations=2, workers=0)
    assert checked.conversations == 2


def test_an_ending_of_a_file_has_no_error() -> None:
    assert Ending("raised", "KeyError: 'a'").error is None
    assert isinstance(RecordedPartner(had(lets_a_refusal_pass)).lacks, frozenset)


# ---- a yes and a no ----


@step
def delete(name: str) -> None:
    raise OSError("no test should get here")


def forgets_to_return(name: str) -> Flow[str]:
    sure = yield from Confirm(f"Delete {name}?")
    if not sure:
        "Nothing was deleted."  # as it should not
    yield from delete(name)
    return "."


def wraps_one_book(title: str) -> Flow[str]:
    """The code behind the answer is hardly ever reached."""
    if (yield from Confirm("Wrap it?")):
        if title == "Dune":
            return "wrapped"
    return "."


def wraps_one_book_in_a_line(title: str) -> Flow[str]:
    wrap = yield from Confirm("Wrap it?")
    return "wrapped" if wrap and title == "Dune" else "."


def test_a_yes_and_a_no_that_lead_to_the_same(one: ReplayWorkers) -> None:
    finding = found(one, forgets_to_return)
    assert (finding.kind, finding.where) == ("unused", line(forgets_to_return, 1))
    assert finding.problem == (
        "a yes and a no lead to the same steps and to the same result:"
        " Confirm(message='Delete ?')"
    )


@pytest.mark.parametrize("handler", [wraps_one_book, wraps_one_book_in_a_line])
def test_a_yes_and_a_no_that_may_differ(one: ReplayWorkers, handler: Handler) -> None:
    (notice,) = nothing(one, handler, conversations=40).notices
    assert (
        f"a yes and a no at {line(handler, 2 - (handler is not wraps_one_book))} led"
        in notice
    )
    arguments = {"title": st.sampled_from(["Dune", "Emma"])}
    assert nothing(one, handler, arguments=arguments).notices == ()


# ---- clocks without a time ----


def asks_for_the_year() -> Flow[str]:
    yield from Confirm(f"Still {time.strftime('%Y-%m-%d')}?")
    return "yes"


def test_a_clock_that_is_not_known_by_its_call_differs_elsewhere(
    one: ReplayWorkers,
) -> None:
    finding = found(one, asks_for_the_year)
    assert finding.kind == "elsewhere"


# ---- answers that are changed ----


def sorts_what_was_answered() -> Flow[str]:
    toppings = yield from Elicit("With?", list[Literal["ham", "egg"]])
    toppings.sort()
    toppings.append("egg")
    return "yes" if (yield from Confirm(f"{toppings}?")) else "no"


def test_an_answer_that_is_changed_is_noticed(one: ReplayWorkers) -> None:
    notices = nothing(one, sorts_what_was_answered).notices
    where = line(sorts_what_was_answered, 1)
    assert [text for text in notices if f"the answer at {where}" in text]
