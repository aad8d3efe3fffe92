"""Requests, well-formed and otherwise, as bytes."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st

#: The least that is read without h11.
GOOD: Final = (b"POST /mcp HTTP/1.1", b"Host: a", b"Content-Length: 5")


def head_of(*lines: bytes) -> bytes:
    return b"".join(line + b"\r\n" for line in (*lines, b""))


_FIRST: Final = [
    b"POST /mcp?a=b HTTP/1.1",
    b"POST /mcp HTTP/1.0",
    b"POST http://a/mcp HTTP/1.1",
    b"POST * HTTP/1.1",
    b"POST  /mcp HTTP/1.1",
    b"POST /m cp HTTP/1.1",
    b"GET /mcp HTTP/1.1",
    b"HEAD /mcp HTTP/1.1",
    b"OPTIONS /mcp HTTP/1.1",
    b"CONNECT a:80 HTTP/1.1",
    b"post /mcp HTTP/1.1",
    b"\r\nPOST /mcp HTTP/1.1",
    b"\nPOST /mcp HTTP/1.1",
    b" POST /mcp HTTP/1.1",
]

_HARMLESS: Final = [
    b"Accept: application/json, text/event-stream",
    b"MCP-Protocol-Version: 2026-07-28",
    b"Connection: keep-alive",
    b"connection:Keep-Alive",
    b"Origin: http://localhost:6274",
    b"Cookie: a=b; c=d",
    b"A:",
    b"B:\t b \t c \t",
    b"-!#$%&'*+.^_`|~: ()<>@,;:\\\"/[]?={}",
]

_ODD: Final = [
    b"Host: b",
    b"Content-Length: 7",
    b"content-length: 5",
    b"Content-Length: 5, 5",
    b"Content-Length: +5",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding : chunked",
    b"transfer-encoding:\tidentity",
    b"Expect: 100-continue",
    b"Upgrade: h2c",
    b"Connection: close",
    b"Connection: keep-alive, close",
    b"A: b",
    b"a: c",
    b" folded",
    b"\tfolded: b",
    b"A : b",
    b": b",
    b"A",
    b"A: \xe9",
    b"A: \x0b\x0c\x1f",
    b"A: b\x00",
    b"",
]

_ENDS: Final = [b"\n", b"\r", b"\r\r\n", b" \r\n", b"\n\r", b""]

_BYTES: Final = st.one_of(
    st.sampled_from([b"\r", b"\n", b"\r\n", b" ", b"\t", b":", b"\0", b"\r\n\r\n"]),
    st.binary(max_size=2),
)

_ODDITIES: Final = "none none first loss line line value end bytes".split()

_BODIES: Final = [b"", b"{}", b"[1,2]", b"[1,2]", b"[1,2]", b"5\r\n[1,2]\r\n0\r\n\r\n"]
_NEXT: Final = [b"", b"", b"P", head_of(*GOOD), b"\r\n"]


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """A request, some of its body, and further bytes; mostly, one thing is odd."""
    lines = [*GOOD, *draw(st.lists(st.sampled_from(_HARMLESS), max_size=4))]
    lines[1:] = draw(st.permutations(lines[1:]))
    oddity = draw(st.sampled_from(_ODDITIES))
    if oddity == "first":
        lines[0] = draw(st.sampled_from(_FIRST))
    elif oddity == "loss":
        del lines[draw(st.integers(0, len(lines) - 1))]
    elif oddity == "line":
        lines.insert(draw(st.integers(1, len(lines))), draw(st.sampled_from(_ODD)))
    elif oddity == "value":
        lines.append(b"V:" + draw(st.binary(max_size=4)))
    ends = [b"\r\n"] * (len(lines) + 1)
    if oddity == "end":
        ends[draw(st.integers(0, len(lines)))] = draw(st.sampled_from(_ENDS))
    pairs = zip([*lines, b""], ends, strict=True)
    text = bytearray(b"".join(line + end for line, end in pairs))
    if oddity == "bytes":
        at, lost = draw(st.integers(0, len(text))), draw(st.integers(0, 2))
        text[at : at + lost] = draw(_BYTES)
    return bytes(text) + draw(st.sampled_from(_BODIES)) + draw(st.sampled_from(_NEXT))
