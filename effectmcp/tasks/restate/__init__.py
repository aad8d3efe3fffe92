"""Tasks on Restate: the same tasks as in SQLite, for servers on several machines.

    app = Server("shop", tasks=RestateTasks("http://127.0.0.1:8080", "http://127.0.0.1:9070"))

Each task is one virtual object of the engine, and each turn one invocation of it. The
engine orders the turns, and repeats a turn if its worker was lost. The row is the object's
state, and the requests in the object's queue are its mail.
"""

from .host import RestateTasks, is_engine

__all__ = ["RestateTasks", "is_engine"]
