"""A whole server under many clients: a state machine for Hypothesis.

    TestShop = machine_for(app).TestCase

Clients start calls and answer; they return to older states and answer otherwise; they
send each other's states; they change, cut and forge states; they come too late.
Meanwhile keys are rotated. For each state the machine knows whether the server must
accept it, so it notices states that are wrongly refused as well as states that are
wrongly accepted.

It drives `exchange.handle` with its own clock, and performs no step.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

import attrs
from attrs import frozen
from hypothesis import reject
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from ..canonical import JSON
from ..engine.generators import GRAVEYARD
from ..errors import StateError, UsageError
from ..exchange.commands import Notify, PerformAll, Reply, peer_of
from ..exchange.handle import handle
from ..protocol.meta import CLIENT_CAPABILITIES
from ..protocol.revisions import PROTOCOL_VERSION, VERSIONS
from ..server.features import Prompt, ResourceTemplate
from ..state.keys import Keys, make_key
from .drawn_conversations import DrawnPartner, Options
from .strategies import arguments_of, contents_for, roots, sampled
from .subjects import Subject, subjects_of

if TYPE_CHECKING:
    from ..engine.stops import Done, Failure
    from ..server.app import Server

__all__ = ["ServerMachine", "machine_for"]

_ALL: Final[Mapping[str, JSON]] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}},
    "roots": {},
}
_USERS: Final = st.sampled_from([None, "ann", "bob"])
#: Some are longer than the life of a state, and some are just shorter.
_WAITS: Final = st.sampled_from([1, 60, 3_500, 3_700, 40_000])


@frozen(eq=False)
class _CallParts:
    """The parts of a call that every round repeats."""

    subject: Subject
    params: Mapping[str, JSON]
    user: str | None
    begun: int

    @property
    def binds(self) -> tuple[str, JSON, str | None]:
        """The parts of the call that its states are bound to."""
        return self.subject.method, dict(self.params), self.user


@frozen(eq=False)
class _State:
    """A state that a client has, and the facts that decide whether it is accepted."""

    call: _CallParts
    token: str
    questions: Mapping[str, Any]
    sealed: int
    key: str


def _new_key() -> str:
    return make_key(os.urandom(32))


class ServerMachine(RuleBasedStateMachine):
    """The state machine of this module; `machine_for` makes one for a server.

    Attributes:
        app: The server. Its keys are replaced.
        steps: Strategies for the results of steps, by function.
        arguments: Strategies for arguments, by name.
    """

    app: Server
    steps: Mapping[Any, st.SearchStrategy[Any]] = {}
    arguments: Mapping[str, st.SearchStrategy[Any]] = {}

    states = Bundle("states")

    def __init__(self) -> None:
        super().__init__()
        self._subjects = _subjects(self.app)
        if not self._subjects:
            raise UsageError(f"{self.app!r} has nothing that asks")
        self._buried = GRAVEYARD.buried
        #: The keys; there is always at least one.
        self._ring = [_new_key()]
        self._now = 1_800_000_000

    @initialize()
    def open(self) -> None:
        """Serve under a first key."""
        self.app.keys = Keys(*self._ring)

    # ---- honest clients ----

    @rule(target=states, data=st.data(), user=_USERS)
    def begin(self, data: st.DataObject, user: str | None) -> Any:
        """Start a call, as an honest client."""
        subject = data.draw(st.sampled_from(self._subjects), "handler")
        arguments = data.draw(_arguments(self.arguments, subject), "arguments")
        params = _params(subject, arguments)
        call = _CallParts(subject, params, user, self._now)
        return self._went(call, self._send(call, data))

    @rule(target=states, state=states, data=st.data())
    def answer(self, state: _State, data: st.DataObject) -> Any:
        """Answer with the newest state of a call, or with an older state again."""
        reply = self._send(state.call, data, state, data.draw(_answers(state)))
        if not self._must_take(state):
            return self._is_refused(reply)
        return self._went(state.call, reply)

    # ---- others ----

    @rule(mine=states, theirs=states, data=st.data())
    def swap(self, mine: _State, theirs: _State, data: st.DataObject) -> None:
        """Send the state of one call with a request of another call."""
        reply = self._send(mine.call, data, theirs, data.draw(_answers(theirs)))
        if mine.call.binds != theirs.call.binds or not self._must_take(theirs):
            self._is_refused(reply)

    @rule(state=states, data=st.data())
    def forge(self, state: _State, data: st.DataObject) -> None:
        """Change a state, cut it, or add to it."""
        token = state.token
        at = data.draw(st.integers(0, len(token) - 1), "at")
        other = data.draw(st.sampled_from("AQgw-_.=Zz09é "), "instead")
        how = data.draw(st.sampled_from(["change", "cut", "add", "drop"]), "how")
        forged = {
            "change": token[:at] + other + token[at + 1 :],
            "cut": token[:at],
            "add": token[:at] + other + token[at:],
            "drop": token[:at] + token[at + 1 :],
        }[how]
        if forged == token:
            return
        reply = self._send(state.call, data, attrs.evolve(state, token=forged), {})
        self._is_refused(reply)

    @rule(text=st.text(max_size=40) | st.sampled_from(["", "1e", "1e.", "1r.AA"]))
    def make_up(self, text: str) -> None:
        """Make a state up."""
        call = _CallParts(self._subjects[0], {}, None, self._now)
        params = {**_params(call.subject, {}), "requestState": text}
        reply = self._exchange(call, params, None)
        message: Any = reply.message
        # The arguments may not fit either; the text must not be accepted as a state.
        result = message.get("result", {})
        assert result.get("resultType") != "input_required", message

    # ---- the world ----

    @rule(seconds=_WAITS)
    def wait(self, seconds: int) -> None:
        """Advance the clock."""
        self._now += seconds

    @precondition(lambda self: len(self._ring) < 4)
    @rule()
    def rotate(self) -> None:
        """Add a new key, which seals all later states."""
        self._ring.append(_new_key())
        self.app.keys = Keys(*self._ring)

    @precondition(lambda self: len(self._ring) > 1)
    @rule()
    def retire(self) -> None:
        """Remove the oldest key."""
        del self._ring[0]
        self.app.keys = Keys(*self._ring)

    @rule(state=consumes(states))
    def leave(self, state: _State) -> None:
        """Drop a state: its client never returns."""

    @invariant()
    def nothing_is_left(self) -> None:
        """Check that no generator is alive between two requests."""
        assert GRAVEYARD.buried == self._buried, "a handler cannot be ended"

    # ---- how ----

    def _must_take(self, state: _State) -> bool:
        sealer = self.app.sealer
        assert sealer is not None
        age, life = self._now - state.sealed, self._now - state.call.begun
        return (
            state.key in self._ring
            and age <= sealer.ttl + sealer.leeway
            and life <= sealer.life + sealer.leeway
        )

    def _send(
        self,
        call: _CallParts,
        data: st.DataObject,
        state: _State | None = None,
        answers: Mapping[str, JSON] | None = None,
    ) -> Reply:
        params = dict(call.params)
        if state is not None:
            params["requestState"] = state.token
            params["inputResponses"] = dict(answers or {})
        return self._exchange(call, params, data)

    def _exchange(
        self, call: _CallParts, params: Mapping[str, JSON], data: st.DataObject | None
    ) -> Reply:
        meta = {PROTOCOL_VERSION: VERSIONS[0], CLIENT_CAPABILITIES: dict(_ALL)}
        message = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": call.subject.method,
            "params": {**params, "_meta": meta},
        }
        exchange = handle(
            self.app,
            message,
            peer_of(call.user),
            clock=lambda: float(self._now),
            entropy=os.urandom,
        )
        try:
            command = next(exchange)
            while True:
                command = exchange.send(self._outcome(call, command, data))
        except StopIteration as end:
            reply: Reply = end.value
            return reply
        finally:
            exchange.close()

    def _outcome(
        self, call: _CallParts, command: Any, data: st.DataObject | None
    ) -> Any:
        match command:
            case PerformAll(wants):
                assert data is not None, "performed without a draw"
                options = Options(steps=self.steps)
                world = DrawnPartner(data.draw, call.subject, options)
                found: dict[str, Done | Failure] = {
                    want.key: world.perform(want.key, want) for want in wants
                }
                return found
            case Notify():
                return None
            case _:
                raise UsageError(f"only handlers that ask are tested, not {command}")

    def _went(self, call: _CallParts, reply: Reply) -> Any:
        """Return the next state after an honest request, or nothing at the end."""
        message: Any = reply.message
        if "error" in message:
            error = message["error"]
            assert error["message"] != StateError.PUBLIC, (
                f"an honest state was refused: {call.subject.name}"
            )
            return multiple()
        result = message["result"]
        if result["resultType"] != "input_required":
            return multiple()
        return _State(
            call,
            result["requestState"],
            result["inputRequests"],
            self._now,
            self._ring[-1],
        )

    def _is_refused(self, reply: Reply) -> Any:
        message: Any = reply.message
        error = message.get("error")
        assert error is not None, f"a state was taken that should not be: {message}"
        assert (error["code"], error["message"]) == (StateError.CODE, StateError.PUBLIC)
        assert "data" not in error, "a refusal tells why"
        return multiple()


# A test makes hundreds of machines, and strategies take long to make.
@lru_cache(maxsize=8)
def _subjects(app: Server) -> list[Subject]:
    return list(subjects_of(app))


_ARGUMENTS: Final[WeakKeyDictionary[Subject, st.SearchStrategy[Any]]] = (
    WeakKeyDictionary()
)


def _arguments(
    given: Mapping[str, st.SearchStrategy[Any]], subject: Subject
) -> st.SearchStrategy[Any]:
    known = _ARGUMENTS.get(subject)
    if known is None:
        takes = subject.feature.handler.takes
        names = takes.schema.get("properties", {})
        fitting = {name: one for name, one in given.items() if name in names}
        known = _ARGUMENTS[subject] = arguments_of(takes, fitting)
    return known


def _params(subject: Subject, arguments: Mapping[str, JSON]) -> dict[str, JSON]:
    feature = subject.feature
    if isinstance(feature, ResourceTemplate):
        texts = {name: _text(value) for name, value in arguments.items()}
        try:
            return {"uri": feature.template.expand(texts)}
        except ValueError:
            reject()  # no URI can contain these values
    if subject.method == "resources/read":
        return {"uri": subject.target}
    if isinstance(feature, Prompt):
        arguments = {name: _text(value) for name, value in arguments.items()}
    return {"name": subject.target, "arguments": dict(arguments)}


def _text(value: JSON) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case _:
            return str(value)


@st.composite
def _answers(draw: Any, state: _State) -> dict[str, JSON]:
    """Draw a client's answers to some or all of the questions."""
    found: dict[str, JSON] = {}
    for key, question in state.questions.items():
        roll = draw(st.integers(0, 9))
        if roll == 9:
            continue
        found[key] = draw(_answer(question)) if roll < 6 else {"action": "decline"}
        if roll == 8:
            found[key] = {"action": "nonsense"}
    return found


def _answer(question: Mapping[str, Any]) -> st.SearchStrategy[JSON]:
    match question["method"]:
        case "sampling/createMessage":
            return sampled()
        case "roots/list":
            return roots()
        case _:
            schema = question["params"].get("requestedSchema")
            if not schema or not schema["properties"]:
                return st.just({"action": "accept", "content": {}})
            return _contents(json.dumps(schema))


@lru_cache(maxsize=256)
def _contents(schema: str) -> st.SearchStrategy[JSON]:
    return contents_for(json.loads(schema)).map(
        lambda content: {"action": "accept", "content": content}
    )


def machine_for(
    app: Server,
    *,
    steps: Mapping[Any, st.SearchStrategy[Any]] | None = None,
    **arguments: st.SearchStrategy[Any],
) -> type[ServerMachine]:
    """Return the machine for a server; test runners collect its `TestCase`.

    Args:
        app: The server. Afterwards, only the machine may use it.
        steps: As for `conversation`.
        **arguments: As for `conversation`.
    """
    made = {getattr(step, "fn", step): one for step, one in (steps or {}).items()}
    fields = {"app": app, "steps": made, "arguments": arguments}
    machine = type("Machine", (ServerMachine,), fields)
    assert issubclass(machine, ServerMachine)
    return machine
