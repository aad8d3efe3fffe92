"""A type → its form: one field for a value, or one for each field of a class."""

from __future__ import annotations

from collections.abc import Mapping
from operator import methodcaller
from typing import Any

from attrs import evolve

from ..errors import FormError, SchemaError
from ..shapes.constraints import Extra
from ..shapes.notes import notes_of
from ..shapes.reading import Object
from ..shapes.sources import Complaints, Source, source_of
from ..shapes.unions import unwrapped
from ..shapes.words import complaint
from .form import LABEL, THIS, VALUE, Form, Recorded, Unfit, assemble
from .types import make_field

__all__ = ["typed_form"]


def typed_form(annotation: Any, title: str | None) -> Form[Any]:
    """Return the form of a type; see `form_of`.

    Raises:
        FormError: If no client could show a field; names the field and the reason.
    """
    try:
        bare, metadata = unwrapped(annotation)
        source = source_of(bare)
        if source is None or source.is_root:
            return _of_value(annotation, title)
        name = source.class_.__qualname__
        notes = notes_of(metadata, bare, Object(bare, source), name)
        if notes.rules or notes.converts:
            raise FormError(
                f"{name}: a form cannot limit a whole class from outside; write a"
                " validator of the class"
            )
        if title is not None:
            raise FormError(
                f"{name}: title= labels a form of one field; a"
                ' class labels its own, with Annotated[..., Title("…")]'
            )
        return _of_source(source)
    except SchemaError as exc:
        raise FormError(exc.problem) from exc


# ---- one field ----------------------------------------------------------------------


def _of_value(annotation: Any, title: str | None) -> Form[Any]:
    field = make_field(VALUE, annotation, of=THIS, title=title)
    build, extras = field.build, {VALUE: field.extras}

    def built(recorded: Recorded) -> Any:
        value = recorded.get(VALUE)
        try:
            return value if value is None or build is None else build(value)
        except Exception as exc:
            raise Unfit([f"{VALUE}: {_said(exc)}"]) from exc

    def judged(recorded: Recorded, problems: dict[str, str]) -> None:
        if VALUE in recorded:
            _judge({VALUE: built(recorded)}, problems, extras)

    found: Form[Any] = assemble(
        (field,),
        methodcaller("get", VALUE) if build is None else built,
        judged if field.extras else None,
        of=THIS,
    )
    if "title" in field.schema:
        return found
    # Without a title, hosts label the field with its name. The title is not in `text`:
    # questions of earlier versions, in open states, keep their fingerprints.
    shown = {**field.schema, "title": LABEL}
    return evolve(found, schema={**found.schema, "properties": {VALUE: shown}})


# ---- a class with fields -------------------------------------------------------------


def _of_source(source: Source) -> Form[Any]:
    of = source.class_.__qualname__
    for part in source.parts:
        if part.hint is Any:
            name = part.own_name or part.name
            raise FormError(f"{of}.{name}: has no annotation, so no type to ask for")
    fields = tuple(
        make_field(
            part.name,
            part.hint,
            of=f"{of}.{part.own_name or part.name}",
            part=part,
            is_checked=source.checks_limits,
        )
        for part in source.parts
    )
    builds = {field.name: field.build for field in fields}
    fallbacks = [(f.name, f.fallback) for f in fields if f.fallback is not None]

    def values_of(recorded: Recorded, problems: dict[str, str]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, value in recorded.items():
            build = builds.get(name)
            try:
                values[name] = value if build is None else build(value)
            except Exception as exc:
                problems[name] = _said(exc)
        for name, fallback in fallbacks:
            if name not in recorded:
                values[name] = fallback()
        return values

    def build(recorded: Recorded) -> Any:
        problems: dict[str, str] = {}
        # What an earlier version of the class recorded may have more fields.
        known = {name: one for name, one in recorded.items() if name in builds}
        values = values_of(known, problems)
        if problems:
            raise Unfit([f"{name}: {words}" for name, words in problems.items()])
        try:
            return source.make(values)
        except Complaints as exc:
            raise Unfit(exc.lines) from exc
        except Exception as exc:
            raise Unfit([complaint(exc)]) from exc

    extras = {field.name: field.extras for field in fields if field.extras}
    judge = source.judge or (_judge if extras else None)
    if judge is None and not any(field.converts for field in fields):
        return assemble(fields, build, of=of)

    def judged(recorded: Recorded, problems: dict[str, str]) -> None:
        values = values_of(recorded, problems)
        if judge is not None:
            judge(values, problems, extras)

    return assemble(fields, build, judged, of=of)


def _judge(
    values: Mapping[str, Any],
    problems: dict[str, str],
    extras: Mapping[str, tuple[Extra, ...]],
) -> None:
    """Check the limits of single fields, for a class that has no checks of its own."""
    for name, checks in extras.items():
        if name not in values or name in problems:
            continue
        said = []
        for extra in checks:
            try:
                extra(None, values[name])
            except Exception as exc:
                said.append(complaint(exc))
        if said:
            problems[name] = "; ".join(dict.fromkeys(said))


def _said(exc: Exception) -> str:
    if isinstance(exc, Complaints):
        return "; ".join(words for _, words in exc.problems)
    return complaint(exc)
