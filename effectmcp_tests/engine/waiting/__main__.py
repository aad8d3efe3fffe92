"""Run a campaign: `python -m effectmcp_tests.engine.waiting --seeds 0:100000 --jobs 2`."""

from __future__ import annotations

import logging
import multiprocessing
import time
from collections import Counter
from collections.abc import Iterable
from random import Random as Dice

from ..campaigns import options_of
from .host import draw_world
from .rounds import draw_visits, play_together, play_visits
from .shrinking import found, played

__all__ = ["main", "play_seeds"]


def play_seeds(seeds: Iterable[int]) -> tuple[Counter[str], list[tuple[str, int]]]:
    """Play the worlds of seeds; return counts, and what fails, by law and seed."""
    counts: Counter[str] = Counter()
    failing = []
    logging.disable(logging.CRITICAL)
    try:
        for seed in seeds:
            try:
                host = played(draw_world(Dice(seed)))
                counts["worlds"] += 1
                counts["crashes"] += host.crashes
                counts["stored journals"] += host.saves
                counts["cancelled"] += host.is_cancelled
                counts[f"ends: {host.end[0] if host.end else 'waits'}"] += 1
                play_together(seed)
                counts["together"] += 1
                counts["visits"] += play_visits(draw_visits(Dice(seed)))
            except Exception as error:
                failing.append((getattr(error, "name", type(error).__name__), seed))
    finally:
        logging.disable(logging.NOTSET)
    return counts, failing


def main() -> int:
    options = options_of(__doc__, block=500)
    started = time.monotonic()
    counts: Counter[str] = Counter()
    failing: list[tuple[str, int]] = []
    with multiprocessing.Pool(options.jobs) as pool:
        for found_counts, found_failing in pool.imap_unordered(
            play_seeds, options.blocks
        ):
            counts += found_counts
            for _, seed in found_failing[: max(0, options.stories - len(failing))]:
                print(found(seed), flush=True)
            failing += found_failing
    seconds = time.monotonic() - started
    for name, count in counts.most_common():
        print(f"{count:>10,} {name}")
    print(f"{len(failing):,} fail, {seconds:.0f} s")
    for name, seed in sorted(failing)[:50]:
        print(f"  law {name}: seed {seed}")
    return 1 if failing else 0


if __name__ == "__main__":
    raise SystemExit(main())
