"""Checked arguments → the Python values that a function takes.

The types are already checked, so only Python code can still refuse a value: validators,
converters, `__post_init__`, models, and limits that no schema can express. A model must
see every problem, so the problems of all parts are collected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, assert_never

from ..shapes.choices import built_by, pairs_of
from ..shapes.constraints import FULL, Extra, apply_rules
from ..shapes.notes import notes_of
from ..shapes.problems import Problem, put_below
from ..shapes.reading import (
    Anything,
    Choice,
    Columns,
    Entries,
    Items,
    Named,
    Object,
    Plain,
    Shape,
    Union,
    shape_of,
)
from ..shapes.sources import Complaints, Source, checks_parts
from ..shapes.unions import identity_of, unwrapped
from ..shapes.words import complaint
from .checks import Picked, has_equals

__all__ = ["AS_FLOAT", "Build", "make_build"]

#: Takes a checked value, and the problems so far; adds to them; returns the built value.
Build: TypeAlias = Callable[[Any, list[Problem]], Any]


def make_build(annotation: Any, of: str = "a value") -> Build | None:
    """Return a function that builds values of `annotation`.

    Return `None` if they need no change and no further check.
    """
    return _Builds().of(annotation, of, False)


class _Builds:
    def __init__(self) -> None:
        #: The builds of named types and classes, which may hold themselves.
        self._named: dict[str, list[Build | None]] = {}

    def of(self, annotation: Any, of: str, is_checked: bool) -> Build | None:
        bare, metadata = unwrapped(annotation)
        shape = shape_of(bare, of)
        build = self._bare(bare, shape, of, is_checked)
        notes = notes_of(metadata, bare, shape, of, is_checked=is_checked)
        extras: tuple[Extra, ...] = ()
        if not is_checked:
            extras = apply_rules(_basic(shape, of), notes.rules, FULL)
        if extras or notes.converts:
            return _limited(build, extras, notes.converts)
        return build

    def _bare(self, bare: Any, shape: Shape, of: str, is_checked: bool) -> Build | None:
        match shape:
            case Plain(leaf=leaf):
                if leaf.make is float:
                    return AS_FLOAT
                return None if leaf.make is None else _made(leaf.make)
            case Anything():
                return None
            case Choice():
                built = built_by(pairs_of(shape, FULL, of))
                return None if built is None else _made(built)
            case Items(item=item, make=make, is_set=is_set):
                build = self.of(item, of, is_checked)
                if build is None and make is list:
                    return None
                return _items(build, _made(_distinct(make) if is_set else make))
            case Columns(items=items):
                return _row(
                    [self.of(one, of, is_checked) for one in items], _made(tuple)
                )
            case Entries(key=None):
                return None
            case Entries(key=key, value=value):
                return _entries(
                    self.of(key, of, is_checked), self.of(value, of, is_checked)
                )
            case Union(members=members):
                return _picked([self.of(one, of, is_checked) for one in members])
            case Named(value=value):
                key = f"{is_checked} {identity_of(bare)}"
                return self._once(key, lambda: self.of(value, of, is_checked))
            case Object(source=source):
                key = f"{is_checked} {identity_of(bare)}"
                return self._once(key, lambda: self._object(source, is_checked))
            case _:
                assert_never(shape)

    def _once(self, key: str, make: Callable[[], Build | None]) -> Build | None:
        if key not in self._named:
            self._named[key] = slot = []
            slot.append(make())
            return slot[0]
        slot = self._named[key]
        if slot:
            return slot[0]

        def later(value: Any, problems: list[Problem]) -> Any:
            build = slot[0]
            return value if build is None else build(value, problems)

        return later

    def _object(self, source: Source, is_checked: bool) -> Build:
        builds = {
            part.name: self.of(
                part.hint,
                f"{source.class_.__qualname__}.{part.name}",
                checks_parts(source, is_checked),
            )
            for part in source.parts
        }
        if source.is_row:
            names = list(builds)
            make = source.make
            return _row(
                list(builds.values()),
                _made(lambda items: make(dict(zip(names, items, strict=True)))),
            )
        finish = _made(source.make)
        if source.is_root:
            ((name, build),) = builds.items()

            def root(value: Any, problems: list[Problem]) -> Any:
                before = len(problems)
                if build is not None:
                    value = build(value, problems)
                return _finished(finish, {name: value}, problems, before)

            return root

        def run(value: Mapping[str, Any], problems: list[Problem]) -> Any:
            before = len(problems)
            made = _each(value, builds, problems)
            return _finished(finish, made, problems, before)

        return run


def _basic(shape: Shape, of: str) -> dict[str, Any]:
    """Return a schema from which limits can tell what they say, and what not."""
    match shape:
        case Plain(leaf=leaf):
            return dict(leaf.schema)
        case Items():
            return {"type": "array"}
        case Columns():
            return {"type": "array", "prefixItems": []}
        case Entries():
            return {"type": "object"}
        case Union(members=members):
            inside = [shape_of(unwrapped(one)[0], of) for one in members]
            return {"anyOf": [_basic(one, of) for one in inside]}
        case _:
            return {}


# ---- parts --------------------------------------------------------------------------


def _made(make: Callable[[Any], Any]) -> Build:
    def run(value: Any, problems: list[Problem]) -> Any:
        try:
            return make(value)
        except Complaints as exc:
            problems += exc.problems
        except Exception as exc:
            problems.append(("", complaint(exc)))
        return None

    return run


#: Most numbers are floats already.
AS_FLOAT: Final = _made(float)


def _finished(finish: Build, value: Any, problems: list[Problem], before: int) -> Any:
    """Return the whole, if no part has a problem."""
    return finish(value, problems) if len(problems) == before else None


def _limited(
    build: Build | None,
    extras: tuple[Extra, ...],
    converts: tuple[Callable[[Any], Any], ...],
) -> Build:
    finishes = [_made(convert) for convert in converts]

    def run(value: Any, problems: list[Problem]) -> Any:
        before = len(problems)
        if build is not None:
            value = build(value, problems)
        if len(problems) > before:
            return None
        for extra in extras:
            try:
                extra(None, value)
            except Exception as exc:
                problems.append(("", complaint(exc)))
        for finish in finishes:
            value = _finished(finish, value, problems, before)
        return value

    return run


def _items(build: Build | None, finish: Build) -> Build:
    def run(value: list[Any], problems: list[Problem]) -> Any:
        before = len(problems)
        if build is not None:
            value = [
                _below(build, item, index, problems) for index, item in enumerate(value)
            ]
        return _finished(finish, value, problems, before)

    return run


def _row(builds: list[Build | None], finish: Build) -> Build:
    def run(value: list[Any], problems: list[Problem]) -> Any:
        before = len(problems)
        made = [
            item if build is None else _below(build, item, index, problems)
            for index, (build, item) in enumerate(zip(builds, value, strict=True))
        ]
        return _finished(finish, made, problems, before)

    return run


def _below(build: Build, value: Any, key: str | int, problems: list[Problem]) -> Any:
    before = len(problems)
    made = build(value, problems)
    put_below(problems, before, key)
    return made


def _each(
    value: Mapping[str, Any],
    builds: Mapping[str, Build | None],
    problems: list[Problem],
) -> dict[str, Any]:
    made = {}
    for name, item in value.items():
        build = builds.get(name)
        made[name] = item if build is None else _below(build, item, name, problems)
    return made


# Values that differ in JSON may be equal in Python: a UUID can be written in two ways.
def _distinct(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def distinct(items: list[Any]) -> Any:
        if has_equals(items):
            raise ValueError("must not have the same item twice")
        return make(items)

    return distinct


def _entries(build_key: Build | None, build: Build | None) -> Build | None:
    if build_key is None and build is None:
        return None

    def run(value: Mapping[str, Any], problems: list[Problem]) -> Any:
        before = len(problems)
        made = _each(value, dict.fromkeys(value, build), problems)
        if build_key is None:
            return made
        keys = [_below(build_key, name, name, problems) for name in value]
        if len(problems) > before:
            return None
        if has_equals(keys):
            problems.append(("", "must not have the same key twice"))
            return None
        return dict(zip(keys, made.values(), strict=True))

    return run


def _picked(builds: list[Build | None]) -> Build:
    # The check has already chosen the member.
    def run(picked: Picked, problems: list[Problem]) -> Any:
        build = builds[picked.index]
        return picked.value if build is None else build(picked.value, problems)

    return run
