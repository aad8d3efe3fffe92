"""Turn what a handler returned or raised into the fields of a result.

A failure of a tool that a model can do something about becomes a result with `isError`.
Any other is logged with its traceback, and its response reveals no details (2026-07-28,
Tools, Error Handling).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ..canonical import JSON
from ..content import (
    Block,
    ResourceContents,
    ToolResult,
    blocks_of,
    contents_of,
    messages_of,
)
from ..errors import (
    ArgumentsError,
    ClientError,
    DivergenceError,
    OutputError,
    ProtocolError,
    Refused,
    StateError,
    ToolError,
)
from ..logs import logger_for
from ..protocol.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    OPAQUE,
    encode,
    error_message,
)
from ..schema.declared import final_type, place_of
from ..schema.written import written
from ..shapes.problems import rendered, unreadable
from ..shapes.words import type_name
from .commands import Overdue

if TYPE_CHECKING:
    from ..server.app import Server
    from ..server.features import Feature, Prompt, Resource, Tool
    from ..server.interceptors import CallKind

__all__ = [
    "Misread",
    "bad_arguments",
    "error_of",
    "prompt_result",
    "resource_result",
    "result_of",
    "told_failure",
    "tool_failure",
    "tool_result",
    "unshared",
]

logger = logger_for("effectmcp.server")


# ---- values -------------------------------------------------------------------------


def tool_result(tool: Tool, value: Any) -> dict[str, JSON]:
    """Return the fields of `tools/call`'s result.

    Raises:
        OutputError: If the value does not match the tool's output schema, or cannot be
            sent.
    """
    if isinstance(value, ToolResult):
        return _whole_result(tool, value)
    if tool.output is not None or tool.raw_output is not None:
        return _structured(tool, value, None)
    if _is_content(value):
        return {"content": blocks_of(value)}
    return _structured(tool, value, None)


def _plain(value: Any) -> JSON:
    made, problems = written(value)
    problems = problems or unreadable(made)
    if problems:
        raise OutputError(rendered(problems, root="the result"))
    return made


def _is_content(value: Any) -> bool:
    if isinstance(value, (list, tuple)) and value:
        # A list of only strings is data, as for a tool annotated with list[str].
        return any(_is_block(item) for item in value)
    return value is None or isinstance(value, (str, bytes)) or _is_block(value)


def _is_block(value: Any) -> bool:
    return isinstance(value, Block)


def _structured(tool: Tool, value: Any, content: list[JSON] | None) -> dict[str, JSON]:
    if tool.output is not None:
        try:
            value = tool.output.write(value)
        except OutputError as exc:
            raise _misfit(tool, value, exc.problems) from None
    elif tool.raw_output is not None:
        if problems := tool.raw_output.check(value):
            raise _misfit(tool, value, problems)
    else:
        value = _plain(value)
    if not content:
        # For clients and models that read `content` only (Tools, Structured Content).
        content = [{"type": "text", "text": json.dumps(value, ensure_ascii=False)}]
    return {"content": content, "structuredContent": value}


def _misfit(tool: Tool, value: Any, problems: Sequence[str]) -> OutputError:
    handler = tool.handler
    says = (
        "its output_schema"
        if tool.output is None
        else type_name(final_type(handler.returns))
    )
    place, made = place_of(handler.function), type(value).__qualname__
    return OutputError([f"{place} returned {made}, and promises {says}", *problems])


def _whole_result(tool: Tool, value: ToolResult) -> dict[str, JSON]:
    content = blocks_of(value.content)
    result: dict[str, JSON] = {"content": content}
    if value.is_structured:
        result = _structured(tool, value.structured, content)
    elif (tool.output or tool.raw_output) is not None and not value.is_error:
        raise OutputError(["the tool promised structured content, and gave none"])
    if value.is_error:
        result["isError"] = True
    if value.meta is not None:
        result["_meta"] = dict(value.meta)
    return result


def prompt_result(prompt: Prompt, value: Any) -> dict[str, JSON]:
    """Return the fields of `prompts/get`'s result.

    Raises:
        OutputError: If the value is not made of strings, blocks and messages.
    """
    result: dict[str, JSON] = {"messages": messages_of(value)}
    if prompt.description:
        result["description"] = prompt.description
    return result


def resource_result(resource: Resource, uri: str, value: Any) -> dict[str, JSON]:
    """Return the fields of `resources/read`'s result.

    Raises:
        OutputError: If the value cannot be sent.
    """
    contents = contents_of(value, uri, resource.mime_type)
    if contents is None:
        text = json.dumps(_plain(value), ensure_ascii=False)
        type_ = resource.mime_type or "application/json"
        contents = [ResourceContents(text).to_wire(uri, type_)]
    return {
        "contents": contents,
        "ttlMs": int(resource.ttl * 1000),
        "cacheScope": resource.scope,
    }


def unshared(
    app: Server, resource: Resource, fields: Mapping[str, JSON]
) -> Mapping[str, JSON]:
    """Return the fields of a result, private if only some users may read the resource.

    A cache that users share would show them a public result without a check of this
    server (2026-07-28, Caching).
    """
    is_for_some = resource.visible or resource.scopes or app.visible
    if is_for_some and fields.get("cacheScope") == "public":
        return {**fields, "cacheScope": "private"}
    return fields


#: By the kind of a feature: returns the fields of a result, given the feature, the name or
#: URI that was called, and the value.
_RESULTS: Final[Mapping[CallKind, Callable[[Any, str, Any], dict[str, JSON]]]] = {
    "tool": lambda tool, _, value: tool_result(tool, value),
    "prompt": lambda prompt, _, value: prompt_result(prompt, value),
    "resource": lambda resource, uri, value: resource_result(resource, uri, value),
}


def result_of(feature: Feature, target: str, value: Any) -> dict[str, JSON]:
    """Return the fields of the result that has a value.

    Raises:
        OutputError: If the value is not of the type that the feature promises.
    """
    return _RESULTS[feature.kind](feature, target, value)


# ---- failures -----------------------------------------------------------------------


class Misread(ArgumentsError):
    """Raised for arguments that a client sent.

    An `ArgumentsError` that a handler raises itself is a fault of the handler.
    """


def tool_failure(error: BaseException, of: str) -> dict[str, JSON]:
    """Return the fields of a result that tells a model what went wrong.

    Raises:
        ProtocolError: If the error is for the client, and not for the model.
    """
    match error:
        case ToolError() | Refused() | Misread():
            return told_failure(error)
        case DivergenceError():
            logger.error("%s: %s", of, error)
            text = error.public
        case StateError() | ProtocolError():
            raise error_of(error, of)
        case ClientError():
            logger.warning("%s: %s", of, error)
            return told_failure(error)
        case Overdue():
            text = f"{of} took too long, and was ended."
        case _:
            logger.error("%s failed", of, exc_info=error)
            text = f"{OPAQUE}: {of} failed. The server's log has the reason."
    return _failure(text)


def bad_arguments(error: ArgumentsError) -> ProtocolError:
    """Return the JSON-RPC error for arguments that a prompt does not take."""
    return ProtocolError(INVALID_PARAMS, f"Invalid params: {_text_of(error)}")


def told_failure(error: Exception) -> dict[str, JSON]:
    """Return the fields of a result whose text is the message of `error`."""
    return _failure(_text_of(error))


def _failure(text: str) -> dict[str, JSON]:
    return {"content": [{"type": "text", "text": text}], "isError": True}


def error_of(error: BaseException, of: str) -> ProtocolError:
    """Return the JSON-RPC error for what a handler raised.

    Args:
        error: The error that the handler raised.
        of: The name of the handler, for logs and the message.
    """
    match error:
        case ProtocolError() if _is_sendable(error):
            return error
        case StateError():
            return ProtocolError(StateError.CODE, StateError.PUBLIC)
        case Misread():
            return bad_arguments(error)
        case ToolError() | Refused() | ClientError():
            return ProtocolError(INTERNAL_ERROR, _text_of(error))
        case DivergenceError():
            logger.error("%s: %s", of, error)
            return ProtocolError(INTERNAL_ERROR, error.public)
        case Overdue():
            return ProtocolError(INTERNAL_ERROR, f"{of} took too long, and was ended.")
        case _:
            logger.error("%s failed", of, exc_info=error)
            return ProtocolError(INTERNAL_ERROR, OPAQUE)


def _text_of(error: BaseException) -> str:
    # The words of an author, or of a client: lone surrogates are escaped, so that the
    # text can be sent.
    return str(error).encode("utf-8", "backslashreplace").decode("utf-8")


def _is_sendable(error: ProtocolError) -> bool:
    try:
        encode(error_message(None, error))
    except (TypeError, ValueError, RecursionError):
        return False
    return type(error.code) is int and type(error.message) is str
