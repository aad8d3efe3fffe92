"""The command `effectmcp`.

    effectmcp serve module:app      serve a server, over stdio or HTTP
    effectmcp tasks list            look after its tasks
    effectmcp keygen                make a key that seals states

Each subcommand is a module with `add(parsers)`, and imports what it needs when it runs.
"""

from __future__ import annotations

from .main import main

__all__ = ["main"]
