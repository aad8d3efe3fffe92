"""The effects that a handler may yield.

An effect is a frozen value that describes a request of the handler; the server or the
client carries it out. `x = yield from Elicit("Who?", str)` is typed, because `__iter__`
yields the effect and returns the answer. A bare `x = yield Elicit(...)` works, too, but
is untyped. `await` does the same, for coroutines that await only effects.

    questions    only the client can answer; costs a round if clients retry
    steps        this process calls a function
    local        this process knows, computes, waits or sends
    control      arranges other effects, or the flow itself
    base         the base classes
"""

# Wildcards, because each module lists its effects already.
# ruff: noqa: F403

from __future__ import annotations

from .base import Branch as Branch
from .base import Effect as Effect
from .base import Flow as Flow
from .base import InputRequest as InputRequest
from .control import *
from .local import *
from .questions import *
from .steps import *
