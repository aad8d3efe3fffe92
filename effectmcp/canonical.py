"""Canonical JSON: one encoding for each value, which no reader can misread.

Journals are compared, digested and sealed as bytes, so a value must have exactly one
encoding: UTF-8, sorted string keys, no spaces, always from the standard library's
encoder (orjson writes `1e-7` where json writes `1e-07`). `dumps` refuses values that a
round trip would change: NaN, tuples, integer keys, subclasses, lone surrogates, deep
nesting (docs/internals/replay.md#e4).

`loads` reads the output of `dumps` and trusts it. `parse` reads untrusted input.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from math import isinf
from typing import Any, Final, TypeAlias

from .errors import CanonicalError
from .json_text import JsonText, lone_surrogate

__all__ = [
    "JSON",
    "MAX_DEPTH",
    "MAX_SAFE_INTEGER",
    "chunks_by",
    "dumps",
    "loads",
    "parse",
]

#: A decoded JSON value, which can only be typed as `Any`.
JSON: TypeAlias = Any

#: Deeper than all known forms, arguments and results, and far from the recursion limit.
MAX_DEPTH: Final = 64

#: JavaScript clients cannot tell 2**53 from 2**53 + 1 (RFC 8259, section 6).
MAX_SAFE_INTEGER: Final = 2**53 - 1

_SCALARS: Final = frozenset({str, int, float, bool, type(None)})
_TEXT: Final = frozenset({str})

_encoder: Final = json.JSONEncoder(
    ensure_ascii=False,
    allow_nan=False,
    sort_keys=True,
    separators=(",", ":"),
    # `dumps` has checked the depth before, which is too large for circular values.
    check_circular=False,
)


def chunks_by(encoder: json.JSONEncoder) -> Callable[[JSON, int], Iterable[str]]:
    """Return a function that encodes a value as `encoder` does.

    Call it with a value and 0, and join the parts that it returns. `encoder.encode`
    makes a C encoder for each value, which takes longer than encoding a short value;
    this makes one for all values. Without the C extension, the function is
    `iterencode`, which takes the same arguments.

    Args:
        encoder: An encoder without `ensure_ascii`, `check_circular` and `indent`.
    """
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    plain: Any = encoder.iterencode
    made: Callable[[JSON, int], Iterable[str]] = (
        plain
        if make is None
        else make(
            None,  # no markers: nothing is circular
            encoder.default,
            json.encoder.encode_basestring,
            None,  # no indent
            encoder.key_separator,
            encoder.item_separator,
            encoder.sort_keys,
            encoder.skipkeys,
            encoder.allow_nan,
        )
    )
    return made


_chunks: Final = chunks_by(_encoder)
# The part of the encoder that writes strings.
_quoted: Final[Callable[[str], str]] = json.encoder.encode_basestring

# The C scanner itself: `json.loads` on bytes spends four fifths of its time on guessing
# the encoding and on trailing blanks, which canonical JSON makes needless.
_scan: Final = json.JSONDecoder().scan_once  # type: ignore[attr-defined]  # not in typeshed


def dumps(
    value: JSON, *, safe_integers: bool = False, max_depth: int = MAX_DEPTH
) -> bytes:
    """Return the canonical encoding of `value`.

    Args:
        value: Plain JSON: dict, list, str, int, float, bool, None, and no subclasses.
        safe_integers: Whether to refuse integers that a JavaScript client would round.
        max_depth: Limit of the nesting. A larger value than the default is for messages
            that contain values with the default limit.

    Raises:
        CanonicalError: If JSON cannot carry `value` unchanged; the message names the
            part.
    """
    kind = type(value)
    if kind in _SCALARS:
        if safe_integers and _is_unsafe(value):
            raise CanonicalError(_UNSAFE)
    elif (
        safe_integers
        or kind is not dict
        or not _TEXT.issuperset(map(type, value))
        or not _SCALARS.issuperset(map(type, value.values()))
    ):
        _check_all(value, max_depth, safe_integers)  # not flat, as most values are
    try:
        if kind is str:
            return _quoted(value).encode("utf-8")
        return "".join(_chunks(value, 0)).encode("utf-8")
    except ValueError as exc:
        raise _refusal(value, exc) from None


_LONE: Final = "a lone surrogate: this text is not Unicode and no client can read it"


def _refusal(value: JSON, exc: ValueError) -> CanonicalError:
    at = _at(_culprit(value))
    if isinstance(exc, UnicodeEncodeError):
        return CanonicalError(f"{at}{_LONE}")
    # NaN and the infinities, or an integer beyond Python's limit on digits.
    return CanonicalError(f"{at}a number that JSON cannot carry: {exc}")


class _Unfit(Exception):
    """Raised for a part that is not JSON.

    Its path is collected while the error is passed up, so that valid values do not pay.

    Attributes:
        words: A description of the part.
        path: The keys that lead to the part, the last key first.
    """

    def __init__(self, words: str, *path: str | int) -> None:
        super().__init__(words)
        self.words = words
        self.path = list(path)


def _check_all(value: JSON, room: int, safe_integers: bool) -> None:
    try:
        _check(value, room, safe_integers)
    except _Unfit as exc:
        path = "".join(f"/{key}" for key in reversed(exc.path))
        raise CanonicalError(f"{_at(path)}{exc.words}") from None


def _check(value: JSON, room: int, safe_integers: bool) -> None:
    if room <= 0:
        raise _Unfit(f"nested deeper than {MAX_DEPTH} levels")
    # By exact type: a subclass (an IntEnum, an OrderedDict, a str with a tag) would be
    # read back as its base class, and the first run would differ from the replay.
    items: Iterable[tuple[str | int, JSON]]
    if type(value) is dict:
        if not _TEXT.issuperset(map(type, value)):
            name = next(one for one in value if type(one) is not str)
            raise _Unfit(f"the key {name!r}, where JSON has only strings as keys")
        if not safe_integers and _SCALARS.issuperset(map(type, value.values())):
            return  # flat, like most values
        items = value.items()
    elif type(value) is list:
        items = enumerate(value)
    else:
        raise _Unfit(_describe(value))
    for key, item in items:
        if type(item) not in _SCALARS:
            try:
                _check(item, room - 1, safe_integers)
            except _Unfit as exc:
                exc.path.append(key)
                raise
        elif safe_integers and _is_unsafe(item):
            raise _Unfit(_UNSAFE, key)


_UNSAFE: Final = "an integer beyond ±(2**53 - 1), which clients round; send text"


def _is_unsafe(value: JSON) -> bool:
    return type(value) is int and not -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER


def _describe(value: object) -> str:
    if type(value) is tuple:
        return "a tuple, which would come back as a list; write a list"
    if isinstance(value, (set, frozenset)):
        return "a set, whose order differs from process to process; write sorted(...)"
    return f"a value of type {type(value).__qualname__}, which JSON does not know"


def _culprit(value: JSON) -> str:
    """Return the path to the part that the encoder refused; called after the error."""
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
            break  # one of the keys is at fault
    return path


def _at(path: str) -> str:
    if not path:
        return ""
    # A key with a lone surrogate would break code that prints the message.
    return f"at {path.encode('utf-8', 'backslashreplace').decode('utf-8')}: "


def loads(text: bytes) -> JSON:
    """Decode the output of `dumps`, without checks."""
    return _scan(text.decode("utf-8"), 0)[0]


def parse(text: str | bytes, *, max_depth: int = MAX_DEPTH) -> JSON:
    """Decode untrusted JSON.

    Args:
        text: The JSON.
        max_depth: Limit of the nesting.

    Raises:
        CanonicalError: If `text` is not a single JSON value, or has duplicate keys,
            NaN, infinities, lone surrogates or nesting beyond `max_depth`.
    """
    # Decoding bytes finds lone surrogates, unless they are escaped. A `str` may also
    # contain them unescaped.
    is_doubtful = isinstance(text, str) and not text.isascii()
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError:
            raise CanonicalError("not UTF-8") from None
    if len(text) > _LARGE:
        return _parse_large(text, max_depth)
    if text.count("[") + text.count("{") > max_depth:
        _check_depth(JsonText(text.encode("utf-8", "surrogatepass")), max_depth)
    try:
        value, end = _scan_untrusted(text, 0)
    except (ValueError, StopIteration):
        return _read_again(text, max_depth)
    if end != len(text) or (":" in text and _has_twins(text, value)):
        return _read_again(text, max_depth)
    if is_doubtful or ("\\" in text and _SURROGATE.search(text)):
        dumps(value, max_depth=max_depth)  # raises an error with the path, if one is
    return value


_SURROGATE: Final = re.compile(r"\\u[Dd][89A-Fa-f]")


def _check_depth(text: JsonText, max_depth: int) -> None:
    # Checked before the decoder runs. At best, the decoder raises RecursionError; in a
    # thread with a stack of 1 MB, Python 3.13 crashes the process.
    if text.is_deeper(max_depth):
        raise CanonicalError(f"nested deeper than {max_depth} levels")


def _has_twins(text: str, value: JSON) -> bool:
    """Return whether an object in `text`, which was decoded as `value`, has twin keys.

    Each member has a colon, and of twins the decoder keeps one. So if there are as many
    members as colons, all have been kept.
    """
    members = 0
    todo = [value]
    for one in todo:
        if type(one) is dict:
            members += len(one)
            todo += one.values()
        elif type(one) is list:
            todo += one
    if members == text.count(":"):
        return False
    return JsonText(text.encode("utf-8", "surrogatepass")).has_twins(value)


class _NotJson(ValueError):
    """Raised by the decoder for a number that JSON lacks; it is found again or shown."""


def _finite(text: str) -> float:
    number = float(text)
    if isinf(number):  # as 1e400 is
        raise _NotJson(f"a number that JSON cannot carry: {text:.80}")
    return number


def _no_duplicates(pairs: list[tuple[str, JSON]]) -> dict[str, JSON]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise CanonicalError(_TWINS)
    return result


def _no_constant(name: str) -> JSON:
    raise _NotJson(f"{name} is not JSON")


_TWINS: Final = "an object with the same key twice"

# The scanner alone is fast, as for `_scan`.
_decoder: Final = json.JSONDecoder(parse_constant=_no_constant, parse_float=_finite)
_scan_untrusted: Final = _decoder.scan_once  # type: ignore[attr-defined]  # nor here
_plain_decoder: Final = json.JSONDecoder(parse_constant=_no_constant)
_decode: Final = json.JSONDecoder(
    object_pairs_hook=_no_duplicates, parse_constant=_no_constant
).decode


def _read_again(text: str, max_depth: int) -> JSON:
    """Raise an error with the first thing that is wrong, or else return the value.

    The scanner also stops at blanks around a value, which are valid.
    """
    try:
        value = _decode(text)
    except _NotJson as exc:
        raise CanonicalError(str(exc)) from None
    except ValueError as exc:
        raise CanonicalError(f"not JSON: {exc}") from None
    dumps(value, max_depth=max_depth)
    return value


# ---- large input --------------------------------------------------------------------

#: More characters than that are read by `_parse_large`.
_LARGE: Final = 16_384


def _parse_large(text: str, max_depth: int) -> JSON:
    """Decode untrusted JSON in hardly more time than a decoder without checks.

    A client that sends 4 MB must not hold the event loop for longer. Nothing runs for
    each value. So of several faults it may report another one than the first, and a
    fault is located by a character instead of a path.
    """
    try:
        known = JsonText(text.encode("utf-8"))
    except UnicodeEncodeError as exc:
        raise CanonicalError(_lone_at(exc.start)) from None
    _check_depth(known, max_depth)
    try:
        # The second decoder calls a function for each float.
        is_finite = not known.may_have_infinities()
        value = (_plain_decoder if is_finite else _decoder).decode(text)
    except _NotJson as exc:
        raise CanonicalError(str(exc)) from None
    except ValueError as exc:
        raise CanonicalError(f"not JSON: {exc}") from None
    if ":" in text and known.has_twins(value):
        raise CanonicalError(_TWINS)
    lone = lone_surrogate(text)
    if lone is not None:
        raise CanonicalError(_lone_at(lone))
    return value


def _lone_at(index: int) -> str:
    return f"{_LONE} (char {index})"
