"""Heads read strictly, with h11 for their referee."""

from __future__ import annotations

import time

import h11
import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from effectmcp.transports.http1 import (
    FoundHead,
    RequestHead,
    SeenHeads,
    Wire,
    open_wire,
    read,
    split,
    write,
)

from .heads import GOOD, head_of, messages


def found_in(data: bytes, *, size: int = 65536, count: int = 100) -> FoundHead | None:
    return read(data, size=size, count=count)


# ---- reading ------------------------------------------------------------------------


def test_head_that_clients_send() -> None:
    data = (
        b"POST /mcp?a=b HTTP/1.1\r\nHost: localhost:8000\r\nconnection: keep-alive\r\n"
        b"Accept:application/json, text/event-stream\r\nMcp-Method: \t tools/call \t"
        b"\r\nX-Empty:\r\nContent-Length: 0012\r\n\r\nthe body"
    )
    assert found_in(data) == FoundHead(
        RequestHead(
            "POST",
            "/mcp?a=b",
            {
                "host": "localhost:8000",
                "connection": "keep-alive",
                "accept": "application/json, text/event-stream",
                "mcp-method": "tools/call",
                "x-empty": "",
                "content-length": "0012",
            },
        ),
        data.index(b"the body"),
        12,
    )


@pytest.mark.parametrize(
    "first",
    [
        b"GET /mcp HTTP/1.1",
        b"post /mcp HTTP/1.1",
        b"POST /mcp HTTP/1.0",
        b"POST /mcp HTTP/1.10",
        b"POST /mcp http/1.1",
        b"POST  /mcp HTTP/1.1",
        b"POST /mcp  HTTP/1.1",
        b"POST\t/mcp HTTP/1.1",
        b"POST /mcp HTTP/1.1 ",
        b" POST /mcp HTTP/1.1",
        b"\r\nPOST /mcp HTTP/1.1",
        b"POST /m cp HTTP/1.1",
        b"POST /m\x00cp HTTP/1.1",
        b"POST /m\xe9cp HTTP/1.1",
        b"POST http://a/mcp HTTP/1.1",
        b"POST mcp HTTP/1.1",
        b"POST * HTTP/1.1",
        b"POST HTTP/1.1",
        b"POST /mcp",
        b"",
    ],
)
def test_first_line_that_is_for_h11(first: bytes) -> None:
    assert found_in(head_of(*GOOD))
    assert found_in(head_of(first, *GOOD[1:])) is None


@pytest.mark.parametrize(
    "line",
    [
        b"Host: b",  # a second one
        b"host: a",
        b"Content-Length: 5",
        b"Content-Length: 6",
        b"Accept: a\r\naccept: b",
        b"Transfer-Encoding: chunked",
        b"transfer-encoding:",
        b"Expect: 100-continue",
        b"Upgrade: websocket",
        b"Connection: close",
        b"Connection:",
        b"Connection: keep-alive, upgrade",
        b"A : b",
        b" A: b",
        b"\tfolded",
        b"A: b\r\n folded",
        b": b",
        b"A",
        b"A: b\x00",
        b"A: b\x0b",
        b"A: b\x7f",
        b"A: b\xe9",
        b"A: b\rC: d",
        b"A: b\nC: d",
        b"A: b\r",
        b"A(b): c",
        b"\xc3\xa9: b",
    ],
)
def test_line_that_is_for_h11(line: bytes) -> None:
    for at in range(1, len(GOOD) + 1):
        assert found_in(head_of(*GOOD[:at], line, *GOOD[at:])) is None


@pytest.mark.parametrize(
    "length",
    ["", "-1", "+5", "5,5", "5, 5", "5;", "0x5", "5 5", "5.0", "5_0", "12345678901"],
)
def test_length_that_is_for_h11(length: str) -> None:
    line = f"Content-Length: {length}".encode()
    assert found_in(head_of(GOOD[0], b"Host: a", line)) is None


def test_head_that_lacks_something_is_for_h11() -> None:
    first, host, length = GOOD
    assert found_in(head_of(first, host)) is None
    assert found_in(head_of(first, length)) is None
    assert found_in(head_of(first)) is None


def test_incomplete_head_is_left_to_h11() -> None:
    data = head_of(*GOOD)
    for at in range(len(data)):
        assert found_in(data[:at]) is None
    assert found_in(data)


def test_line_ends_that_are_for_h11() -> None:
    data = head_of(*GOOD)
    assert found_in(data.replace(b"\r\n", b"\n")) is None
    assert found_in(data.replace(b"\r\n", b"\r")) is None
    for end in [b"\n\n", b"\r\n\n", b"\n\r\n", b"\r\r\n\r\n"]:
        assert found_in(data.replace(b"\r\n\r\n", end)) is None


def test_head_that_is_too_large_is_for_h11() -> None:
    data = head_of(*GOOD)
    assert found_in(data, size=len(data), count=2)
    assert found_in(data, size=len(data) - 1) is None
    assert found_in(data, count=1) is None


@pytest.mark.parametrize(
    "data",
    [
        b"POST /" + b"a" * 10**6,
        b"POST / HTTP/1.1\r\n" + b"a" * 10**6,
        b"POST / HTTP/1.1\r\nA:" + b" \t" * 10**6 + b"\x00",
        b"POST / HTTP/1.1\r\n" + b"A: b\r\n" * 10**5 + b"\x00",
        b"POST / HTTP/1.1\r\n" + b"A: b b\r\n" * 10**5 + b" \r\n\r\n",
    ],
)
def test_nothing_takes_more_than_one_pass(data: bytes) -> None:
    began = time.process_time()
    assert found_in(data, size=len(data)) is None
    assert time.process_time() - began < 1


@settings(max_examples=600)
@given(data=messages(), cuts=st.lists(st.integers(0, 400), max_size=4))
@example(data=head_of(*GOOD), cuts=[])
def test_head_that_is_read_is_read_by_h11_as_well(data: bytes, cuts: list[int]) -> None:
    found = found_in(data)
    event("for h11" if found is None else "read")
    if found is None:
        return
    http = h11.Connection(h11.SERVER, max_incomplete_event_size=65536)
    edges = [0, *sorted(cuts), len(data)]
    seen: list[h11.Event] = []
    for start, end in zip(edges, edges[1:], strict=False):
        if data[start:end]:
            http.receive_data(data[start:end])
        while (one := http.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
            assert isinstance(one, h11.Event)
            seen.append(one)
    request, *parts = seen
    assert isinstance(request, h11.Request)
    assert request.http_version == b"1.1"
    assert not http.they_are_waiting_for_100_continue
    method, target, headers = found.request
    assert (request.method.decode(), request.target.decode()) == (method, target)
    assert isinstance(headers, dict)
    theirs = [(k.decode(), v.decode()) for k, v in request.headers]
    assert theirs == list(headers.items())
    body = data[found.end :][: found.length]
    rest = data[found.end + len(body) :]
    assert b"".join(one.data for one in parts if isinstance(one, h11.Data)) == body
    assert http.trailing_data == (rest, False)
    if len(body) < found.length:
        assert http.their_state is h11.SEND_BODY
    else:
        # Not MUST_CLOSE, and not MIGHT_SWITCH_PROTOCOL.
        assert http.their_state is h11.DONE


# ---- heads that came before ---------------------------------------------------------


def test_head_without_the_digits_of_its_length() -> None:
    data = b"POST /mcp HTTP/1.1\r\nHost: a\r\ncontent-length: 12\r\nA: b\r\n\r\nbody"
    found = split(data, size=1000)
    assert found is not None
    assert found.rest == b"POST /mcp HTTP/1.1\r\nHost: a\r\ncontent-length: \r\nA: b"
    assert (data[found.end :], found.length) == (b"body", b"12")


@pytest.mark.parametrize(
    "data",
    [
        b"POST /mcp HTTP/1.1\r\nContent-Length: 5\r\n",  # incomplete
        head_of(b"POST /mcp HTTP/1.1", b"Host: a"),
        head_of(b"POST /mcp HTTP/1.1", b"Content-Length: five"),
        head_of(b"POST /mcp HTTP/1.1", b"Content-Length:  5"),
        head_of(b"POST /mcp HTTP/1.1", b"Content-Length: 5 "),
        head_of(b"POST /mcp HTTP/1.1", b"Content-Length: 12345678901"),
        head_of(*GOOD, b"A: " + b"a" * 1000),  # beyond what is looked at
    ],
)
def test_head_that_is_not_remembered(data: bytes) -> None:
    assert split(data, size=1000) is None


@given(data=messages(), length=st.from_regex(rb"[0-9]{1,10}", fullmatch=True))
def test_heads_that_differ_only_in_length_share_what_is_remembered(
    data: bytes, length: bytes
) -> None:
    """The remembered rest of one head is valid for the other, and its end is found."""
    first, known = split(data, size=65536), found_in(data)
    if first is None or known is None:
        return
    at = data.index(first.length, data.lower().index(b"content-length: "))
    other = data[:at] + length + data[at + len(first.length) :]
    second, found = split(other, size=65536), found_in(other)
    assert second is not None
    assert found is not None
    assert second.rest == first.rest
    assert (second.end, int(second.length)) == (found.end, found.length)
    headers = {**known.request.headers, "content-length": length.decode()}  # type: ignore[dict-item]
    assert found.request == RequestHead("POST", known.request.target, headers)


@given(first=messages(), second=messages())
def test_heads_with_one_rest_are_one_head(first: bytes, second: bytes) -> None:
    one, other = split(first, size=65536), split(second, size=65536)
    if one is None or other is None or one.rest != other.rest:
        return
    assert (found_in(first) is None) == (found_in(second) is None)


def bodies_of(data: bytes, heads: SeenHeads[str], late: int) -> list[bytes]:
    """Read requests as a connection does; the last `late` bytes arrive once needed."""
    now, later = bytearray(data[: len(data) - late]), data[len(data) - late :]
    found = []
    while now or later:
        if not now:
            now, later = bytearray(later), b""
        seen = heads.take(now)
        wire: Wire
        if seen is None:
            wire = open_wire(now, max_head=65536, max_headers=100)
            if wire.head() is None:
                wire.receive(later)
                later = b""
            assert wire.head() is not None
            heads.keep("known")
        else:
            wire = seen.wire
        body = b"" if seen is None else seen.body or b""
        while (part := wire.part()) != b"":
            if part is None:
                wire.receive(later)
                later = b""
            else:
                body += part
        found.append(body)
        wire.answer(200, (), b"{}", b"Thu, 01 Jan 1970 00:00:00 GMT")
        rest = wire.rest()
        assert rest is not None
        now = rest
    return found


@given(
    bodies=st.lists(st.binary(max_size=30), min_size=1, max_size=6), late=st.integers(0)
)
def test_known_heads_are_read_as_any_other(bodies: list[bytes], late: int) -> None:
    data = b"".join(
        head_of(*GOOD[:-1], b"Content-Length: %d" % len(body)) + body for body in bodies
    )
    late %= len(data)
    assert bodies_of(data, SeenHeads(65536), late) == bodies
    assert bodies_of(data, SeenHeads(0), late) == bodies  # none is ever known


# ---- writing ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "field",
    [
        ("A", "b\r\nC: d"),
        ("A", "b\n"),
        ("A", "b\r"),
        ("A", "\nb"),
        ("A", "b\x00"),
        ("A", "b\x85"),
        ("A", "é"),
        ("A", "\u2028"),
        ("A", " b"),
        ("A", "b\t"),
        ("A\nB", "c"),
        ("A: b\r\nC", "d"),
        ("A:", "b"),
        ("A ", "b"),
        ("", "b"),
    ],
)
def test_invalid_field_is_not_written(field: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="is no header"):
        write(200, [("Date", "now"), field])


VALUES = st.text(st.sampled_from("ab:,\t \r\n\0\x0b\x7fé\u2028"), max_size=6)


@settings(max_examples=200)
@given(
    status=st.integers(200, 599).filter(lambda status: status not in (204, 304)),
    # `X-`: of some names h11 takes care itself.
    fields=st.lists(st.tuples(VALUES.map("X-{}".format), VALUES), max_size=3),
)
def test_head_that_is_written_is_what_h11_writes(
    status: int, fields: list[tuple[str, str]]
) -> None:
    fields = [*fields, ("Content-Length", "3")]
    try:
        data = write(status, fields)
    except ValueError:
        event("refused")
        return
    http = h11.Connection(h11.SERVER)
    http.receive_data(head_of(*GOOD))
    http.next_event()
    phrase = data.partition(b"\r\n")[0][len("HTTP/1.1 200 ") :]
    answer = h11.Response(status_code=status, headers=fields, reason=phrase)
    assert http.send(answer) == data
