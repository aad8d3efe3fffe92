"""Hard cases that the engine must survive: handlers, clients and servers that change."""

import datetime as dt
import itertools
import json
import os
import random
import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest

from effectmcp import (
    Accepted,
    Checkpoint,
    Confirm,
    Dismissed,
    DivergenceError,
    Elicit,
    Flow,
    Gather,
    IdempotencyKey,
    NondeterminismError,
    Now,
    Random,
    Step,
    UsageError,
    Uuid,
    Version,
)
from effectmcp.engine import RETRY, Asked, Done, Journal, Raised, Returned

from ..helpers import (
    FLOW_ID,
    UNCAPPED,
    WAYS,
    advance,
    keys,
    messages,
    returns,
    run,
    yes,
)

#: The policies that do not drop anything: a divergence is an error.
REFUSING = ("stop", "park", "strict")

Answer = Callable[[str], Any]


def echo(text: str) -> Accepted[Any]:
    """An answer that names its question."""
    return Accepted({"value": f"re: {text}"})


def round_of(
    handler: Callable[..., Any],
    journal: Journal | None = None,
    answers: Mapping[str, Any] | None = None,
    args: tuple[Any, ...] = (),
    **options: Any,
) -> tuple[Any, Journal]:
    """One round by retry: where it stopped, and the journal that goes out."""
    options.setdefault("rules", UNCAPPED)
    one = run(handler, *args, journal=journal, **options)
    stop = advance(one, one.start(answers))
    return stop, Journal.loads(one.suspend().dumps())


def answered(stop: Any, say: Answer = echo) -> dict[str, Any]:
    """An answer to each question of a round."""
    assert isinstance(stop, Asked), stop
    return {
        key: say(text) for key, text in zip(keys(stop), messages(stop), strict=True)
    }


def end_of(handler: Callable[..., Any]) -> tuple[Asked, Any]:
    """Return the first round's stop, and the stop after four changed questions."""
    first, journal = round_of(handler)
    stop = first
    while isinstance(stop, Asked):
        stop, journal = round_of(handler, journal, answered(stop))
    return first, stop


def line(handler: Callable[..., Any], offset: int) -> str:
    """`file:line` of the line `offset` below the `def` of `handler`."""
    return f"{__file__}:{handler.__code__.co_firstlineno + offset}"


# ---- questions in set order ---------------------------------------------------------

WORDS = ("ash", "birch", "cedar", "elm", "fir")


def in_set_order() -> Flow[dict[str, str]]:
    found = {}
    for word in set(WORDS):
        found[word] = yield from Elicit(word, str)
    return dict(sorted(found.items()))


def gathered_in_set_order() -> Flow[dict[str, str]]:
    words = list(set(WORDS))
    found = yield from Gather.each([Elicit(word, str) for word in words])
    return dict(sorted(zip(words, found, strict=True)))


def first_of_a_set() -> Flow[str]:
    name = yield from Elicit(next(iter(set(WORDS))), str)
    return name + (yield from Elicit("And then?", str))


def arguments_in_set_order() -> Flow[int]:
    total: int = yield from Step(count, set(WORDS))
    yield from Elicit("Enough?", str)
    return total


def count(words: set[str]) -> int:
    return len(words)


SET_HANDLERS: dict[str, Callable[..., Any]] = {
    "sequence": in_set_order,
    "gather": gathered_in_set_order,
    "first": first_of_a_set,
    "arguments": arguments_in_set_order,
}


def one_round(line: str) -> str:
    """Play the round in one input line of a subprocess; return the output line."""
    name, policy, text, answers = json.loads(line)
    try:
        stop, journal = round_of(
            SET_HANDLERS[name],
            Journal.loads(text),
            {key: Accepted(content) for key, content in answers.items()},
            rules=attrs.evolve(UNCAPPED, policy=policy),
        )
    except DivergenceError as exc:
        return json.dumps(["diverged", exc.verdict, exc.report.where])
    match stop:
        case Returned(value):
            return json.dumps(["returned", value])
        case Asked():
            asked = dict(zip(keys(stop), messages(stop), strict=True))
            return json.dumps(["asked", asked, journal.dumps().decode()])
        case _:
            return json.dumps(["raised", type(stop.error).__name__, str(stop.error)])


class Seeded:
    """Processes with different hash seeds; each can play any round."""

    def __init__(self, seeds: tuple[str, ...]) -> None:
        code = (
            "import sys\n"
            "from effectmcp_tests.engine import test_survive_determinism as it\n"
            "for line in sys.stdin: print(it.one_round(line), flush=True)"
        )
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-c", code],
                env={**os.environ, "PYTHONHASHSEED": seed},
                cwd=Path(__file__).parents[2],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for seed in seeds
        ]

    def __enter__(self) -> "Seeded":
        return self

    def __exit__(self, *exc_info: object) -> None:
        for process in self._processes:
            process.communicate()

    def play(self, name: str, policy: str = "salvage") -> tuple[Any, list[Any]]:
        """Play to the end, each round in another process: the end, and all askings."""
        text = Journal().dumps().decode()
        answers: dict[str, Any] = {}
        asked: list[Any] = []
        for process in itertools.islice(itertools.cycle(self._processes), 60):
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps([name, policy, text, answers]) + "\n")
            process.stdin.flush()
            match json.loads(process.stdout.readline()):
                case ["asked", questions, text]:
                    asked.append(questions)
                    answers = {
                        key: {"value": f"re: {q}"} for key, q in questions.items()
                    }
                case end:
                    return end, asked
        raise AssertionError("60 rounds, and no end")


@pytest.fixture(scope="module")
def seeded() -> Any:
    """Processes with three hash seeds."""
    with Seeded(("0", "1", "2")) as processes:
        yield processes


def test_hash_seeds_do_change_the_order(seeded: Seeded) -> None:
    """The three hash seeds of these tests give different orders, or they would test nothing."""
    code = f"print(list(set({WORDS!r})))"
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in "012"
    }
    assert len(said) > 1


def test_questions_in_set_order_under_three_hash_seeds(seeded: Seeded) -> None:
    """Questions in set order under three hash seeds: each answer stays with its question.

    One at a time, every server consistent in itself: either all goes well, or it is
    said that two versions are being served. Never a wrong answer.
    """
    end, asked = seeded.play("sequence")
    if end[0] == "returned":
        assert end[1] == {word: f"re: {word}" for word in WORDS}
    else:
        assert end[0] == "diverged"
    wires = [key for questions in asked for key in questions]
    assert len(wires) == len(set(wires))


def test_questions_in_set_order_in_a_gather(seeded: Seeded) -> None:
    """Questions in set order, in a Gather: the same, with all five out at once."""
    end, asked = seeded.play("gather")
    if end[0] == "returned":
        assert end[1] == {word: f"re: {word}" for word in WORDS}
    else:
        assert end[0] == "diverged"
    # A wire key never belongs to two questions.
    texts: dict[str, str] = {}
    for questions in asked:
        for key, text in questions.items():
            assert texts.setdefault(key, text) == text


def test_questions_in_set_order_without_salvage(seeded: Seeded) -> None:
    """Questions in set order, where nothing may be dropped: an error, never a mix-up."""
    for policy in REFUSING:
        end, _ = seeded.play("first", policy)
        # The only recorded question is asked about differently by another seed; while
        # it is merely out, its text may change under every policy.
        assert end[0] in ("diverged", "returned")
        if end[0] == "diverged":
            assert end[1] in (policy, "stop")
        else:
            assert end[1].endswith("re: And then?")


def test_arguments_in_set_order(seeded: Seeded) -> None:
    """A step given a set is the same step under every hash seed."""
    end, asked = seeded.play("arguments", "strict")
    assert end == ["returned", 5]
    assert len(asked) == 1


def test_gather_each_over_a_set() -> None:
    """`Gather.each` over a set is refused where it is written, with what to write."""
    with pytest.raises(UsageError, match=r"sorted\(") as info:
        Gather.each({Elicit("a?", str), Elicit("b?", str)})
    assert "order differs" in info.value.problem


# ---- clocks and ids in the text -----------------------------------------------------


def test_clock_in_the_text() -> None:
    """A clock in the message: an error with both messages that points at Now, Uuid, Random."""
    clock = itertools.count()

    def handler() -> Flow[str]:
        return (yield from Elicit(f"It is {next(clock)}. Who?", str))

    first, stop = end_of(handler)
    assert messages(first) == ["It is 0. Who?"]
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, NondeterminismError)
    for words in ("It is 4. Who?", "It is 5. Who?", "Now()", "Uuid()", "Random()"):
        assert words in stop.error.problem
    assert stop.error.where == line(handler, 1)


def test_id_in_the_text() -> None:
    """`id()` in the text: the same error."""
    kept = []

    def handler() -> Flow[str]:
        kept.append(object())
        return (yield from Elicit(f"Free {id(kept[-1])}?", str))

    _, stop = end_of(handler)
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, NondeterminismError)


def test_clock_in_the_text_performs_nothing() -> None:
    """The replay that finds it out is cold: it performs no step and asks nothing."""
    performed = []
    clock = itertools.count()

    def charge(n: int) -> int:
        performed.append(n)
        return n

    def handler() -> Flow[str]:
        yield from Step(charge, 1)
        return (yield from Elicit(f"It is {next(clock)}. Who?", str))

    _, stop = end_of(handler)
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, NondeterminismError)
    assert performed == [1]


def test_clock_in_the_text_ends_every_generator() -> None:
    """Their plain cleanup does not wait until the run is forgotten."""
    clock = itertools.count()
    begun, ended = [], []

    def handler() -> Flow[str]:
        minute = next(clock)
        begun.append(minute)
        try:
            return (yield from Elicit(f"It is {minute}. Who?", str))
        finally:
            ended.append(minute)

    one = run(handler)
    stop = one.start()
    while isinstance(stop, Asked):
        one = run(handler, journal=one.suspend())
        stop = one.start(answered(stop))
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, NondeterminismError)
    assert sorted(ended) == begun


def test_clock_in_the_text_of_a_question_without_answer() -> None:
    """A message that changed before an answer arrived is simply shown again."""
    clock = itertools.count()

    def handler() -> Flow[str]:
        return (yield from Elicit(f"It is {next(clock)}. Who?", str))

    first, journal = round_of(handler)
    second, _ = round_of(handler, journal)
    assert keys(first) == ["elicit-1"]
    assert keys(second) == ["elicit-1~2"]
    assert messages(second) == ["It is 1. Who?"]


def test_clock_in_the_text_by_the_minute() -> None:
    """A message that changes only between rounds: asked four times, then given up."""
    minute = 0

    def handler() -> Flow[str]:
        return (yield from Elicit(f"It is {minute}. Who?", str))

    stop, journal = round_of(handler)
    wires = keys(stop)
    for minute in range(1, 4):
        stop, journal = round_of(handler, journal, answered(stop))
        assert messages(stop) == [f"It is {minute}. Who?"]
        wires += keys(stop)
    assert wires == ["elicit-1", "elicit-1~2", "elicit-1~3", "elicit-1~4"]
    minute = 4
    with pytest.raises(DivergenceError) as info:
        round_of(handler, journal, answered(stop))
    assert info.value.verdict == "stop"
    assert info.value.report.cause == "versions"
    assert "two versions of the handler are being served" in str(info.value)
    assert info.value.report.text == "It is 4. Who?"
    assert info.value.report.where == line(handler, 1)


def test_recorded_clock_in_the_text() -> None:
    """`Now`, `Uuid` and `Random` in a message are the cure: it is the same in every round."""
    clock = itertools.count()

    def perform_anew(want: Any) -> Any:
        n = next(clock)
        match want.effect:
            case Now():
                return Done(dt.datetime(2026, 1, 1, 0, n, tzinfo=dt.UTC))
            case Random():
                return Done(n / 10)
            case _:
                return Done(uuid.UUID(int=n))

    def handler() -> Flow[str]:
        now, chance, one = (
            (yield from Now()),
            (yield from Random()),
            (yield from Uuid()),
        )
        return (yield from Elicit(f"{now:%M} {chance} {one.int}", str))

    one = run(handler)
    first = advance(one, one.start(), perform_anew)
    assert messages(first) == ["00 0.1 2"]
    again = run(handler, journal=one.suspend())
    assert advance(again, again.start(), perform_anew) == first


@pytest.mark.parametrize("state_rounds", [0, 1])
def test_no_clock_before_a_checkpoint(state_rounds: int) -> None:
    """An edit in a state-only round is not taken for nondeterminism: one change only."""

    def v1() -> Flow[Any]:
        for _ in range(state_rounds):
            yield from Checkpoint()
        for text in "abc":
            yield from Elicit(text, str)

    def v2() -> Flow[Any]:
        for _ in range(state_rounds):
            yield from Checkpoint()
        b = yield from Elicit("b", str)
        yield from Checkpoint()
        return b, (yield from Elicit("c", str))

    stop, journal = round_of(v1, rules=RETRY)
    while messages(stop) != ["c"]:
        stop, journal = round_of(v1, journal, answered(stop), rules=RETRY)
    stop, journal = round_of(v2, journal, rules=RETRY)
    assert stop == Asked(())
    stop, journal = round_of(v2, journal, rules=RETRY)
    assert messages(stop) == ["c"]
    assert round_of(v2, journal, answered(stop))[0] == Returned(("re: b", "re: c"))


def test_no_clock_in_otherwise() -> None:
    """`otherwise` is not fingerprinted, so a fresh object there is no nondeterminism."""

    def worded(text: str) -> Callable[[], Flow[Any]]:
        def handler() -> Flow[Any]:
            return (yield from Elicit(text, str, otherwise=object()))

        return handler

    stop, journal = round_of(worded("Who?"))
    stop, journal = round_of(worded("Who is it?"), journal, answered(stop))
    assert messages(stop) == ["Who is it?"]


def test_no_clock_in_a_form_class_made_in_each_round() -> None:
    """A form class made in the handler is the same form each time, by its fingerprint."""

    def worded(text: str) -> Callable[[], Flow[Any]]:
        def handler() -> Flow[Any]:
            @attrs.frozen
            class Guest:
                value: str

            return (yield from Elicit(text, Guest)).value

        return handler

    stop, journal = round_of(worded("Who?"))
    stop, journal = round_of(worded("Who is it?"), journal, answered(stop))
    assert messages(stop) == ["Who is it?"]
    end, _ = round_of(worded("Who is it?"), journal, answered(stop))
    assert end == Returned("re: Who is it?")


# ---- orders that mean nothing -------------------------------------------------------


def test_client_reordering_its_arguments_keys() -> None:
    """The client reordering its arguments' keys: the same flow, the same fingerprints."""

    def book(**order: Any) -> str:
        return json.dumps(order)

    def handler(**order: Any) -> Flow[Any]:
        yield from Step(book, **order)
        yield from Elicit(f"{order['title']} for {order['name']}?", str)
        return sorted(order)

    here = {"title": "Dune", "name": "Ann", "extras": {"a": 1, "b": 2}}
    there = {"extras": {"b": 2, "a": 1}, "name": "Ann", "title": "Dune"}
    strict = attrs.evolve(UNCAPPED, policy="strict")
    first, journal = round_of(handler, kwargs=here, rules=strict)
    stop, _ = round_of(handler, journal, answered(first), kwargs=there, rules=strict)
    assert stop == Returned(["extras", "name", "title"])


def test_client_reordering_its_answers_keys() -> None:
    """The order of an answer's keys, and of the answers, leaves no trace in the journal."""

    @attrs.frozen
    class Guest:
        name: str
        age: int

    def handler() -> Flow[Any]:
        yield from Gather(Elicit("Who?", Guest), Elicit("And?", Guest))
        yield from Confirm("Sure?")

    first, journal = round_of(handler)
    one, other = keys(first)
    ann = [("name", "Ann"), ("age", 7)]
    journals = {
        round_of(handler, journal, dict(answers))[1].dumps()
        for content in (dict(ann), dict(reversed(ann)))
        for pair in [[(one, Accepted(content)), (other, Accepted(content))]]
        for answers in (pair, pair[::-1])
    }
    assert len(journals) == 1


# ---- flags and globals --------------------------------------------------------------


@pytest.mark.parametrize("policy", ["salvage", *REFUSING])
def test_environment_flags_flipping_between_rounds(
    policy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Environment flags flipping between rounds: answers survive, or it is an error."""
    rules = attrs.evolve(UNCAPPED, policy=policy)

    def handler() -> Flow[list[str]]:
        found = []
        if os.environ.get("EFFECTMCP_TEST_FLAG"):
            found.append((yield from Elicit("flagged", str)))
        found.append((yield from Elicit("a", str)))
        found.append((yield from Elicit("b", str)))
        return found

    asked: list[str] = []

    def next_round(stop: Any, journal: Any) -> Any:
        answers = answered(stop) if stop else None
        stop, journal = round_of(handler, journal, answers, rules=rules)
        asked.extend(messages(stop) if isinstance(stop, Asked) else ())
        return stop, journal

    stop, journal = next_round(None, None)
    stop, journal = next_round(stop, journal)
    monkeypatch.setenv("EFFECTMCP_TEST_FLAG", "1")
    if policy != "salvage":
        with pytest.raises(DivergenceError) as info:
            next_round(stop, journal)
        assert info.value.verdict == policy
        assert info.value.report.where == line(handler, 3)
        assert "Usual causes" in str(info.value)
        return
    while not isinstance(stop, Returned):
        stop, journal = next_round(stop, journal)
    assert stop.value == ["re: flagged", "re: a", "re: b"]
    assert asked.count("a") == 1


flag = False


@pytest.mark.parametrize("policy", ["salvage", *REFUSING])
def test_globals_flipping_between_rounds(
    policy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Globals flipping over a performed step: a hard stop, and it is performed once."""
    performed = []

    def charge(n: int) -> int:
        performed.append(n)
        return n

    def handler() -> Flow[list[Any]]:
        found: list[Any] = []
        if flag:
            found.append((yield from Elicit("flagged", str)))
        found.append((yield from Step(charge, 10)))
        found.append((yield from Elicit("a", str)))
        return found

    stop, journal = round_of(handler)
    monkeypatch.setattr(sys.modules[__name__], "flag", True)
    with pytest.raises(DivergenceError) as info:
        round_of(
            handler,
            journal,
            answered(stop),
            rules=attrs.evolve(UNCAPPED, policy=policy),
        )
    assert info.value.verdict == ("stop" if policy == "salvage" else policy)
    assert performed == [10]


def test_shared_mutable_defaults() -> None:
    """A shared mutable default that grows from round to round: named as what it is."""

    def handler(seen: list[int] = []) -> Flow[str]:  # noqa: B006
        seen.append(len(seen))
        return (yield from Elicit(f"Call number {len(seen)}?", str))

    _, stop = end_of(handler)
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, NondeterminismError)
    assert "Call number 5?" in stop.error.problem
    assert "Call number 6?" in stop.error.problem


def test_shared_mutable_values_of_the_journal() -> None:
    """A handler that mutates a delivered value does not change any later delivery."""

    def load() -> dict[str, Any]:
        return {"lines": [1]}

    def handler() -> Flow[Any]:
        loaded = yield from Step(load)
        loaded["lines"].append(2)
        answer = yield from Elicit(
            "Who?",
            {"type": "object", "properties": {"name": {"type": "string"}}},
        )
        answer["name"] = "changed"
        return loaded

    def say(text: str) -> Accepted[Any]:
        return Accepted({"name": "Ann"})

    first, journal = round_of(handler)
    before = journal.dumps()
    for _ in range(2):
        stop, _after = round_of(handler, journal, answered(first, say))
        assert stop == Returned({"lines": [1, 2]})
    assert journal.dumps() == before


def test_global_random_seeded_elsewhere() -> None:
    """The global `random` seeded elsewhere changes nothing of the engine's, nor is it drawn."""

    def handler() -> Flow[Any]:
        key = yield from IdempotencyKey("charge")
        chance = yield from Random()
        name = yield from Elicit("Who?", str, key="who")
        return key, chance, name

    def play(seed: int) -> tuple[Any, bytes]:
        random.seed(seed)
        first, journal = round_of(handler)
        random.seed(seed + 1)
        stop, after = round_of(handler, journal, answered(first))
        return stop, journal.dumps() + after.dumps()

    state = random.getstate()
    try:
        assert play(1) == play(7)
        random.seed(3)
        expected = random.random()
        random.seed(3)
        round_of(handler)
        assert random.random() == expected
    finally:
        random.setstate(state)


def test_global_random_in_the_text() -> None:
    """The global `random` in the text is found out, however it was seeded."""

    def handler() -> Flow[str]:
        return (yield from Elicit(f"Is it {random.random()}?", str))

    _, stop = end_of(handler)
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, NondeterminismError)


# ---- golden journal -----------------------------------------------------------------

#: By format: the format that is written now, and the earlier formats.
GOLDEN = Path(__file__).parents[1] / "golden" / "journal-2.json"
GOLDENS = [GOLDEN, GOLDEN.with_name("journal-1.json")]


@attrs.frozen
class Parcel:
    """A form of the golden flow."""

    name: str
    count: int
    gift: bool = False


def weigh(name: str, count: int) -> dict[str, Any]:
    return {"grams": 250.5, "parcels": [name] * count}


def fail(why: str) -> str:
    raise ValueError(why)


def golden() -> Flow[Any]:
    """Something of everything that a journal can hold, short of a restart."""
    fee = yield from Version("fee", default=0, latest=1)
    now = yield from Now()
    ticket = yield from Uuid()
    chance = yield from Random()
    parcel = yield from Elicit("What?", Parcel, key="parcel")
    weight = yield from Step(weigh, parcel.name, parcel.count)
    try:
        yield from Step(fail, "no money")
    except ValueError as exc:
        failed = str(exc)
    else:
        raise AssertionError("the step fails")
    sure, (day, inner) = yield from Gather(
        Confirm("Sure?"),
        golden_branch(),
    )
    refused = yield from Confirm("And a receipt?", otherwise=False)
    last = yield from Elicit(f"Anything else at {now:%H:%M}?", str | None)
    return {
        "fee": fee,
        "ticket": str(ticket),
        "chance": chance,
        "parcel": attrs.asdict(parcel),
        "weight": weight,
        "failed": failed,
        "sure": sure,
        "day": day.isoformat(),
        "inner": inner,
        "refused": refused,
        "last": last,
        "key": (yield from IdempotencyKey("charge")),
    }


def golden_branch() -> Flow[Any]:
    day = yield from Elicit("Which day?", dt.date)
    (inner,) = yield from Gather(Elicit("Inner?", str, key="inner"))
    return day, inner


def golden_answer(question: Any) -> Any:
    if question.key == "parcel":
        return Accepted({"name": "zażółć", "count": 2.0, "unknown": 1})
    if getattr(question.effect, "message", "") == "And a receipt?":
        return Dismissed()
    return yes(question)


GOLDEN_RESULT = {
    "fee": 1,
    "ticket": "00000000-0000-0000-0000-000000000007",
    "chance": 0.25,
    "parcel": {"name": "zażółć", "count": 2, "gift": False},
    "weight": {"grams": 250.5, "parcels": ["zażółć", "zażółć"]},
    "failed": "no money",
    "sure": True,
    "day": "2026-07-28",
    "inner": "text",
    "refused": False,
    "last": None,
    "key": "b08d407304e3743250fb4ccbed1b46b0",
}


def write_golden() -> bytes:
    """The journal of the golden flow before its last answer; see `GOLDEN`."""
    journal = Journal()
    answers: dict[str, Any] = {}
    while True:
        stop, journal = round_of(golden, journal, answers)
        assert isinstance(stop, Asked)
        if messages(stop)[0].startswith("Anything else"):
            return journal.dumps()
        answers = {q.key: golden_answer(q) for q in stop.questions}


def test_golden_journal_is_written_so() -> None:
    """Two Python minors, and every later effectmcp, write this journal byte for byte."""
    assert write_golden() == GOLDEN.read_bytes()


@pytest.mark.parametrize("path", GOLDENS, ids=lambda path: path.stem)
def test_golden_journal_replays(path: Path) -> None:
    """The golden journal replays for ever: strictly, performing nothing, asking the same."""
    journal = Journal.loads(path.read_bytes())
    one = run(
        golden,
        journal=journal,
        rules=attrs.evolve(UNCAPPED, policy="strict"),
        flow_id=FLOW_ID,
    )
    stop = one.start()
    assert keys(stop) == ["elicit-1"]
    assert messages(stop) == ["Anything else at 12:30?"]
    one.suspend()
    one = run(golden, journal=journal, rules=attrs.evolve(RETRY, policy="strict"))
    stop = one.start({key: Accepted({}) for key in keys(stop)})
    assert stop == Returned(GOLDEN_RESULT)


def test_golden_flow_is_the_same_in_every_way() -> None:
    """The golden flow means the same however its answers arrive."""
    for way in WAYS.values():
        assert returns(way(golden, answer=golden_answer)) == GOLDEN_RESULT
