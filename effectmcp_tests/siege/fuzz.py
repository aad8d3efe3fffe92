"""Malformed input, by the million: heads, tokens and messages.

    python -m effectmcp_tests.siege.fuzz --heads 10000000 --tokens 1000000
    python -m effectmcp_tests.siege.fuzz --messages 1000000 --seed 7 --jobs 2

heads       what our reader accepts, h11 reads in the same way; all other bytes are read
            by h11, or raise `MalformedHttp`, and nothing else
tokens      a state that was changed in any way is refused, with one and the same error
messages    any message gets a reply that is valid JSON-RPC, with the status of its
            revision; nothing is raised, and no error is internal unless a handler raised

Work is cut into blocks. A finding names its block, which `--seed` and `--block` repeat.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from random import Random
from typing import Final, TypeAlias

from .fuzz_heads import try_heads
from .fuzz_messages import try_messages
from .fuzz_tokens import try_tokens

__all__ = ["BLOCK", "CAMPAIGNS", "main", "run_block"]

#: Inputs of one block.
BLOCK: Final = 5_000

Finding: TypeAlias = str
#: Tries so many inputs; yields the findings, and counts the outcomes.
Campaign: TypeAlias = Callable[[Random, int, Counter[str]], Iterator[Finding]]

CAMPAIGNS: Final[Mapping[str, Campaign]] = {
    "heads": try_heads,
    "tokens": try_tokens,
    "messages": try_messages,
}

#: Findings that are printed of a campaign.
_SHOWN: Final = 20


def run_block(job: tuple[str, int, int, int]) -> tuple[Counter[str], list[Finding]]:
    """Run one block: of a campaign, with a seed, a number and a size."""
    name, seed, block, count = job
    seen: Counter[str] = Counter()
    random = Random(f"{name} {seed} {block}")
    found = [
        f"{name}, --seed {seed} --block {block}: {one}"
        for one in CAMPAIGNS[name](random, count, seen)
    ]
    return seen, found


def _blocks(name: str, seed: int, count: int) -> list[tuple[str, int, int, int]]:
    starts = range(0, count, BLOCK)
    return [(name, seed, n, min(BLOCK, count - at)) for n, at in enumerate(starts)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the campaigns, and print their findings."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in CAMPAIGNS:
        parser.add_argument(f"--{name}", type=int, default=0, metavar="N")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--block", type=int, help="only this one")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    options = parser.parse_args(arguments)
    failed = 0
    for name in CAMPAIGNS:
        jobs = _blocks(name, options.seed, getattr(options, name))
        if options.block is not None:
            jobs = [job for job in jobs if job[2] == options.block]
        if not jobs:
            continue
        began = time.monotonic()
        seen: Counter[str] = Counter()
        findings: list[Finding] = []
        for one, found in _run(jobs, options.jobs):
            seen += one
            for finding in found[: max(0, _SHOWN - len(findings))]:
                print(finding, flush=True)
            findings += found
        took = time.monotonic() - began
        outcomes = ", ".join(f"{how} {n:,}" for how, n in seen.most_common())
        total = sum(job[3] for job in jobs)
        print(f"{name}: {total:,} in {took:.0f} s: {outcomes}")
        print(f"{name}: {len(findings)} findings", flush=True)
        failed += bool(findings)
    return failed


def _run(
    jobs: Sequence[tuple[str, int, int, int]], processes: int
) -> Iterator[tuple[Counter[str], list[Finding]]]:
    if processes == 1:
        yield from map(run_block, jobs)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(run_block, jobs)


if __name__ == "__main__":
    raise SystemExit(main())
