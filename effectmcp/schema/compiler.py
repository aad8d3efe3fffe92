"""A JSON Schema → a check that finds every problem of a value.

This module handles lists, objects, references and unions; `checks.py` has the rest.
Paths are built only for values that fail.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ..canonical import JSON
from ..errors import SchemaError
from ..shapes.problems import MAX_PROBLEMS, Problem, put_below
from ..shapes.words import path_step
from .checks import (
    Check,
    Found,
    Picked,
    check_choice,
    check_number,
    check_simple,
    check_string,
    equality_key,
    has_twins,
    size_check,
    type_of,
)
from .keywords import parts_in

__all__ = ["make_check"]


def make_check(schema: Mapping[str, JSON]) -> Check:
    """Compile `schema`, which `types.py` wrote, to a check.

    A default that does not fit is removed from `schema`: `x: int = None` is legal
    Python, and a model that sees a default may send it.

    Raises:
        SchemaError: If a type consists only of itself.
    """
    maker = _Maker(schema)
    for name in schema.get("$defs", {}):
        if _is_endless(name, schema["$defs"]):
            raise SchemaError(
                f"{name} is a union of itself and has no end; put a list, a dict or a"
                " class in between"
            )
    check = maker.make(schema)
    _drop_unfit_defaults(schema, maker)
    return check


def _is_endless(name: str, defs: Mapping[str, JSON]) -> bool:
    seen: set[str] = set()
    todo = [defs[name]]
    while todo:
        schema = todo.pop()
        todo += schema.get("anyOf", ())
        if "$ref" in schema:
            found = _name_of(schema["$ref"])
            if found == name:
                return True
            if found not in seen:
                seen.add(found)
                todo.append(defs[found])
    return False


def _name_of(reference: str) -> str:
    return reference.removeprefix("#/$defs/")


def _drop_unfit_defaults(schema: Mapping[str, JSON], maker: _Maker) -> None:
    for part in parts_in(schema):
        if "default" in part and maker.make(part).find(part["default"])[1]:
            del part["default"]
        _drop_unfit_defaults(part, maker)


class _Maker:
    def __init__(self, root: Mapping[str, JSON]) -> None:
        self._defs: Mapping[str, JSON] = root.get("$defs", {})
        self._made: dict[str, Check] = {}

    def make(self, schema: Mapping[str, JSON]) -> Check:
        if "$ref" in schema:
            return self._reference(_name_of(schema["$ref"]))
        if "anyOf" in schema:
            return _union([self.make(member) for member in schema["anyOf"]])
        if "oneOf" in schema:
            return check_choice([choice["const"] for choice in schema["oneOf"]])
        if "enum" in schema:
            return check_choice(schema["enum"])
        match schema.get("type"):
            case "null":
                return check_simple("null", lambda value: value is None)
            case "boolean":
                return check_simple("boolean", lambda value: type(value) is bool)
            case "integer":
                return check_number(schema, is_integer=True)
            case "number":
                return check_number(schema, is_integer=False)
            case "string":
                return check_string(schema)
            case "array":
                return self._array(schema)
            case "object":
                return self._object(schema)
            case _:
                return Check(lambda value, found: value, "anything")

    def _reference(self, name: str) -> Check:
        if name not in self._made:
            # Stored under its name before its fields are read: a class may hold itself.
            made = Check(lambda value, found: real.run(value, found), name)
            self._made[name] = made
            real = self.make(self._defs[name])
            made.noun, made.types, made.tags = real.noun, real.types, real.tags
        return self._made[name]

    def _array(self, schema: Mapping[str, JSON]) -> Check:
        firsts = [self.make(one).run for one in schema.get("prefixItems", ())]
        rest = schema.get("items", {})
        run_rest = self.make(rest).run if rest is not False else None
        low, high = schema.get("minItems", 0), schema.get("maxItems")
        unique = schema.get("uniqueItems", False)
        check_size = size_check(low, high, "item")

        def run(value: Any, found: Found) -> Any:
            if type(value) is not list:
                return found.add("must be a list")
            check_size(value, found)
            if unique and has_twins(value):
                found.add("must not have the same item twice")
            made = []
            problems = found.problems
            for index, item in enumerate(value):
                run_item = firsts[index] if index < len(firsts) else run_rest
                if run_item is None:
                    break  # its size check reports that
                before = len(problems)
                made.append(run_item(item, found))
                if len(problems) > before:
                    put_below(problems, before, index)
                    if len(problems) > MAX_PROBLEMS:
                        break
            return made

        return Check(run, "a list", ("array",))

    def _object(self, schema: Mapping[str, JSON]) -> Check:
        properties = schema.get("properties", {})
        checks = {name: self.make(one) for name, one in properties.items()}
        runs = {name: check.run for name, check in checks.items()}
        required = schema.get("required", ())
        others = schema.get("additionalProperties", True)
        run_other = self.make(others).run if isinstance(others, dict) else None
        run_key = None
        if "propertyNames" in schema:
            run_key = self.make(schema["propertyNames"]).run
        check_size = None
        if "minProperties" in schema or "maxProperties" in schema:
            check_size = size_check(
                schema.get("minProperties", 0), schema.get("maxProperties"), "entry"
            )

        def run(value: Any, found: Found) -> Any:
            if type(value) is not dict:
                return found.add("must be an object")
            if check_size is not None:
                check_size(value, found)
            problems = found.problems
            for name in required:
                if name not in value:
                    problems.append((path_step(name), "is required"))
            made = {}
            for name, item in value.items():
                before = len(problems)
                run_item = runs.get(name, run_other)
                if run_item is not None:
                    if run_key is not None:
                        run_key(name, found)
                    made[name] = run_item(item, found)
                elif others is False:
                    found.add(_unknown(name, runs))
                else:
                    made[name] = item
                if len(problems) > before:
                    put_below(problems, before, name)
                    if len(problems) > MAX_PROBLEMS:
                        break
            return made

        tags = {
            name: [equality_key(choice) for choice in one["enum"]]
            for name, one in properties.items()
            if "enum" in one and name in required
        }
        return Check(run, schema.get("title", "an object"), ("object",), tags)


def _unknown(name: str, known: Collection[str]) -> str:
    # A late import: most calls have no problems.
    from difflib import get_close_matches

    close = get_close_matches(name[:64], known, 1)
    return "is not known here" + (f"; did you mean {close[0]}?" if close else "")


# ---- unions -------------------------------------------------------------------------


def _union(members: list[Check]) -> Check:
    nouns = list(dict.fromkeys(member.noun for member in members))
    words = "must be " + " or ".join(nouns)

    def run(value: Any, found: Found) -> Any:
        type_ = type_of(value)
        close = []
        for index, member in enumerate(members):
            if type_ not in member.types:
                continue
            made, problems = _try(member, value, found)
            if not problems:
                return Picked(index, made)
            close.append((member, problems))
        if len(close) > 1:
            close = [one for one in close if _has_tags(one[0], value)] or close
        # Only the problems with the member that the caller probably meant are useful.
        # For lists, choose the closest member: they have no tag.
        if close and len({member.noun for member, _ in close}) == 1:
            _, nearest = min(close, key=lambda one: len(one[1]))
            found.problems += nearest
        else:
            found.add(words)
        return value

    types = frozenset[str]().union(*(member.types for member in members))
    return Check(run, " or ".join(nouns), types)


def _try(member: Check, value: Any, found: Found) -> tuple[Any, list[Problem]]:
    if type(value) is not dict and type(value) is not list:
        return member.find(value)
    # Identities are unique while the value is checked, because it keeps its parts
    # alive.
    key = (id(member), id(value))
    if key not in found.tried:
        inside = Found(tried=found.tried)
        made = member.run(value, inside)
        found.tried[key] = made, inside.problems
    return found.tried[key]


def _has_tags(member: Check, value: Any) -> bool:
    return bool(member.tags) and all(
        name in value and equality_key(value[name]) in choices
        for name, choices in member.tags.items()
    )
