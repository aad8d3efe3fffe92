"""A naive replay engine, written from the rules alone.

It never imports `effectmcp.engine`: the two implementations of the rules must agree. It is
as simple and as slow as reads well. Where the rules leave a case open, it raises `Unjudged`
instead of an opinion.

    Flow(play, journal, …).run() yields Asked and returns Returned | Raised | Stopped

A journal is a tree of entries. `match`, `drop`, `take`, `perform` and `deliver` are the five
phases of a wave, each over all leaves in the order of their positions.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

from attrs import define, evolve, field

from effectmcp.errors import (
    Cancelled,
    Declined,
    Dismissed,
    InvalidAnswer,
    Restarted,
    StepFailed,
    Suspended,
    TooManyRounds,
    Unsupported,
)

from .programs import Memory
from .records import (
    IMMEDIATE,
    LOCAL,
    Accepted,
    Asked,
    Build,
    Ended,
    Entry,
    Journal,
    KeyOf,
    Limits,
    Path,
    Place,
    Print,
    Raised,
    Returned,
    Said,
    Stopped,
    Unjudged,
    Want,
    Wire,
    flat,
)

__all__ = ["Cancel", "Flow"]

#: Limits on stale answers at one place and on unfitting answers to one wording.
STALE = 4
UNFIT = 3


class _Stop(Exception):
    pass


def once(want: Want) -> Generator[Want, Any, Any]:
    return (yield want)


# ---- the tree -----------------------------------------------------------------------


@define(eq=False)
class Node:
    """One sequence: a generator, its entries, and how far it has come."""

    generator: Generator[Want, Any, Any]
    path: Path
    entries: list[Entry]
    position: int = 0
    ordinals: dict[str, int] = field(factory=dict)
    uses: dict[tuple[str, tuple[Any, ...]], int] = field(factory=dict)
    want: Want | None = None
    key: str = ""
    #: The entry of this wave, once there is one.
    entry: Entry | None = None
    #: An answer of this request gave the entry.
    is_new_answer: bool = False
    children: list[Node] | None = None
    failure: BaseException | None = None
    #: The exception at the yields that cleanup may not make.
    ending: type[BaseException] | None = None
    has_ended: bool = False
    value: Any = None
    error: BaseException | None = None

    @property
    def place(self) -> Place:
        return (self.path, self.key)

    def walk(self) -> Iterator[Node]:
        """Yield this node and all unfinished nodes below it, by position."""
        yield self
        for child in self.children or ():
            if not child.has_ended:
                yield from child.walk()

    def inwards(self) -> Iterator[Node]:
        """Like `walk()`, but with the descendants of a node before it."""
        for child in self.children or ():
            if not child.has_ended:
                yield from child.inwards()
        yield self

    def name(self, want: Want) -> str:
        """The journal key of the next effect."""
        # Explicit names and generated ones are counted apart.
        base = want.explicit or want.kind
        count = self.ordinals[base] = self.ordinals.get(base, 0) + 1
        if want.explicit is None:
            return f"{base}-{count}"
        return base if count == 1 else f"{base}#{count}"

    def record(self, entry: Entry) -> None:
        self.entry = entry
        self.entries.append(entry)
        self.position += 1


def places(entries: list[Entry], path: Path) -> Iterator[Place]:
    """Yield the places of entries and of those in their branches."""
    for entry in entries:
        yield path, entry.key
        for index, branch in enumerate(entry.branches or ()):
            yield from places(branch, (*path, (entry.key, index)))


class Cancel:
    """Sent into `Flow.run()` instead of answers: the live client cancelled."""


@define(eq=False)
class Flow:
    """One run over a journal.

    Attributes:
        programs: By name, what plays a program; `main` is the first generation.
        supports: The kinds of question that this request's client can be asked.
        perform: Performs steps and local effects.
    """

    programs: Callable[[str], Callable[[Memory, Any], Any]]
    supports: frozenset[str]
    perform: Any
    limits: Limits = Limits()
    is_live: bool = False
    journal: Journal = field(factory=Journal)
    memory: Memory = field(factory=Memory)
    #: The log messages: by label, and whether it is sent (None: open).
    logs: list[tuple[str, bool | None]] = field(factory=list)

    #: Answers by explicit key, in a request without a state.
    early: dict[str, Said] = field(factory=dict)

    answers: dict[Wire, Said] = field(factory=dict, init=False)
    saved: int | None = field(default=None, init=False)
    delivered: int = field(default=0, init=False)
    is_audible: bool | None = field(default=True, init=False)
    diverged: bool = field(default=False, init=False)
    is_over: bool = field(default=False, init=False)
    has_performed: bool | None = field(default=False, init=False)
    restarting: str | None = field(default=None, init=False)
    nodes: list[Node] = field(factory=list, init=False)
    #: Recorded branches that the code no longer has.
    surplus: list[list[Entry]] = field(factory=list, init=False)
    #: Answers of this request that the pool offered before their own place was reached.
    offered: set[Wire] = field(factory=set, init=False)
    problems: set[Place] = field(factory=set, init=False)

    @property
    def root(self) -> Node:
        return self.nodes[0]

    # ---- a round ----

    def run(
        self, answers: Mapping[Wire, Said] | None = None, *, is_first: bool = True
    ) -> Generator[Asked, Mapping[Wire, Said] | Cancel, Ended]:
        self.saved = self.journal.delivered
        self.is_audible = True if is_first else False
        self.receive(answers or {})
        try:
            self.begin(self.journal.restart or "main")
            while True:
                self.join()
                if self.root.has_ended:
                    ended = self.end()
                    if ended is not None:
                        return ended
                    continue
                wave = self.wave()
                self.match(wave)
                if (yield from self.fill(wave)):
                    self.deliver(wave)
        except _Stop as stop:
            return Stopped(str(stop))

    def receive(self, answers: Mapping[Wire, Said]) -> None:
        # Only what is out can be answered; other names are ignored.
        self.answers = {
            wire: said for wire, said in answers.items() if wire in self.journal.asked
        }

    def begin(self, name: str) -> None:
        generator = self.programs(name)(self.memory, Build())
        self.nodes = [Node(generator, (), self.journal.entries)]
        self.advance(self.root)

    def end(self) -> Ended | None:
        """The stop of a flow whose root has ended; None if it restarts."""
        root, name = self.root, self.restarting
        if name is not None:
            old = self.journal
            self.journal = Journal(
                generation=old.generation + 1,
                restart=name,
                rounds=old.rounds,
                state_rounds=old.state_rounds,
            )
            self.answers, self.early, self.saved, self.delivered = {}, {}, None, 0
            # Whether a new generation logs before a new answer is open.
            self.is_audible = self.is_audible or None
            self.restarting = None
            self.begin(name)
            return None
        if root.error is not None:
            if self.diverged:
                raise Unjudged("the handler raises after a branch has diverged")
            return Raised(root.error)
        self.drop()
        return Returned(root.value)

    def close(self) -> None:
        """Throw `Suspended` into every generator that is left."""
        for node in self.nodes:
            for _ in range(16):
                try:
                    node.generator.throw(Suspended())
                except BaseException:
                    break

    # ---- generators ----

    def advance(
        self, node: Node, value: Any = None, error: BaseException | None = None
    ) -> None:
        """Resume a generator until it wants something that takes a wave, or ends."""
        node.want = node.entry = None
        node.is_new_answer = False
        while True:
            try:
                if error is not None:
                    want = node.generator.throw(error)
                else:
                    want = node.generator.send(value)
            except StopIteration as stop:
                node.has_ended, node.value = True, stop.value
                self.diverged |= node.position < len(node.entries)
                return
            except BaseException as raised:
                node.has_ended, node.error = True, raised
                return
            error = None
            if want.kind in IMMEDIATE:
                value = self.immediate(node, want)
            elif node.ending is not None and want.kind not in LOCAL:
                error = node.ending()
            elif want.kind == "gather":
                node.want = want
                return self.branch(node, want)
            elif want.kind == "restart":
                self.drop()
                self.restarting, node.ending = want.detail, Restarted
                error = Restarted()
            else:
                node.want, node.key = want, node.name(want)
                return

    def immediate(self, node: Node, want: Want) -> Any:
        match want.kind:
            case "say":
                self.logs.append((want.detail, self.is_audible))
                return None
            case "key":
                name, about = want.detail
                nth = node.uses[want.detail] = node.uses.get(want.detail, 0) + 1
                return KeyOf(self.journal.generation, node.path, name, about, nth)
            case _:
                return self.version(want)

    def version(self, want: Want) -> Any:
        versions = self.journal.versions
        if want.detail not in versions:
            is_old = self.saved is not None and self.delivered <= self.saved
            versions[want.detail] = 0 if is_old else 1
        return versions[want.detail]

    def branch(self, node: Node, want: Want) -> None:
        """Start a Gather inside its leaf's delivery."""
        key = node.name(want)
        entry = Entry(key, want.print, "gather", None, ())
        if node.position < len(node.entries):
            found = node.entries[node.position]
            if (found.key, found.print) == (key, want.print):
                entry = node.entries.pop(node.position)
            else:
                self.diverged = True
        count = len(want.detail)
        recorded = list(entry.branches or ())
        if len(recorded) > count:
            self.diverged = True
            self.surplus += recorded[count:]
            for index, branch in enumerate(recorded[count:], count):
                path = (*node.path, (key, index))
                self.journal.unasked.update(places(branch, path))
        lists = recorded[:count] + [[] for _ in range(count - len(recorded))]
        entry = evolve(entry, branches=tuple(lists))
        # An entry that differs stays behind it, unfed, until the next wave drops it.
        node.entries.insert(node.position, entry)
        node.position += 1
        node.children = []
        for index, flow in enumerate(want.detail):
            generator = once(flow) if isinstance(flow, Want) else flow
            path = (*node.path, (key, index))
            child = Node(generator, path, lists[index])
            node.children.append(child)
            self.nodes.append(child)
        for child in node.children:
            self.advance(child)

    def join(self) -> None:
        """End the Gathers whose branches have ended or failed, the inner ones first."""
        while not self.root.has_ended:
            ready = (node for node in self.root.inwards() if self.is_ready(node))
            node = next(ready, None)
            if node is None:
                return
            self.finish(node)

    def is_ready(self, node: Node) -> bool:
        children = node.children
        if children is None:
            return False
        return all(child.has_ended for child in children) or (
            node.failure is None
            and node.ending is None
            and any(child.error for child in children)
        )

    def finish(self, node: Node) -> None:
        children = node.children or []
        if node.ending is None and node.failure is None:
            failed = [child.error for child in children if child.error]
            if failed:
                node.failure = failed[0]
                for child in children:
                    self.cancel(child)
                return
        values = tuple(child.value for child in children)
        failure, node.failure, node.children = node.failure, None, None
        if node.ending is not None:
            failure = node.ending()
        self.advance(node, values, failure)

    def cancel(self, node: Node) -> None:
        if node.has_ended or node.ending is not None:
            return
        node.ending = Cancelled
        if node.children is None:
            self.advance(node, error=Cancelled())
        for child in node.children or ():
            self.cancel(child)

    # ---- a wave ----

    def wave(self) -> list[Node]:
        """The leaves that want something local; otherwise, all leaves."""
        leaves = [node for node in self.root.walk() if node.children is None]
        local = [leaf for leaf in leaves if leaf.want and leaf.want.kind in LOCAL]
        return local or leaves

    def match(self, wave: list[Node]) -> None:
        is_new = differs = False
        matched = []
        for leaf in wave:
            want = leaf.want
            assert want is not None
            if leaf.position == len(leaf.entries):
                is_new = True
                continue
            entry = leaf.entries[leaf.position]
            if (entry.key, entry.print) == (leaf.key, want.print):
                matched.append((leaf, entry))
            else:
                differs = True
                if entry.key == leaf.key and want.kind in ("elicit", "confirm"):
                    self.count(self.journal.reworded, leaf.place)
                    self.judge_staleness(leaf)
        if self.diverged and matched:
            raise Unjudged("entries left over in one branch, while another replays")
        beyond = sum(node.position < len(node.entries) for node in self.nodes)
        beyond -= sum(leaf.position + 1 == len(leaf.entries) for leaf, _ in matched)
        if self.diverged or differs or (is_new and beyond):
            return self.drop()
        for leaf, entry in matched:
            leaf.entry = entry
            leaf.position += 1

    def drop(self) -> None:
        """Drop all entries of the flow that are not delivered."""
        dropped = [entry for entries in self.surplus for entry in flat(entries)]
        for node in self.nodes:
            unfed = node.entries[node.position :]
            dropped += flat(unfed)
            self.journal.unasked.update(places(unfed, node.path))
            del node.entries[node.position :]
        self.surplus, self.diverged = [], False
        if any(entry.tag == "step" for entry in dropped):
            raise _Stop("charged")
        kept = ("accepted", "declined", "dismissed", "local")
        self.journal.pool += [(e.print, e) for e in dropped if e.tag in kept]

    def fill(
        self, wave: list[Node]
    ) -> Generator[Asked, Mapping[Wire, Said] | Cancel, bool]:
        """Take, perform or ask until each leaf of the wave has its entry or error.

        Returns:
            Whether to deliver; False if the call was cancelled instead.
        """
        if wave[0].want and wave[0].want.kind in LOCAL:
            self.take_pooled(wave)
            for leaf in wave:
                if leaf.entry is None:
                    self.perform_local(leaf)
            return True
        while True:
            stale = self.take_answers(wave)
            self.take_pooled(wave)
            for leaf in wave:
                self.fill_without_asking(leaf)
            unanswered = [leaf for leaf in wave if leaf.entry is None]
            questions = [
                w for w in unanswered if w.want and w.want.kind != "checkpoint"
            ]
            pauses = [w for w in unanswered if w not in questions]
            if self.sees_two_versions(stale, questions):
                raise _Stop("versions")
            if not unanswered or (not questions and not self.limits.sheds):
                for leaf in pauses:
                    self.record(leaf, "checkpoint")
                return True
            if self.is_too_many(questions):
                for leaf in pauses if questions else ():
                    self.record(leaf, "checkpoint")
                for leaf in questions or pauses:
                    leaf.error = TooManyRounds(self.limits.rounds or 0)
                self.is_over = True
                self.is_audible = self.is_audible or None
                return True
            for leaf in pauses:
                self.record(leaf, "checkpoint")
            answers = yield self.ask(questions)
            if isinstance(answers, Cancel):
                self.cancel(self.root)
                return False
            self.receive(answers)

    def record(self, leaf: Node, tag: str, value: Any = None) -> None:
        assert leaf.want is not None
        # Whether later logs are sent is open until a new answer is delivered.
        self.is_audible = self.is_audible or None
        leaf.record(Entry(leaf.key, leaf.want.print, tag, value))

    def take_answers(self, wave: list[Node]) -> list[Node]:
        """Take this request's answers at their own places; return the stale leaves."""
        out = {(wire.path, wire.key): wire for wire in self.journal.asked}
        stale = []
        self.problems = set()
        for leaf in wave:
            wire = out.get(leaf.place)
            if leaf.entry is not None or leaf.want is None:
                continue
            # An answer given before its question was shown is not consent.
            is_open = leaf.path == () and leaf.want.kind == "elicit"
            if is_open and leaf.want.explicit and leaf.key in self.early:
                early = self.early.pop(leaf.key)
                if leaf.want.kind not in self.supports:
                    raise Unjudged("an early answer to what cannot be asked")
                if early.how != "unfit":
                    self.record(leaf, early.how, early.value)
                    leaf.is_new_answer = True
                    continue
            if wire is None:
                continue
            is_same = self.journal.asked[wire] == leaf.want.print
            if is_same and wire in self.offered:
                raise Unjudged("an answer was pooled before its own place was reached")
            said = self.answers.get(wire)
            if said is None:
                continue
            if not is_same:
                # It stays among the answers, which the pool includes.
                if said.how == "unfit":
                    raise Unjudged("an unfitting answer to a reworded question")
                self.count(self.journal.stale, leaf.place)
                stale.append(leaf)
                continue
            del self.answers[wire]
            if said.how != "unfit":
                self.record(leaf, said.how, said.value)
                leaf.is_new_answer = True
                continue
            at = (leaf.place, leaf.want.print)
            if at in self.journal.interrupted:
                raise Unjudged("unfitting answers, and the question away in between")
            self.journal.unfit[at] = self.journal.unfit.get(at, 0) + 1
            self.problems.add(leaf.place)
            if self.journal.unfit[at] >= UNFIT:
                self.record(leaf, "invalid")
                leaf.is_new_answer = True
        return stale

    def count(self, counts: dict[Place, int], place: Place) -> None:
        counts[place] = counts.get(place, 0) + 1

    def take_pooled(self, wave: list[Node]) -> None:
        """Take what is in the pool exactly once; forget what is there more often."""
        pool = self.journal.pool
        asked = self.journal.asked
        for leaf in wave:
            if leaf.entry is not None or leaf.want is None:
                continue
            print = leaf.want.print
            kept = [entry for fingerprint, entry in pool if fingerprint == print]
            flying = [w for w in self.answers if asked[w] == print]
            if not kept and not flying:
                continue
            if leaf.place in self.problems:
                raise Unjudged("an answer that does not fit, and one in the pool")
            if any(self.answers[wire].how == "unfit" for wire in flying):
                raise Unjudged("an unfitting answer, wanted at another place")
            self.offered.update(flying)
            pool[:] = [pair for pair in pool if pair[0] != print]
            said = [Said(e.tag, e.value) for e in kept]  # type: ignore[arg-type]
            said += [self.answers[wire] for wire in flying]
            for wire in flying:
                del self.answers[wire]
            if len(said) == 1:
                self.record(leaf, said[0].how, said[0].value)

    def fill_without_asking(self, leaf: Node) -> None:
        """Record what the client cannot be asked."""
        want = leaf.want
        if leaf.entry is None and want is not None and want.kind != "checkpoint":
            if want.kind not in self.supports:
                self.record(leaf, "unasked")

    def sees_two_versions(self, stale: list[Node], asked: list[Node]) -> bool:
        """Whether the fourth stale answer at one place stops the flow now."""
        for leaf in (*stale, *asked):
            self.judge_staleness(leaf)
        over = [
            leaf for leaf in asked if self.journal.stale.get(leaf.place, 0) >= STALE
        ]
        if any(leaf not in stale for leaf in over):
            raise Unjudged("four stale answers, and none in this round")
        late = [leaf for leaf in stale if self.journal.stale[leaf.place] >= STALE]
        if any(leaf not in asked for leaf in late):
            raise Unjudged("a fourth stale answer, and a value without asking")
        if over and self.has_performed is None:
            raise Unjudged("four stale answers, after Now or Random only")
        return bool(over) and not self.has_performed

    def judge_staleness(self, leaf: Node) -> None:
        sure = self.journal.stale.get(leaf.place, 0)
        if sure < STALE <= sure + self.journal.reworded.get(leaf.place, 0):
            raise Unjudged("four stale answers, recorded ones included")

    def is_too_many(self, questions: list[Node]) -> bool:
        journal, limits = self.journal, self.limits
        if self.is_over:
            return True
        if limits.rounds is not None and journal.rounds >= limits.rounds:
            return True
        return (
            not questions
            and limits.state_rounds is not None
            and journal.state_rounds >= limits.state_rounds
        )

    def ask(self, questions: list[Node]) -> Asked:
        journal = self.journal
        out = {(wire.path, wire.key): wire for wire in journal.asked}
        # An answer that was not taken stays known under the text that it answered.
        for wire, said in self.answers.items():
            if said.how == "unfit":
                raise Unjudged("an unfitting answer whose place is not reached")
            print = journal.asked[wire]
            entry = Entry(wire.key, print, said.how, said.value)
            journal.pool.append((print, entry))
        asked: dict[Wire, Print] = {}
        shown = []
        for leaf in questions:
            assert leaf.want is not None
            old = out.get(leaf.place)
            print = leaf.want.print
            is_open = old is not None and journal.asked[old] == print
            if old is not None and is_open and leaf.place not in self.problems:
                wire = old
            else:
                nth = journal.askings.get(leaf.place, 0) + 1
                if nth == 1 and leaf.place in journal.unasked:
                    raise Unjudged("a first asking where an entry was dropped")
                journal.askings[leaf.place] = nth
                wire = Wire(journal.generation, leaf.path, leaf.key, nth)
            asked[wire] = print
            has_problem: bool | None = leaf.place in self.problems
            if not has_problem and journal.unfit.get((leaf.place, print)):
                has_problem = None
            shown.append((wire, print[1], has_problem))
        out_now = {((wire.path, wire.key), print) for wire, print in asked.items()}
        journal.interrupted |= journal.unfit.keys() - out_now
        journal.asked = asked
        journal.rounds += 1
        journal.state_rounds += not questions
        journal.delivered = self.delivered
        self.answers = {}
        return Asked(tuple(shown), journal.copy())

    def perform_local(self, leaf: Node) -> None:
        want = leaf.want
        assert want is not None
        if want.kind == "supports":
            return self.record(leaf, "fact", want.detail in self.supports)
        if want.kind != "step":
            self.has_performed = self.has_performed or None
            return self.record(leaf, "local", getattr(self.perform, want.kind)())
        self.has_performed = True
        kind, args = want.detail
        tag = "replayed" if kind == "replayable" else "step"
        try:
            value: Any = self.perform.step(kind, args)
        except Exception as error:
            if kind == "foreign":
                error = StepFailed(type(error).__name__, str(error))
            value = error
        self.record(leaf, tag, value)

    def deliver(self, wave: list[Node]) -> None:
        self.delivered += 1
        for leaf in wave:
            entry, want = leaf.entry, leaf.want
            if want is None:
                continue
            if leaf.is_new_answer:
                self.is_audible = True
            elif self.is_audible is False and self.delivered > (self.saved or 0):
                self.is_audible = None
            error, leaf.error = leaf.error, None
            value = None
            if entry is not None:
                try:
                    value = given(entry, want)
                except Exception as raised:
                    error = raised
            self.advance(leaf, value, error)


def given(entry: Entry, want: Want) -> Any:
    """Return what a yield receives for an entry, or raise it."""
    question = want.detail
    match entry.tag:
        case "accepted":
            value = True if want.kind == "confirm" else entry.value
            return Accepted(value) if question.outcome else value
        case "declined":
            if question.outcome:
                return Declined()
            if want.kind == "confirm":
                return False
            if question.otherwise is None:
                raise Declined
            return question.otherwise
        case "dismissed" if question.outcome:
            return Dismissed()
        case "dismissed" | "unasked" if question.otherwise is not None:
            return question.otherwise
        case "dismissed":
            raise Dismissed
        case "unasked":
            raise Unsupported(question.kind.capitalize())
        case "invalid":
            raise InvalidAnswer(["…"])
        case _:
            pass
    if isinstance(entry.value, Exception):
        # A fresh one, as no two deliveries share a traceback.
        raise type(entry.value)(*entry.value.args)
    return entry.value
