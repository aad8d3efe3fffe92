"""A client: call a tool, answer its questions, get the result.

    client     Client: whole calls
    steps      Steps: calls one round at a time
    questions  the questions of a server, and the functions that answer them
    rounds     a call in its rounds, as values that can be stored. No I/O
    tasks      a task that a call has become, as its server describes it. No I/O
    messages   build requests, parse responses. No I/O
    channels   the interface of the channels to a server: memory, pipes, http
    limits     how much memory a server may take; cache and changes keep to it. No I/O
    deadlines  how long a server may take

It needs `pip install effectmcp[client]`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy_imports import lazy_names

if TYPE_CHECKING:
    from .channels import Channel, ChannelError, LoginFailed
    from .client import Client
    from .errors import ReplyError, RoundsError, TaskCancelled
    from .http import OverHttp
    from .memory import InMemory
    from .messages import StateRejected
    from .pipes import OverPipes
    from .questions import Form, Link, Sampling
    from .results import Result
    from .rounds import OngoingCall, Pending
    from .steps import Steps
    from .tasks import Task
else:
    _LAZY = {
        "OngoingCall": "rounds",
        "Channel": "channels",
        "ChannelError": "channels",
        "Client": "client",
        "Form": "questions",
        "InMemory": "memory",
        "Link": "questions",
        "LoginFailed": "channels",
        "OverHttp": "http",
        "OverPipes": "pipes",
        "Pending": "rounds",
        "ReplyError": "errors",
        "Result": "results",
        "RoundsError": "errors",
        "Sampling": "questions",
        "StateRejected": "messages",
        "Steps": "steps",
        "Task": "tasks",
        "TaskCancelled": "errors",
    }

    __getattr__ = lazy_names(
        globals(), _LAZY, extra="client", needs=("anyio", "httpx2")
    )


__all__ = [
    "Channel",
    "ChannelError",
    "Client",
    "Form",
    "InMemory",
    "Link",
    "LoginFailed",
    "OngoingCall",
    "OverHttp",
    "OverPipes",
    "Pending",
    "ReplyError",
    "Result",
    "RoundsError",
    "Sampling",
    "StateRejected",
    "Steps",
    "Task",
    "TaskCancelled",
]
