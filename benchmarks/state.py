"""Measure the cost of a sealed round, and the characters that a client carries.

One handler asks n one-field questions in a row. Times: to open a state of n entries, to
seal it, and a whole round (open, replay, take one answer, ask the next, seal). Sizes:
after n answers of one field or three, and after ten sampled replies of 600 words. Prints
tables for people and one JSON line for machines.

    python -m benchmarks.state
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import attrs
from attrs import frozen

from effectmcp import Accepted, Elicit, Flow, Sample
from effectmcp.engine import LIVE, RETRY, Answer, Asked, Journal, Run
from effectmcp.exchange.rounds import resume
from effectmcp.state import BoundCall, Claims, Keys, Sealer, make_key

FLOW_ID = bytes(range(16))
NOW = 1_800_000_000
SIZES = (1, 10, 100)
SEALER = Sealer(
    keys=Keys(make_key(bytes(range(32)))), audience="bookshop", warn_at=10**6
)
CALL = BoundCall(
    method="tools/call",
    target="order",
    arguments={"title": "The Left Hand of Darkness", "copies": 2},
    principal="ann@example.com",
)
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
RULES = attrs.evolve(RETRY, rounds=None)


# ---- questions ----------------------------------------------------------------------


def ask() -> Flow[None]:
    number = 0
    while True:
        number += 1
        yield from Elicit(f"Who is guest number {number}?", str)


@frozen
class Guest:
    name: str
    age: int
    vegetarian: bool


def ask_three() -> Flow[None]:
    number = 0
    while True:
        number += 1
        yield from Elicit(f"Who is guest number {number}?", Guest)


def write() -> Flow[None]:
    number = 0
    while True:
        number += 1
        yield from Sample(f"Write chapter {number}.", max_tokens=1_000)


def names() -> Iterator[Answer]:
    chance = random.Random(0)
    while True:
        yield Accepted({"value": name(chance)})


def guests() -> Iterator[Answer]:
    chance = random.Random(0)
    while True:
        age, vegetarian = chance.randrange(18, 90), chance.random() < 0.3
        yield Accepted({"name": name(chance), "age": age, "vegetarian": vegetarian})


def chapters() -> Iterator[Answer]:
    chance = random.Random(0)
    while True:
        content = {"type": "text", "text": prose(chance, 600)}
        yield Accepted({"role": "assistant", "content": content, "model": "a-model"})


SYLLABLES = "an bar con der el for gra hin is jo kel lin mar nor or pen qui ra sen ti"
ENDINGS = ["", "", "s", "ed", "ing", "er", "ly", "ion"]
COMMON = (
    "the of and to a in that it is was he for on with as his they be at one have this"
    " from or had by but what all were when we there can an your which their"
).split()


def name(chance: random.Random) -> str:
    return "".join(chance.choices(SYLLABLES.split(), k=3)).title()


def prose(chance: random.Random, count: int) -> str:
    """Return sentences of words by Zipf's law, which deflate like English."""
    rare = [
        "".join(chance.choices(SYLLABLES.split(), k=1 + at % 3))
        + chance.choice(ENDINGS)
        for at in range(1_500)
    ]
    words = COMMON + rare
    weights = [1 / (rank + 2) for rank in range(len(words))]
    chosen = chance.choices(words, weights, k=count)
    for at in range(0, count, 14):
        chosen[at] = chosen[at].capitalize()
        chosen[at - 1] += "."
    return " ".join(chosen)


# ---- the states ---------------------------------------------------------------------


def claims_after(
    handler: Callable[[], Any], answers: Iterator[Answer], n: int
) -> Claims:
    """Return the state after `n` answers, with the next question outstanding."""
    run = Run(handler, flow_id=FLOW_ID, rules=LIVE)
    stop = run.start()
    for _ in range(n):
        assert isinstance(stop, Asked)
        stop = run.answered({stop.questions[0].key: next(answers)})
    return Claims(
        flow_id=FLOW_ID, started=NOW, journal=run.suspend(), version="3", trace=TRACE
    )


def seal(claims: Claims) -> str:
    return SEALER.seal(claims, CALL, now=NOW)


# ---- times --------------------------------------------------------------------------


def measure(verbs: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Return the microseconds of each, the best of many, as noise only adds time.

    They take turns, so that a busy spell of the machine hits all of them, and each turn
    is three in a row, so that one does not pay for what another left in the caches.
    """
    best = dict.fromkeys(verbs, float("inf"))
    for _ in range(3_000):
        for verb, run in verbs.items():
            for _ in range(3):
                started = time.perf_counter()
                run()
                best[verb] = min(best[verb], time.perf_counter() - started)
    return {verb: seconds * 1e6 for verb, seconds in best.items()}


def verbs_at(n: int) -> dict[str, Callable[[], object]]:
    claims = claims_after(ask, names(), n)
    token = seal(claims)
    # A round at n entries: n - 1 in the state, and one in the request.
    before = claims_after(ask, names(), n - 1)
    sent, (key,) = seal(before), before.journal.asked
    answers = {key: Accepted({"value": "Ann"})}

    def round_() -> str:
        one = resume(
            ask,
            token=sent,
            call=CALL,
            sealer=SEALER,
            now=NOW,
            answers=answers,
            rules=RULES,
        )
        return one.token(now=NOW)

    def replay() -> Journal:
        run = Run(ask, flow_id=FLOW_ID, journal=before.journal, rules=RULES)
        run.start(answers)
        return run.suspend()

    return {
        f"open {n}": lambda: SEALER.open(token, CALL, now=NOW),
        f"seal {n}": lambda: seal(claims),
        f"replay {n}": replay,
        f"round {n}": round_,
    }


def main() -> None:
    times = measure({k: v for n in SIZES for k, v in verbs_at(n).items()})
    print(
        f"{'entries':>8} {'open µs':>8} {'seal µs':>8} {'replay µs':>10} {'round µs':>9}"
    )
    for n in SIZES:
        opened, sealed, replayed, whole = (
            times[f"{verb} {n}"] for verb in ("open", "seal", "replay", "round")
        )
        print(f"{n:>8} {opened:>8.1f} {sealed:>8.1f} {replayed:>10.1f} {whole:>9.1f}")
    sizes = {
        "1 answer": len(seal(claims_after(ask, names(), 1))),
        "3 answers": len(seal(claims_after(ask, names(), 3))),
        "10 answers": len(seal(claims_after(ask, names(), 10))),
        "10 answers of 3 fields": len(seal(claims_after(ask_three, guests(), 10))),
        "10 texts of 600 words": len(seal(claims_after(write, chapters(), 10))),
    }
    print(f"\n{'after':24} {'characters':>10}")
    for after, size in sizes.items():
        print(f"{after:24} {size:>10,}")
    print(
        json.dumps(
            {
                "benchmark": "state",
                "us": {verb: round(us, 1) for verb, us in times.items()},
                "characters": sizes,
            }
        )
    )


if __name__ == "__main__":
    main()
