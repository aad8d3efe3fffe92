"""Compare every source with the rules: `python -m effectmcp_tests.shapes.models`.

For each seed, a model is drawn and written as a class of each source. Then for each class:

- its schema is valid JSON Schema 2020-12, and a form's is in the protocol's subset;
- arguments and answers are accepted exactly if the rules admit them;
- the published schema admits exactly those, where it can say all limits;
- pydantic's own validation and schema agree with that.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, Final

import jsonschema_rs
import pydantic

from effectmcp import ArgumentsError
from effectmcp.forms import Unfit, form_of
from effectmcp.schema import input_of

from ..engine.campaigns import options_of
from ..wire import fits
from .drawn_models import Model, admits, classes_of, draw_model, draw_value

__all__ = ["Disagreement", "check_models", "compare", "main"]

#: Values for each model.
VALUES: Final = 6
#: Draws until a value is admitted.
TRIES: Final = 12


class Disagreement(AssertionError):
    """A class that judges a value otherwise than the rules."""


def compare(model: Model, values: Iterable[Any]) -> None:
    """Compare the classes of a model on some values.

    Raises:
        Disagreement: Names the source, the value, and who said what.
    """
    values = list(values)
    for source, class_ in classes_of(model).items():
        try:
            _compare(model, source, class_, values)
        except Disagreement:
            raise
        except Exception as exc:
            raise Disagreement(f"{source}, {model}: {exc!r}") from exc


def _compare(model: Model, source: str, class_: Any, values: list[Any]) -> None:
    arguments = _arguments_of(class_)
    whole = dict(arguments.schema)
    jsonschema_rs.meta.validate({**whole, "$schema": DIALECT})
    is_valid = _referee(whole)
    form = None
    if model.is_flat:
        form = form_of(class_)
        fits(
            "ElicitRequestFormParams",
            {"mode": "form", "message": "?", "requestedSchema": form.schema},
        )
    own = _own(class_) if source == "pydantic" else None
    is_row = source == "NamedTuple"
    is_said = model.is_said(by_attrs=source == "attrs")
    for value in values:
        sent = _as_row(model, value) if is_row else value
        expected = sent is not None and admits(model, value)
        found = sent is not None and _accepts(arguments, sent)
        if sent is not None and found != expected:
            _disagree(source, model, sent, f"arguments: {found}, rules: {expected}")
        if sent is not None and is_said:
            shown = bool(is_valid({"model": sent}))
            if shown != expected:
                _disagree(source, model, sent, f"schema: {shown}, rules: {expected}")
        if own is not None and found:
            own(value)
        if form is not None:
            found = _takes(form, value)
            expected = admits(model, value, is_form=True)
            if found != expected:
                _disagree(source, model, value, f"form: {found}, rules: {expected}")


DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def _disagree(source: str, model: Model, value: Any, words: str) -> None:
    raise Disagreement(f"{source}, {model}, {value!r}: {words}")


def _arguments_of(class_: Any) -> Any:
    def tool(model: Any) -> None: ...

    tool.__annotations__["model"] = class_
    return input_of(tool)


def _retrieve(uri: str) -> Any:
    raise AssertionError(f"the referee wants to fetch {uri}")


def _referee(schema: Any) -> Callable[[Any], bool]:
    is_valid: Callable[[Any], bool] = jsonschema_rs.validator_for(
        schema, validate_formats=True, retriever=_retrieve
    ).is_valid
    return is_valid


def _accepts(arguments: Any, value: Any) -> bool:
    try:
        arguments.read({"model": value})
    except ArgumentsError:
        return False
    return True


def _takes(form: Any, value: Any) -> bool:
    try:
        form.build(form.read(value))
    except Unfit:
        return False
    return True


def _as_row(model: Model, value: Any) -> list[Any] | None:
    """Return the values in order, as a NamedTuple is sent; `None` if some are missing."""
    names = [one.name for one in model.fields]
    if value.keys() != set(names):
        return None
    return [value[name] for name in names]


def _own(class_: Any) -> Callable[[Any], None]:
    """Return a check that pydantic's schema and model admit an accepted value."""
    is_valid = _referee({**class_.model_json_schema(), "$schema": DIALECT})

    def check(value: Any) -> None:
        if not is_valid(value):
            raise Disagreement(f"{class_}, {value!r}: pydantic's schema refuses it")
        try:
            class_.model_validate_json(json.dumps(value))
        except pydantic.ValidationError as exc:
            raise Disagreement(f"{class_}, {value!r}: pydantic refuses it") from exc

    return check


def check_models(seeds: Iterable[int]) -> tuple[Counter[str], list[int]]:
    """Compare the models of seeds; return counts, and the failing seeds."""
    counts: Counter[str] = Counter()
    failing = []
    for seed in seeds:
        model, values = drawn(seed)
        counts["models"] += 1
        counts["flat"] += model.is_flat
        counts["values"] += len(values)
        counts["admitted"] += sum(admits(model, value) for value in values)
        try:
            compare(model, values)
        except Disagreement:
            failing.append(seed)
    return counts, failing


def drawn(seed: int) -> tuple[Model, list[Any]]:
    """Return the model of a seed, and values that fit, nearly fit, or do not."""
    chance = Random(seed)
    model = draw_model(chance)
    values = [draw_value(chance, model) for _ in range(VALUES)]
    for _ in range(TRIES):
        value = draw_value(chance, model)
        if admits(model, value):
            values.append(value)
            break
    return model, values


def main() -> int:
    options = options_of(__doc__, block=500)
    started = time.monotonic()
    counts: Counter[str] = Counter()
    failing: list[int] = []
    with multiprocessing.Pool(options.jobs) as pool:
        for more, seeds in pool.imap_unordered(check_models, options.blocks):
            counts += more
            for seed in seeds[: max(0, options.stories - len(failing))]:
                try:
                    compare(*drawn(seed))
                except Disagreement as exc:
                    print(f"seed {seed}: {exc}", flush=True)
            failing += seeds
    for name, count in counts.most_common():
        print(f"{count:>10,} {name}")
    print(f"{len(failing):,} differ, {time.monotonic() - started:.0f} s")
    print("seeds:", *sorted(failing)[:50])
    return 1 if failing else 0


if __name__ == "__main__":
    sys.exit(main())
