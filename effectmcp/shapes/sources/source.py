"""A class with fields, as all dialects see it: its parts, and how to make and read it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias, get_type_hints

from attrs import frozen

from ...errors import SchemaError

if TYPE_CHECKING:
    from ..constraints import Extra, Rule
    from ..labels import Label
    from ..problems import Problem

__all__ = [
    "NO_DEFAULT",
    "Complaints",
    "Converted",
    "Judge",
    "Note",
    "Part",
    "Source",
    "Unknown",
    "checks_parts",
    "hints_of",
    "refuse_field",
]

#: Marks a missing default, as `None` is a legal default.
NO_DEFAULT: Final = object()

#: Takes values for fields of the class, the problems found so far, and checks of single
#: fields; adds to the problems.
Judge: TypeAlias = "Callable[[Mapping[str, Any], dict[str, str], Mapping[str, tuple[Extra, ...]]], None]"


class Complaints(Exception):
    """The problems that a class reports, with their paths below it."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = list(problems)
        super().__init__("; ".join(self.lines))

    @property
    def lines(self) -> list[str]:
        """The problems as text."""
        return [
            f"{path.removeprefix('.')}: {words}" if path else words
            for path, words in self.problems
        ]


@frozen(eq=False)
class Part:
    """A field of a class.

    Attributes:
        name: The name on the wire.
        hint: Its annotation, resolved, with the class's type variables filled in.
        required: Whether a client has to send it.
        default: The default, if it is constant.
        text: Its description, from the class's docstring.
        rules: Limits that are not in its annotation.
        own_name: The name in the class, if that is another one.
        is_always: Whether every value has it, so that every result does.
    """

    name: str
    hint: Any
    required: bool
    default: Any = NO_DEFAULT
    text: str = ""
    rules: tuple[Rule, ...] = ()
    own_name: str = ""
    is_always: bool = True


@frozen(eq=False)
class Source:
    """A class with fields.

    Attributes:
        class_: The class.
        parts: The fields that a client may send.
        make: Makes a value from values by wire name. Raises `Complaints`, or anything
            else for the whole.
        read: Returns the fields of a value by wire name, for JSON.
        judge: Finds the problems of some values, without all of them; `None` if the class
            has no checks of its own.
        checks_limits: Whether the class checks the limits in its annotations itself.
        is_row: Whether it is a list in JSON.
        is_root: Whether JSON has its only field in its place.
        is_open: Whether it takes fields that it does not name.
        results: The fields of a result, where they are others.
        refuses_results: The reason why results are refused, if there is one.
        is_checked_around: Whether a class around it that checks its limits checks those
            in here, too, since it takes the value apart.
        fields: Returns the fields by wire name as `make` takes them, to record a value;
            `None` if `read` does.
    """

    class_: type
    parts: tuple[Part, ...]
    make: Callable[[dict[str, Any]], Any]
    read: Callable[[Any], Iterable[tuple[str, Any]]]
    judge: Judge | None = None
    checks_limits: bool = False
    is_row: bool = False
    is_root: bool = False
    is_open: bool = False
    results: tuple[Part, ...] | None = None
    refuses_results: str = ""
    is_checked_around: bool = False
    fields: Callable[[Any], Iterable[tuple[str, Any]]] | None = None


def checks_parts(source: Source, is_checked: bool) -> bool:
    """Whether the limits in the annotations of a class's fields are checked by a class.

    Args:
        source: The class.
        is_checked: Whether those around it are.
    """
    return source.checks_limits or (is_checked and source.is_checked_around)


#: The objects that describe a field of a class, by the beginning of their module.
_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "FieldInfo": ("pydantic",),
    "_CountingAttr": ("attr",),
    "Field": ("dataclasses", "msgspec"),
}


def refuse_field(default: Any, of: str) -> None:
    """Refuse a default that describes a field of another kind of class.

    Raises:
        SchemaError: If `default` is such an object.
    """
    class_ = type(default)
    if class_.__module__.startswith(_FIELDS.get(class_.__name__, ())):
        raise SchemaError(
            f"{of}: a field of another kind of class is not a default; write limits in"
            " the annotation: n: Annotated[int, Field(ge=1)] = 5"
        )


def hints_of(thing: Any, name: str) -> dict[str, Any]:
    """Return the resolved annotations of a class or a function called `name`.

    Raises:
        SchemaError: If an annotation names something that is not defined.
    """
    try:
        return get_type_hints(thing, include_extras=True)
    except NameError as exc:
        written = getattr(thing, "__annotations__", {})
        for key, hint in written.items():
            if isinstance(hint, str) and str(exc.name) in hint:
                name = f"{name}.{key}" if isinstance(thing, type) else f"{name}({key})"
                break
        raise SchemaError(
            f"{name}: {exc.name!r} in an annotation could not be resolved; define it at"
            " module level, before the tool is registered"
        ) from None
    except Exception as exc:  # of an annotation that is a string of code
        raise SchemaError(f"{name}: an annotation is not a type: {exc}") from None


# ---- the metadata of Annotated -------------------------------------------------------


@frozen(eq=False)
class Converted:
    """A function that changes or refuses values, beyond what a schema can say.

    Attributes:
        make: Takes the bare type, and returns the function. Raises an exception whose
            message explains why the function does not apply to that type.
    """

    make: Callable[[Any], Callable[[Any], Any]]


@frozen
class Unknown:
    """A limit that is not enforced in a parameter.

    Attributes:
        advice: The reason, and what to write instead.
        is_always: Whether a class around it does not enforce it either.
    """

    advice: str
    is_always: bool = False


#: What an object in `Annotated` says.
Note: TypeAlias = "Rule | Converted | Unknown | Label"
