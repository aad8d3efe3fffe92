"""For existing handlers: async functions, and the `ctx` of other SDKs.

    @app.tool
    @awaits_effects
    async def order(title: str) -> str:
        name = await Elicit("Who is it for?", str)
        return f"Ordered {title} for {name}."

    @app.tool
    @awaits_effects
    async def book(date: str, ctx: Context) -> str:
        answer = await ctx.elicit("For how many?", Party)
        return f"{answer.data.people} people" if answer.action == "accept" else "No."

Such a coroutine is replayed like a generator, so the same rules apply: between awaits
it must be deterministic, and it may await only effects. Put any other await into a
`Step`, and several questions at once into a `Gather`.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Final, Generic, Literal, ParamSpec, TypeAlias, TypeVar

from attrs import frozen
from typing_extensions import TypeForm

from .canonical import JSON
from .effects.local import Log, Progress
from .effects.questions import (
    Accepted,
    Elicit,
    ListRoots,
    Outcome,
    Root,
    Sample,
    Sampled,
)
from .errors import Declined, SchemaError

__all__ = [
    "FLOW_MARK",
    "AcceptedElicitation",
    "CancelledElicitation",
    "Context",
    "DeclinedElicitation",
    "Elicited",
    "awaits_effects",
    "forgotten_mark",
]

T = TypeVar("T")
P = ParamSpec("P")

#: Set on a function whose coroutine is a flow.
FLOW_MARK: Final = "__effectmcp_flow__"


@frozen
class AcceptedElicitation(Generic[T]):
    """The user has filled in the form.

    Attributes:
        data: The form, filled in.
        action: The user's action.
    """

    data: T
    action: Literal["accept"] = "accept"


@frozen
class DeclinedElicitation:
    """The user has refused."""

    action: Literal["decline"] = "decline"
    data: None = None


@frozen
class CancelledElicitation:
    """The user has closed the form."""

    action: Literal["cancel"] = "cancel"
    data: None = None


#: The result of `Context.elicit`: after `action == "accept"`, `data` is the form.
Elicited: TypeAlias = (
    AcceptedElicitation[T] | DeclinedElicitation | CancelledElicitation
)


class Context:
    """The `ctx` of other SDKs: its methods that ask, log and report progress."""

    async def elicit(self, message: str, schema: TypeForm[T]) -> Elicited[T]:
        """Ask the user to fill in a form."""
        match await Outcome(Elicit(message, schema)):
            case Accepted(value):
                return AcceptedElicitation(value)
            case Declined():
                return DeclinedElicitation()
            case _:
                return CancelledElicitation()

    async def sample(
        self,
        messages: str | Iterable[Mapping[str, JSON]],
        *,
        max_tokens: int = 1024,
        system_prompt: str | None = None,
        temperature: float | None = None,
    ) -> Sampled:
        """Ask the client's model to write something."""
        return await Sample(
            messages,
            max_tokens=max_tokens,
            system=system_prompt,
            temperature=temperature,
        )

    async def list_roots(self) -> list[Root]:
        """Ask the client which folders the user is working in."""
        return await ListRoots()

    async def report_progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Report progress to the client."""
        await Progress(progress, total, message)

    async def debug(self, message: str) -> None:
        """Send a log message."""
        await Log("debug", message)

    async def info(self, message: str) -> None:
        """Send a log message."""
        await Log("info", message)

    async def warning(self, message: str) -> None:
        """Send a log message."""
        await Log("warning", message)

    async def error(self, message: str) -> None:
        """Send a log message."""
        await Log("error", message)


def forgotten_mark(function: Any, hints: Mapping[str, Any]) -> str | None:
    """Return the problem of a function whose `Context` would not be filled in.

    Args:
        function: The function.
        hints: The annotations of its parameters.
    """
    for name, hint in hints.items():
        if hint is Context and not hasattr(function, FLOW_MARK):
            return (
                f"{function.__name__}({name}): a function with a Context needs"
                " @awaits_effects (from effectmcp.compat), below the decorator that"
                " registers it"
            )
        package = str(getattr(hint, "__module__", "")).partition(".")[0]
        if package in ("fastmcp", "mcp") and getattr(hint, "__name__", "") == "Context":
            return (
                f"{function.__name__}({name}): this is the Context of {package}, which a"
                " handler cannot take, as it runs again in each round. In a bridge"
                f" (effectmcp.bridge.{package}), a step can: `{name}: Context ="
                " Provided()`. To ask with ctx.elicit, take the Context of"
                " effectmcp.compat, with @awaits_effects"
            )
    return None


def awaits_effects(
    function: Callable[P, Coroutine[Any, Any, T]],
) -> Callable[P, Coroutine[Any, Any, T]]:
    """Mark an async function that awaits only effects, so that it can be replayed.

    A parameter that is annotated as `Context` is filled in.

    Raises:
        SchemaError: If `function` is not an async function.
    """
    if not inspect.iscoroutinefunction(function):
        raise SchemaError(f"{function!r} is not an async function")
    try:
        hints = typing.get_type_hints(function)
    except (NameError, TypeError):
        hints = {}  # reading the signature will report the problem
    signature = inspect.signature(function)
    filled = [name for name in signature.parameters if hints.get(name) is Context]
    taken = [one for one in signature.parameters.values() if one.name not in filled]

    @functools.wraps(function)
    async def flow(*args: P.args, **kwargs: P.kwargs) -> T:
        for name in filled:
            kwargs.setdefault(name, Context())
        return await function(*args, **kwargs)

    flow.__signature__ = signature.replace(parameters=taken)  # type: ignore[attr-defined]
    setattr(flow, FLOW_MARK, True)
    return flow
