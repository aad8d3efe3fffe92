"""`effectmcp replay transcripts/ module:app`: check that calls can continue."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import Any

from ..server.target import load_app

__all__ = ["add"]


def add(parsers: Any) -> None:
    """Add the subcommand."""
    parser = parsers.add_parser(
        "replay",
        help="replay transcripts on an edited server",
        description="Replay recorded conversations on a server, as if it were deployed"
        " in the middle of them: which replay unchanged, which would end"
        " differently, which would be salvaged, and which would stop. Exits with 1 if"
        " one would stop.",
    )
    parser.add_argument(
        "transcripts", type=Path, help="a transcript, or a folder of them"
    )
    parser.add_argument("target", help="module:app, or path/file.py:app")
    parser.add_argument(
        "--strict",
        action="store_true",
        help="exit with 1 if one does not replay unchanged",
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from ..testing.transcripts import read_transcripts
    from ..testing.verdicts import ORDER, verdict_of

    found = list(read_transcripts(options.transcripts))
    app = load_app(options.target)
    words: Counter[str] = Counter()
    for file, transcript in found:
        verdict = verdict_of(app, transcript)
        words[verdict.word] += 1
        print(f"{file}: {verdict}")
    print(", ".join(f"{words[word]} {word}" for word in ORDER if words[word]))
    failing = ORDER[1:] if options.strict else ORDER[-1:]
    return 1 if any(words[word] for word in failing) else 0
