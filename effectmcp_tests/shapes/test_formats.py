from __future__ import annotations

import datetime as dt

import pytest

from effectmcp.shapes.formats import FORMATS, parse_date, parse_datetime


def admits(name: str, text: str) -> bool:
    try:
        FORMATS[name](text)
    except ValueError:
        return False
    return True


def words(name: str, text: str) -> str:
    with pytest.raises(ValueError, match="^must ") as caught:
        FORMATS[name](text)
    return str(caught.value)


def utc(*numbers: int) -> dt.datetime:
    return dt.datetime(*numbers, tzinfo=dt.UTC)  # type: ignore[arg-type, misc]


def test_formats_are_the_protocols() -> None:
    """Client, elicitation: "Supported formats: email, uri, date, date-time"."""
    assert set(FORMATS) == {"email", "uri", "date", "date-time"}


# ---- dates --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "date"),
    [
        ("2026-07-28", dt.date(2026, 7, 28)),
        ("0001-01-01", dt.date.min),
        ("9999-12-31", dt.date.max),
        ("2024-02-29", dt.date(2024, 2, 29)),
    ],
)
def test_date(text: str, date: dt.date) -> None:
    assert parse_date(text) == date


@pytest.mark.parametrize(
    "text",
    [
        "",
        "20260728",
        "2026-W30",
        "2026-W30-2",
        "2026-7-28",
        "\u0662\u0660\u0662\u0666-07-28",
        "2026-07-28\n",
        " 2026-07-28",
        "+2026-07-28",
        "12026-07-28",
        "2026-0+-28",
        "2026-07-28T00:00:00Z",
    ],
)
def test_date_of_another_form(text: str) -> None:
    """`fromisoformat` takes several of these."""
    assert words("date", text) == "must be a date such as 2026-07-28"


@pytest.mark.parametrize(
    "text", ["0000-01-01", "2026-02-29", "2026-13-01", "2026-00-10", "2026-04-31"]
)
def test_date_outside_the_calendar(text: str) -> None:
    assert words("date", text) == "must be a date that is in the calendar"


# ---- dates and times ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-07-28T09:30:00Z", utc(2026, 7, 28, 9, 30)),
        ("2026-07-28t09:30:00z", utc(2026, 7, 28, 9, 30)),
        ("2026-07-28T09:30:00+02:00", utc(2026, 7, 28, 7, 30)),
        ("2026-07-28T09:30:00-23:59", utc(2026, 7, 29, 9, 29)),
        ("2026-07-28T09:30:00-00:00", utc(2026, 7, 28, 9, 30)),
        ("2026-07-28T09:30:00.5Z", utc(2026, 7, 28, 9, 30, 0, 500_000)),
        ("2026-07-28T09:30:00.123456789Z", utc(2026, 7, 28, 9, 30, 0, 123_456)),
        ("9999-12-31T23:59:59.9999999Z", utc(9999, 12, 31, 23, 59, 59, 999_999)),
    ],
)
def test_datetime(text: str, moment: dt.datetime) -> None:
    assert parse_datetime(text) == moment
    assert parse_datetime(text).tzinfo is not None


def test_datetime_at_the_ends_of_the_calendar() -> None:
    """Moments that UTC has no year for are values all the same."""
    assert parse_datetime("0001-01-01T00:00:00+23:59").year == 1
    assert parse_datetime("9999-12-31T23:59:59-23:59").year == 9999


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-07-28",
        "2026-07-28T09:30Z",
        "2026-07-28T24:00:00Z",
        "2026-07-28T09:60:00Z",
        "2026-07-28T09:30:61Z",
        "2026-07-28T09:30:00+24:00",
        "2026-07-28T09:30:00+00:60",
        "2026-07-28T09:30:00+0100",
        "2026-07-28T09:30:00+01",
        "2026-07-28T09:30:00+01:00:30",
        "2026-07-28T09:30:00,5Z",
        "2026-07-28T09:30:00.Z",
        "2026-07-28 09:30:00Z",
        "2026-07-28T09:30:00Z\n",
        "2026-07-28T09:30:0\u0660Z",
        "20260728T093000Z",
    ],
)
def test_datetime_of_another_form(text: str) -> None:
    said = words("date-time", text)
    assert said == "must be a date and time such as 2026-07-28T09:30:00Z"


def test_datetime_without_an_offset() -> None:
    said = words("date-time", "2026-07-28T09:30:00.5")
    assert said == "must have an offset, as 2026-07-28T09:30:00Z has"


@pytest.mark.parametrize(
    "text",
    [
        "0000-01-01T00:00:00Z",
        "2026-02-30T00:00:00Z",
        "2016-12-31T23:59:60Z",
        "2016-12-31T15:59:60-08:00",
    ],
)
def test_datetime_outside_the_calendar(text: str) -> None:
    said = words("date-time", text)
    assert said == "must be a date and time that is in the calendar"


# ---- e-mail -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "a@b",
        "ann.lee+books@mail.example.com",
        "!#$%&'*+/=?^_`{|}~-@b",
        "x" * 64 + "@b",
        "a@" + "b" * 63,
        "a@" + ".".join(["b" * 49] * 5) + ".cc",
        "a@1.2.3.4",
        "a@xn--bcher-kva.example",
        "a@b--c",
        '"ann lee"@b',
        '""@b',
        '"a@b"@c',
        r'"a\"b"@c',
        '"' + "x" * 62 + '"@b',
        "a@[127.0.0.1]",
        "a@[IPv6:::1]",
        "a@[ipv6:2001:db8::1]",
    ],
)
def test_email(text: str) -> None:
    assert admits("email", text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "@b",
        "a@",
        "a@@b",
        "a b@c",
        "a@b c",
        "ü@b.c",
        "a@ü.c",
        "a@b.c\n",
        ".a@b",
        "a.@b",
        "a..b@c",
        "a@b.",
        "a@.b",
        "a@-b",
        "a@b-",
        "a@b_c",
        "a@ab--c",
        "x" * 65 + "@b",
        "a@" + "b" * 64,
        "a@" + ".".join(["b" * 49] * 5) + ".ccccc",
        '"' + "x" * 63 + '"@b',
        '"' + "x" * 40 + "@" + "x" * 40 + '"@b',
        '"a"b@c',
        '"a\nb"@c',
        '"a\x00"@c',
        '"ü"@c',
        '"a <b"@c',
        "a@[127.0.0.1",
        "a@[127.0.0.01]",
        "a@[256.0.0.1]",
        "a@[::1]",
        "a@[IPv6:127.0.0.1]",
        "a@[\u0131Pv6:::1]",
        "a@[IPv6:::1%eth0]",
        "Ann <a@b>",
    ],
)
def test_email_refused(text: str) -> None:
    said = words("email", text)
    assert said == "must be an e-mail address such as ann@example.com"


def test_email_takes_international_labels_on_trust() -> None:
    """The referee looks them up in the tables of IDNA 2008; we do not carry those."""
    assert admits("email", "a@xn--zzzzzzzzzz999999.example")


# ---- addresses ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "https://example.com/page?q=1#top",
        "http://ann:secret@example.com:8080/",
        "http://[::1]:80/",
        "http://[::ffff:1.2.3.4]",
        "http://[v1.a:b]",
        "http:///path",
        "http://",
        "http:",
        "http:/",
        "a:/b//c",
        "mailto:a@b",
        "urn:isbn:0451450523",
        "file:///x%20y",
        "http://999.999.999.999",
        "a:?#",
        "a+b-c.1:x",
    ],
)
def test_uri(text: str) -> None:
    assert admits("uri", text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "example.com",
        "/page",
        "//example.com",
        "1a:b",
        "http://a b",
        "http://ü",
        "http://a\n",
        "http://a/%",
        "http://a/%zz",
        "http://a:port",
        "http://a@b@c",
        "http://[::1",
        "http://[1.2.3.4]",
        "http://[::1%25eth0]",
        "http://[1:2:3:4:5:6:7:8:9]",
        "http://[v.a]",
        "http://a/[b]",
        "a:b#c#d",
        "a:^",
    ],
)
def test_uri_refused(text: str) -> None:
    said = words("uri", text)
    assert said == "must be a full address such as https://example.com/page"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("email", "a." * 100_000 + "@"),
        ("email", '"' + "\\a" * 100_000),
        ("email", "a@" + "b." * 100_000),
        ("email", '"' + " @" * 100_000 + '"@b'),
        ("email", "a@[IPv6:" + ":" * 100_000 + "]"),
        ("uri", "a://" + "a:@" * 100_000),
        ("uri", "a:" + "/a" * 100_000 + " "),
        ("date-time", "2026-07-28T09:30:00." + "1" * 100_000),
    ],
)
def test_formats_read_long_strings_in_linear_time(name: str, text: str) -> None:
    """A quadratic expression would hold this test for minutes."""
    assert not admits(name, text)
