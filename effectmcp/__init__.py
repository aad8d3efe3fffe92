"""Tools for the Model Context Protocol, written as generators that yield effects.

    your generator ── yields effects ──→ engine
                                           ├─ answered in the journal: fed back, and
                                           │  nothing else happens
                                           ├─ for this process (Step, Now): a driver
                                           │  performs it, the journal records it
                                           └─ for the client (Elicit, Sample): the run
                                              stops; a journal goes out, answers come
                                              back, and the generator runs again from
                                              the top

This module holds what a handler's author needs, and imports nothing else; what only a
server needs is imported when it is asked for. The engine is `effectmcp.engine`; the code
that performs effects is in `effectmcp.drivers`, and what serves is in
`effectmcp.transports`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .effects.base import (
    Branch,
    Effect,
    Flow,
    InputRequest,
)
from .effects.control import (
    Checkpoint,
    Detach,
    FirstOf,
    Gather,
    Restart,
    TimedOut,
    Version,
    Within,
)
from .effects.local import (
    Caller,
    CallerInfo,
    ClientSupports,
    IdempotencyKey,
    Log,
    Now,
    Progress,
    Random,
    Sleep,
    Status,
    Uuid,
)
from .effects.questions import (
    Accepted,
    Confirm,
    Elicit,
    ElicitUrl,
    ListRoots,
    Outcome,
    Root,
    Sample,
    Sampled,
)
from .effects.steps import (
    Provided,
    Step,
    StepFunction,
    StepOptions,
    step,
)
from .errors import (
    ArgumentsError,
    BudgetError,
    Cancelled,
    CanonicalError,
    ClientError,
    ClientFailed,
    Declined,
    Dismissed,
    DivergenceError,
    EffectMCPError,
    FlowError,
    FormError,
    InvalidAnswer,
    KeysError,
    LedgerError,
    LoopError,
    MissingScope,
    NondeterminismError,
    NotAnEffectError,
    OutputError,
    ProtocolError,
    Refused,
    Restarted,
    SchemaError,
    Signal,
    StateError,
    StateSizeError,
    StepError,
    StepFailed,
    StepInterrupted,
    Suspended,
    TaskLimitError,
    TaskRowError,
    TaskStoreError,
    ToolError,
    TooManyRounds,
    Unsupported,
    UsageError,
)
from .forms.form import form
from .lazy_imports import lazy_names
from .shapes.labels import Choices, Format, Title

if TYPE_CHECKING:
    from .content import (
        Annotations,
        Audio,
        EmbeddedResource,
        Icon,
        Image,
        Message,
        ResourceContents,
        ResourceLink,
        Text,
        ToolResult,
    )
    from .lowlevel import Given, InputRequired
    from .schema import Header
    from .server import (
        Call,
        Finished,
        InputNeeded,
        Intercepting,
        Server,
        TaskStarted,
        Viewer,
    )
    from .state import Keys
else:
    # Imported when they are asked for: a handler's module needs a tenth of all this.
    _LAZY = {
        "Annotations": "content",
        "Audio": "content",
        "Call": "server",
        "EmbeddedResource": "content",
        "Finished": "server",
        "Given": "lowlevel",
        "Header": "schema",
        "Icon": "content",
        "Image": "content",
        "InputNeeded": "server",
        "InputRequired": "lowlevel",
        "Intercepting": "server",
        "Keys": "state",
        "Message": "content",
        "ResourceContents": "content",
        "ResourceLink": "content",
        "Server": "server",
        "TaskStarted": "server",
        "Text": "content",
        "ToolResult": "content",
        "Viewer": "server",
    }

    __getattr__ = lazy_names(globals(), _LAZY)


__version__ = "0.1.0.dev0"

__all__ = [
    "Accepted",
    "Annotations",
    "ArgumentsError",
    "Audio",
    "Branch",
    "BudgetError",
    "Call",
    "Caller",
    "CallerInfo",
    "Cancelled",
    "CanonicalError",
    "Checkpoint",
    "Choices",
    "ClientError",
    "ClientFailed",
    "ClientSupports",
    "Confirm",
    "Declined",
    "Detach",
    "Dismissed",
    "DivergenceError",
    "Effect",
    "EffectMCPError",
    "Elicit",
    "ElicitUrl",
    "EmbeddedResource",
    "Finished",
    "FirstOf",
    "Flow",
    "FlowError",
    "FormError",
    "Format",
    "Gather",
    "Given",
    "Header",
    "Icon",
    "IdempotencyKey",
    "Image",
    "InputNeeded",
    "InputRequest",
    "InputRequired",
    "Intercepting",
    "InvalidAnswer",
    "Keys",
    "KeysError",
    "LedgerError",
    "ListRoots",
    "Log",
    "LoopError",
    "Message",
    "MissingScope",
    "NondeterminismError",
    "NotAnEffectError",
    "Now",
    "Outcome",
    "OutputError",
    "Progress",
    "ProtocolError",
    "Provided",
    "Random",
    "Refused",
    "ResourceContents",
    "ResourceLink",
    "Restart",
    "Restarted",
    "Root",
    "Sample",
    "Sampled",
    "SchemaError",
    "Server",
    "Signal",
    "Sleep",
    "StateError",
    "StateSizeError",
    "Status",
    "Step",
    "StepError",
    "StepFailed",
    "StepFunction",
    "StepInterrupted",
    "StepOptions",
    "Suspended",
    "TaskLimitError",
    "TaskRowError",
    "TaskStarted",
    "TaskStoreError",
    "Text",
    "TimedOut",
    "Title",
    "TooManyRounds",
    "ToolError",
    "ToolResult",
    "Unsupported",
    "UsageError",
    "Uuid",
    "Version",
    "Viewer",
    "Within",
    "form",
    "step",
]
