"""Measure how fast a replay is, and whether its time stays linear.

One handler asks n one-field questions in a row; their answers come from a journal,
with fingerprints checked and every answer built from its JSON. Prints a table for people
and one JSON line for machines.

    python -m benchmarks.replay
"""

from __future__ import annotations

import gc
import json
import time
import tracemalloc

from effectmcp import Accepted, Elicit, Flow
from effectmcp.engine import LIVE, SCRIPT, Asked, Journal, Returned, Run

FLOW_ID = bytes(16)
SIZES = (1, 10, 100, 1_000, 10_000)


def ask(count: int) -> Flow[int]:
    total = 0
    for number in range(count):
        total += yield from Elicit(f"Who is guest number {number}?", int)
    return total


def record(count: int) -> Journal:
    """Return the journal of `ask(count)`, answered live."""
    run = Run(ask, (count,), flow_id=FLOW_ID, rules=LIVE)
    stop = run.start()
    while isinstance(stop, Asked):
        (question,) = stop.questions
        stop = run.answered({question.key: Accepted({"value": 1})})
    assert stop == Returned(count), stop
    return run.journal


def replay(journal: Journal, count: int) -> None:
    stop = Run(ask, (count,), flow_id=FLOW_ID, journal=journal, rules=SCRIPT).start()
    assert stop == Returned(count), stop


def measure(journals: dict[int, Journal]) -> dict[int, float]:
    """Return the seconds per replay, the best of many, as noise only adds time.

    The sizes take turns, so that a busy spell of the machine hits all of them.
    """
    best = dict.fromkeys(journals, float("inf"))
    for _ in range(60):
        for count, journal in journals.items():
            # One short replay is less than some clocks can measure.
            times = max(1, 500 // count)
            started = time.process_time()
            for _ in range(times):
                replay(journal, count)
            best[count] = min(best[count], (time.process_time() - started) / times)
    return best


def peak_bytes(journal: Journal, count: int) -> int:
    """Return the peak memory of a replay, in addition to its journal."""
    gc.collect()
    tracemalloc.start()
    replay(journal, count)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def main() -> None:
    journals = {count: record(count) for count in SIZES}
    times = measure(journals)
    peaks = {count: peak_bytes(journals[count], count) for count in SIZES}
    print(f"{'entries':>8} {'µs':>12} {'µs an effect':>13} {'effects/s':>11} {'kB':>7}")
    for count in SIZES:
        each = times[count] / count
        print(
            f"{count:>8,} {times[count] * 1e6:>12,.1f} {each * 1e6:>13.2f}"
            f" {1 / each:>11,.0f} {peaks[count] / 1024:>7,.0f}"
        )
    ratio = times[1_000] / times[100]
    print(f"t(1,000) / t(100) = {ratio:.2f}")
    print(
        json.dumps(
            {
                "benchmark": "replay",
                "us": {str(n): round(t * 1e6, 2) for n, t in times.items()},
                "effects_per_second": round(1_000 / times[1_000]),
                "t1000_over_t100": round(ratio, 2),
                "peak_kb": {str(n): round(p / 1024) for n, p in peaks.items()},
            }
        )
    )


if __name__ == "__main__":
    main()
