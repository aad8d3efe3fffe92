"""The questions that a server may ask a client, and the client's responses.

A client registers a function for each kind of question that it can put to a user or a
model. It declares exactly these kinds, and a server may ask no others (MRTR, Server
Requirements).
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from attrs import field, frozen

from ..canonical import JSON
from ..errors import Declined, Dismissed, UsageError
from .errors import ReplyError

if TYPE_CHECKING:
    from ..effects.questions import Root

__all__ = [
    "Answering",
    "Form",
    "FormAnswer",
    "Link",
    "LinkAnswer",
    "SampleAnswer",
    "Sampling",
]


@frozen
class Form:
    """A form for the user to fill in.

    Attributes:
        message: The text to show above it.
        schema: Its fields, as the protocol's subset of JSON Schema.
        key: The server's name for the question, within its round.
    """

    message: str
    schema: Mapping[str, Any]
    key: str = ""

    @property
    def fields(self) -> Mapping[str, Mapping[str, Any]]:
        """The schemas of its fields, by name."""
        fields: Mapping[str, Mapping[str, Any]] = self.schema.get("properties", {})
        return fields

    @property
    def defaults(self) -> dict[str, JSON]:
        """The default values of its fields, by name."""
        return {
            name: one["default"]
            for name, one in self.fields.items()
            if "default" in one
        }


@frozen
class Link:
    """A page for the user to open.

    Attributes:
        message: The text to show with it.
        url: The page. Show its host, and open it only if the user agrees.
        key: The server's name for the question, within its round.
    """

    message: str
    url: str
    key: str = ""


@frozen
class Sampling:
    """A message for the client's model to write.

    Attributes:
        params: The request, as defined by the protocol.
        key: The server's name for the question, within its round.
    """

    params: Mapping[str, Any] = field(repr=False)
    key: str = ""

    @property
    def messages(self) -> list[Mapping[str, Any]]:
        """The messages of the conversation so far."""
        return list(self.params["messages"])


#: The values for the form, or how the user left it. May be awaitable.
FormAnswer: TypeAlias = Mapping[str, JSON] | Declined | Dismissed
#: Whether the user agrees, or how they left the question.
LinkAnswer: TypeAlias = bool | Declined | Dismissed
#: The text of the model, or the whole result, as defined by the protocol.
SampleAnswer: TypeAlias = str | Mapping[str, JSON]


def _kept(
    roots: Iterable[Root] | Callable[[], Any] | None,
) -> Iterable[Root] | Callable[[], Any] | None:
    """Copy an iterable, as roots may be requested again and an iterator has one use."""
    return roots if roots is None or callable(roots) else tuple(roots)


@frozen(kw_only=True)
class Answering:
    """The functions that answer questions. They may be async.

    Attributes:
        elicit: Lets the user fill in a form.
        open_url: Lets the user open a page.
        sample: Lets a model write a message.
        roots: The folders that the user works in, or a function that returns them.
    """

    elicit: Callable[[Form], FormAnswer | Awaitable[FormAnswer]] | None = None
    open_url: Callable[[Link], LinkAnswer | Awaitable[LinkAnswer]] | None = None
    sample: Callable[[Sampling], SampleAnswer | Awaitable[SampleAnswer]] | None = None
    roots: Iterable[Root] | Callable[[], Any] | None = field(
        default=None, converter=_kept
    )

    @property
    def capabilities(self) -> dict[str, JSON]:
        """The capabilities to declare."""
        declared: dict[str, JSON] = {}
        modes: dict[str, JSON] = {}
        if self.elicit is not None:
            modes["form"] = {}
        if self.open_url is not None:
            modes["url"] = {}
        if modes:
            declared["elicitation"] = modes
        if self.sample is not None:
            declared["sampling"] = {}
        if self.roots is not None:
            declared["roots"] = {}
        return declared

    async def answer(self, key: str, question: Mapping[str, Any]) -> JSON:
        """Return the response to one question.

        Raises:
            ReplyError: If the question is invalid, or of a kind that the client does not
                declare.
            UsageError: If `elicit` returns an invalid answer.
        """
        method, params = question["method"], question.get("params", {})
        match method, params.get("mode", "form"):
            case "elicitation/create", "form" if self.elicit is not None:
                schema = params.get("requestedSchema")
                if not _is_schema(schema):
                    raise ReplyError(f"the form {key!r} has no schema")
                form = Form(str(params.get("message", "")), schema, key)
                return _elicited(form, await _awaited(self.elicit(form)))
            case "elicitation/create", "url" if self.open_url is not None:
                url = params.get("url")
                if not isinstance(url, str):
                    raise ReplyError(f"the link {key!r} has no url")
                link = Link(str(params.get("message", "")), url, key)
                return _consented(await _awaited(self.open_url(link)))
            case "sampling/createMessage", _ if self.sample is not None:
                if not isinstance(params.get("messages"), list):
                    raise ReplyError(f"the sampling {key!r} has no messages")
                return _sampled(await _awaited(self.sample(Sampling(params, key))))
            case "roots/list", _ if self.roots is not None:
                roots = self.roots() if callable(self.roots) else self.roots
                return {"roots": [_root(one) for one in await _awaited(roots)]}
            case _:
                raise ReplyError(
                    f"{method} was asked, which this client did not say it can answer"
                )


def _is_schema(schema: JSON) -> bool:
    fields = schema.get("properties", {}) if isinstance(schema, dict) else None
    return isinstance(fields, dict) and all(
        isinstance(one, dict) for one in fields.values()
    )


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def _declined(answer: Declined | Dismissed) -> dict[str, JSON]:
    """Return the response of a user who does not answer."""
    return {"action": "decline" if isinstance(answer, Declined) else "cancel"}


def _elicited(form: Form, answer: FormAnswer) -> JSON:
    if isinstance(answer, (Declined, Dismissed)):
        return _declined(answer)
    given: object = answer
    if not isinstance(given, Mapping):
        raise UsageError(
            f"elicit= gave {given!r}: give the fields, {{'value': ...}}, or Declined() or"
            " Dismissed()"
        )
    # Default values that the user did not change are part of the answer.
    filled = {key: one for key, one in form.defaults.items() if one is not None}
    return {"action": "accept", "content": {**filled, **answer}}


def _consented(answer: LinkAnswer) -> JSON:
    if isinstance(answer, (Declined, Dismissed)):
        return _declined(answer)
    return {"action": "accept" if answer else "decline"}


def _sampled(answer: SampleAnswer) -> JSON:
    if not isinstance(answer, str):
        return dict(answer)
    content = {"type": "text", "text": answer}
    return {"role": "assistant", "content": content, "model": "unknown"}


def _root(root: Root) -> JSON:
    return (
        {"uri": root.uri} if root.name is None else {"uri": root.uri, "name": root.name}
    )
