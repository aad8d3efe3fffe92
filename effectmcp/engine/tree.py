"""The tree of sequences at work: its generators take turns; branches begin, fail, join.

Who is next, and with what, is decided in `replay.py`. Here one node at a time is run
until it waits or ends, and what follows from that for the nodes around it is carried
out:

    begins   a Gather's branches take their first turns within their parent's
    fails    of the branches that failed in one wave the lowest position wins; the
             others get `Cancelled`, stay in the tree, and their cleanup joins the
             following local waves
    joins    bottom-up, after the wave's last delivery, when all branches have ended
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from typing import Any, Literal, Protocol

from .. import effects as fx
from ..effects import Effect
from ..errors import Cancelled, FlowError, NotAnEffectError, Signal, UsageError
from .branches import Node
from .development import Watch
from .intake import WAIT, BuriedError, Intake
from .journal import Entry
from .misuse import forgotten, located, translated
from .turn import (
    Ended,
    Failed,
    Yielded,
    bury,
    own_context,
    send,
    start,
    suspend,
    throw,
)

__all__ = ["Tree"]


class _Diverge(Protocol):
    def __call__(
        self,
        cause: Literal["differs", "left over", "surplus"],
        node: Node,
        entry: Entry | None = None,
    ) -> None: ...


class Tree:
    """The nodes of one generation of a flow, and whatever runs them.

    Args:
        entries: The root's journal.
        intake: Looks at what is yielded.
        unreached: Places that were out with the client, and that no node has come to
            yet. Each is taken out as a node waits there.
        diverge: Drops what the journal holds beyond, or refuses.
        watch: Hears of each effect that is performed, in development mode.

    Attributes:
        root: The handler's own sequence.
    """

    __slots__ = ("_diverge", "_intake", "_unreached", "_watch", "root")

    def __init__(
        self,
        entries: tuple[Entry, ...],
        intake: Intake,
        *,
        unreached: set[str],
        diverge: _Diverge,
        watch: Watch | None,
    ) -> None:
        self.root = Node("", own_context(copy_context()), list(entries))
        self._intake = intake
        self._unreached = unreached
        self._diverge: _Diverge | None = diverge
        self._watch = watch

    def open(
        self, handler: Callable[..., Any], args: tuple[Any, ...], kwargs: Any
    ) -> None:
        root = self.root
        out = start(handler, args, kwargs, root.context)
        if isinstance(out, Ended):
            root.end(result=out.value)
        elif isinstance(out, Failed):
            root.end(failure=out.error)
        else:
            root.running = out
            self.turn(root, None, None)
            self.join()

    def turn(self, node: Node, value: Any, error: BaseException | None) -> None:
        """Run one node until it waits for something or ends."""
        running, context = node.running, node.context
        assert running is not None
        if error is None:
            self.took(node, send(running, context, value))
        else:
            self.took(node, throw(running, context, error))

    def took(self, node: Node, out: Yielded | Ended | Failed) -> None:
        """Go on from the end of one turn until the node waits or ends."""
        running, context = node.running, node.context
        assert running is not None
        value: Any = None
        error: BaseException | None
        while True:
            if isinstance(out, Ended):
                node.end(result=out.value)
                return
            if isinstance(out, Failed):
                node.end(failure=translated(out.error, node))
                return
            try:
                if self._watch is not None and isinstance(out.effect, Effect):
                    self._watch.performed(out.effect)
                value = self._intake.receive(node, out.effect, self.is_past)
                error = None
                if value is WAIT:
                    if isinstance(node.subject, fx.Gather):
                        self._begin_gather(node, node.subject)
                    else:
                        self._unreached.discard(node.place)
                    return
            except BuriedError:
                assert node.closing is not None
                bury(running)
                node.end(failure=node.closing())
                return
            except UsageError as exc:
                error = located(exc, node)
                self._intake.spend()
            except (FlowError, Signal) as exc:
                error = exc
                self._intake.spend()
            if error is None:
                out = send(running, context, value)
            else:
                out = throw(running, context, error)

    def _begin_gather(self, node: Node, gather: fx.Gather[Any]) -> None:
        running = [
            iter(branch) if isinstance(branch, Effect) else branch
            for branch in gather.branches
        ]
        recorded = self._recorded_branches(node, len(running))
        node.position += 1
        node.gather = gather
        node.children = [
            Node(
                path=f"{node.place}/{index}/",
                context=own_context(node.context.copy()),
                entries=list(recorded[index]) if index < len(recorded) else [],
                depth=node.depth + 1,
                parent=node,
                running=one,
            )
            for index, one in enumerate(running)
        ]
        for child in node.children:
            self.turn(child, None, None)

    def _recorded_branches(self, node: Node, count: int) -> tuple[Any, ...]:
        entry = node.next_entry()
        if entry is not None:
            if (entry.key, entry.shape) != (node.key, node.shape):
                self._diverged("differs", node, entry)
            elif len(entry.branches) > count:
                self._diverged("surplus", node, entry)
            else:
                return entry.branches
        node.record("gather", b"null")
        node.is_new = False
        self._intake.spend()
        return ()

    def _diverged(
        self,
        cause: Literal["differs", "left over", "surplus"],
        node: Node,
        entry: Entry | None = None,
    ) -> None:
        assert self._diverge is not None
        self._diverge(cause, node, entry)

    def join(self) -> None:
        """Hand results and failures of Gathers upwards, until nothing moves."""
        if self.root.children is not None:
            self._join(self.root)

    def _join(self, node: Node) -> None:
        # What is below must have come to rest first: how many Gathers end at once there
        # must not decide which branch's failure is the first.
        while (children := node.children) is not None:
            for child in children:
                self._join(child)
            if not self._settle(node, children):
                return

    def _settle(self, node: Node, children: list[Node]) -> bool:
        moved = False
        failed = [child.failure for child in children if child.failure is not None]
        if failed and node.failing is None:
            # The lowest position of those that failed in this wave; later waves are not
            # waited for.
            moved = True
            node.failing = failed[0]
            for child in children:
                if not child.ended:
                    self.close(child, Cancelled)
        if not all(child.ended for child in children):
            return moved
        for child in children:
            if child.next_entry() is not None:
                self._diverged("left over", child)
        assert node.gather is not None
        error = node.failing
        results = [child.result for child in children]
        said = next(filter(None, map(forgotten, results)), None)
        if error is None and said is not None:
            error = located(NotAnEffectError(f"in a branch, {said}"), node)
        value = results if node.gather.as_list else tuple(results)
        node.close_gather()
        self.turn(node, value, error)
        return True

    def close(self, node: Node, signal: type[Signal]) -> None:
        """Throw `signal` into the live branches below `node`, then into `node`."""
        node.closing = signal
        if node.children is None:
            self.turn(node, None, signal())
            return
        # Its own turn comes when the branches' cleanup has ended, at the join.
        node.failing = signal()
        for child in node.children:
            if not child.ended:
                self.close(child, signal)

    def unwind(self) -> None:
        root = self.root
        for node in [root] if root.children is None else list(root.nodes()):
            running, node.running = node.running, None
            if running is not None:
                suspend(running, node.context)

    def let_go(self) -> None:
        """Forget whose tree this is, once nothing will turn any more.

        It is the way back to the run that holds this; in a cycle, each round would
        wait for the garbage collector with all that it holds.
        """
        self._diverge = None

    def is_past(self) -> bool:
        """Whether anything was recorded or asked beyond what was delivered so far."""
        return bool(self._unreached) or self.is_anything_ahead([])

    def is_anything_ahead(self, wave: list[Node]) -> bool:
        """Whether any sequence holds an entry beyond this wave."""
        root = self.root
        if root.children is None:
            return len(root.entries) > root.position + len(wave)
        in_wave = set(map(id, wave))
        return any(
            len(node.entries) > node.position + (id(node) in in_wave)
            for node in root.nodes()
        )
