"""Canonical JSON: one text for one value, and nothing that a reader could misread.

Journals are compared, digested and sealed as bytes, so a value must have exactly one
text: UTF-8, sorted string keys, no spaces, always from the standard library's encoder
(orjson writes `1e-7` where json writes `1e-07`). `dumps` refuses what would not come
back as it went: NaN, tuples, integer keys, subclasses, lone surrogates, deep nesting.

`loads` reads back what `dumps` wrote and trusts it; `parse` reads what a stranger wrote
and does not.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final, TypeAlias

from .errors import CanonicalError

__all__ = ["JSON", "MAX_DEPTH", "MAX_SAFE_INTEGER", "dumps", "loads", "parse"]

#: The one place where `Any` is honest: a decoded JSON value.
JSON: TypeAlias = Any

#: Deeper than any form, argument or result we have seen, far from the recursion limit.
MAX_DEPTH: Final = 64

#: JavaScript clients cannot tell 2**53 from 2**53 + 1 (RFC 8259, section 6).
MAX_SAFE_INTEGER: Final = 2**53 - 1

_SCALARS: Final = frozenset({str, int, float, bool, type(None)})

_encoder: Final = json.JSONEncoder(
    ensure_ascii=False,
    allow_nan=False,
    sort_keys=True,
    separators=(",", ":"),
    # What refers to itself is nested too deep, and `dumps` has looked at that before.
    check_circular=False,
)

# `encode` makes a C encoder for each value, which takes longer than to write a short
# one: here is one for all. Where there is none in C, `iterencode` is called the same.
_make: Final = getattr(json.encoder, "c_make_encoder", None)
_chunks: Final[Any] = (
    _encoder.iterencode
    if _make is None
    else _make(
        None,  # no markers: nothing is circular
        _encoder.default,
        json.encoder.encode_basestring,
        None,  # no indent
        _encoder.key_separator,
        _encoder.item_separator,
        _encoder.sort_keys,
        _encoder.skipkeys,
        _encoder.allow_nan,
    )
)

# The C scanner itself: `json.loads` on bytes spends four fifths of its time on
# guessing the encoding and on trailing blanks, and canonical text has neither doubt.
_scan: Final = json.JSONDecoder().scan_once  # type: ignore[attr-defined]


def dumps(
    value: JSON, *, safe_integers: bool = False, max_depth: int = MAX_DEPTH
) -> bytes:
    """The one text of `value`.

    Args:
        value: Plain JSON: dict, list, str, int, float, bool, None, and no subclasses.
        safe_integers: Refuse integers that a JavaScript client would round.
        max_depth: How deep it may be nested. More than the default is for what wraps
            values that were held to it.

    Raises:
        CanonicalError: naming the part that JSON cannot carry unchanged.
    """
    if type(value) not in _SCALARS:
        _check(value, max_depth, "", safe_integers)
    elif safe_integers:
        _check_integer(value, "")
    try:
        return "".join(_chunks(value, 0)).encode("utf-8")
    except UnicodeEncodeError:
        raise CanonicalError(
            f"{_at(_culprit(value))}a lone surrogate: this text is not Unicode and no"
            " client can read it"
        ) from None
    except ValueError as exc:
        # NaN and the infinities, or an integer beyond Python's own limit on digits.
        raise CanonicalError(
            f"{_at(_culprit(value))}a number that JSON cannot carry: {exc}"
        ) from None


def _check(value: JSON, room: int, path: str, safe_integers: bool) -> None:
    if room <= 0:
        raise CanonicalError(f"{_at(path)}nested deeper than {MAX_DEPTH} levels")
    # By exact type: a subclass (an IntEnum, an OrderedDict, a str with a tag) would
    # come back as its base, and the first run would differ from the replay.
    items: Iterable[tuple[str | int, JSON]]
    if type(value) is dict:
        for key in value:
            if type(key) is not str:
                raise CanonicalError(
                    f"{_at(path)}the key {key!r}, where JSON has only strings as keys"
                )
        items = value.items()
    elif type(value) is list:
        items = enumerate(value)
    else:
        raise CanonicalError(f"{_at(path)}{_describe(value)}")
    for key, item in items:
        if type(item) not in _SCALARS:
            _check(item, room - 1, f"{path}/{key}", safe_integers)
        elif safe_integers:
            _check_integer(item, f"{path}/{key}")


def _check_integer(value: JSON, path: str) -> None:
    if type(value) is int and not -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER:
        raise CanonicalError(
            f"{_at(path)}an integer beyond ±(2**53 - 1), which clients round; send text"
        )


def _describe(value: object) -> str:
    if type(value) is tuple:
        return "a tuple, which would come back as a list; write a list"
    if isinstance(value, (set, frozenset)):
        return "a set, whose order differs from process to process; write sorted(...)"
    return f"a value of type {type(value).__qualname__}, which JSON does not know"


def _culprit(value: JSON) -> str:
    """The path to what the encoder refused, looked for once it has."""
    path = ""
    while type(value) is dict or type(value) is list:
        items = value.items() if type(value) is dict else enumerate(value)
        for key, item in items:
            try:
                "".join(_chunks(item, 0)).encode("utf-8")
            except ValueError:
                path, value = f"{path}/{key}", item
                break
        else:
            break  # it is one of the keys
    return path


def _at(path: str) -> str:
    if not path:
        return ""
    # A key with a lone surrogate must not spoil whatever prints the message.
    return f"at {path.encode('utf-8', 'backslashreplace').decode('utf-8')}: "


def loads(text: bytes) -> JSON:
    """The value of a text that `dumps` wrote."""
    return _scan(text.decode("utf-8"), 0)[0]


def parse(text: str | bytes, *, max_depth: int = MAX_DEPTH) -> JSON:
    """The value of a text that anybody may have written.

    Args:
        text: The text.
        max_depth: As for `dumps`.

    Raises:
        CanonicalError: for anything but one JSON value without duplicate keys, NaN,
            infinities, lone surrogates or nesting beyond `MAX_DEPTH`.
    """
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError:
            raise CanonicalError("not UTF-8") from None
    _check_depth(text, max_depth)
    try:
        value = _decode(text)
        # Escapes hide lone surrogates from the decoding above, and `1e400` is read as
        # an infinity: the encoder is the one that notices both.
        dumps(value, max_depth=max_depth)
    except CanonicalError:
        raise
    except ValueError as exc:
        raise CanonicalError(f"not JSON: {exc}") from None
    return value


def _check_depth(text: str, max_depth: int) -> None:
    # Before the decoder sees it: its recursion is in C, on the caller's stack. Brackets
    # inside strings only make this count too high, and then the slow count decides.
    if text.count("[") + text.count("{") <= max_depth:
        return
    depth = 0
    in_string = escaped = False
    for char in text:
        if in_string:
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
            elif char == '"':
                in_string = False
        elif char == '"':
            in_string = True
        elif char in "[{":
            depth += 1
            if depth > max_depth:
                raise CanonicalError(f"nested deeper than {max_depth} levels")
        elif char in "]}":
            depth -= 1


def _no_duplicates(pairs: list[tuple[str, JSON]]) -> dict[str, JSON]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise CanonicalError("an object with the same key twice")
    return result


def _no_constant(name: str) -> JSON:
    raise CanonicalError(f"{name} is not JSON")


_decode: Final = json.JSONDecoder(
    object_pairs_hook=_no_duplicates, parse_constant=_no_constant
).decode
