"""Convert a step's exception to JSON, and back to a new exception.

Builtin exceptions, `ToolError` and the classes that a step names in `raises=` keep
their class; every other exception becomes a `StepFailed` with the name of the type and
its text. This holds in the first run, too: a handler must get the same exception as its
replay (docs/internals/replay.md#l3).
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any, Final

from ..canonical import JSON, dumps, loads
from ..effects.steps import StepOptions
from ..errors import (
    CanonicalError,
    EffectMCPError,
    StepError,
    StepFailed,
    StepInterrupted,
    ToolError,
)
from .names import name_of

__all__ = ["MAX_MESSAGE", "failure_from", "failure_to"]

#: Limit of a failure's text, because the text is part of every later state.
MAX_MESSAGE: Final = 2000

# Thrown unchanged, these would silently end a generator or an outer loop.
_NEVER_AS_ITSELF: Final = (StopIteration, StopAsyncIteration)


def failure_to(error: Exception, options: StepOptions) -> bytes:
    """Return a step's exception as canonical JSON."""
    class_ = type(error)
    text = _text_of(error)
    base = next((one for one in options.raises if isinstance(error, one)), None)
    if isinstance(error, StepError):
        # Our own error about the result: `raises=` must not make it another class.
        return dumps({"own": "StepError", "args": [_clean(error.problem)]})
    if isinstance(error, StepInterrupted):
        return dumps({"own": "StepInterrupted", "args": [_clean(error.name)]})
    if isinstance(error, ToolError):
        return dumps({"own": "ToolError", "args": [_clean(error.message)]})
    named: dict[str, JSON] = {}
    if base is not None:
        named = {"class": name_of(base)}
    elif class_.__module__ == "builtins" and not issubclass(class_, _NEVER_AS_ITSELF):
        named = {"builtin": class_.__name__}
    if named:
        args = [_argument_to(arg) for arg in error.args]
        if isinstance(error, OSError) and error.filename is not None:
            args = [*args[:2], error.filename]  # `args` lacks it
        for arguments in (args, [text]):
            written = _try_dumps({**named, "args": arguments})
            if written is not None and _comes_back(written, options):
                return written
    failure = {"type": _clean(class_.__name__), "message": text}
    with_data = _try_dumps({**failure, "data": getattr(error, "data", None)})
    return dumps(failure) if with_data is None else with_data


def failure_from(payload: bytes, options: StepOptions) -> Exception:
    """Return a new exception: thrown twice, one would grow its traceback for ever."""
    failure = loads(payload)
    if "own" in failure:
        return _OWN[failure["own"]](*failure["args"])
    if "builtin" in failure:
        class_ = getattr(builtins, failure["builtin"])
        return class_(*map(_argument_from, failure["args"]))  # type: ignore[no-any-return]  # by name
    if "class" in failure:
        for base in options.raises:
            if name_of(base) == failure["class"]:
                return base(*failure["args"])
        # An edit removed the class from `raises=`; the failure is still a failure.
        text = ", ".join(map(str, failure["args"]))
        return StepFailed(failure["class"].rpartition(":")[2], text)
    return StepFailed(failure["type"], failure["message"], failure.get("data"))


_OWN: Final[dict[str, Callable[[str], EffectMCPError]]] = {
    "StepError": StepError,
    "StepInterrupted": StepInterrupted,
    "ToolError": ToolError,
}


# The Unicode errors contain the bytes that caused them.
def _argument_to(value: Any) -> JSON:
    return {"bytes": value.hex()} if type(value) is bytes else value


def _argument_from(value: JSON) -> Any:
    return bytes.fromhex(value["bytes"]) if type(value) is dict else value


def _text_of(error: Exception) -> str:
    try:
        text = str(error)
    except Exception:
        return f"a {type(error).__name__} without a message"
    return _clean(text if len(text) <= MAX_MESSAGE else text[:MAX_MESSAGE] + "…")


def _comes_back(written: bytes, options: StepOptions) -> bool:
    if len(written) > 2 * MAX_MESSAGE:
        return False
    try:
        str(failure_from(written, options))
    except Exception:
        return False  # the constructor requires other arguments than `args`
    return True


def _try_dumps(value: JSON) -> bytes | None:
    try:
        return dumps(value)
    except CanonicalError:
        return None


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")
