"""Judge the envelope of a request of the newest revision: `_meta`, and headers over HTTP.

Nearly all envelopes are valid, and `judge` reads a valid one in one pass. For any other
it returns `None`: then the checks in `meta` and `headers` find the error, in the order
that the protocol needs, and describe it in words. A test checks that both agree.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ..effects.local import LOG_LEVELS
from .meta import CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, Meta
from .revisions import NEWEST, PROTOCOL_VERSION

if TYPE_CHECKING:
    from .jsonrpc import Request
    from .methods import Method

__all__ = ["judge"]

_DICTS: Final = frozenset({dict})
_TOKENS: Final = frozenset({str, int, type(None)})
_LEVELS: Final = frozenset({*LOG_LEVELS, None})

#: Strings that a header carries unencoded, and that have no other meaning there.
_is_simple: Final = re.compile(r"[A-Za-z0-9._/-]+").fullmatch

#: The client info of a request that has none.
_NOBODY: Final[Mapping[str, Any]] = {}


def judge(
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
