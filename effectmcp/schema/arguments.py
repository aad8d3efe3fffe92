"""A function's signature → `inputSchema`, and arguments → keyword arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from attrs import field, frozen

from ..canonical import JSON
from ..effects.steps import PROVIDED
from ..errors import ArgumentsError, SchemaError
from ..shapes.problems import put_below, rendered, unreadable
from ..shapes.sources import refuse_field
from ..shapes.unions import unwrapped
from ..shapes.words import is_text, path_step
from .build import AS_FLOAT, Build, make_build
from .checks import Check
from .compiler import make_check
from .functions import read_signature
from .types import Schemas, add_default, object_of

__all__ = ["Arguments", "input_of"]

_KINDS: Final = {
    inspect.Parameter.POSITIONAL_ONLY: "is positional only, and arguments come by name;"
    " remove the / behind it",
    inspect.Parameter.VAR_POSITIONAL: "takes any number of arguments without a name;"
    " write a list: {name}: list[str]",
    inspect.Parameter.VAR_KEYWORD: "takes arguments of any name; write"
    " {name}: dict[str, str], or name them",
}


#: Types whose values all fit, if the schema has no keywords beyond `_WORDS`.
_PLAIN: Final = (str, int, bool, float)
_WORDS: Final = frozenset({"type", "title", "description", "default", "x-mcp-header"})
#: Smaller numbers need no further check.
_LARGE: Final = 2**64
_TEXT: Final = frozenset({str})


@frozen(eq=False, repr=False)
class Arguments:
    """The arguments of a function: their schema, and their conversion from JSON.

    Attributes:
        schema: The `inputSchema`.
        description: The first paragraph of the function's docstring.
    """

    schema: Mapping[str, JSON]
    description: str
    _check: Check = field(alias="check")
    #: By parameter; `None` for values that need no conversion.
    _builds: Mapping[str, Build | None] = field(alias="builds")
    #: The parameters of plain types, whose values `_is_plain()` checks.
    _plain: Mapping[str, type] = field(alias="plain")
    _required: frozenset[str] = field(alias="required")

    def read(self, value: JSON) -> dict[str, Any]:
        """Convert `value`, the `arguments` of a call, to keyword arguments.

        Missing arguments stay missing, so that the function's own defaults apply.

        Raises:
            ArgumentsError: With every problem, each as `guests[1].age: must be …`. It
                includes problems that author-defined validators find in arguments that
                fit the schema.
        """
        if self._is_plain(value):
            if len(value) < 2:
                return dict(value)
            # In the order of the signature: `**kwargs` of a wrapper shows the order, and
            # a client may send another one with the next round.
            return {name: value[name] for name in self._builds if name in value}
        problems = unreadable(value)
        checked: Any = None  # an unchecked value is not built either
        if not problems:
            checked, problems = self._check.find(value)
        kwargs: dict[str, Any] = {}
        bad = [path for path, _ in problems]
        if type(checked) is dict and "" not in bad:
            for name, build in self._builds.items():
                if name not in checked or (bad and _is_bad(name, bad)):
                    continue
                if build is None:
                    kwargs[name] = checked[name]
                    continue
                before = len(problems)
                kwargs[name] = build(checked[name], problems)
                put_below(problems, before, name)
        if problems:
            raise ArgumentsError(rendered(problems, root="the arguments"))
        return kwargs

    def _is_plain(self, value: JSON) -> bool:
        """Return whether `value` fits and needs no conversion.

        `parse` refuses lone surrogates and infinities, but the caller of `read` may use
        another parser.
        """
        if type(value) is not dict or not self._required <= value.keys():
            return False
        if not _TEXT.issuperset(map(type, value)):
            return False
        for name, item in value.items():
            kind = type(item)
            if kind is not self._plain.get(name):
                return False
            if kind is str:
                if not (item.isascii() or is_text(item)):
                    return False
            elif not -_LARGE < item < _LARGE:
                return False
        return True


def _is_bad(name: str, paths: Collection[str]) -> bool:
    here = path_step(name)
    return any(
        path.startswith(here) and path[len(here) : len(here) + 1] in ("", ".", "[")
        for path in paths
    )


def input_of(function: Callable[..., Any], *, skip: Collection[str] = ()) -> Arguments:
    """Return the `Arguments` of `function`.

    Parameters whose default is `Provided()` are filled in by the driver and left out.

    Args:
        function: A function, a method, a partial or a callable object.
        skip: Parameters that the caller fills in.

    Raises:
        SchemaError: If a parameter cannot be published as JSON Schema; names it, and
            what to write instead.
    """
    signature = read_signature(function)
    schemas = Schemas()
    properties: dict[str, JSON] = {}
    required: list[str] = []
    hints: dict[str, Any] = {}
    for parameter in signature.parameters:
        name = parameter.name
        if name in skip or parameter.default is PROVIDED:
            continue
        of = f"{signature.name}({name})"
        if parameter.kind in _KINDS:
            raise SchemaError(f"{of} {_KINDS[parameter.kind].format(name=name)}")
        hints[name] = signature.hints.get(name, Any)
        schema = schemas.of(hints[name], of)
        if text := signature.docstring.entries.get(name):
            schema.setdefault("description", text)
        default = parameter.default
        refuse_field(default, of)
        if default is inspect.Parameter.empty:
            required.append(name)
        else:
            add_default(schema, default)
        properties[name] = schema
    document = schemas.document(object_of(properties, required), signature.name)
    check = make_check(document)
    builds = {
        name: make_build(hint, f"{signature.name}({name})")
        for name, hint in hints.items()
    }
    plain = {
        name: type_
        for name, hint in hints.items()
        if (type_ := unwrapped(hint)[0]) in _PLAIN
        and properties[name].keys() <= _WORDS
        # A float is built from a whole number, too, and both are plain.
        and builds[name] in (None, AS_FLOAT)
    }
    return Arguments(
        schema=document,
        description=signature.docstring.summary,
        check=check,
        builds=builds,
        plain=plain,
        required=frozenset(required),
    )
