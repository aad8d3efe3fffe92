"""pydantic's objects in `Annotated`, such as `Field`, and its types of strings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Annotated, Any, Final

from ...errors import SchemaError
from ..constraints import Other, Pattern, Rule
from ..labels import Title
from ..plain import Leaf
from .source import Complaints, Converted, Note, Unknown

__all__ = ["is_undefined", "leaf_of", "limits_in", "notes_in", "shown_note"]


def is_undefined(value: Any) -> bool:
    """Whether pydantic marks a missing value with `value`."""
    return type(value).__name__ == "PydanticUndefinedType"


#: Keywords that describe a value, and do not limit it.
_DESCRIBING: Final = frozenset(
    {"title", "description", "default", "examples", "example", "deprecated"}
    | {"readOnly", "writeOnly", "$comment", "format"}
)


def limits_in(extra: Any) -> str:
    """Return the problem of a `json_schema_extra` that limits values; or ""."""
    found = ""
    if isinstance(extra, Mapping):
        found = ", ".join(
            key for key in extra if key not in _DESCRIBING and key[:2] != "x-"
        )
    elif extra is not None:
        found = "a function"
    return found and f"json_schema_extra with {found} makes a promise that is not kept"


#: These matter to pydantic alone: values are always strict, unions choose the member that
#: fits, and the schema is not pydantic's.
_SILENT: Final = frozenset(
    {"Strict", "Tag", "WithJsonSchema", "Examples", "SkipValidation"}
    | {"PlainSerializer", "WrapSerializer", "SerializeAsAny", "OnErrorOmit"}
)

_REFUSED: Final = {
    "EncodedBytes": "write bytes, which are hexadecimal digits here",
    "EncodedStr": "write bytes, which are hexadecimal digits here",
    "Json": "write the type that the JSON holds",
}


def notes_in(item: Any) -> Iterable[Note] | None:
    """Return the meaning of an object of pydantic; `None` for any other object."""
    class_ = item if isinstance(item, type) else type(item)
    if class_.__module__.partition(".")[0] != "pydantic":
        return None
    name = class_.__name__
    if name in _REFUSED:
        return (Unknown(_REFUSED[name], is_always=True),)
    if isinstance(item, type):
        return None
    if name == "FieldInfo":
        return _notes_of_field(item)
    if name == "Discriminator" and not isinstance(item.discriminator, str):
        advice = "a function sees made values here; name the field of the tag"
        return (Unknown(advice, is_always=True),)
    if name in _SILENT or name == "Discriminator":
        return ()
    return _notes_of_limit(item)


def _notes_of_field(item: Any) -> Iterable[Note]:
    from . import notes_in as any_notes_in

    found: list[Note] = []
    for one in item.metadata:
        if type(one).__module__.partition(".")[0] == "msgspec":
            advice = f"pydantic does not know it; write Field, not {one!r}"
            found.append(Unknown(advice, is_always=True))
        found += any_notes_in(one)
    if item.title is not None:
        found.append(Title(item.title))
    if item.description is not None:
        found.append(item.description)
    if not is_undefined(item.default) or item.default_factory is not None:
        found.append(Unknown("write the default behind the =, as in n: int = 5"))
    if item.alias is not None or item.validation_alias is not None:
        found.append(Unknown("an alias has no effect here; rename the parameter"))
    limits = limits_in(item.json_schema_extra)
    if limits:
        advice = f"{limits}; write it as arguments of Field"
        found.append(Unknown(advice, is_always=True))
    return found


def _notes_of_limit(item: Any) -> Iterable[Note]:
    import annotated_types

    from . import notes_in as any_notes_in

    found: list[Note] = []
    pattern = getattr(item, "pattern", None)
    # These are only described here. pydantic checks them: its expressions are not Python's.
    if pattern is not None:
        shown = getattr(pattern, "pattern", pattern)
        found.append(Rule(Pattern(shown, _is_anything), is_code=True))
    for name, noun in (("max_digits", "digits"), ("decimal_places", "decimals")):
        most = getattr(item, name, None)
        if most is not None:
            limit = Other(
                _is_anything, f"must have at most {most} {noun}", ("Decimal",)
            )
            found.append(Rule(limit, is_code=True))
    if isinstance(item, annotated_types.GroupedMetadata):
        # Its other parts, which change a string, are for the adapter below.
        for one in item:
            if type(one).__module__.partition(".")[0] != "pydantic":
                found += any_notes_in(one)
    return [*found, Converted(lambda bare: _adapter(bare, item))]


def _is_anything(value: Any) -> bool:
    return True


def shown_note(item: Any) -> str:
    """Return an object of pydantic as its author wrote it; "" for any other object."""
    if type(item).__module__.partition(".")[0] != "pydantic":
        return ""
    given = dict(
        getattr(item, "_attributes_set", None) or getattr(item, "__dict__", {})
    )
    for one in getattr(item, "metadata", ()):
        if type(one).__module__.startswith("pydantic"):
            given.update(getattr(one, "__dict__", {}))
    given = {key: one for key, one in given.items() if one is not None}
    if not given:
        return repr(item)
    arguments = [f"{key}={one!r}" for key, one in given.items() if key != "annotation"]
    name = type(item).__name__.replace("FieldInfo", "Field")
    return f"{name.removeprefix('_')}({', '.join(arguments)})"


#: Functions that see the value as it is then, and not the type.
_AFTER: Final = frozenset({"AfterValidator", "PlainValidator"})


def _adapter(bare: Any, item: Any) -> Callable[[Any], Any]:
    from pydantic import PydanticUserError, TypeAdapter, ValidationError

    from .pydantic_models import problems_of

    made: Any = Annotated
    try:
        # Metadata inside of the type has been applied: it must not run twice.
        type_ = Any if type(item).__name__ in _AFTER else bare
        adapter: Any = TypeAdapter(made[type_, item])
    except PydanticUserError:
        adapter = TypeAdapter(made[Any, item])

    def convert(value: Any) -> Any:
        try:
            return adapter.validate_python(value)
        except ValidationError as exc:
            raise Complaints(problems_of(exc, value)) from exc

    return convert


# ---- types --------------------------------------------------------------------------


@lru_cache(maxsize=128)
def leaf_of(class_: Any) -> Leaf | None:
    """Return a type of strings that pydantic defines; `None` for other types.

    Raises:
        SchemaError: If pydantic lacks a package that the type needs.
    """
    module = getattr(class_, "__module__", "")
    if not isinstance(class_, type) or not module.startswith("pydantic."):
        return None
    schema: dict[str, Any] = {"type": "string"}
    secret = ""
    if class_.__name__ == "SecretStr":
        secret = (
            "a form must not ask for secrets, so send the user to a page: ElicitUrl"
        )
    elif class_.__name__ == "EmailStr":
        schema["format"] = "email"
    elif class_.__name__.endswith("Url"):
        schema["format"] = "uri"
    else:
        return None
    from pydantic import TypeAdapter, ValidationError

    from .pydantic_models import problems_of

    try:
        adapter: Any = TypeAdapter(class_)
    except ImportError as exc:
        raise SchemaError(f"{class_.__name__}: {exc}") from None

    def make(text: str) -> Any:
        try:
            return adapter.validate_python(text)
        except ValidationError as exc:
            raise Complaints(problems_of(exc)) from exc

    return Leaf(schema, make, str, is_for_forms=True, secret=secret)
