"""Run a campaign: `python -m effectmcp_tests.engine.independent --seeds 0:100000 --jobs 2`."""

from __future__ import annotations

import logging
import multiprocessing
import time
from collections import Counter
from collections.abc import Iterable
from random import Random

from ..campaigns import options_of
from .drawing import draw
from .shrinking import found
from .worlds import Report, play

__all__ = ["main", "play_seeds"]


def play_seeds(seeds: Iterable[int]) -> tuple[Counter[str], list[int]]:
    """Play the worlds of seeds; return counts of what happened, and the failing seeds."""
    counts: Counter[str] = Counter()
    failing = []
    logging.disable(logging.CRITICAL)
    try:
        for seed in seeds:
            counts["programs"] += 1
            try:
                report: Report = play(draw(Random(seed)))
            except Exception:
                failing.append(seed)
                continue
            counts["rounds"] += report.rounds
            if report.unjudged is not None:
                counts[f"open: {report.unjudged}"] += 1
    finally:
        logging.disable(logging.NOTSET)
    return counts, failing


def main() -> int:
    options = options_of(__doc__, block=1_000)
    started = time.monotonic()
    counts: Counter[str] = Counter()
    failing: list[int] = []
    with multiprocessing.Pool(options.jobs) as pool:
        for found_counts, found_seeds in pool.imap_unordered(
            play_seeds, options.blocks
        ):
            counts += found_counts
            for seed in found_seeds[: max(0, options.stories - len(failing))]:
                print(found(seed), flush=True)
            failing += found_seeds
    seconds = time.monotonic() - started
    for name, count in counts.most_common():
        print(f"{count:>10,} {name}")
    each = 1_000 * seconds * options.jobs / max(1, counts["programs"])
    print(f"{len(failing):,} differ, {seconds:.0f} s, {each:.2f} ms a program")
    print("seeds:", *sorted(failing)[:50])
    return 1 if failing else 0


if __name__ == "__main__":
    raise SystemExit(main())
