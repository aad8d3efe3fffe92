"""The four string formats of the protocol's form subset, read strictly.

Each reader takes the string and raises `ValueError` in words for the user who typed it.
`fromisoformat` alone is too lenient (it takes `20260728` and Arabic digits), so a
regular expression for ASCII runs first. Dates that match it and are not in the calendar
(year 0000, second 60) are refused with a reason of their own.

The readers agree with jsonschema-rs, which the tests compare them with, except in three
cases. It admits the year 0000 and leap seconds, which Python has no value for. It does
not check every digit of a date or a time, and takes `2026-0+-28`. It checks
international domain names (`xn--…`) against the tables of IDNA 2008; here any such
label is accepted.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from functools import cache
from typing import Final

__all__ = ["FORMATS", "parse_date", "parse_datetime"]


# Compiled at first use: an author's `import effectmcp` should not pay for expressions
# that only some forms need.
@cache
def _expression(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)


_DATE: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME: Final = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:(?:[0-5][0-9]|60)"
_OFFSET: Final = r"(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
# RFC 3339, section 5.6. The T may be lower case there, and may not be a blank here:
# the section permits a blank only by agreement between applications.
_NAIVE: Final = rf"{_DATE}[Tt]{_TIME}(?:\.[0-9]+)?"
_DATETIME: Final = rf"{_NAIVE}{_OFFSET}"

_ATOM: Final = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
# jsonschema-rs reads " <" as the end of a display name, even inside quotes.
_QUOTED: Final = r'"(?!.* <)(?:[\t !#-\[\]-~]|\\[!-~])*"'
# RFC 5890, section 2.3.1: two hyphens in the third and fourth place are reserved.
_LABEL: Final = (
    r"(?!(?!xn)[A-Za-z0-9-]{2}--)[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
)
# RFC 5321, section 4.1.2: `Mailbox`, and the lengths of section 4.5.3.1. Quoted local
# parts and address literals are rare in forms, but the schema admits them, so they are
# accepted.
_EMAIL: Final = (
    rf"(?=.{{1,64}}@[^@]*\Z)(?:{_ATOM}(?:\.{_ATOM})*|{_QUOTED})"
    rf"@(?:(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*|\[((?i:IPv6:))?([0-9A-Fa-f:.]+)\])"
)

_PCT: Final = r"%[0-9A-Fa-f]{2}"
_PCHAR: Final = rf"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|{_PCT})"
_USERINFO: Final = rf"(?:[A-Za-z0-9._~!$&'()*+,;=:-]|{_PCT})*@"
_HOST: Final = (
    r"(?:\[(?:([0-9A-Fa-f:.]+)|[vV][0-9A-Fa-f]+\.[A-Za-z0-9._~!$&'()*+,;=:-]+)\]"
    rf"|(?:[A-Za-z0-9._~!$&'()*+,;=-]|{_PCT})*)"
)
# RFC 3986, appendix A: `URI`, so a scheme is required.
_URI: Final = (
    r"[A-Za-z][A-Za-z0-9+.-]*:"
    rf"(?://(?:{_USERINFO})?{_HOST}(?::[0-9]*)?(?:/{_PCHAR}*)*"
    rf"|/(?:{_PCHAR}+(?:/{_PCHAR}*)*)?|{_PCHAR}+(?:/{_PCHAR}*)*|)"
    rf"(?:\?(?:{_PCHAR}|[/?])*)?(?:\#(?:{_PCHAR}|[/?])*)?"
)


def parse_date(text: str) -> dt.date:
    """Return the date of `text`, an RFC 3339 full-date."""
    if _expression(_DATE).fullmatch(text) is None:
        raise ValueError("must be a date such as 2026-07-28")
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        raise ValueError("must be a date that is in the calendar") from None


def parse_datetime(text: str) -> dt.datetime:
    """Return the aware datetime of `text`, an RFC 3339 date-time."""
    if _expression(_DATETIME).fullmatch(text) is None:
        if _expression(_NAIVE).fullmatch(text) is not None:
            raise ValueError("must have an offset, as 2026-07-28T09:30:00Z has")
        raise ValueError("must be a date and time such as 2026-07-28T09:30:00Z")
    try:
        # RFC 3339 puts no limit on the digits of a second; Python cuts after six, which
        # is right: rounding could carry into the next year.
        return dt.datetime.fromisoformat(text.upper())
    except ValueError:
        raise ValueError("must be a date and time that is in the calendar") from None


def _check_date(text: str) -> None:
    parse_date(text)


def _check_datetime(text: str) -> None:
    parse_datetime(text)


def _check_email(text: str) -> None:
    match = _expression(_EMAIL).fullmatch(text)
    if match is None or not _is_literal(match[2], is_v6=match[1] is not None):
        raise ValueError("must be an e-mail address such as ann@example.com")


def _check_uri(text: str) -> None:
    match = _expression(_URI).fullmatch(text)
    if match is None or not _is_literal(match[1], is_v6=True):
        raise ValueError("must be a full address such as https://example.com/page")


def _is_literal(address: str | None, *, is_v6: bool) -> bool:
    if address is None:  # a name
        return True
    # A late import: `ipaddress` is large and address literals are rare.
    from ipaddress import IPv4Address, IPv6Address

    try:
        IPv6Address(address) if is_v6 else IPv4Address(address)
    except ValueError:
        return False
    return True


FORMATS: Final[dict[str, Callable[[str], None]]] = {
    "date": _check_date,
    "date-time": _check_datetime,
    "email": _check_email,
    "uri": _check_uri,
}
