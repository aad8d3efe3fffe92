"""Lends a book: a copy is held while the reader decides, and given free at the end.

There is an effect in `finally`, and a `BaseException` that is caught and raised again.
"""

from __future__ import annotations

import logging

from attrs import field, frozen
from attrs.validators import ge, le, min_len

from effectmcp import Confirm, Elicit, Flow, IdempotencyKey, Refused, Server, form, step

app = Server("library", version="1.0")
logger = logging.getLogger(__name__)


@form
@frozen
class Terms:
    """The reader, and the length of the loan."""

    reader: str = field(validator=min_len(1))
    days: int = field(default=14, validator=[ge(1), le(28)])


@step
def hold(title: str, key: str) -> str:
    """Simulates the catalogue, which holds one copy for each key."""
    return f"copy {key[:4]} of {title!r}"


@step
def lend(copy: str, reader: str, days: int, key: str) -> str:
    """Simulates the desk, which lends once for each key."""
    return f"{copy} is lent to {reader} for {days} days ({key[:4]})"


@step
def give_free(copy: str) -> None:
    """Release a hold. Doing it twice has the effect of once."""


@app.tool
def borrow(title: str) -> Flow[str]:
    """Borrow a book."""
    terms = yield from Elicit(f"Who borrows {title!r}?", Terms, otherwise=None)
    if terms is None:
        return "Nothing was lent."
    copy = yield from hold(title, (yield from IdempotencyKey("hold")))
    try:
        if not (yield from Confirm(f"{copy} for {terms.days} days?")):
            return "It went back to the shelf."
        key = yield from IdempotencyKey("loan")
        return (yield from lend(copy, terms.reader, terms.days, key))
    except Refused:
        return "Come back when you have decided."
    except BaseException as error:
        logger.info("%s: not lent, or not yet: %s", copy, type(error).__name__)
        raise
    finally:
        yield from give_free(copy)
