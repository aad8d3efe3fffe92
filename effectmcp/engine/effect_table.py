"""The table of effect kinds: everything that is known about each kind.

    name      in journal keys: elicit-1
    wave      CLIENT: only the client can answer. LOCAL: this process can. INLINE: needs
              no entry and takes no wave. TREE: makes branches
    by        who performs it
    number    in states
    schema    the form of valid answers, as bytes: the effect's shape
    render    the content of the question or effect, as bytes
    write     the value from the performer or client → payload
    read      payload → the value for the handler
    needs     the capability that a client needs to be asked
    sample    its value in tests

The wave depends only on the kind, never on whether an answer is available. So a replay
takes the same turns in the same order as the first run (docs/internals/replay.md#b2).

To add a kind, add a row; effectmcp_tests/test_effect_table.py names what it lacks. Only
the functions that perform it are elsewhere, because they wait, or read clocks.
"""

from __future__ import annotations

import datetime as dt
import enum
import hashlib
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

import attrs
from attrs import frozen

from ..canonical import JSON, MAX_DEPTH, dumps, loads
from ..effects.base import Effect, InputRequest
from ..effects.control import (
    Checkpoint,
    Detach,
    FirstOf,
    Gather,
    Restart,
    TimedOut,
    Version,
    Within,
)
from ..effects.local import (
    Caller,
    CallerInfo,
    ClientSupports,
    IdempotencyKey,
    Log,
    Now,
    Progress,
    Random,
    Sleep,
    Status,
    Uuid,
)
from ..effects.questions import (
    Accepted,
    Confirm,
    Elicit,
    ElicitUrl,
    ListRoots,
    Outcome,
    Root,
    Sample,
    Sampled,
)
from ..effects.steps import DEFAULT_OPTIONS, Step, StepOptions
from ..errors import (
    CanonicalError,
    ClientFailed,
    Declined,
    Dismissed,
    InvalidAnswer,
    StepError,
    Unsupported,
    UsageError,
)
from ..forms.form import Unfit
from .failures import failure_from, failure_to
from .journal import Entry, Tag
from .names import name_of
from .steps import spec_of, step_name, write_arguments

__all__ = [
    "EPOCH",
    "FED",
    "INLINE",
    "KINDS",
    "LATER",
    "LOCAL",
    "NAMES",
    "QUESTIONS",
    "By",
    "Kind",
    "Recorded",
    "Wave",
    "deliver",
    "inner_of",
    "is_replayable",
    "kind_of",
    "options_of",
    "record_error",
    "record_value",
    "steps_in",
    "won",
]


class Wave(enum.Enum):
    """The scheduling class of an effect."""

    CLIENT = "client"
    LOCAL = "local"
    INLINE = "inline"
    TREE = "tree"


# Every turn reads these, and a name is found ten times as fast as an enum member.
LOCAL: Final = Wave.LOCAL
INLINE: Final = Wave.INLINE


def _nothing(effect: Any) -> bytes:
    return b""


def _write_null(effect: Any, value: Any) -> bytes:
    return b"null"


def _value(effect: Any, payload: bytes) -> Any:
    return loads(payload)


#: Who performs an effect:
#:
#:     client      it is asked
#:     engine      the run itself
#:     function    a function without arguments, in drivers/local.py
#:     driver      each driver in its own way
#:     exchange    the code that knows the request
By: TypeAlias = Literal["client", "engine", "function", "driver", "exchange"]


@frozen(eq=False)
class Kind:
    """A row of the table.

    Attributes:
        name: Its name in keys.
        wave: Its scheduling class.
        by: Who performs it.
        number: Its number in states, which is never given again; `None` without entries.
        schema: The form of valid answers; `None` if there is no such form.
        render: The content.
        write: The value → payload.
        read: Payload → the value.
        tag: The tag of its entries.
        is_question: Whether it is an `InputRequest`: has a key and an `otherwise`.
        is_consent: Whether the answer is consent to what the user was shown.
        is_free: Whether it is allowed anywhere, and performs no step: nothing to check
            when it is yielded.
        is_wait: Whether it waits for people or clocks in a task; elsewhere it is
            performed.
        is_later: Whether it needs a task, or a `Detach()` before it.
        needs: The capabilities that a client needs to be asked.
        asks: Whom it asks, in messages.
        sample: Its value in tests, where the numbers count the draws; `None` if the
            test gives it.
        another: Another value that could have been drawn instead of this one; `None`
            for what the change of its JSON gives.
    """

    name: str
    wave: Wave
    by: By
    number: int | None = None
    schema: Callable[[Any], bytes] | None = None
    render: Callable[[Any], bytes] = _nothing
    write: Callable[[Any, Any], bytes] = _write_null
    read: Callable[[Any, bytes], Any] = _value
    tag: Tag = "known"
    is_question: bool = False
    is_consent: bool = False
    is_free: bool = False
    is_wait: bool = False
    is_later: bool = False
    needs: Mapping[str, dict[str, JSON]] = {}
    asks: str = "the user"
    sample: Callable[[Iterator[int]], Any] | None = None
    another: Callable[[Any], Any] | None = None

    @property
    def may_hold(self) -> bool:
        """Whether dropping such an entry could cause a step to be performed again."""
        return self.tag in ("done", "won")


# ---- questions ----------------------------------------------------------------------


def _write_elicit(effect: Elicit[Any], content: JSON) -> bytes:
    return dumps(effect.spec.read(content))


def _read_elicit(effect: Elicit[Any], payload: bytes) -> Any:
    return effect.spec.build(loads(payload))


def _write_nothing(effect: Any, content: JSON) -> bytes:
    # Consent has no content; anything that a client adds is not from the user. But
    # content must be an object if there is any: `False` is not a yes.
    if content is not None and not isinstance(content, dict):
        raise Unfit(["the answer has no content; accept, decline or dismiss"])
    return b"{}"


def _read_true(effect: Any, payload: bytes) -> bool:
    return True


def _read_none(effect: Any, payload: bytes) -> None:
    return None


def _render_sample(effect: Sample[Any]) -> bytes:
    return dumps(
        {
            "messages": list(effect.messages),
            "maxTokens": effect.max_tokens,
            "system": effect.system,
            "tools": list(effect.tools),
            "toolChoice": effect.tool_choice,
            "temperature": effect.temperature,
            "stop": list(effect.stop_sequences),
            "preferences": effect.preferences and dict(effect.preferences),
        }
    )


def _write_sample(effect: Sample[Any], content: JSON) -> bytes:
    if not isinstance(content, dict):
        raise Unfit(["the result of sampling must be an object"])
    given = content.get("content")
    # One block or a list of them (2026-07-28, CreateMessageResult): it is always a list
    # here.
    blocks: list[Any] = given if isinstance(given, list) else [given]
    if not all(
        isinstance(block, dict)
        and isinstance(block.get("type"), str)
        and (block["type"] != "text" or isinstance(block.get("text"), str))
        for block in blocks
    ):
        raise Unfit(["content: must be content blocks"])
    if effect.keep == "text":
        blocks = [
            {"type": "text", "text": block["text"]}
            for block in blocks
            if block["type"] == "text"
        ]
    model, stop = content.get("model"), content.get("stopReason")
    if not isinstance(model, str):
        raise Unfit(["model: is required"])
    if stop is not None and not isinstance(stop, str):
        raise Unfit(["stopReason: must be text"])
    return dumps({"content": blocks, "model": model, "stop": stop})


def _read_sample(effect: Sample[Any], payload: bytes) -> Sampled:
    value = loads(payload)
    return Sampled(value["content"], value["model"], value["stop"])


def _write_roots(effect: Any, content: JSON) -> bytes:
    roots = content.get("roots") if isinstance(content, dict) else None
    if not isinstance(roots, list) or not all(
        isinstance(root, dict)
        and isinstance(root.get("uri"), str)
        and isinstance(root.get("name", ""), str)
        for root in roots
    ):
        raise Unfit(["roots: must be a list of objects with a uri"])
    return dumps([[root["uri"], root.get("name")] for root in roots])


def _read_roots(effect: Any, payload: bytes) -> list[Root]:
    return [Root(uri, name) for uri, name in loads(payload)]


# ---- steps --------------------------------------------------------------------------


def _render_step(effect: Step[Any]) -> bytes:
    try:
        return dumps([step_name(effect), *write_arguments(effect.args, effect.kwargs)])
    except CanonicalError as exc:
        raise StepError(
            f"the arguments of {step_name(effect)} must be plain data: {exc.problem}."
            " What is not data, a connection say, is a parameter with = Provided()"
        ) from None


def _write_step(effect: Step[Any], value: Any) -> bytes:
    try:
        return spec_of(effect).write(value)
    except StepError as exc:
        raise StepError(f"{step_name(effect)}: {exc.problem}") from None


def _read_step(effect: Step[Any], payload: bytes) -> Any:
    try:
        return spec_of(effect).read(payload)
    except Exception as exc:
        # Not a divergence: the step is the same, but its annotation changed.
        raise StepError(
            f"the recorded result of {step_name(effect)} does not come back as its"
            f" annotation says: {exc}"
        ) from None


def inner_of(effect: Effect[Any]) -> tuple[Effect[Any], ...]:
    """Return the effects inside a `Within` or `FirstOf`; none for other effects."""
    match effect:
        case Within():
            return (effect.effect,)
        case FirstOf():
            return effect.effects
        case _:
            return ()


def _schema_race(effect: Any) -> bytes:
    # The form of the answer, if there are questions; empty for steps and clocks.
    schemas = [_inner_schema(one) for one in inner_of(effect)]
    return b"\n".join(schemas) if any(schemas) else b""


def _inner_schema(effect: Effect[Any]) -> bytes:
    found = kind_of(effect)
    assert found is not None
    kind, subject = found
    if not kind.is_question:
        return b""
    schema = b"" if kind.schema is None else kind.schema(subject)
    # Each question has a key.
    return dumps([kind.name, subject.key]) + schema  # type: ignore[attr-defined]


def _render_inner(effect: Any) -> bytes:
    found = kind_of(effect)
    assert found is not None
    kind, subject = found
    render = kind.render(subject)
    if kind.is_question:
        render = dumps(render.decode())  # a string may contain the separator
    return kind.name.encode() + b" " + render


def _render_within(effect: Within[Any]) -> bytes:
    return dumps(effect.seconds) + b" " + _render_inner(effect.effect)


def _render_first(effect: FirstOf[Any]) -> bytes:
    return b"\n".join(map(_render_inner, effect.effects))


def _write_within(effect: Within[Any], value: Any) -> bytes:
    if isinstance(value, TimedOut):
        return b"null"
    return _write_won(effect, 0, value)


def _write_first(effect: FirstOf[Any], value: Any) -> bytes:
    match value:
        case (int() as position, won) if type(position) is int and 0 <= position < len(
            effect.effects
        ):
            return _write_won(effect, position, won)
        case _:
            raise UsageError(
                f"FirstOf() was answered with {value!r}, not (position, value)"
            )


def _write_won(effect: Effect[Any], position: int, value: Any) -> bytes:
    winner = inner_of(effect)[position]
    tag, payload, _ = record_value(winner, KINDS[type(winner)], value)
    if tag == "failed":
        raise StepError(loads(payload)["args"][0])
    return won(position, tag, payload)


def won(position: int, tag: Tag, payload: bytes) -> bytes:
    """Return the payload of a `Within` or `FirstOf` that one of its effects won."""
    return dumps([position, tag, loads(payload)], max_depth=MAX_DEPTH + 1)


def _deliver_won(effect: Effect[Any], entry: Entry) -> Any:
    outcome = entry.value
    if outcome is None:
        return TimedOut()
    position, tag, payload = outcome
    winner = inner_of(effect)[position]
    found = kind_of(winner)
    assert found is not None
    own = Entry(
        entry.key, entry.shape, entry.render, tag, dumps(payload, max_depth=MAX_DEPTH)
    )
    value = deliver(winner, found[0], own)
    return value if type(effect) is Within else (position, value)


# ---- the rest -----------------------------------------------------------------------


def _write_now(effect: Any, value: Any) -> bytes:
    if not isinstance(value, dt.datetime) or value.tzinfo is None:
        raise UsageError(f"Now() was answered with {value!r}, not an aware datetime")
    return dumps(value.astimezone(dt.UTC).isoformat())


def _read_now(effect: Any, payload: bytes) -> dt.datetime:
    return dt.datetime.fromisoformat(loads(payload))


def _write_uuid(effect: Any, value: Any) -> bytes:
    if not isinstance(value, uuid.UUID):
        raise UsageError(f"Uuid() was answered with {value!r}, not a UUID")
    return dumps(value.hex)


def _read_uuid(effect: Any, payload: bytes) -> uuid.UUID:
    return uuid.UUID(loads(payload))


def _write_random(effect: Any, value: Any) -> bytes:
    if type(value) is not float or not 0 <= value < 1:
        raise UsageError(f"Random() was answered with {value!r}, not a float below 1")
    return dumps(value)


def _write_bool(effect: Any, value: Any) -> bytes:
    if type(value) is not bool:
        raise UsageError(f"{type(effect).__name__} was answered with {value!r}")
    return dumps(value)


def _write_caller(effect: Any, value: Any) -> bytes:
    if not isinstance(value, CallerInfo):
        raise UsageError(f"Caller() was answered with {value!r}, not a CallerInfo")
    return dumps(value.to_json())


def _read_caller(effect: Any, payload: bytes) -> CallerInfo:
    return CallerInfo(**loads(payload))


def _render_supports(effect: ClientSupports) -> bytes:
    what = effect.what
    return (what if isinstance(what, type) else type(what)).__name__.encode()


def _render_restart(effect: Restart[Any]) -> bytes:
    """Return the handler's name and arguments, as the new generation reads them."""
    try:
        return dumps(
            [name_of(effect.handler), *write_arguments(effect.args, effect.kwargs)]
        )
    except CanonicalError as exc:
        raise UsageError(
            f"the arguments of Restart({name_of(effect.handler)}) must be plain data:"
            f" {exc.problem}"
        ) from None


def _sample_uuid(drawn: Iterator[int]) -> uuid.UUID:
    digest = hashlib.sha256(str(next(drawn) + 1).encode()).digest()
    return uuid.UUID(bytes=digest[:16], version=4)


#: The time of the first `Now()` in tests. The others follow by the second.
EPOCH: Final = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)

#: What all questions are.
_ASKED: Final[Mapping[str, Any]] = {
    "wave": Wave.CLIENT,
    "by": "client",
    "is_question": True,
    "is_free": True,
    "is_wait": True,
}
_FORM: Final[Mapping[str, dict[str, JSON]]] = {"elicitation": {"form": {}}}

KINDS: Final[Mapping[type[Effect[Any]], Kind]] = {
    Elicit: Kind(
        "elicit",
        number=0,
        schema=lambda effect: effect.spec.text,
        # A host may show the meta, so another one is another question.
        render=lambda effect: (
            effect.message.encode()
            if effect.meta is None
            else dumps([effect.message, dict(effect.meta)])
        ),
        write=_write_elicit,
        read=_read_elicit,
        needs=_FORM,
        **_ASKED,
    ),
    Confirm: Kind(
        "confirm",
        number=1,
        render=lambda effect: effect.message.encode(),
        write=_write_nothing,
        read=_read_true,
        is_consent=True,
        needs=_FORM,
        **_ASKED,
    ),
    ElicitUrl: Kind(
        "url",
        number=2,
        render=lambda effect: dumps([effect.message, effect.url]),
        write=_write_nothing,
        read=_read_none,
        is_consent=True,
        needs={"elicitation": {"url": {}}},
        **_ASKED,
    ),
    Sample: Kind(
        "sample",
        number=3,
        schema=lambda effect: effect.keep.encode(),
        render=_render_sample,
        write=_write_sample,
        read=_read_sample,
        needs={"sampling": {}},
        asks="a model of the client's",
        **_ASKED,
    ),
    ListRoots: Kind(
        "roots",
        number=4,
        write=_write_roots,
        read=_read_roots,
        needs={"roots": {}},
        asks="the client for the user's folders",
        **_ASKED,
    ),
    Checkpoint: Kind(
        "checkpoint",
        Wave.CLIENT,
        "engine",
        number=5,
        tag="checkpoint",
        is_free=True,
        is_wait=True,
    ),
    Step: Kind(
        "step",
        Wave.LOCAL,
        "driver",
        number=6,
        render=_render_step,
        write=_write_step,
        read=_read_step,
        tag="done",
    ),
    Within: Kind(
        "within",
        Wave.LOCAL,
        "driver",
        number=7,
        schema=_schema_race,
        render=_render_within,
        write=_write_within,
        tag="won",
        is_wait=True,
        is_later=True,
    ),
    FirstOf: Kind(
        "first",
        Wave.LOCAL,
        "driver",
        number=8,
        schema=_schema_race,
        render=_render_first,
        write=_write_first,
        tag="won",
        is_wait=True,
        is_later=True,
    ),
    Now: Kind(
        "now",
        Wave.LOCAL,
        "function",
        number=9,
        write=_write_now,
        read=_read_now,
        tag="chance",
        is_free=True,
        sample=lambda drawn: EPOCH + dt.timedelta(seconds=next(drawn)),
        another=lambda value: value + dt.timedelta(seconds=1),
    ),
    Uuid: Kind(
        "uuid",
        Wave.LOCAL,
        "function",
        number=10,
        write=_write_uuid,
        read=_read_uuid,
        tag="chance",
        is_free=True,
        sample=_sample_uuid,
        another=lambda value: uuid.UUID(int=value.int ^ 1),
    ),
    Random: Kind(
        "random",
        Wave.LOCAL,
        "function",
        number=11,
        write=_write_random,
        tag="chance",
        is_free=True,
        sample=lambda drawn: 0.5,
        another=lambda value: (value + 0.5) % 1,
    ),
    Caller: Kind(
        "caller",
        Wave.LOCAL,
        "exchange",
        number=12,
        write=_write_caller,
        read=_read_caller,
        is_free=True,
        sample=lambda drawn: CallerInfo(flow_id="0" * 32),
    ),
    ClientSupports: Kind(
        "supports",
        Wave.LOCAL,
        "engine",
        number=13,
        render=_render_supports,
        write=_write_bool,
        is_free=True,
    ),
    Detach: Kind(
        "detach",
        Wave.LOCAL,
        "function",
        number=14,
        write=_write_bool,
        sample=lambda drawn: False,
    ),
    Sleep: Kind(
        "sleep",
        Wave.LOCAL,
        "driver",
        number=15,
        render=lambda effect: dumps(effect.seconds),
        is_wait=True,
        is_later=True,
        sample=lambda drawn: None,
    ),
    Restart: Kind(
        "restart",
        Wave.LOCAL,
        "engine",
        number=16,
        render=_render_restart,
        tag="restart",
    ),
    Gather: Kind("gather", Wave.TREE, "engine", number=17, tag="gather"),
    IdempotencyKey: Kind("key", Wave.INLINE, "engine", is_free=True),
    Version: Kind("version", Wave.INLINE, "engine", is_free=True),
    Progress: Kind("progress", Wave.INLINE, "exchange", is_free=True),
    Log: Kind("log", Wave.INLINE, "exchange", is_free=True),
    Status: Kind("status", Wave.INLINE, "exchange", is_later=True),
}

#: The questions, by the name of their class.
QUESTIONS: Final[Mapping[str, type[InputRequest[Any]]]] = {
    effect.__name__: effect
    for effect, kind in KINDS.items()
    if kind.is_question and issubclass(effect, InputRequest)
}

#: Kinds that need only their entry: allowed anywhere, or steps.
FED: Final[Mapping[type[Any], Kind]] = {
    effect: kind
    for effect, kind in KINDS.items()
    if (kind.is_free and kind.wave is not INLINE) or effect is Step
}

#: The names that a generated key may begin with.
NAMES: Final = frozenset(kind.name for kind in KINDS.values())

#: Kinds that need a task, or a `Detach()` before them.
LATER: Final = tuple(effect for effect, kind in KINDS.items() if kind.is_later)


def kind_of(effect: Effect[Any]) -> tuple[Kind, Effect[Any]] | None:
    """Return the row of an effect, and the effect that it is about, without `Outcome`.

    See docs/internals/replay.md#q7.
    """
    subject = effect.request if type(effect) is Outcome else effect
    kind = KINDS.get(type(subject))
    return None if kind is None else (kind, subject)


# ---- local effects: what to record --------------------------------------------------


#: The tag and payload to journal, and whether performing it again is harmless.
Recorded: TypeAlias = tuple[Tag, bytes, bool]


def is_replayable(effect: Effect[Any]) -> bool:
    """Whether performing `effect` again is harmless: all steps in it declare so."""
    return all(step.options.replayable for step in steps_in(effect))


def options_of(effect: Effect[Any]) -> StepOptions:
    """Return the step options to record and rebuild a failure of `effect` with."""
    match effect:
        case Step():
            return effect.options
        case Within():
            return options_of(effect.effect)
        case FirstOf():
            raises = [options_of(one).raises for one in effect.effects]
            return StepOptions(raises=tuple(c for some in raises for c in some))
        case _:
            return DEFAULT_OPTIONS


def steps_in(effect: Effect[Any]) -> list[Step[Any]]:
    """Return the steps that performing `effect` would perform."""
    match effect:
        case Step():
            return [effect]
        case Within():
            return steps_in(effect.effect)
        case FirstOf():
            return [step for one in effect.effects for step in steps_in(one)]
        case _:
            return []


def record_value(effect: Effect[Any], kind: Kind, value: Any) -> Recorded:
    """Return what to journal if performing `effect` returned `value`."""
    try:
        payload = kind.write(effect, value)
    except StepError as exc:
        # It was performed, so it must be recorded: a step whose result is unusable
        # would otherwise be performed again every round (docs/internals/replay.md#s3).
        return record_error(effect, exc)
    return kind.tag, payload, kind.may_hold and is_replayable(effect)


def record_error(effect: Effect[Any], error: Exception) -> Recorded:
    """Return what to journal if performing `effect` raised `error`."""
    return "failed", failure_to(error, options_of(effect)), is_replayable(effect)


# ---- deliveries ---------------------------------------------------------------------


def deliver(effect: Effect[Any], kind: Kind, entry: Entry) -> Any:
    """Return the value that the handler gets for `entry`.

    Raises:
        Exception: If the caller must throw it at the yield instead; always a new one.
        Unfit: If a recorded answer no longer fits the form. Not for the handler.
    """
    tag = entry.tag
    if type(effect) is Outcome:
        return _deliver_outcome(effect, kind, entry)
    if tag == "accepted":
        return kind.read(effect, entry.payload)
    if tag == "failed":
        raise failure_from(entry.payload, options_of(effect))
    if tag == "won":
        return _deliver_won(effect, entry)
    if isinstance(effect, InputRequest):
        error = _refusal(effect, entry)
        if tag == "declined" and type(effect) is Confirm:
            # `otherwise` does not replace the user's decision (docs/internals/replay.md#q6a).
            return False
        otherwise = effect.otherwise
        if tag in ("declined", "dismissed", "unasked") and (
            otherwise is not attrs.NOTHING
        ):
            return otherwise
        raise error
    return kind.read(effect, entry.payload)


def _deliver_outcome(effect: Outcome[Any], kind: Kind, entry: Entry) -> Any:
    if entry.tag == "accepted":
        return Accepted(kind.read(effect.request, entry.payload))
    error = _refusal(effect.request, entry)
    if isinstance(error, (Declined, Dismissed)):
        return error
    raise error


def _refusal(effect: InputRequest[Any], entry: Entry) -> Exception:
    match entry.tag:
        case "declined":
            return Declined()
        case "dismissed":
            return Dismissed()
        case "unasked":
            return Unsupported(type(effect).__name__)
        case "invalid":
            return InvalidAnswer(entry.value)
        case _:
            assert entry.tag == "refused", entry.tag
            return ClientFailed(*entry.value)
