"""Measure `import effectmcp`, compared with `import attrs, cattrs`.

Runs whole interpreters in turns, with bytecode compiled beforehand. Prints a table for
people and one JSON line for machines.

    python -m benchmarks.imports
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time

STATEMENTS = ("pass", "import attrs, cattrs", "import effectmcp")
ROUNDS = 40


def seconds(statement: str) -> float:
    # Installed packages have their bytecode; do not measure compilation.
    environment = {
        k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"
    }
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], check=True, env=environment)
    return time.perf_counter() - started


def main() -> None:
    for statement in STATEMENTS:
        seconds(statement)
    times: dict[str, list[float]] = {statement: [] for statement in STATEMENTS}
    for _ in range(ROUNDS):
        for statement in STATEMENTS:
            times[statement].append(seconds(statement))
    print(f"{'':22} {'best ms':>8} {'median ms':>10}")
    for statement, all_times in times.items():
        print(
            f"{statement:22} {min(all_times) * 1e3:>8.1f}"
            f" {statistics.median(all_times) * 1e3:>10.1f}"
        )
    best = {statement: min(all_times) for statement, all_times in times.items()}
    ratio = best["import effectmcp"] / best["import attrs, cattrs"]
    print(f"ratio of the best: {ratio:.2f}")
    print(json.dumps({"benchmark": "imports", "ratio": round(ratio, 2)}))


if __name__ == "__main__":
    main()
