"""The shared parts of campaigns of random worlds: their command line, and shrinking."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from typing import TypeVar

from attrs import frozen

__all__ = ["Options", "options_of", "shrunk"]

T = TypeVar("T")


@frozen
class Options:
    """The options of a campaign.

    Attributes:
        blocks: The seeds, in the portions that one process takes at a time.
        jobs: The number of processes.
        stories: The number of failures to shrink and print.
    """

    blocks: list[range]
    jobs: int
    stories: int


def options_of(description: str | None, *, block: int) -> Options:
    """Return the options that the command line gives."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seeds", default="0:10000", help="a range, as in 0:1000000")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--stories", type=int, default=5, help="failures to shrink")
    given = parser.parse_args()
    first, last = map(int, given.seeds.split(":"))
    blocks = [
        range(start, min(start + block, last)) for start in range(first, last, block)
    ]
    return Options(blocks, given.jobs, given.stories)


def shrunk(
    one: T,
    simpler: Callable[[T], Iterable[T]],
    fails: Callable[[T], bool],
    *,
    tries: int = 5_000,
) -> T:
    """Return the simplest world that still fails: each step is one of `simpler(world)`."""
    while True:
        for smaller in simpler(one):
            tries -= 1
            if tries < 0:
                return one
            if fails(smaller):
                one = smaller
                break
        else:
            return one
