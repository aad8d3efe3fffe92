"""The table of requests that count once, for `SqliteTasks`: what is done in a transaction.

`exchange.ledger` has the rules. Here a holder is a process: the sweep of `connections`
frees the slots of processes that died.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ..errors import TaskLimitError, TaskStoreError
from ..exchange.ledger import Held, Taken, Taking, Use, judge

if TYPE_CHECKING:
    import sqlite3

__all__ = ["TABLES", "free", "has_old", "keep", "remove_old", "settle", "take"]

#: What a slot counts for in the budget, beside its reply, in bytes.
_SLOT: Final = 1024
#: The most slots that one sweep removes.
_MOST: Final = 500

#: The budget is counted by triggers, as a sum over all slots would take milliseconds.
TABLES: Final = f"""
CREATE TABLE uses (
    flow TEXT NOT NULL,
    slot TEXT NOT NULL,
    request TEXT NOT NULL,
    fence INTEGER NOT NULL,
    holder TEXT,
    execution TEXT,
    owner TEXT NOT NULL,
    until REAL NOT NULL,
    reply BLOB,
    UNIQUE (flow, slot)
);
CREATE INDEX uses_by_until ON uses (until);
CREATE INDEX uses_by_holder ON uses (holder) WHERE holder IS NOT NULL;
CREATE TABLE used (owner TEXT PRIMARY KEY, bytes INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO used VALUES ('', 0);
CREATE TRIGGER uses_added AFTER INSERT ON uses BEGIN
    INSERT OR IGNORE INTO used VALUES (new.owner, 0);
    UPDATE used SET bytes = bytes + {_SLOT} WHERE owner IN ('', new.owner);
END;
CREATE TRIGGER uses_answered AFTER UPDATE OF reply ON uses BEGIN
    UPDATE used SET bytes = bytes + coalesce(length(new.reply), 0)
        - coalesce(length(old.reply), 0) WHERE owner IN ('', new.owner);
END;
CREATE TRIGGER uses_removed AFTER DELETE ON uses BEGIN
    UPDATE used SET bytes = bytes - {_SLOT} - coalesce(length(old.reply), 0)
        WHERE owner IN ('', old.owner);
    DELETE FROM used WHERE owner = old.owner AND bytes <= 0;
END;
"""


def take(
    db: sqlite3.Connection, use: Use, holder: str, *, budget: int, share: int
) -> Taking:
    """Take the slots of a request.

    Args:
        db: The connection, in a transaction.
        use: The request.
        holder: This process.
        budget: The most bytes of all slots.
        share: The most bytes of the slots of one owner.

    Raises:
        TaskLimitError: If there are too many slots.
    """
    held = [_held(db, use.flow, name) for name, _ in use.slots]
    taking = judge(use, held)
    if not isinstance(taking, Taken):
        return taking
    owner = _owner(use)
    if None in held:
        _check_budget(db, owner, budget, share)
    for name, until in use.slots:
        db.execute(
            "INSERT INTO uses (flow, slot, request, fence, owner, until)"
            " VALUES (?, ?, ?, 0, ?, ?) ON CONFLICT DO NOTHING",
            (use.flow, name, use.request, owner, until),
        )
    db.execute(
        "UPDATE uses SET fence = ?, holder = ?, execution = ? WHERE flow = ? AND slot = ?",
        (taking.fence, holder, use.by, use.flow, taking.slot),
    )
    return taking


def _held(db: sqlite3.Connection, flow: str, slot: str) -> Held | None:
    found = db.execute(
        "SELECT request, fence, iif(holder IS NULL, NULL, execution), reply FROM uses"
        " WHERE flow = ? AND slot = ?",
        (flow, slot),
    ).fetchone()
    return None if found is None else Held(*found)


def _owner(use: Use) -> str:
    # Never empty: that is the sum over all owners.
    return "anonymous" if use.owner is None else f"={use.owner}"


def _check_budget(db: sqlite3.Connection, owner: str, budget: int, share: int) -> None:
    used = dict(
        db.execute("SELECT owner, bytes FROM used WHERE owner IN ('', ?)", (owner,))
    )
    if used.get(owner, 0) + _SLOT > share:
        raise TaskLimitError("you have too many calls that count once; come back later")
    if used[""] + _SLOT > budget:
        raise TaskLimitError(
            "there are too many calls that count once; come back later"
        )


def keep(db: sqlite3.Connection, taken: Taken, reply: bytes) -> None:
    """Store the reply of a request. To store it again changes nothing.

    Raises:
        TaskStoreError: If the slot was taken again since.
    """
    changed = db.execute(
        "UPDATE uses SET reply = coalesce(reply, ?), holder = NULL"
        " WHERE flow = ? AND slot = ? AND fence = ?",
        (reply, taken.flow, taken.slot, taken.fence),
    ).rowcount
    if not changed:
        raise TaskStoreError(
            f"slot {taken.slot} of {taken.flow} was taken again by the same request"
        )


def settle(db: sqlite3.Connection, late: Mapping[Taken, bytes | None]) -> None:
    """Store replies that could not be stored before; free slots without a reply."""
    for taken, reply in late.items():
        where = "flow = ? AND slot = ? AND fence = ? AND reply IS NULL"
        db.execute(
            f"UPDATE uses SET reply = ?, holder = NULL WHERE {where}",
            (reply, taken.flow, taken.slot, taken.fence),
        )


def free(db: sqlite3.Connection, holder: str) -> None:
    """Note that the requests of a process were cut off."""
    db.execute("UPDATE uses SET holder = NULL WHERE holder = ?", (holder,))


def has_old(db: sqlite3.Connection) -> bool:
    """Return whether there are slots that no state can name any more."""
    query = "SELECT 1 FROM uses WHERE until <= ? LIMIT 1"
    return db.execute(query, (time.time(),)).fetchone() is not None


def remove_old(db: sqlite3.Connection) -> None:
    """Remove slots that no state can name any more."""
    db.execute(
        "DELETE FROM uses WHERE rowid IN"
        " (SELECT rowid FROM uses WHERE until <= ? LIMIT ?)",
        (time.time(), _MOST),
    )
