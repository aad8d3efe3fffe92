"""Discovery, lists and their pages, and completion: the contents of a server."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ..canonical import JSON
from ..errors import ProtocolError
from ..protocol.jsonrpc import INVALID_PARAMS
from ..protocol.meta import TASKS
from ..protocol.revisions import VERSIONS
from ..server.viewers import may_see

if TYPE_CHECKING:
    from ..protocol.methods import Capability
    from ..server.app import Server
    from ..server.features import Completion, Feature
    from ..server.viewers import Viewer

__all__ = [
    "capabilities_of",
    "discover",
    "find_completion",
    "list_page",
    "suggestions",
]

#: Suggestions in one result (2026-07-28, Completion).
_MAX_SUGGESTIONS: Final = 100


#: By capability: the details that a server declares.
_DETAILS: Final[Mapping[Capability, JSON]] = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "completions": {},
}


def capabilities_of(app: Server) -> dict[str, JSON]:
    """Return the capabilities that `app` has now."""
    found: dict[str, JSON] = {"logging": {}}
    found |= {name: one for name, one in _DETAILS.items() if name in app.capabilities}
    return found


def _hints(app: Server, scope: str = "public") -> dict[str, JSON]:
    return {"ttlMs": int(app.ttl * 1000), "cacheScope": scope}


def discover(app: Server) -> dict[str, JSON]:
    """Return the fields of `server/discover`'s result."""
    found: dict[str, JSON] = {
        "supportedVersions": list(VERSIONS),
        "capabilities": capabilities_of(app),
        **_hints(app),
    }
    if "tasks" in app.capabilities:
        found["capabilities"]["extensions"] = {TASKS: {}}
    if app.instructions is not None:
        found["instructions"] = app.instructions
    return found


# ---- lists and their pages ----------------------------------------------------------

#: By method: where the features are, and what the result calls them.
_LISTS: Final = {
    "tools/list": ("tools", "tools"),
    "prompts/list": ("prompts", "prompts"),
    "resources/list": ("resources", "resources"),
    "resources/templates/list": ("templates", "resourceTemplates"),
}


def list_page(
    app: Server, method: str, params: Mapping[str, JSON], viewer: Viewer | None = None
) -> dict[str, JSON]:
    """Return the result fields of one page of a list.

    Args:
        app: The server.
        method: The method, which names the list.
        params: The parameters of the request.
        viewer: The user; `None` if no feature is hidden.

    Raises:
        ProtocolError: If this server made no such cursor.
    """
    attribute, field = _LISTS[method]
    features: Mapping[str, Any] = getattr(app, attribute)
    keys = [
        key
        for key, one in features.items()
        if viewer is None or may_see(app, one, viewer)
    ]
    start = _start(params.get("cursor"), method, keys)
    shown = keys[start : start + app.page_size]
    page: dict[str, JSON] = {
        field: [features[key].listing for key in shown],
        # One list for all users, or one for each.
        **_hints(app, "public" if viewer is None else "private"),
    }
    end = start + len(shown)
    if end < len(keys):
        page["nextCursor"] = _cursor(method, end, keys[end - 1])
    return page


# A cursor names the last item of its page, so that the next page starts after it even
# if items before it were added or removed. If that item itself was removed, its former
# position is used.
def _cursor(method: str, place: int, last: str) -> str:
    text = json.dumps([method, place, last])
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _start(cursor: JSON, method: str, keys: list[str]) -> int:
    if cursor is None:
        return 0
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        known, place, last = json.loads(text)
    except (TypeError, ValueError, binascii.Error, RecursionError):
        known = place = last = None
    if known != method or type(place) is not int or not isinstance(last, str):
        raise ProtocolError(INVALID_PARAMS, "Invalid params: no such cursor")
    if last in keys:
        return keys.index(last) + 1
    return min(max(place, 0), len(keys))


# ---- completion ---------------------------------------------------------------------


def find_completion(
    app: Server,
    params: Mapping[str, JSON],
    may_use: Callable[[Feature], bool] | None = None,
) -> tuple[Completion | list[str], str, Mapping[str, str]]:
    """Find the source of the suggestions for a `completion/complete`.

    Args:
        app: The server.
        params: The parameters of the request.
        may_use: Returns whether a feature exists for the client; `None` if no feature is
            hidden.

    Returns:
        The completion function, or the choices that the schema lists; the text so far;
        and the arguments that are filled in already.

    Raises:
        ProtocolError: If there is no such prompt, template or argument, or if the client
            lacks a scope.
    """
    ref, argument = params.get("ref"), params.get("argument")
    if not isinstance(ref, dict) or not isinstance(argument, dict):
        raise _invalid("ref and argument are required, and are objects")
    features: Mapping[str, Any]
    match ref.get("type"):
        case "ref/prompt":
            of, features = ref.get("name"), app.prompts
        case "ref/resource":
            of, features = ref.get("uri"), app.templates
        case _:
            raise _invalid('ref.type is "ref/prompt" or "ref/resource"')
    name, text = argument.get("name"), argument.get("value")
    if not isinstance(name, str) or not isinstance(text, str):
        raise _invalid("argument has a name and a value, which are strings")
    feature = features.get(of) if isinstance(of, str) else None
    is_hidden = feature is not None and may_use is not None and not may_use(feature)
    if feature is None or is_hidden or not isinstance(of, str):
        raise _invalid(f"there is no {of!r} to complete")
    context = params.get("context")
    filled = context.get("arguments") if isinstance(context, dict) else None
    filled = filled if isinstance(filled, dict) else {}
    filled = {key: one for key, one in filled.items() if isinstance(one, str)}
    schema = feature.handler.takes.schema.get("properties", {}).get(name)
    if schema is None:
        raise _invalid(f"{of!r} takes no {name!r}")
    found = app.completions.get((of, name))
    return found or _choices(schema), text, filled


def _choices(schema: Mapping[str, JSON]) -> list[str]:
    choices: list[JSON] = []
    # `Color | None` is a union of the choices and null.
    for part in schema.get("anyOf", (schema,)):
        choices += part.get("enum", ())
        choices += [one.get("const") for one in part.get("oneOf", ())]
    # Numbers are suggested as strings, because arguments of prompts are strings.
    return [str(one) for one in choices if isinstance(one, str) or type(one) is int]


def suggestions(found: Any, text: str) -> dict[str, JSON]:
    """Return the fields of a completion's result.

    Args:
        found: The suggestions.
        text: The text so far; suggestions that do not start with it are left out.

    Raises:
        Exception: If `found` is not an iterable of strings.
    """
    if isinstance(found, str):
        raise TypeError(f"a completion returns a list of strings, not {found!r}")
    values = [one for one in found if one.lower().startswith(text.lower())]
    return {
        "completion": {
            "values": values[:_MAX_SUGGESTIONS],
            "total": len(values),
            "hasMore": len(values) > _MAX_SUGGESTIONS,
        }
    }


def _invalid(problem: str) -> ProtocolError:
    return ProtocolError(INVALID_PARAMS, f"Invalid params: {problem}")
