"""URI templates of resources (RFC 6570): a URI → values that are safe to use, and back.

    books://{id}                one value: unreserved characters, the others encoded
    file:///{+path}             a relative path: any number of segments
    books://search{?q,page}     a query: any of them, in any order
    books://all?lang=en{&page}  a query that continues a literal one

Some forms are refused, as two readers could match them differently, or as nothing needs
them: explode, prefixes, labels, fragments, path parameters, several variables in one
`{…}`.

Templates guard file paths: "Servers MUST sanitize file paths to prevent directory
traversal attacks" (Resources, Security Considerations, 5). So `match` returns no value
that could leave a directory it is joined to, by the rules of POSIX or of Windows, and
no value that a second decoding would make such a value. Code that opens a file must
itself beware of device names on Windows (`NUL`) and of links.

URIs are compared as strings: `%7E` and `~` are different literals, like `A:` and `a:`.

Matching takes linear time. A variable ends where the literal after it first occurs, so
in `{year}-{month}` the year has no hyphen; after a `{+path}`, literals are searched
from the end. Nothing is tried twice: a URI with two readings always gets the same one.
`expand` refuses values that `match` would not return.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from attrs import field, frozen

from ..errors import SchemaError

__all__ = ["UriTemplate", "parse_template"]

# RFC 3986, section 2. The repetitions are possessive, so there is no backtracking.
_SIMPLE: Final = re.compile(r"(?:[A-Za-z0-9._~-]|%[0-9A-Fa-f]{2})++")
# Reserved characters except `?` and `#`, which end a path.
_IN_PATH: Final = ":/[]@!$&'()*+,;="
_PATH: Final = re.compile(r"(?:[A-Za-z0-9._~:/\[\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})++")
_ENCODED: Final = re.compile(r"%[0-9A-Fa-f]{2}")

# RFC 6570, section 2.1, without characters that a URI must percent-encode anyway.
_LITERAL: Final = re.compile(
    r"(?:[A-Za-z0-9._~:/?#\[\]@!$&()*+,;=-]|%[0-9A-Fa-f]{2})*+"
)
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*+:")
_NAME: Final = re.compile(r"[A-Za-z0-9_]++(?:\.[A-Za-z0-9_]++)*+")

# RFC 6570, section 2.2: the operators that are refused, and the purpose of each.
_REFUSED: Final = {
    "#": "fragments",
    ".": "labels",
    "/": "path segments",
    ";": "path parameters",
    **dict.fromkeys("=,!@|", "nothing yet"),
}


@frozen
class UriTemplate:
    """A URI template. Use `parse_template` to make one.

    Attributes:
        text: The template as it was written.
        variables: Its variables, in order.
        optional: The variables of the query, which a URI may leave out.
    """

    text: str
    variables: tuple[str, ...]
    optional: frozenset[str]
    # The literals before, between and after the variables of the path: one more than
    # there are variables.
    _literals: tuple[str, ...] = field(alias="literals", repr=False)
    # The index of the `{+path}` among the path's variables; without one, of the last.
    _pivot: int = field(alias="pivot", repr=False)
    _is_path: bool = field(alias="is_path", repr=False)
    # `?` or `&`; empty if there are no variables in the query.
    _mark: str = field(alias="mark", repr=False)

    @property
    def _path_variables(self) -> tuple[str, ...]:
        return self.variables[: len(self._literals) - 1]

    def match(self, uri: str) -> dict[str, str] | None:
        """Return the decoded values of the variables; `None` if `uri` does not match.

        No value is empty or absolute, has control characters or backslashes, or leads
        out of a directory. Only the value of a `{+path}` may have slashes.
        """
        parts = self._split(uri)
        if parts is None:
            return None
        path, query = parts
        raw = self._cut(path)
        if raw is None:
            return None
        values: dict[str, str] = {}
        for index, (name, text) in enumerate(
            zip(self._path_variables, raw, strict=True)
        ):
            value = _decode(text, is_path=self._is_path and index == self._pivot)
            if value is None:
                return None
            values[name] = value
        for piece in query:
            name, _, text = piece.partition("=")
            value = _decode(text, is_path=False)
            if value is None or name not in self.optional or name in values:
                return None
            values[name] = value
        return values

    def expand(self, values: Mapping[str, str]) -> str:
        """Return the URI that `match` reads as `values`.

        Raises:
            ValueError: If a variable is missing or unknown, or if no URI of this
                template can carry the values.
        """
        for name in values.keys() - set(self.variables):
            raise ValueError(f"the template has no variable {_quoted(name)}")
        uri = self._literals[0]
        for index, name in enumerate(self._path_variables):
            if name not in values:
                raise ValueError(f"a value for {name} is missing")
            is_path = self._is_path and index == self._pivot
            uri += _encode(name, values[name], is_path=is_path)
            uri += self._literals[index + 1]
        mark = self._mark
        for name in self.variables:
            if name in self.optional and name in values:
                uri += f"{mark}{name}={_encode(name, values[name], is_path=False)}"
                mark = "&"
        if self.match(uri) != dict(values):
            raise ValueError(
                f"the template cannot tell these values apart in {_quoted(uri)}"
            )
        return uri

    def _split(self, uri: str) -> tuple[str, list[str]] | None:
        """Split `uri`: the part with the path's variables, and its query's pieces."""
        if not self._mark:
            return uri, []
        path, mark, query = uri.partition("?")
        if self._mark == "?":
            if mark and not query:
                return None
            return path, query.split("&") if query else []
        # Values in the literal query have no `&`, so it has as many pieces as in the
        # template. The pieces after it belong to `{&…}`.
        pieces = query.split("&")
        written = 1 + "".join(self._literals).partition("?")[2].count("&")
        return f"{path}{mark}{'&'.join(pieces[:written])}", pieces[written:]

    def _cut(self, path: str) -> list[str] | None:
        """Return the values of the path's variables, still encoded."""
        if not self._path_variables:
            return [] if path == self._literals[0] else None
        first, *between, last = self._literals
        start, end = len(first), len(path) - len(last)
        if start >= end or not (path.startswith(first) and path.endswith(last)):
            return None
        head: list[str] = []
        for literal in between[: self._pivot]:
            found = path.find(literal, start + 1, end)
            if found < 0:
                return None
            head.append(path[start:found])
            start = found + len(literal)
        tail: list[str] = []
        for literal in reversed(between[self._pivot :]):
            found = path.rfind(literal, start, end - 1)
            if found < 0:
                return None
            tail.append(path[found + len(literal) : end])
            end = found
        return [*head, path[start:end], *reversed(tail)]


# ---- values -------------------------------------------------------------------------

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def _decode(text: str, *, is_path: bool) -> str | None:
    if (_PATH if is_path else _SIMPLE).fullmatch(text) is None:
        return None
    try:
        value = unquote_to_bytes(text).decode("utf-8")
    except UnicodeDecodeError:
        return None
    return None if _problem_of(value, is_path=is_path) else value


def _encode(name: str, value: str, *, is_path: bool) -> str:
    problem = _problem_of(value, is_path=is_path)
    if problem:
        raise ValueError(f"{name} {problem}: {_quoted(value)}")
    try:
        return quote(value, safe=_IN_PATH if is_path else "")
    except UnicodeEncodeError:
        raise ValueError(f"{name} has a lone surrogate: {_quoted(value)}") from None


def _problem_of(value: str, *, is_path: bool) -> str:
    """Return why `value` is dangerous to use as a path; empty if it is safe."""
    if _CONTROL.search(value):
        return "has control characters"
    if "\\" in value:
        return "has a backslash"
    # Proxies and frameworks that decode it again would get another value, maybe with
    # slashes. In a {+path} it could not even be sent: reserved expansion keeps such
    # triplets unchanged (RFC 6570, section 3.2.3).
    if _ENCODED.search(value):
        return "is percent-encoded a second time"
    if "/" in value and not is_path:
        return "has a slash"
    for segment in value.split("/"):
        # Windows drops dots and blanks at the end, so it may read `.. ` as `..`.
        if not segment.strip(". "):
            return "is empty or only dots, or has such a segment"
        # On Windows, joining `C:x` to a directory drops the directory. Any character
        # may name a drive there.
        if segment[1:2] == ":":
            return "begins, or has a segment that begins, like a drive"
    return ""


# ---- parsing ------------------------------------------------------------------------


def parse_template(text: str) -> UriTemplate:
    """Parse `text` as a template.

    A URI without any `{…}` is a template too, which matches that URI only.

    Raises:
        SchemaError: If `text` is malformed, ambiguous or not supported; the message
            names the part.
    """
    of = f"the template {_quoted(text)}"
    if _SCHEME.match(text) is None:
        raise SchemaError(f"{of} must begin with a scheme, such as books://")
    variables: list[str] = []
    optional: list[str] = []
    literals: list[str] = []
    pivot: int | None = None
    mark = ""
    rest = text
    while True:
        literal, brace, rest = rest.partition("{")
        _check_literal(literal, of)
        literals.append(literal)
        if not brace:
            break
        body, brace, rest = rest.partition("}")
        if not brace:
            raise SchemaError(f"{of} has a {{ without its }}")
        shown = _quoted(f"{{{body}}}")
        operator, names = _parse_expression(body, f"{of}: {shown}")
        for name in names:
            if name in variables:
                raise SchemaError(f"{of} has the variable {name} twice")
            variables.append(name)
        so_far = "".join(literals)
        if operator == "?" or operator == "&":
            _check_query(operator, so_far, rest, f"{of}: {shown}")
            mark, optional = operator, names
            break
        if not literal:
            raise SchemaError(
                f"{of} is ambiguous: nothing tells where the value before {shown}"
                " ends; put a literal between them"
            )
        if operator == "+":
            if pivot is not None:
                raise SchemaError(f"{of} is ambiguous: only one variable may have a +")
            if "?" in so_far or "#" in so_far:
                raise SchemaError(
                    f"{of}: {shown} is for paths, and may not follow ? or #"
                )
            pivot = len(literals) - 1
    return UriTemplate(
        text=text,
        variables=tuple(variables),
        optional=frozenset(optional),
        literals=tuple(literals),
        pivot=max(len(literals) - 2, 0) if pivot is None else pivot,
        is_path=pivot is not None,
        mark=mark,
    )


def _check_literal(literal: str, of: str) -> None:
    legal = _LITERAL.match(literal)
    assert legal is not None  # the expression matches the empty string, at least
    if legal.end() < len(literal):
        raise SchemaError(
            f"{of} has {literal[legal.end()]!r} where a URI cannot; write it"
            " percent-encoded (% itself as %25)"
        )


def _parse_expression(body: str, of: str) -> tuple[str, list[str]]:
    operator = body[:1]
    if operator in _REFUSED:
        raise SchemaError(
            f"{of} is not supported: the operator {operator} is for"
            f" {_REFUSED[operator]}, and only {{name}}, {{+name}}, {{?name}} and"
            " {&name} are"
        )
    if operator not in ("+", "?", "&"):
        operator = ""
    names = body.removeprefix(operator).split(",")
    for name in names:
        plain = name.removesuffix("*").partition(":")[0]
        if _NAME.fullmatch(plain) is None:
            raise SchemaError(
                f"{of}: {_quoted(name)} is not the name of a variable: letters, digits and _,"
                " and dots between them"
            )
        if name != plain:
            kind = "explode (*)" if name.endswith("*") else "a prefix (:)"
            raise SchemaError(f"{of} is not supported: it has {kind}")
    if len(names) > 1 and operator in ("", "+"):
        raise SchemaError(
            f"{of} is not supported: it has several variables; give each its"
            " own braces, with a literal between them"
        )
    return operator, names


def _check_query(operator: str, so_far: str, rest: str, of: str) -> None:
    if rest:
        raise SchemaError(f"{of} must come last")
    if "#" in so_far:
        raise SchemaError(f"{of} may not follow #")
    if operator == "?" and "?" in so_far:
        raise SchemaError(f"{of} continues a query: write & instead of ?")
    if operator == "&" and "?" not in so_far:
        raise SchemaError(f"{of} begins a query: write ? instead of &")


_MAX_WORD: Final = 80


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _MAX_WORD else f"{text[:_MAX_WORD]}…")
