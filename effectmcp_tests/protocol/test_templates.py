from __future__ import annotations

import ntpath
import posixpath
import time
from pathlib import PureWindowsPath
from typing import Any
from urllib.parse import quote, unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from effectmcp.errors import SchemaError
from effectmcp.protocol.templates import UriTemplate, parse_template

PATH = parse_template("file:///{+path}")
BOOK = parse_template("books://{id}")

TEMPLATES = [
    "books://{id}",
    "books://{id}/data",
    "books://{a}/{b}{?q,page}",
    "log://{year}-{month}.txt",
    "file:///{+path}",
    "file:///{root}/{+path}/{x}-{y}.json",
    "search://all?lang=en&sort=up{&q,page}",
    "search://{a}?x={b}&y={c}{&q}",
    "search://all{?q}",
    "plain://all",
]

#: Characters that trip a reader of paths, templates or percent-encoding.
odd_texts = st.text(alphabet="./\\:%2eEfF5cC0aé~ ?#&=+-\x00\u2028漢{}", max_size=12)
values = odd_texts | st.text(max_size=12)

#: What any variable can carry.
plain = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/\\%:"),
    min_size=1,
).filter(lambda text: text.strip(". "))


def refusal(text: str) -> str:
    with pytest.raises(SchemaError) as caught:
        parse_template(text)
    caught.value.problem.encode("utf-8")
    return caught.value.problem


def stays_below(value: str) -> bool:
    """Whether a file named `value` is in the directory that it is joined to."""
    posix = posixpath.normpath(posixpath.join("/srv/base", value))
    windows = ntpath.normpath(ntpath.join("C:\\srv\\base", value))
    return posix.startswith("/srv/base/") and windows.startswith("C:\\srv\\base\\")


# ---- match --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "uri", "expected"),
    [
        ("test://template/{id}/data", "test://template/123/data", {"id": "123"}),
        ("books://{id}", "books://moby-dick", {"id": "moby-dick"}),
        ("books://{id}", "books://caf%C3%A9%20%3F%23", {"id": "café ?#"}),
        ("books://{id}", "books://caf%c3%a9", {"id": "café"}),
        ("books://{id}", "books://100%25", {"id": "100%"}),
        ("books://{id}", "books://..a", {"id": "..a"}),
        ("books://{id}/x", "books://x/x", {"id": "x"}),
        ("l://{year}-{month}", "l://2026-07", {"year": "2026", "month": "07"}),
        ("l://{year}-{month}", "l://2026-07-28", {"year": "2026", "month": "07-28"}),
        ("l://{a}-{b}", "l://---", {"a": "-", "b": "-"}),
        ("l://{name}.json", "l://a.json.json", {"name": "a.json"}),
        ("file:///{+path}", "file:///a/b.c/d", {"path": "a/b.c/d"}),
        ("file:///{+path}", "file:///a%2Fb", {"path": "a/b"}),
        ("file:///{+path}", "file:///a@b:c,d/$[1]", {"path": "a@b:c,d/$[1]"}),
        ("file:///{+path}", "file:///a%3Fb", {"path": "a?b"}),
        ("f:/{+p}/meta/{id}", "f:/x/meta/y/meta/1", {"p": "x/meta/y", "id": "1"}),
        ("f:/{r}/{+p}.{x}", "f:/r/a/b.c.d", {"r": "r", "p": "a/b.c", "x": "d"}),
        ("s://q{?a,b}", "s://q", {}),
        ("s://q{?a,b}", "s://q?a=1", {"a": "1"}),
        ("s://q{?a,b}", "s://q?b=2&a=%26", {"a": "&", "b": "2"}),
        ("s://{id}{?a}", "s://x?a=1", {"id": "x", "a": "1"}),
        ("s://{+p}{?a}", "s://x/y&a=1?a=2", {"p": "x/y&a=1", "a": "2"}),
        ("s://q?l=en{&a}", "s://q?l=en", {}),
        ("s://q?l=en{&a}", "s://q?l=en&a=1", {"a": "1"}),
        ("s://q?{&a}", "s://q?&a=1", {"a": "1"}),
        ("s://q?l={l}&m=1{&a}", "s://q?l=x&m=1&a=1", {"l": "x", "a": "1"}),
        ("s://q#{part}", "s://q#one", {"part": "one"}),
        ("s://q", "s://q", {}),
        ("s://{a.b_1}", "s://x", {"a.b_1": "x"}),
        ("s://%C3%A9/{a}", "s://%C3%A9/x", {"a": "x"}),
    ],
)
def test_match(text: str, uri: str, expected: dict[str, str]) -> None:
    assert parse_template(text).match(uri) == expected


@pytest.mark.parametrize(
    ("text", "uri"),
    [
        ("books://{id}", ""),
        ("books://{id}", "books://"),
        ("books://{id}", "Books://x"),
        ("books://{id}", "test://nonexistent"),
        ("books://{id}", "books://x/y"),
        ("books://{id}", "books://x?y=1"),
        ("books://{id}", "books://x#y"),
        ("books://{id}", "books://x#"),
        ("books://{id}", "books://x@y"),
        ("books://{id}", "books://é"),
        ("books://{id}", "books://x y"),
        ("books://{id}", "books://x\n"),
        ("books://{id}", "books://%"),
        ("books://{id}", "books://%4"),
        ("books://{id}", "books://%zz"),
        ("books://{id}", "books://%FF"),
        ("books://{id}", "books://%C0%AF"),
        ("books://{id}", "books://%ED%A0%80"),
        ("books://{id}/x", "books:///x"),
        ("books://{id}/x", "books://x"),
        ("a:b{x}bb", "a:bb"),
        ("a:b{x}bb", "a:bbb"),
        ("l://{a}-{b}", "l://x"),
        ("l://{a}-{b}", "l://x-"),
        ("l://{a}-{b}", "l://-x"),
        ("f:/{+p}/meta/{id}", "f:/x/1"),
        ("f:/{+p}/meta/{id}", "f:/x/meta/"),
        ("f:/{+p}/meta/{id}", "f://meta/1"),
        ("file:///{+path}", "file:///a?b"),
        ("file:///{+path}", "file:///a#b"),
        ("s://q{?a}", "s://q?"),
        ("s://q{?a}", "s://q?a"),
        ("s://q{?a}", "s://q?a="),
        ("s://q{?a}", "s://q?a=1&a=1"),
        ("s://q{?a}", "s://q?a=1&"),
        ("s://q{?a}", "s://q?a=1&b=2"),
        ("s://q{?a}", "s://q?a=1=2"),
        ("s://q{?a}", "s://q?a=1#x"),
        ("s://q{?a}", "s://q?a=a/b"),
        ("s://q{?a}", "s://q?%61=1"),
        ("s://{id}{?a}", "s://q?id=1"),
        ("s://q?l=en{&a}", "s://q?a=1&l=en"),
        ("s://q?l=en{&a}", "s://q?l=en&"),
        ("s://q?l=en{&a}", "s://q"),
        ("s://q", "s://q?"),
        ("s://q", "s://"),
    ],
)
def test_match_of_another_uri(text: str, uri: str) -> None:
    assert parse_template(text).match(uri) is None


@pytest.mark.parametrize(
    "value",
    [
        ".",
        "..",
        "%2e",
        "%2E%2e",
        "...",
        "..%20",
        "%20",
        "%2F",
        "a%2Fb",
        "a%2fb",
        "%5C",
        "a%5Cb",
        "a%5cb",
        "..%5C..",
        "%00",
        "a%00",
        "%0A",
        "%7F",
        "%C2%85",
        "%252F",
        "%252e%252e",
        "%255C",
        "%25252F",
        "C%3A",
        "C%3Ax",
        "1%3A2",
    ],
)
def test_match_refuses_dangerous_values(value: str) -> None:
    assert BOOK.match(f"books://{value}") is None
    query = parse_template("books://all{?id}")
    assert query.match(f"books://all?id={value}") is None


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/etc/passwd",
        "%2Fetc",
        "a/",
        "a//b",
        "a/%2Fb",
        "a%2F%2fb",
        ".",
        "..",
        "../a",
        "a/..",
        "a/../b",
        "a/./b",
        "a/%2e%2e/b",
        "a/.%2E/b",
        "a%2F..%2Fb",
        "a/..%20/b",
        "a/%252e%252e/b",
        "%252e%252e%252fa",
        "a%252Fb",
        "a%5Cb",
        "..%5C..",
        "%5C%5Chost%5Cshare",
        "\\",
        "C:",
        "C:/windows",
        "C:x",
        "C%3A/windows",
        "a/C:/windows",
        "a%00b",
        "a%0Ab",
        "a\x00b",
        "a b",
    ],
)
def test_match_refuses_dangerous_paths(path: str) -> None:
    assert PATH.match(f"file:///{path}") is None


@given(values)
@example("%2e%2e")
@example("..%2f")
@example("C:")
@example("~root")
@example("a:b")
@example(" ..")
@example("NUL")
def test_match_returns_nothing_that_leaves_a_directory(value: str) -> None:
    """However it is encoded, and also when it is decoded once or twice more."""
    encodable = value.encode("utf-8", "replace").decode()
    for raw in (
        value,
        quote(encodable),
        quote(encodable, safe=""),
        quote(quote(encodable, safe=""), safe=""),
    ):
        for template, uri, name in (
            (BOOK, f"books://{raw}", "id"),
            (PATH, f"file:///{raw}", "path"),
            (parse_template("b://x{?id}"), f"b://x?id={raw}", "id"),
        ):
            matched = template.match(uri)
            if not matched:
                continue
            found = matched[name]
            for one in (found, unquote(found), unquote(unquote(found))):
                assert stays_below(one)
            # Also for callers that join it segment by segment.
            path = PureWindowsPath("C:\\srv\\base").joinpath(*found.split("/"))
            assert path.is_relative_to("C:\\srv\\base")
            assert "\\" not in found
            assert "/" not in found or template is PATH
            assert not any(char < " " for char in found)


@given(st.sampled_from(TEMPLATES), values)
def test_match_takes_any_string(text: str, uri: str) -> None:
    """A match has a value for every variable but the optional ones."""
    template = parse_template(text)
    for one in (uri, text.replace("{", "").replace("}", ""), text.partition("{")[0]):
        found = template.match(one + uri)
        if found is not None:
            assert set(template.variables) - template.optional <= set(found)
            assert set(found) <= set(template.variables)


@pytest.mark.parametrize(
    ("text", "uri"),
    [
        ("x:{a}-{b}-{c}-{d}.z", "x:" + "-" * 200_000),
        ("x:{a}aab{b}", "x:" + "a" * 200_000),
        ("x:{+a}-{b}-{c}", "x:" + "-" * 200_000 + "/"),
        ("x:{+a}", "x:" + "a/" * 100_000),
        ("x:{a}", "x:" + "%41" * 100_000 + "%"),
        ("x:{a}", "x:" + "%25" * 100_000 + "/"),
        ("x:q{?a}", "x:q?" + "&" * 200_000),
        ("x:q?a&b{&a}", "x:q?" + "&" * 200_000),
    ],
)
def test_match_takes_linear_time(text: str, uri: str) -> None:
    """Milliseconds; anything quadratic would take minutes."""
    template = parse_template(text)
    start = time.perf_counter()
    assert template.match(uri) is None
    assert time.perf_counter() - start < 2


# ---- expand -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "given_", "uri"),
    [
        ("books://{id}", {"id": "café ?#&"}, "books://caf%C3%A9%20%3F%23%26"),
        ("books://{id}", {"id": "100%"}, "books://100%25"),
        ("file:///{+path}", {"path": "a/b c?.d"}, "file:///a/b%20c%3F.d"),
        ("s://{id}{?a,b}", {"id": "x"}, "s://x"),
        ("s://{id}{?a,b}", {"b": "2", "id": "x"}, "s://x?b=2"),
        ("s://{id}{?a,b}", {"b": "2", "a": "&", "id": "x"}, "s://x?a=%26&b=2"),
        ("s://q?l=en{&a,b}", {"a": "1", "b": "2"}, "s://q?l=en&a=1&b=2"),
        ("s://q", {}, "s://q"),
    ],
)
def test_expand(text: str, given_: dict[str, str], uri: str) -> None:
    template = parse_template(text)
    assert template.expand(given_) == uri
    assert template.match(uri) == given_


@pytest.mark.parametrize(
    ("text", "given_", "words"),
    [
        ("s://{a}", {}, "a value for a is missing"),
        ("s://{a}", {"a": "1", "z": "2"}, "the template has no variable 'z'"),
        ("s://{a}", {"a": ""}, "a is empty"),
        ("s://{a}", {"a": ".."}, "a is empty or only dots"),
        ("s://{a}", {"a": "x/y"}, "a has a slash: 'x/y'"),
        ("s://{a}", {"a": "x\\y"}, "a has a backslash"),
        ("s://{a}", {"a": "x\x00"}, r"a has control characters: 'x\\x00'"),
        ("s://{a}", {"a": "%2F"}, "a is percent-encoded a second time"),
        ("s://{a}", {"a": "c:x"}, "like a drive"),
        ("s://{a}", {"a": "\ud800"}, r"a has a lone surrogate: '\\ud800'"),
        ("s://{+a}", {"a": "/x"}, "a is empty or only dots, or has such a segment"),
        ("s://x{?a}", {"a": "x/y"}, "a has a slash"),
        ("s://{a}-{b}", {"a": "x-y", "b": "z"}, "cannot tell these values apart"),
    ],
)
def test_expand_refuses(text: str, given_: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_template(text).expand(given_)


@st.composite
def filled(draw: st.DrawFn) -> tuple[UriTemplate, dict[str, str]]:
    """A template, and strings for its variables; some of the optional ones left out."""
    template = parse_template(draw(st.sampled_from(TEMPLATES)))
    left_out = draw(st.sets(st.sampled_from(["", *sorted(template.optional)])))
    given_ = {
        name: draw(plain | values)
        for name in template.variables
        if name not in left_out
    }
    return template, given_


@given(filled())
def test_expanded_values_come_back(pair: tuple[UriTemplate, dict[str, str]]) -> None:
    """`match(expand(values)) == values`, or `expand` reports what is wrong."""
    template, given_ = pair
    try:
        uri = template.expand(given_)
    except ValueError as error:
        str(error).encode("utf-8")
        return
    assert uri.isascii()
    assert uri.isprintable()
    assert template.match(uri) == given_


@given(plain)
@example("...a")
@example("?#&=+")
def test_plain_values_are_admissible(value: str) -> None:
    assert BOOK.match(BOOK.expand({"id": value})) == {"id": value}


@given(st.lists(plain, min_size=1))
def test_plain_paths_are_admissible(segments: list[str]) -> None:
    path = "/".join(segments)
    assert PATH.match(PATH.expand({"path": path})) == {"path": path}


@given(filled())
def test_matched_values_expand_again(pair: tuple[UriTemplate, dict[str, str]]) -> None:
    """The values of a match can be expanded to a URI that has equal values."""
    template, given_ = pair
    uri = template.text
    for name in template.variables:
        for expression in (f"{{{name}}}", f"{{+{name}}}"):
            uri = uri.replace(expression, given_.get(name, "x"))
    found = template.match(uri.partition("{")[0])
    if found is not None:
        assert template.match(template.expand(found)) == found


# ---- parse --------------------------------------------------------------------------


def test_parse_template() -> None:
    template = parse_template("s://{a}/{+b}.x{?c,d}")
    assert template.text == "s://{a}/{+b}.x{?c,d}"
    assert template.variables == ("a", "b", "c", "d")
    assert template.optional == {"c", "d"}
    assert template == parse_template(template.text)
    assert hash(template) == hash(parse_template(template.text))
    assert parse_template("s://x").variables == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "must begin with a scheme"),
        ("books/{id}", "must begin with a scheme"),
        ("{scheme}://x", "must begin with a scheme"),
        ("{+uri}", "must begin with a scheme"),
        ("1:x", "must begin with a scheme"),
        ("s://{a", "has a { without its }"),
        ("s://a}", "has '}' where a URI cannot"),
        ("s://{a}}", "has '}' where a URI cannot"),
        ("s://a b", "has ' ' where a URI cannot"),
        ("s://é", "has 'é' where a URI cannot; write it percent-encoded"),
        ("s://\ud800", r"has '\ud800' where a URI cannot"),
        ("s://100%", "has '%' where a URI cannot; write it percent-encoded (% itself"),
        ("s://'{a}'", "where a URI cannot"),
        ("s://\\{a}", r"has '\\' where a URI cannot"),
        ("s://{}", "'' is not the name of a variable"),
        ("s://{+}", "'' is not the name of a variable"),
        ("s://{?}", "'' is not the name of a variable"),
        ("s://{a b}", "'a b' is not the name of a variable"),
        ("s://{a\ud800}", r"'a\ud800' is not the name of a variable"),
        ("s://{a\n}", r"'a\n' is not the name of a variable"),
        ("s://{{a}}", "'{a' is not the name of a variable"),
        ("s://{.a}", "the operator . is for labels"),
        ("s://{/a}", "the operator / is for path segments"),
        ("s://{;a}", "the operator ; is for path parameters"),
        ("s://{#a}", "the operator # is for fragments"),
        ("s://{=a}", "the operator = is for nothing yet"),
        ("s://{|\ud800}", "the operator | is for nothing yet"),
        ("s://{a*}", "'{a*}' is not supported: it has explode (*)"),
        ("s://{?a*}", "'{?a*}' is not supported: it has explode (*)"),
        ("s://{a:3}", "'{a:3}' is not supported: it has a prefix (:)"),
        ("s://{a,b}", "'{a,b}' is not supported: it has several variables"),
        ("s://{+a,b}", "'{+a,b}' is not supported: it has several variables"),
        ("s://{?a,}", "'' is not the name of a variable"),
        ("s://{a}/{a}", "has the variable a twice"),
        ("s://{a}{?b,a}", "has the variable a twice"),
        ("s://{?a,a}", "has the variable a twice"),
        ("s://{a}{b}", "is ambiguous: nothing tells where the value before '{b}' ends"),
        ("s://{a}{+b}", "is ambiguous: nothing tells"),
        ("s://{+a}/{+b}", "is ambiguous: only one variable may have a +"),
        ("s://x?y={+a}", "'{+a}' is for paths, and may not follow ? or #"),
        ("s://x#{+a}", "'{+a}' is for paths, and may not follow ? or #"),
        ("s://{?a}/b", "'{?a}' must come last"),
        ("s://{?a}{&b}", "'{?a}' must come last"),
        ("s://x#y{?a}", "'{?a}' may not follow #"),
        ("s://x?y=1#z{&a}", "'{&a}' may not follow #"),
        ("s://x?y=1{?a}", "'{?a}' continues a query: write & instead of ?"),
        ("s://x{&a}", "'{&a}' begins a query: write ? instead of &"),
    ],
)
def test_parse_template_refuses(text: str, words: str) -> None:
    assert words in refusal(text)


def test_parse_template_refuses_in_few_words() -> None:
    assert len(refusal("s://{" + "é" * 9999 + "}")) < 400


@given(st.text(alphabet="{}+?&#=,:*./ab%4é", max_size=15))
def test_parse_template_raises_nothing_else(text: str) -> None:
    """A string parses or raises `SchemaError`; each parsed template has a URI."""
    try:
        template = parse_template(f"s:/{text}")
    except SchemaError:
        return
    given_: dict[str, Any] = dict.fromkeys(template.variables, "0")
    assert template.match(template.expand(given_)) == given_
