"""What a server offers: the registry of tools, prompts, resources and completions.

    handlers    a function, looked at once: what it takes, and how it is run
    features    tools, prompts, resources: a handler and how it is listed
    app         `Server`: names to features, and what holds for all of them
    changes     who hears when a list or a resource changes
    events      what observers hear of

Nothing here runs a handler: `effectmcp.exchange` says what to do about a message, and a
driver does it.
"""

from __future__ import annotations

from .app import Server
from .changes import Change, Changes
from .events import (
    Event,
    Observer,
    RequestBegan,
    RequestEnded,
    RoundBegan,
    RoundEnded,
    RoundRefused,
    Salvaged,
    StepPerformed,
)
from .features import Completion, Prompt, Resource, Template, Tool

__all__ = [
    "Change",
    "Changes",
    "Completion",
    "Event",
    "Observer",
    "Prompt",
    "RequestBegan",
    "RequestEnded",
    "Resource",
    "RoundBegan",
    "RoundEnded",
    "RoundRefused",
    "Salvaged",
    "Server",
    "StepPerformed",
    "Template",
    "Tool",
]
