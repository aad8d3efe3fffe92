"""Revisions 2025-03-26 to 2025-11-25: a handshake, a session, questions asked live.

A client declares its name and capabilities once, by `initialize`. Afterwards, the
server may send requests to it. The revisions differ in the questions that can be asked
and in the fields that a result may have; see their rows in `revisions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from ..canonical import JSON, dumps
from ..effects.base import InputRequest
from ..effects.questions import Elicit, Outcome, Sample
from ..engine.effect_table import KINDS, QUESTIONS
from ..errors import ClientFailed, ProtocolError
from .jsonrpc import INVALID_PARAMS, Id
from .modern import lacking_of, named, read_result, request_of

if TYPE_CHECKING:
    from ..engine.answers import Answer
    from ..engine.stops import Question
    from .revisions import Revision

__all__ = [
    "Hello",
    "fitted",
    "missing",
    "question_message",
    "read_hello",
    "read_reply",
    "request_message",
]


# ---- the handshake ------------------------------------------------------------------

#: Limit of the capabilities in bytes: they are kept as long as the session.
_LARGEST: Final = 16 * 1024


@frozen
class Hello:
    """The parameters of `initialize`.

    Attributes:
        version: The revision that the client proposes.
        capabilities: The client's capabilities.
        client: The client's name and version, for logs and `Caller()`.
    """

    version: str
    capabilities: Mapping[str, JSON]
    client: str | None


def read_hello(params: Mapping[str, JSON]) -> Hello:
    """Read the parameters of `initialize`.

    Raises:
        ProtocolError: If a parameter is missing or invalid.
    """
    version = params.get("protocolVersion")
    if not isinstance(version, str):
        raise _invalid("protocolVersion is required and must be a string")
    capabilities = params.get("capabilities", {})
    if not isinstance(capabilities, dict):
        raise _invalid("capabilities are an object")
    if len(dumps(capabilities)) > _LARGEST:
        raise _invalid(f"capabilities have at most {_LARGEST:,} bytes")
    info = params.get("clientInfo")
    info = info if isinstance(info, dict) else {}
    words = [info[key] for key in ("name", "version") if isinstance(info.get(key), str)]
    # Recorded by Caller(), and logged.
    return Hello(version, capabilities, " ".join(words)[:200] or None)


# ---- what a client can be asked -----------------------------------------------------


def missing(
    what: Any, capabilities: Mapping[str, JSON], revision: Revision
) -> str | None:
    """Return why a client cannot be asked `what`, in words; `None` if it can.

    Args:
        what: An effect, a class of effects, or the name of one.
        capabilities: The client's capabilities.
        revision: The revision that the client speaks.
    """
    need = _beyond(what, revision)
    if need is not None:
        return (
            f"the protocol revision that it speaks, {revision.version}, has no {need}"
        )
    lacking = lacking_of(what, capabilities)
    if not lacking:
        return None
    names = dict.fromkeys(named(lacking, capabilities).values())
    return f"it does not declare the capability {', '.join(names)}"


def _beyond(what: Any, revision: Revision) -> str | None:
    """Return the part of the protocol that `what` needs and `revision` lacks."""
    if isinstance(what, Outcome):
        what = what.request
    class_ = QUESTIONS.get(what if isinstance(what, str) else _class_of(what).__name__)
    modes = {} if class_ is None else KINDS[class_].needs.get("elicitation", {})
    if modes and not revision.elicits:
        return "elicitation"
    if "url" in modes and not revision.links:
        return "pages to open"
    if isinstance(what, Elicit) and not revision.multiple:
        if any("items" in field for field in _fields(what.spec.schema).values()):
            return "fields of several choices"
    if isinstance(what, Sample) and not revision.tools:
        if what.tools or what.tool_choice:
            return "tools for sampling"
        if any(isinstance(one.get("content"), list) for one in what.messages):
            return "messages with several contents"
    return None


def _class_of(what: Any) -> type:
    return what if isinstance(what, type) else type(what)


def _fields(schema: Mapping[str, JSON]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = schema.get("properties", {})
    return found


# ---- questions ----------------------------------------------------------------------


def question_message(
    question: Question, revision: Revision, id_: Id, elicitation_id: str
) -> dict[str, JSON]:
    """Return the request that asks a question.

    Args:
        question: The question.
        revision: The revision that the client speaks.
        id_: The id of the request.
        elicitation_id: The `elicitationId` of a page to open.
    """
    return request_message(request_of(question), revision, id_, elicitation_id)


def request_message(
    asked: Mapping[str, Any],
    revision: Revision,
    id_: Id,
    elicitation_id: str,
    meta: Mapping[str, JSON] | None = None,
) -> dict[str, JSON]:
    """Return the request that asks a question, given its form in 2026-07-28.

    Args:
        asked: The question, as `request_of` returns it.
        revision: The revision that the client speaks.
        id_: The id of the request.
        elicitation_id: The `elicitationId` of a page to open.
        meta: The `_meta` of the request, if any.
    """
    params = dict(asked.get("params", {}))
    if "requestedSchema" in params and not revision.multiple:
        params["requestedSchema"] = _older_form(params["requestedSchema"])
    if params.get("mode") == "url":
        params["elicitationId"] = elicitation_id
    elif not revision.links:
        params.pop("mode", None)
    if meta is not None:
        params["_meta"] = dict(meta)
    message: dict[str, JSON] = {"jsonrpc": "2.0", "id": id_, "method": asked["method"]}
    return {**message, "params": params} if params else message


def _older_form(schema: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return `schema` with titles as `enumNames`, and defaults for booleans only."""
    fields: dict[str, JSON] = {}
    for name, field in _fields(schema).items():
        written = dict(field)
        choices = written.pop("oneOf", None)
        if choices is not None:
            written["enum"] = [one["const"] for one in choices]
            written["enumNames"] = [one["title"] for one in choices]
        if written.get("type") != "boolean":
            written.pop("default", None)
        fields[name] = written
    return {**schema, "properties": fields}


def read_reply(effect: InputRequest[Any], message: Mapping[str, JSON]) -> Answer:
    """Return the answer in a client's response; an error response is an answer, too.

    The error -1 means that the user declined (Sampling, Error Handling); the engine
    handles that.
    """
    error = message.get("error")
    if error is None:
        return read_result(effect, message.get("result"))
    error = error if isinstance(error, dict) else {}
    code, text = error.get("code"), error.get("message")
    return ClientFailed(
        code if type(code) is int else 0,
        text if isinstance(text, str) else "no reason given",
        error.get("data"),
    )


# ---- results ------------------------------------------------------------------------


def fitted(fields: Mapping[str, JSON], revision: Revision) -> dict[str, JSON]:
    """Return a result's fields, without the fields that `revision` lacks."""
    result = {
        key: one
        for key, one in fields.items()
        if key not in ("resultType", "ttlMs", "cacheScope")
    }
    for list_ in ("tools", "prompts", "resources", "resourceTemplates"):
        if list_ in result:
            result[list_] = [_feature(one, revision) for one in result[list_]]
    structured = result.get("structuredContent")
    if not revision.titles or not isinstance(structured, dict):
        # Older revisions allow only an object here, or have no such field. The content
        # shows the value, too.
        result.pop("structuredContent", None)
    if "content" in result:
        result["content"] = [_block(one, revision) for one in result["content"]]
    if "messages" in result:
        result["messages"] = [
            {**one, "content": _block(one["content"], revision)}
            for one in result["messages"]
        ]
    return result


def _feature(listing: Mapping[str, Any], revision: Revision) -> dict[str, Any]:
    without = _dropped(revision)
    kept = {key: one for key, one in listing.items() if key not in without}
    if "outputSchema" in kept and kept["outputSchema"].get("type") != "object":
        del kept["outputSchema"]
    if "arguments" in kept:
        kept["arguments"] = [
            {key: value for key, value in one.items() if key not in without}
            for one in kept["arguments"]
        ]
    return kept


def _dropped(revision: Revision) -> frozenset[str]:
    if not revision.titles:
        return frozenset({"icons", "title", "outputSchema", "_meta"})
    return frozenset() if revision.icons else frozenset({"icons"})


def _block(block: Mapping[str, Any], revision: Revision) -> dict[str, Any]:
    if block.get("type") == "resource_link" and not revision.titles:
        return {"type": "text", "text": f"{block['name']}: {block['uri']}"}
    without = _dropped(revision) - {"title"}
    return {key: one for key, one in block.items() if key not in without}


def _invalid(problem: str) -> ProtocolError:
    return ProtocolError(INVALID_PARAMS, f"Invalid params: {problem}")
