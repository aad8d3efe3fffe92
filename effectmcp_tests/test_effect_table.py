"""Every effect is declared everywhere: a part that is forgotten is named here."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import find

import effectmcp
from effectmcp import (
    Accepted,
    Caller,
    Checkpoint,
    ClientSupports,
    Confirm,
    Detach,
    Effect,
    Elicit,
    ElicitUrl,
    FirstOf,
    Flow,
    Gather,
    IdempotencyKey,
    InputRequest,
    ListRoots,
    Log,
    Now,
    Outcome,
    Progress,
    Random,
    Restart,
    Sample,
    Sleep,
    Status,
    Step,
    Uuid,
    Version,
    Within,
    effects,
)
from effectmcp.drivers.local import at_once
from effectmcp.engine.kinds import KINDS, Wave
from effectmcp.engine.stops import Question
from effectmcp.exchange import handshakes
from effectmcp.exchange.answers import ANSWERS
from effectmcp.protocol.methods import METHODS
from effectmcp.protocol.modern import lacking_of, request_of
from effectmcp.state import codec
from effectmcp.testing import idempotency_keys
from effectmcp.testing.chance import Chance
from effectmcp.testing.strategies import answers_for
from effectmcp.testing.values import content_of


def handler() -> Flow[str]:
    yield from Checkpoint()
    return "done"


def step() -> str:
    return "done"


#: One of each effect. Add yours here first: the tests below name what else it needs.
SAMPLES: dict[type[Effect[Any]], Effect[Any]] = {
    type(one): one
    for one in (
        Elicit("Who?", str),
        Confirm("Sure?"),
        ElicitUrl("Sign in", "https://shop.example"),
        Sample("Write."),
        ListRoots(),
        Gather(),
        Step(step),
        Within(5, Step(step)),
        FirstOf(Step(step)),
        Now(),
        Uuid(),
        Random(),
        Caller(),
        ClientSupports(Elicit),
        Checkpoint(),
        Detach(),
        Sleep(1),
        Restart(handler),
        IdempotencyKey("charge"),
        Version("fee", default=0, latest=1),
        Progress(1, 2),
        Log("info", "hello"),
        Status("working"),
    )
}
KNOWN = [pytest.param(one, id=one.__name__) for one in SAMPLES]
QUESTIONS = [
    pytest.param(one, id=type(one).__name__)
    for one in SAMPLES.values()
    if isinstance(one, InputRequest)
]
LOCAL = [
    pytest.param(one, id=type(one).__name__)
    for one in SAMPLES.values()
    if type(one) in KINDS and KINDS[type(one)].wave is Wave.LOCAL
]
#: The engine gives the outcome of these itself.
BY_ENGINE = (Restart, ClientSupports, Checkpoint)
#: Drivers and exchange perform these: each in its own way.
BY_DRIVERS = (Step, Within, FirstOf, Sleep, Caller)

DOCS = Path(__file__).parent.parent / "docs"


def classes() -> list[type[Effect[Any]]]:
    """The effects that a handler can yield."""
    abstract = (Effect, InputRequest, Outcome)
    return [
        one
        for _, one in inspect.getmembers(effects, inspect.isclass)
        if issubclass(one, Effect) and one not in abstract
    ]


@pytest.mark.parametrize("class_", classes(), ids=lambda one: one.__name__)
def test_effect_has_a_sample_and_a_row(class_: type[Effect[Any]]) -> None:
    assert class_ in SAMPLES, "add it to SAMPLES"
    assert class_ in KINDS, "add its row to engine/kinds.py"


@pytest.mark.parametrize("class_", KNOWN)
def test_effect_is_public_and_documented(class_: type[Effect[Any]]) -> None:
    name = class_.__name__
    assert name in effectmcp.__all__, "export it from effectmcp"
    text = (DOCS / "effects.md").read_text()
    assert re.search(rf"\b{name}\b", text), "describe it in docs/effects.md"


@pytest.mark.parametrize("class_", KNOWN)
def test_effect_with_entries_has_a_number_in_states(class_: type[Effect[Any]]) -> None:
    row = KINDS[class_]
    is_numbered = row.name in codec.KINDS
    assert is_numbered is (row.wave is not Wave.INLINE), "see KINDS in state/codec.py"


@pytest.mark.parametrize("effect", LOCAL)
def test_local_effect_is_performed(effect: Effect[Any]) -> None:
    if isinstance(effect, (*BY_ENGINE, *BY_DRIVERS)):
        return
    assert at_once(effect) is not None, "perform it in drivers/local.py"


@pytest.mark.parametrize("effect", LOCAL)
def test_local_effect_has_an_outcome_in_tests(effect: Effect[Any]) -> None:
    if isinstance(effect, (*BY_ENGINE, Step, Within, FirstOf)):
        return  # a test gives these, or the engine does
    assert Chance().outcome(effect) is not None, "give one in testing/chance.py"


@pytest.mark.parametrize("effect", QUESTIONS)
def test_question_is_on_the_wire(effect: InputRequest[Any]) -> None:
    asked = request_of(Question("key", effect))
    assert "/" in asked["method"]
    assert lacking_of(effect, {}), "name its capability in protocol/modern.py"


@pytest.mark.parametrize("effect", QUESTIONS)
def test_question_is_answered_by_the_kit(effect: InputRequest[Any]) -> None:
    drawn = find(answers_for(effect), lambda answer: True)
    assert isinstance(drawn, Accepted)
    kind = KINDS[type(effect)]
    assert kind.write(effect, drawn.value), "draw what fits in testing/strategies.py"
    values: dict[type, Any] = {
        Sample: "text",
        ListRoots: [],
        Elicit: "Ann",
        ElicitUrl: None,
    }
    content_of(effect, values.get(type(effect), True))


@pytest.mark.parametrize("effect", LOCAL)
def test_drawn_value_is_known_to_the_check_of_keys(effect: Effect[Any]) -> None:
    """An idempotency key must not depend on a value that each round draws."""
    if KINDS[type(effect)].tag == "chance":
        assert isinstance(effect, idempotency_keys._LOCAL), (
            "add it in testing/idempotency_keys.py"
        )


@pytest.mark.parametrize("name", METHODS)
def test_method_has_a_function(name: str) -> None:
    is_answered = name in ANSWERS or name in handshakes._OWN
    assert is_answered, "add its function to exchange/answers.py"
