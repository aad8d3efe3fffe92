"""Tasks: flows that outlive their request.

    app = Server("shop", tasks=SqliteTasks("tasks.db"))

`SqliteTasks` keeps tasks in a file, or in memory. `turn` is one run of a task from one
wait to the next, for hosts of your own; `TaskHost` is what a server needs of them.
"""

from ..exchange.task_rows import Mail, TaskHost, TaskRow
from .playing import is_cancelled
from .sqlite import SqliteTasks
from .turn import turn
from .worker import work

__all__ = [
    "Mail",
    "SqliteTasks",
    "TaskHost",
    "TaskRow",
    "is_cancelled",
    "turn",
    "work",
]
