"""Check that the HTTP headers of a request match the values that they mirror.

Streamable HTTP, Request Metadata: a load balancer routes by the headers and a server
acts on the body. A client that could make them differ would be admitted for one request
and served another. Every check fails closed: values that cannot be compared differ.

The three standard checks are separate functions, because the caller checks other things
in between: whether it speaks that version, whether it has that method.

Headers are a mapping from lower-cased names to values. Repeated headers are handled
where HTTP is read, and not in this module.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Final, Literal

from attrs import frozen

from ..canonical import JSON, MAX_SAFE_INTEGER
from ..errors import EffectMCPError, SchemaError

__all__ = [
    "HeaderMismatch",
    "ParamHeader",
    "check_method",
    "check_name",
    "check_params",
    "check_version",
    "decode_value",
    "encode_value",
    "param_headers",
]


class HeaderMismatch(EffectMCPError):
    """Raised when a header is missing, is malformed, or differs from the body.

    Attributes:
        problem: The header, its value and the body's. The client may see this, as it
            sent both.
    """

    CODE: Final = -32020

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem

    def __str__(self) -> str:
        return f"Header mismatch: {self.problem}"


# ---- values -------------------------------------------------------------------------

# Value Encoding: "visible ASCII characters (0x21-0x7E), space (0x20), and horizontal
# tab (0x09)".
_CHARACTERS: Final = frozenset("\t" + "".join(map(chr, range(0x20, 0x7F))))


def _is_safe(text: str) -> bool:
    # Nearly all values have no tab, so their characters are not checked one by one.
    return text.isascii() and text.isprintable() or _CHARACTERS.issuperset(text)


# RFC 9110, section 5.6.3. Some HTTP parsers strip it from values, and some keep it.
_WHITESPACE: Final = " \t"

_OPENING: Final = "=?base64?"
_CLOSING: Final = "?="


def encode_value(value: str | int | bool) -> str:
    """Return `value` as a header carries it: unchanged if that is safe, else as Base64.

    Raises:
        ValueError: If `value` is an integer that JavaScript would round, or has a lone
            surrogate, which UTF-8 cannot express.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        if not -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER:
            raise ValueError(
                "an integer beyond ±(2**53 - 1), which no header may carry"
            )
        return str(value)
    if _is_safe(value) and value == value.strip(_WHITESPACE) and not _is_encoded(value):
        return value
    return f"{_OPENING}{b64encode(value.encode('utf-8')).decode('ascii')}{_CLOSING}"


def decode_value(text: str) -> str:
    """Return the value that a header's `text` encodes; strip whitespace from it first.

    Raises:
        ValueError: If `text` is malformed. The message completes the sentence "the
            header's value …".
    """
    if not _is_safe(text):
        raise ValueError("has characters that no header may have")
    if not _is_encoded(text):
        return text
    body = text[len(_OPENING) : -len(_CLOSING)]
    try:
        data = b64decode(body, validate=True)
    except ValueError:
        data = b""
    # Encoding the data again must return the same text. The decoder ignores the spare
    # bits of the last character, so up to sixteen encodings would have one value. In
    # `=?base64?=` the two marks share their `?`: one reader takes this for an empty
    # value, another for an unencoded string.
    if text != f"{_OPENING}{b64encode(data).decode('ascii')}{_CLOSING}":
        raise ValueError("is not valid Base64 between its marks")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("is Base64 of something else than UTF-8") from None


def _is_encoded(text: str) -> bool:
    return text.startswith(_OPENING) and text.endswith(_CLOSING)


# ---- annotations --------------------------------------------------------------------

_KEYWORD: Final = "x-mcp-header"

_TYPES: Final[dict[str, Literal["string", "integer", "boolean"]]] = {
    "string": "string",
    "integer": "integer",
    "boolean": "boolean",
}

# RFC 9110, section 5.6.2.
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

# The values of these keywords are instances, not schemas: an `x-mcp-header` in them is
# data.
_DATA: Final = frozenset({"const", "default", "enum", "examples"})
# The values of these keywords map names to schemas: a property may be *called*
# x-mcp-header.
_NAMED: Final = frozenset(
    {"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties"}
    | {"properties"}
)


@frozen
class ParamHeader:
    """An argument that is mirrored into a header.

    Attributes:
        name: The part of the header's name after `Mcp-Param-`, as the schema spells it.
        path: The keys that lead from the arguments to the value.
        type: The type of the value in the schema.
    """

    name: str
    path: tuple[str, ...]
    type: Literal["string", "integer", "boolean"]

    @property
    def header(self) -> str:
        """The full name of the header, such as `Mcp-Param-Region`."""
        return f"Mcp-Param-{self.name}"

    def value_in(self, arguments: Mapping[str, JSON]) -> JSON:
        """Return the value at exactly this path; `None` if it is missing or null."""
        value: JSON = arguments
        for key in self.path:
            if not isinstance(value, Mapping):
                return None
            value = value.get(key)
        return value


def param_headers(input_schema: Mapping[str, JSON]) -> tuple[ParamHeader, ...]:
    """Return the arguments that `input_schema` mirrors into headers, in its order.

    Raises:
        SchemaError: If an `x-mcp-header` breaks a constraint of Custom Headers from
            Tool Parameters, Schema Extension; the message names the property. The
            whole definition is invalid then: a server must not offer the tool, and a
            client must drop it.
    """
    found: dict[str, ParamHeader] = {}
    for path, keyword, schema in _annotated(input_schema):
        of = _shown(path)
        if keyword:
            raise SchemaError(
                f"{of}: {_KEYWORD} is under {_quoted(keyword)}, but only a chain of"
                " `properties` fixes the place of its value"
            )
        if not path:
            raise SchemaError(f"{of}: {_KEYWORD} belongs on one of its properties")
        header = ParamHeader(
            _name_of(schema[_KEYWORD], of), path, _type_of(schema.get("type"), of)
        )
        other = found.setdefault(header.name.lower(), header)
        if other is not header:
            raise SchemaError(
                f"{of}: the {_KEYWORD} {_quoted(header.name)} is also used by"
                f" {_shown(other.path)}, and header names do not differ by case"
            )
    return tuple(found.values())


def _annotated(
    input_schema: Mapping[str, JSON],
) -> Iterator[tuple[tuple[str, ...], str, Mapping[str, JSON]]]:
    # Yields the properties that lead to an annotated schema, the first keyword on the
    # way that is not `properties`, and the schema. Unknown keywords are searched, too,
    # as a $ref may lead there. No recursion, as the schema may be foreign and deep.
    ahead: list[tuple[tuple[str, ...], str, JSON]] = [((), "", input_schema)]
    while ahead:
        path, outside, part = ahead.pop()
        below: list[tuple[tuple[str, ...], str, JSON]] = []
        if isinstance(part, list):
            below = [(path, outside or "a list", one) for one in part]
        elif isinstance(part, Mapping):
            if _KEYWORD in part:
                yield path, outside, part
            for keyword, value in part.items():
                if keyword in _DATA:
                    continue
                if keyword == "properties" and not outside and _is_object(value):
                    below += [((*path, name), "", one) for name, one in value.items()]
                elif keyword in _NAMED and _is_object(value):
                    below += [(path, outside or keyword, one) for one in value.values()]
                else:
                    below.append((path, outside or keyword, value))
        ahead += reversed(below)


def _is_object(value: JSON) -> bool:
    return isinstance(value, Mapping)


def _name_of(name: JSON, of: str) -> str:
    if not isinstance(name, str):
        raise SchemaError(f"{of}: {_KEYWORD} must be text, the name of a header")
    if not name:
        raise SchemaError(f"{of}: {_KEYWORD} must not be empty")
    if _TOKEN.fullmatch(name) is None:
        raise SchemaError(
            f"{of}: the {_KEYWORD} {_quoted(name)} is not the name of a header: letters,"
            " digits and !#$%&'*+-.^_`|~ only"
        )
    return name


def _type_of(type_: JSON, of: str) -> Literal["string", "integer", "boolean"]:
    if isinstance(type_, str) and type_ in _TYPES:
        return _TYPES[type_]
    if isinstance(type_, str):
        what = f"the type {_quoted(type_)}"
    else:
        what = "no type" if type_ is None else "several types"
    raise SchemaError(
        f"{of}: {_KEYWORD} belongs on a string, an integer or a boolean, and here is"
        f" {what}"
    )


# ---- checks -------------------------------------------------------------------------


# Strings that a header carries unencoded, and that have no other meaning there. If the
# header equals such a string of the body, as nearly always, the check is done.
_is_simple: Final = re.compile(r"[A-Za-z0-9._/-]+").fullmatch


def check_version(headers: Mapping[str, str], version: str) -> None:
    """Compare `MCP-Protocol-Version` with the version in the body's `_meta`.

    Raises:
        HeaderMismatch: If the header is missing, malformed or different.
    """
    header = "MCP-Protocol-Version"
    if headers.get("mcp-protocol-version") != version or not _is_simple(version):
        _check(header, _read(headers, header), version)


def check_method(headers: Mapping[str, str], method: str) -> None:
    """Compare `Mcp-Method` with the body's `method`; case matters.

    Raises:
        HeaderMismatch: If the header is missing, malformed or different.
    """
    if headers.get("mcp-method") != method or not _is_simple(method):
        _check("Mcp-Method", _read(headers, "Mcp-Method"), method)


def check_name(headers: Mapping[str, str], name: str) -> None:
    """Compare `Mcp-Name` with the name, URI or task id in the body.

    Raises:
        HeaderMismatch: If the header is missing, malformed or different.
    """
    if headers.get("mcp-name") != name or not _is_simple(name):
        _check("Mcp-Name", _read_decoded(headers, "Mcp-Name"), name)


def check_params(
    headers: Mapping[str, str],
    rules: tuple[ParamHeader, ...],
    arguments: Mapping[str, JSON],
) -> None:
    """Compare the `Mcp-Param-*` headers of a tool with the arguments of the call.

    A value is compared by its own type, not by the type in the schema: whether the
    arguments fit the schema is checked elsewhere, with messages for the model.

    Args:
        headers: The headers, by lower-cased name.
        rules: The headers that `param_headers` found in the tool's schema.
        arguments: The body's `params.arguments`.

    Raises:
        HeaderMismatch: If a header is missing, malformed or different, or is present
            without a value in the body; the first such header.
    """
    for rule in rules:
        text = _read_decoded(headers, rule.header)
        value = rule.value_in(arguments)
        if value is not None:
            _check(rule.header, text, value)
        # Server Behavior for Custom Headers, the table: for null and for missing
        # arguments "Client MUST omit the header" and "Server MUST NOT expect the
        # header". A header that is sent anyway routes the request by a value that the
        # body does not have, so it does not "match the corresponding values in the
        # request body".
        elif text is not None:
            raise HeaderMismatch(
                f"{rule.header} header value {_quoted(text)} does not match the body,"
                f" which has no value at {_shown(rule.path)}"
            )


def _read(headers: Mapping[str, str], header: str) -> str | None:
    text = headers.get(header.lower())
    if text is None:
        return None
    text = text.strip(_WHITESPACE)
    if not _is_safe(text):
        raise _malformed(header, text, "has characters that no header may have")
    return text


def _read_decoded(headers: Mapping[str, str], header: str) -> str | None:
    text = _read(headers, header)
    if text is None:
        return None
    try:
        return decode_value(text)
    except ValueError as exc:
        raise _malformed(header, text, str(exc)) from None


def _malformed(header: str, text: str, words: str) -> HeaderMismatch:
    return HeaderMismatch(f"{header} header value {_quoted(text)} {words}")


def _check(header: str, text: str | None, value: JSON) -> None:
    if text is None:
        raise HeaderMismatch(
            f"{header} header is missing, and the body value is {_said(value)}"
        )
    if not _is_same(text, value):
        raise HeaderMismatch(
            f"{header} header value {_quoted(text)} does not match body value"
            f" {_said(value)}"
        )


# A number as JSON writes it. Clients that read JSON into doubles write 42.0, or 1e+06.
# No double needs more than three digits of exponent, and a larger one would be costly.
_NUMBER: Final = re.compile(
    r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[Ee][+-]?[0-9]{1,3})?"
)


def _is_same(text: str, value: JSON) -> bool:
    if isinstance(value, str):
        return text == value
    if isinstance(value, bool):
        return text == ("true" if value else "false")
    if isinstance(value, (int, float)):
        # As decimals, which compare exactly. As doubles, 2**53 would be 2**53 + 1.
        return (
            abs(value) <= MAX_SAFE_INTEGER
            and _NUMBER.fullmatch(text) is not None
            and Decimal(text) == Decimal(str(value))
        )
    # Arrays and objects have no form in a header, so they never match.
    return False


def _said(value: JSON) -> str:
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        # Not written out: Python refuses to format integers with too many digits.
        is_safe = abs(value) <= MAX_SAFE_INTEGER
        return str(value) if is_safe else "a number beyond ±(2**53 - 1)"
    return "an array" if isinstance(value, list) else "an object"


_MAX_WORD: Final = 80
_MAX_PATH: Final = 200


def _quoted(text: str) -> str:
    # repr() escapes lone surrogates, line ends and all else that is not printable.
    return repr(_cut(text, _MAX_WORD))


def _shown(path: tuple[str, ...]) -> str:
    steps = (step if step.isidentifier() else _quoted(step) for step in path)
    return _cut(".".join(steps) or "the schema", _MAX_PATH)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"
