"""Models and dataclasses of pydantic, version 2.

A model validates itself: its fields are checked and built by effectmcp, as in any other
class, and the model makes the value of them. So its validators run, in all modes, and
see Python values: a date where a field is a date, also in strict models.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, get_type_hints

from ...errors import SchemaError
from ..constraints import Extra
from ..labels import Title
from ..words import path_step
from .pydantic_notes import is_undefined, limits_in
from .source import NO_DEFAULT, Complaints, Judge, Part, Source

__all__ = ["problems_of", "source_of"]


def source_of(class_: Any) -> Source | None:
    """Return the source of a model or a dataclass of pydantic; `None` for others."""
    if "pydantic" not in sys.modules or "__pydantic_fields__" not in vars(class_):
        return None
    if not getattr(class_, "__pydantic_complete__", True):
        _complete(class_)
    of, is_root = class_.__qualname__, _is_root(class_)
    config = _config(class_)
    limits = limits_in(config.get("json_schema_extra"))
    if limits:
        raise SchemaError(f"{of}: {limits}; write a validator")
    fields = _fields_of(class_, config)
    names = {wire: name for wire, (name, _) in fields.items()}
    make = _maker(class_, names, is_open=config.get("extra") == "allow")
    return Source(
        class_=class_,
        parts=tuple(_part(wire, name, one) for wire, (name, one) in fields.items()),
        make=make,
        read=_reader(class_),
        judge=_judge(make),
        checks_limits=True,
        is_root=is_root,
        is_open=config.get("extra") == "allow",
        results=_results(class_),
        refuses_results=_refusal(class_),
        fields=lambda value: _recorded(value, names),
    )


def _complete(class_: Any) -> None:
    from pydantic import PydanticUserError

    try:
        class_.model_rebuild()
    except (PydanticUserError, NameError) as exc:
        raise SchemaError(
            f"{class_.__qualname__}: an annotation could not be resolved; define it at"
            f" module level, before the tool is registered ({exc})"
        ) from None


def _is_root(class_: Any) -> bool:
    return bool(getattr(class_, "__pydantic_root_model__", False))


def _config(class_: Any) -> Mapping[str, Any]:
    found: Any = getattr(class_, "model_config", None)
    if found is None:
        found = getattr(class_, "__pydantic_config__", None)
    return found or {}


def _fields_of(class_: Any, config: Mapping[str, Any]) -> dict[str, tuple[str, Any]]:
    """Return the name and the `FieldInfo` of each field, by its name on the wire."""
    of, found = class_.__qualname__, dict[str, tuple[str, Any]]()
    for name, field in class_.__pydantic_fields__.items():
        # Only dataclasses have fields that their constructor does not take.
        if hasattr(class_, "__dataclass_fields__") and field.init is False:
            continue
        is_root = _is_root(class_)
        wire = name if is_root else _wire_name(field, name, config, of)
        if wire in found:
            raise SchemaError(f"{of}: two fields have the alias {wire!r}")
        found[wire] = name, field
    return found


def _wire_name(field: Any, name: str, config: Mapping[str, Any], of: str) -> str:
    alias = field.validation_alias
    if alias is None or config.get("validate_by_alias") is False:
        return name
    for one in getattr(alias, "choices", (alias,)):
        if isinstance(one, str):
            return one
    raise SchemaError(
        f"{of}.{name}: an AliasPath reaches into an inner object; write a model of that"
        " object, and give its field the alias"
    )


def _part(wire: str, name: str, field: Any) -> Part:
    default = field.default
    has_none = field.default_factory is not None or is_undefined(default)
    return Part(
        name=wire,
        hint=_annotated(field.annotation, field),
        required=field.is_required(),
        default=NO_DEFAULT if has_none else default,
        own_name=name,
    )


def _annotated(hint: Any, note: Any) -> Any:
    made: Any = Annotated
    return made[hint, note]


# ---- values -------------------------------------------------------------------------


def _maker(
    class_: Any, names: Mapping[str, str], *, is_open: bool
) -> Callable[[dict[str, Any]], Any]:
    from pydantic import BaseModel, ValidationError

    hidden = set(names.values()) - names.keys() if is_open else set[str]()
    wires = {name: wire for wire, name in names.items()}

    def construct(values: dict[str, Any]) -> Any:
        if not issubclass(class_, BaseModel):
            return class_(**values)
        return class_.model_validate(values["root"] if _is_root(class_) else values)

    def make(values: dict[str, Any]) -> Any:
        # Otherwise pydantic would read the field by its own name, unchecked.
        if twice := hidden & values.keys():
            words = "is not known here; it is the name of a field in the code"
            raise Complaints((path_step(name), words) for name in sorted(twice))
        try:
            return construct(values)
        except ValidationError as exc:
            whole = values["root"] if _is_root(class_) else values
            raise Complaints(problems_of(exc, whole, wires)) from exc

    return make


def problems_of(
    exc: Any, value: Any = None, wires: Mapping[str, str] | None = None
) -> list[tuple[str, str]]:
    """Return the problems in a `ValidationError`, with their paths.

    Args:
        exc: The error.
        value: The value that was validated.
        wires: The names on the wire, by the names of the fields.
    """
    # Neither inputs nor contexts: a message must not repeat a secret.
    errors = exc.errors(include_url=False, include_context=False, include_input=False)
    return [
        (_path(error["loc"], value, wires or {}), _words(error["msg"]))
        for error in errors
    ]


def _path(loc: Sequence[int | str], value: Any, wires: Mapping[str, str]) -> str:
    """Return the path of an error. pydantic puts names of its own types into it."""
    path = ""
    for at, step in enumerate(loc):
        if at == 0 and step in wires and not _has(value, step):
            step = wires[str(step)]
        if isinstance(value, Mapping) or hasattr(value, "__pydantic_fields__"):
            # A missing field is named, too.
            if at > 0 and not _has(value, step):
                continue
            value = _item(value, step)
        elif isinstance(value, Sequence) and isinstance(step, int):
            value = value[step] if step < len(value) else None
        else:
            continue
        path += path_step(step)
    return path


def _has(value: Any, step: Any) -> bool:
    if isinstance(value, Mapping):
        return step in value
    return isinstance(step, str) and hasattr(value, step)


def _item(value: Any, step: Any) -> Any:
    if isinstance(value, Mapping):
        return value.get(step)
    return getattr(value, step, None)


_PREFIXES: Final = ("Value error, ", "Assertion failed, ")
_SUBJECT: Final = re.compile(r"^(?:\w+ ){1,3}should ")


def _words(message: str) -> str:
    for prefix in _PREFIXES:
        if message.startswith(prefix):
            return message.removeprefix(prefix) or "is not valid"
    if message.startswith("Predicate "):
        return "must pass a check"
    message = message.replace("should match pattern", "should match")
    return _SUBJECT.sub("must ", message)


def _judge(make: Callable[[dict[str, Any]], Any]) -> Judge:
    def judge(
        values: Mapping[str, Any],
        problems: dict[str, str],
        extras: Mapping[str, tuple[Extra, ...]],
    ) -> None:
        try:
            make({name: one for name, one in values.items() if name not in problems})
        except Complaints as exc:
            for path, words in exc.problems:
                for name in values:
                    here = path_step(name)
                    rest = path.removeprefix(here)
                    # The caller reports missing fields.
                    if path.startswith(here) and rest[:1] in ("", ".", "["):
                        problems.setdefault(name, words)
        except Exception:
            return  # of a validator; making the whole value reports it

    return judge


def _recorded(value: Any, names: Mapping[str, str]) -> Iterable[tuple[str, Any]]:
    for wire, name in names.items():
        yield wire, getattr(value, name)
    yield from (getattr(value, "model_extra", None) or {}).items()


# ---- results ------------------------------------------------------------------------


def _refusal(class_: Any) -> str:
    """Return the reason why results of a model are refused, or ""."""
    if class_.__pydantic_decorators__.model_serializers:
        return "has a serializer of the whole model; return what that makes"
    wires = [
        field.serialization_alias or name
        for name, field in class_.__pydantic_fields__.items()
        if not field.exclude
    ]
    twice = next((wire for wire in wires if wires.count(wire) > 1), None)
    return "" if twice is None else f"has two fields with the name {twice!r} in results"


def _serialized(class_: Any) -> dict[str, Any]:
    """Return the type that a serializer makes of each field that has one."""
    found: dict[str, Any] = {}
    for one in class_.__pydantic_decorators__.field_serializers.values():
        names = one.info.fields
        for name in class_.__pydantic_fields__ if "*" in names else names:
            found[name] = _result_of(one.info, one.func)
    for name, field in class_.__pydantic_fields__.items():
        for note in field.metadata:
            if type(note).__name__ in ("PlainSerializer", "WrapSerializer"):
                found[name] = _result_of(note, note.func)
    return found


def _result_of(serializer: Any, function: Any) -> Any:
    # What it leaves alone has another type.
    if getattr(serializer, "when_used", "always") not in ("always", "json"):
        return Any
    return _returned(serializer, function)


def _returned(about: Any, function: Any) -> Any:
    hint = about.return_type
    if not is_undefined(hint):
        return hint
    function = getattr(function, "__func__", function)
    function = getattr(function, "fget", function)
    return get_type_hints(function, include_extras=True).get("return", Any)


def _reader(class_: Any) -> Callable[[Any], Iterable[tuple[str, Any]]]:
    serialized = _serialized(class_)
    fields = [
        (field.serialization_alias or name, name, getattr(field, "exclude_if", None))
        for name, field in class_.__pydantic_fields__.items()
        if not field.exclude
    ]
    computed = [
        (one.info.alias or name, name)
        for name, one in class_.__pydantic_decorators__.computed_fields.items()
    ]

    def read(value: Any) -> Iterable[tuple[str, Any]]:
        made: Mapping[str, Any] = {}
        if serialized:
            made = type(value).__pydantic_serializer__.to_python(
                value, mode="json", include=set(serialized), warnings=False
            )
        for wire, name, is_left_out in fields:
            item = getattr(value, name)
            if is_left_out is None or not is_left_out(item):
                yield wire, made[name] if name in made else item
        for wire, name in computed:
            yield wire, getattr(value, name)
        yield from (getattr(value, "model_extra", None) or {}).items()

    return read


def _results(class_: Any) -> tuple[Part, ...]:
    serialized = _serialized(class_)
    parts = []
    for name, field in class_.__pydantic_fields__.items():
        if field.exclude:
            continue
        hint = serialized.get(name, _annotated(field.annotation, field))
        wire = field.serialization_alias or name
        is_always = getattr(field, "exclude_if", None) is None
        parts.append(
            Part(wire, hint, required=is_always, own_name=name, is_always=is_always)
        )
    for name, one in class_.__pydantic_decorators__.computed_fields.items():
        hint = _returned(one.info, one.func)
        if one.info.description:
            hint = _annotated(hint, one.info.description)
        if one.info.title:
            hint = _annotated(hint, Title(one.info.title))
        parts.append(
            Part(name=one.info.alias or name, hint=hint, required=True, own_name=name)
        )
    return tuple(parts)
