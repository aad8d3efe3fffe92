"""The registry of a server: its tools, prompts, resources and completions.

    handlers    a function, inspected once: its parameters, and how it is run
    features    tools, prompts, resources: a handler and how it is listed
    app         `Server`: the features by name, and the settings for all of them
    changes     notifies listeners when a list or a resource changes
    events      the events that observers receive
    interceptors    generator functions around calls
    viewers     who sees which features
    taps        functions that see every message

Nothing here runs a handler: `effectmcp.exchange` yields commands for each message, and
a driver executes them.
"""

from __future__ import annotations

from .app import Server
from .changes import Change, Changes
from .events import (
    TRACE,
    Event,
    HttpRefused,
    MessageRefused,
    Observer,
    QuestionsAnswered,
    QuestionsAsked,
    RequestBegan,
    RequestEnded,
    RoundBegan,
    RoundEnded,
    RoundRefused,
    Salvaged,
    SessionEnded,
    SessionOpened,
    StepBegan,
    StepPerformed,
    TaskCreated,
    TurnBegan,
    TurnEnded,
)
from .features import Completion, Prompt, Resource, ResourceTemplate, Tool
from .interceptors import (
    Call,
    CallOutcome,
    Finished,
    InputNeeded,
    Intercepting,
    Interceptor,
    TaskStarted,
)
from .taps import Tap, TappedMessage
from .viewers import Viewer

__all__ = [
    "TRACE",
    "Call",
    "CallOutcome",
    "Change",
    "Changes",
    "Completion",
    "Event",
    "Finished",
    "HttpRefused",
    "InputNeeded",
    "Intercepting",
    "Interceptor",
    "MessageRefused",
    "Observer",
    "Prompt",
    "QuestionsAnswered",
    "QuestionsAsked",
    "RequestBegan",
    "RequestEnded",
    "Resource",
    "ResourceTemplate",
    "RoundBegan",
    "RoundEnded",
    "RoundRefused",
    "Salvaged",
    "Server",
    "SessionEnded",
    "SessionOpened",
    "StepBegan",
    "StepPerformed",
    "Tap",
    "TappedMessage",
    "TaskCreated",
    "TaskStarted",
    "Tool",
    "TurnBegan",
    "TurnEnded",
    "Viewer",
]
