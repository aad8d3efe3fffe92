"""Revision 2026-07-28: envelopes, questions, answers and results on the wire.

Nearly all envelopes are valid, and `read_envelope` reads a valid one in one pass. For
any other it returns `None`: then the checks in `meta` and `headers` find the error, in
the order that the protocol needs, and describe it in words. A test checks that both
agree.

A question is sent in a result, and its answer arrives with the next request (MRTR).
Both directions are here: `input_required` writes the questions, and `read_answers`
reads the answers. An answer can be read only with its question: `{"role": "admin"}` may
be a form's content or half a sampling result, and is consent only to its own question.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ..canonical import JSON
from ..effects.base import InputRequest
from ..effects.local import LOG_LEVELS
from ..effects.questions import (
    Accepted,
    Confirm,
    Elicit,
    ElicitUrl,
    ListRoots,
    Outcome,
    Sample,
)
from ..engine.effect_table import KINDS, QUESTIONS
from ..engine.stops import Question, Unread
from ..errors import Declined, Dismissed, ProtocolError
from ..forms.form import Unfit
from .jsonrpc import INVALID_PARAMS
from .meta import CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, SERVER_INFO, Meta
from .revisions import NEWEST, PROTOCOL_VERSION

if TYPE_CHECKING:
    from ..engine.answers import Answer, Said
    from .jsonrpc import Request
    from .methods import Method

__all__ = [
    "MISSING_CAPABILITY",
    "can_answer",
    "complete_result",
    "input_required",
    "lacking_of",
    "missing_capability",
    "named",
    "read_answers",
    "read_envelope",
    "read_result",
    "request_of",
]

MISSING_CAPABILITY: Final = -32021

# ---- the envelope -------------------------------------------------------------------

_DICTS: Final = frozenset({dict})
_TOKENS: Final = frozenset({str, int, type(None)})
_LEVELS: Final = frozenset({*LOG_LEVELS, None})

#: Strings that a header carries unencoded, and that have no other meaning there.
_is_simple: Final = re.compile(r"[A-Za-z0-9._/-]+").fullmatch

#: The client info of a request that has none.
_NOBODY: Final[Mapping[str, Any]] = {}


def read_envelope(
    request: Request,
    headers: Mapping[str, str] | None,
    methods: Mapping[str, Method],
) -> Meta | None:
    """Return the `_meta` of `request`; `None` if its envelope may be invalid.

    Args:
        request: The request.
        headers: The HTTP headers, by lower-cased name; `None` without HTTP.
        methods: The methods of the newest revision that the server offers.
    """
    meta: Any = request.params.get("_meta")
    method = methods.get(request.method)
    if type(meta) is not dict or method is None:
        return None
    version = NEWEST.version
    capabilities = meta.get(CLIENT_CAPABILITIES)
    info, level = meta.get(CLIENT_INFO, _NOBODY), meta.get(LOG_LEVEL)
    token, trace = meta.get("progressToken"), meta.get("traceparent")
    if (
        meta.get(PROTOCOL_VERSION) != version
        or type(capabilities) is not dict
        or not _DICTS.issuperset(map(type, capabilities.values()))
        or type(token) not in _TOKENS
        or (level is not None and (type(level) is not str or level not in _LEVELS))
    ):
        return None
    client = None
    if info is not _NOBODY:
        if type(info) is not dict:
            return None
        name, number = info.get("name"), info.get("version")
        if type(name) is not str or type(number) is not str:
            return None
        client = f"{name} {number}"[:200]
    if headers is not None:
        if (
            headers.get("mcp-protocol-version") != version
            or headers.get("mcp-method") != request.method
        ):
            return None
        if method.name_from is not None:
            named = request.params.get(method.name_from)
            if (
                type(named) is not str
                or headers.get("mcp-name") != named
                or not _is_simple(named)
            ):
                return None
    if type(trace) is not str or len(trace) > 64:
        trace = None
    return Meta(version, capabilities, client, level, token, trace)


# ---- what a client can be asked -----------------------------------------------------


def can_answer(capabilities: Mapping[str, JSON], what: Any) -> bool:
    """Whether a client can be asked an effect, or an effect of a class.

    Args:
        capabilities: The client's capabilities.
        what: The effect, or the class.
    """
    if type(what) in _FORMS:  # nearly every question
        has = capabilities.get("elicitation")
        return isinstance(has, dict) and (not has or "form" in has)
    return not lacking_of(what, capabilities)


def lacking_of(what: Any, capabilities: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return the capabilities that a client needs to be asked `what`, and lacks.

    Args:
        what: An effect, a class of effects, or the name of the class that could not be
            asked.
        capabilities: The client's capabilities.
    """
    if not isinstance(what, str):
        return _lacking(_needed(what), capabilities)
    class_ = QUESTIONS.get(what)
    missing = {} if class_ is None else lacking_of(class_, capabilities)
    if class_ is Sample and not missing:
        # The client can sample, but this question could not be asked: so it had tools.
        return _lacking({"sampling": {"tools": {}}}, capabilities)
    return missing


def _lacking(
    needed: Mapping[str, dict[str, JSON]], capabilities: Mapping[str, JSON]
) -> dict[str, JSON]:
    missing: dict[str, JSON] = {}
    for name, parts in needed.items():
        has = capabilities.get(name)
        if not isinstance(has, dict):
            missing[name] = parts
            continue
        if name == "elicitation" and "form" in parts and not has:
            continue  # `{}` is form mode (Elicitation, Capabilities)
        if not parts.keys() <= has.keys():
            missing[name] = {part: {} for part in parts if part not in has}
    return missing


#: Effects that are asked with a form.
_FORMS: Final = frozenset(
    effect for effect, kind in KINDS.items() if kind.needs == KINDS[Elicit].needs
)


def _needed(what: Any) -> Mapping[str, dict[str, JSON]]:
    class_ = what if isinstance(what, type) else type(what)
    if class_ is Outcome:
        return _needed(what.request) if class_ is not what else {}
    if class_ is Sample and class_ is not what and (what.tools or what.tool_choice):
        return {"sampling": {"tools": {}}}
    # `InputRequest` itself means the most common question.
    return KINDS[class_ if class_ in KINDS else Elicit].needs


def named(
    missing: Mapping[str, JSON], capabilities: Mapping[str, JSON]
) -> dict[tuple[str, str], str]:
    """Return the names of missing capabilities in messages, by capability and part.

    A part is named only if the client declares the capability without it.

    Args:
        missing: The missing capabilities, as `lacking_of` returns them.
        capabilities: The client's capabilities.
    """
    return {
        (name, part): f"{name}.{part}" if part and name in capabilities else name
        for name, parts in missing.items()
        for part in parts or ("",)
    }


#: What calls the handler, by method: only these may ask (MRTR, Server Requirements).
_CALLED: Final[Mapping[str, str]] = {
    "tools/call": "This tool",
    "prompts/get": "This prompt",
    "resources/read": "This resource",
}

#: What a handler does that needs a capability, by capability and part.
_ASKS: Final[Mapping[tuple[str, str], str]] = {
    ("elicitation", "form"): "asks its user a question",
    ("elicitation", "url"): "asks its user to open a page",
    ("sampling", ""): "asks its client's model for a message",
    ("sampling", "tools"): "asks its client's model for a message, with tools",
    ("roots", ""): "asks its client for the user's folders",
}


def missing_capability(
    what: Iterable[Any], capabilities: Mapping[str, JSON], method: str
) -> ProtocolError | None:
    """Return the error for a client that cannot be asked all of `what`; else `None`.

    Agents show its message to the model, so it is in plain words.

    Args:
        what: Effects, classes of effects, or the names of such classes.
        capabilities: The client's capabilities.
        method: The method of the request whose handler asks.
    """
    missing: dict[str, JSON] = {}
    for one in what:
        for name, parts in lacking_of(one, capabilities).items():
            missing[name] = {**missing.get(name, {}), **parts}
    if not missing:
        return None
    asks = [
        f"{_ASKS[need]} ({name})" for need, name in named(missing, capabilities).items()
    ]
    return ProtocolError(
        MISSING_CAPABILITY,
        f"{_CALLED[method]} {' and '.join(asks)}, which this client did not say it can"
        " do. Use it from a client that can.",
        {"requiredCapabilities": missing},
        status=400,
    )


# ---- questions ----------------------------------------------------------------------


def input_required(questions: Iterable[Question], state: str) -> dict[str, JSON]:
    """Return the fields of an interim result.

    `inputRequests` is included even if it is empty: an existing client takes a result
    without it for a final one.
    """
    requests: dict[str, JSON] = {}
    for one in questions:
        requests[one.key] = request_of(one)
    return {
        "resultType": "input_required",
        "inputRequests": requests,
        "requestState": state,
    }


def complete_result(
    info: Mapping[str, JSON], fields: Mapping[str, JSON]
) -> dict[str, JSON]:
    """Return a complete result.

    Args:
        info: The server's name, version and so on.
        fields: The fields of the result.
    """
    meta = {SERVER_INFO: info, **fields.get("_meta", {})}
    return {"resultType": "complete", **fields, "_meta": meta}


def request_of(question: Question) -> dict[str, JSON]:
    """Return the method and the parameters of the request that asks a question."""
    params: dict[str, JSON]
    match question.effect:
        case Elicit(message) as effect:
            schema = effect.spec.schema
            params = {"mode": "form", "message": message, "requestedSchema": schema}
            if effect.meta is not None:
                params["_meta"] = dict(effect.meta)
        case Confirm(message):
            params = {"mode": "form", "message": message, "requestedSchema": _NO_FIELDS}
        case ElicitUrl(message, url):
            params = {"mode": "url", "message": message, "url": url}
        case Sample() as effect:
            return {"method": "sampling/createMessage", "params": _sampling(effect)}
        case ListRoots():
            return {"method": "roots/list"}
        case effect:
            raise TypeError(f"{effect!r} is not a question of this protocol")
    if question.problems:
        params["message"] = _with_problems(message, question.problems)
    return {"method": "elicitation/create", "params": params}


_NO_FIELDS: Final[Mapping[str, JSON]] = {"type": "object", "properties": {}}


def _with_problems(text: str, problems: Collection[str]) -> str:
    lines = "".join(f"\n- {problem}" for problem in problems)
    return f"{text}\n\nYour last answer did not fit:{lines}"


def _sampling(effect: Sample[Any]) -> dict[str, JSON]:
    params: dict[str, JSON] = {
        "messages": list(effect.messages),
        "maxTokens": effect.max_tokens,
    }
    if effect.system is not None:
        params["systemPrompt"] = effect.system
    if effect.temperature is not None:
        params["temperature"] = effect.temperature
    if effect.stop_sequences:
        params["stopSequences"] = list(effect.stop_sequences)
    if effect.preferences is not None:
        params["modelPreferences"] = dict(effect.preferences)
    if effect.tools:
        params["tools"] = list(effect.tools)
    if effect.tool_choice is not None:
        params["toolChoice"] = {"mode": effect.tool_choice}
    return params


# ---- answers ------------------------------------------------------------------------


def read_answers(params: Mapping[str, JSON]) -> dict[str, Answer]:
    """Return the answers in a request, by wire key.

    Raises:
        ProtocolError: If `inputResponses` is not an object of objects.
    """
    responses = params.get("inputResponses")
    if responses is None:
        # Absent or null: there are no answers.
        return {}
    answers: dict[str, Answer] = {}
    if isinstance(responses, dict):
        for key, value in responses.items():
            if isinstance(value, dict):
                answers[key] = Unread(value)
        if len(answers) == len(responses):
            return answers
    raise ProtocolError(
        INVALID_PARAMS, "Invalid params: inputResponses is a map of results"
    )


def read_result(effect: InputRequest[Any], value: JSON) -> Said:
    """Read a client's result as the answer to the question `effect`."""
    if not isinstance(value, dict):
        return Unfit(["the answer must be an object"])
    if "elicitation" not in KINDS[type(effect)].needs:
        return Accepted(value)
    match value.get("action"):
        case "accept":
            return Accepted(value.get("content"))
        case "decline":
            return Declined()
        case "cancel":
            return Dismissed()
        case _:
            return Unfit(['action: must be "accept", "decline" or "cancel"'])
