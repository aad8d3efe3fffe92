"""Measure how long a message of 4 MiB holds the loop of a server that reads it.

Each shape is as many of one value as fit, in the arguments of a tool. Times: `json.loads`,
which checks nothing, and the reader, which also refuses twin keys, deep nesting, lone
surrogates and numbers that JSON lacks; and what a call then does with the arguments.
Medians. Prints a table for people and one JSON line for machines.

    python -m benchmarks.parsing
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping

from effectmcp.canonical import dumps
from effectmcp.protocol import jsonrpc

SIZE = 4 * 1024 * 1024
BEFORE = (
    '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":'
)
AFTER = "}}"


def many(item: str, size: int) -> str:
    return f'{{"a":[{",".join([item] * (size // (len(item) + 1)))}]}}'


def one_object(value: str, size: int) -> str:
    count = size // (len(value) + 10)
    return "{" + ",".join(f'"{at:06x}":{value}' for at in range(count)) + "}"


def one_string(piece: str, size: int) -> str:
    return f'{{"a":"{piece * (size // len(piece))}"}}'


def shapes(size: int) -> dict[str, str]:
    items = {
        "{}": "{}",
        "[]": "[]",
        "objects with one member": '{"a":0}',
        "the empty key": '{"":0}',
        "blanks in objects": "{ }",
        "colons in strings": '{"a":":"}',
        "brackets in strings": '{"[":0}',
        "quotes in strings": '{"a":"\\""}',
        "objects in arrays": "[{}]",
        "objects in objects": '{"":{}}',
        "60 arrays in each other": "[" * 60 + "]" * 60,
        "60 objects in each other": '{"":' * 59 + "{}" + "}" * 59,
        "integers": "0",
        "large integers": "9" * 4000,
        "floats": "1.5",
        "large floats": "1e300",
        "null": "null",
        "short strings": '"a"',
        "colons as strings": '":"',
        "brackets as strings": '"["',
        "emoji": '"\\ud83d\\ude00"',
    }
    room = size - len(BEFORE) - len(AFTER) - 8
    return {name: many(item, room) for name, item in items.items()} | {
        "one object": one_object("0", room),
        "one object of objects": one_object("{}", room),
        "a long string": one_string("a", room),
        "a long string of brackets": one_string("[", room),
        "a long string of escapes": one_string("\\n", room),
        "a long string of emoji": one_string("\\ud83d\\ude00", room),
    }


def faults(size: int) -> dict[str, str]:
    """Return arguments that are refused, as late as possible."""
    rest = many("{}", size - 200)[:-2]
    return {
        "then twins": f'{rest},{{"a":0,"a":0}}]}}',
        "then a lone surrogate": f'{rest},"\\ud800"]}}',
        "then 1e400": f"{rest},1e400]}}",
        "then NaN": f"{rest},NaN]}}",
        "then an error": f"{rest},nul",
    }


def times(steps: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Return the median milliseconds of each; they take turns."""
    taken: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(repeats):
        for name, step in steps.items():
            # Not the wall clock: others use the machine, too.
            started = time.process_time()
            result = step()
            del result
            taken[name].append((time.process_time() - started) * 1e3)
    return {name: statistics.median(found) for name, found in taken.items()}


def measure(arguments: str, repeats: int) -> dict[str, float]:
    data = f"{BEFORE}{arguments}{AFTER}".encode()
    steps: dict[str, Callable[[], object]] = {
        "read": lambda: jsonrpc.read_message(data)
    }
    read = jsonrpc.read_message(data)
    if isinstance(read, jsonrpc.Request):
        values = read.params["arguments"]
        steps["digest"] = lambda: dumps(values)
    try:
        json.loads(data)
    except ValueError:
        pass
    else:
        steps = {"loads": lambda: json.loads(data), **steps}
    return times(steps, repeats)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tiny", action="store_true", help="small messages, once")
    options = parser.parse_args()
    size, repeats = (40_000, 1) if options.tiny else (SIZE, 5)
    print(
        f"{'arguments':28} {'loads ms':>9} {'read ms':>8} {'ratio':>6} {'digest ms':>10}"
    )
    table: dict[str, dict[str, float]] = {}
    for name, arguments in (shapes(size) | faults(size)).items():
        table[name] = row = measure(arguments, repeats)
        loads, digest = row.get("loads"), row.get("digest")
        print(
            f"{name:28} {loads or 0:>9.1f} {row['read']:>8.1f}"
            f" {row['read'] / loads if loads else 0:>6.2f} {digest or 0:>10.1f}"
        )
    rounded = {
        name: {step: round(ms, 1) for step, ms in row.items()}
        for name, row in table.items()
    }
    print(json.dumps({"benchmark": "parsing", "bytes": size, "ms": rounded}))


if __name__ == "__main__":
    main()
