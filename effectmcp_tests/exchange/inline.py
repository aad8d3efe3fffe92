"""A call that is not a task, in the world of a task: a virtual clock, a driver, a client.

Steps take the time and have the outcomes that they have on the simulated host of a task,
and the client gives the same answers after the same time. The client knows a question by
the place in its text: asked live, it has nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Any, Final

from attrs import define, field

from effectmcp import Effect, FirstOf, Sleep, Step, TimedOut, Within
from effectmcp.engine import Asked, Journal, Question, Raised, Rules, Run
from effectmcp.engine.stops import Done, Failure, Unread, Want
from effectmcp.exchange.commands import Ask, Invoke, Notify, Peer, PerformAll, Reply
from effectmcp.exchange.handle import handle as begin
from effectmcp.exchange.sessions import Inquiry
from effectmcp.protocol.modern import read_result
from effectmcp.server import Server
from effectmcp.tasks.turn import FIRST_PAUSE

from ..helpers import advance
from ..tasks.simulated import FLOW_ID, START, drawn
from ..tasks.worlds import World, race_of
from ..wire import Wire

__all__ = ["Inline"]

#: Longer than any clock of a race.
_LONG: Final = 20.0

#: When a part of a race ends, its position, and its outcome.
_End = tuple[float, int, Done | Failure]


def _drop(message: Mapping[str, Any]) -> None:
    pass


@define(eq=False)
class Inline:
    """The surroundings of one call.

    Attributes:
        world: What happens.
        winners: Races that are not decided by time: who wins, `None` for the limit of a
            `Within`. By place.
        now: The virtual time.
        effects: The function and the arguments of all steps that were performed, by key.
        tries: The performances of steps, by key and number of failed tries.
        shown: The keys of all questions that the client was asked.
    """

    world: World
    winners: Mapping[str, int | None]
    now: float = START
    effects: dict[str, Any] = field(factory=dict)
    tries: Counter[tuple[str, int]] = field(factory=Counter)
    shown: dict[str, float] = field(factory=dict)

    # ---- the driver -----------------------------------------------------------------

    def handle(
        self,
        app: Server,
        message: Mapping[str, Any],
        peer: Peer | None = None,
        *,
        send: Callable[[Mapping[str, Any]], None] = _drop,
    ) -> Reply:
        """Answer one message, as `sync.handle` does."""
        exchange = begin(
            app, message, peer, clock=lambda: self.now, entropy=lambda size: FLOW_ID
        )
        outcome: Any = None
        try:
            while True:
                command = exchange.send(outcome)
                outcome = None
                match command:
                    case PerformAll(wants):
                        outcome = self.perform(wants)
                    case Invoke(function, kwargs):  # only to store the row of a task
                        outcome = Done(function(**kwargs))
                    case Notify(told):
                        send(told)
                    case Ask(asking):
                        for told in asking.messages.values():
                            send(told)
                        self._wait(app, asking, peer)
                    case _:
                        raise AssertionError(command)
        except StopIteration as end:
            reply: Reply = end.value
            return reply
        finally:
            exchange.close()

    def play(self, handler: Callable[..., Any], rules: Rules) -> Any:
        """Play a handler without a server, by a cold replay after each question."""
        journal, answers = Journal(), dict[str, Any]()
        while True:
            run = Run(
                handler,
                flow_id=FLOW_ID,
                journal=journal,
                rules=rules,
                read=read_result,
                clock=lambda: self.now,
            )
            stop = advance(run, run.start(answers), lambda want: self._one(want))
            if isinstance(stop, Raised):
                raise stop.error
            if not isinstance(stop, Asked):
                return stop.value
            journal = Journal.loads(run.suspend().dumps())
            keys = {_key_of(_text(one)): one.key for one in stop.questions}
            said = self.answers(keys)
            answers = {keys[key]: Unread(one) for key, one in said.items()}

    def perform(self, wants: Iterable[Want]) -> dict[str, Done | Failure]:
        """Perform effects side by side."""
        ends = {want.key: self._end(want.key, want.effect, want) for want in wants}
        self.now = max([self.now, *(end for end, _ in ends.values())])
        return {key: outcome for key, (_, outcome) in ends.items()}

    def _one(self, want: Want) -> Done | Failure:
        return self.perform([want])[want.key]

    def _end(
        self, key: str, effect: Effect[Any], want: Want
    ) -> tuple[float, Done | Failure]:
        match effect:
            case Step():
                return self._step(key, effect)
            case Sleep(seconds):
                return self.now + seconds, Done(None)
            case Within(seconds, inner):
                end, position, outcome = self._race(key, [inner], want, seconds)
                return end, Done(TimedOut()) if position else outcome
            case FirstOf(effects):
                end, position, outcome = self._race(key, effects, want)
                if isinstance(outcome, Done):
                    outcome = Done((position, outcome.value))
                return end, outcome
            case _:
                known = drawn(want, self.now)
                assert known is not None, effect
                return self.now, known

    def _step(self, key: str, step: Step[Any]) -> tuple[float, Done | Failure]:
        assert key not in self.effects, f"{key} is performed again"
        self.effects[key] = step.fn, step.args, dict(step.kwargs)
        at, count = self.now, 0
        while True:
            self.tries[key, count] += 1
            at += self.world.seconds((key, count))
            outcome = self.world.outcome(key, step, count)
            tried_again = isinstance(outcome, Failure) and not isinstance(
                outcome.error, step.options.raises
            )
            if not tried_again or count >= step.options.retries:
                return at, outcome
            at += FIRST_PAUSE * 2.0**count
            count += 1

    def _race(
        self,
        key: str,
        effects: Iterable[Effect[Any]],
        want: Want,
        limit: float | None = None,
    ) -> _End:
        ends: list[_End] = []
        for index, effect in enumerate(effects):
            kind = "step" if isinstance(effect, Step) else "sleep"
            end, outcome = self._end(f"{key}/{index}/{kind}-1", effect, want)
            ends.append((end, index, outcome))
        if limit is not None:
            ends.append((self.now + limit, len(ends), Done(None)))
        if key not in self.winners:
            return min(ends, key=lambda one: one[:2])
        winner = self.winners[key]
        return ends[-1 if winner is None else winner]

    # ---- the client -----------------------------------------------------------------

    def by_key(self, questions: Mapping[str, Wire]) -> dict[str, Wire]:
        """Answer some of the questions of a round."""
        for key, one in questions.items():
            assert _key_of(one["params"]["message"]) == key
        return self.answers(questions)

    def _wait(self, app: Server, asking: Inquiry, peer: Peer | None) -> None:
        """Answer questions that were asked live, until the server stops waiting."""
        messages: Mapping[Any, Wire] = dict[Any, Any](asking.messages)
        ids = {_key_of(one["params"]["message"]): at for at, one in messages.items()}
        while not asking.is_over:
            left = [key for key, id_ in ids.items() if id_ not in asking.replies]
            said = self.answers(left, asking.until)
            if not said:
                return
            for key, one in said.items():
                response = {"jsonrpc": "2.0", "id": ids[key], "result": one}
                self.handle(app, response, peer)

    def answers(
        self, keys: Iterable[str], until: float | None = None
    ) -> dict[str, Wire]:
        """Wait for the user's next answers; return them, by key.

        Args:
            keys: The questions.
            until: When to stop waiting. Then no answer is returned.
        """
        times: dict[str, float] = {}
        for key in keys:
            since = self.shown.setdefault(key, self.now)
            times[key] = since + self._patience(key)
        if not times:
            return {}
        to = min(times.values())
        if until is not None and until <= to:
            self.now = max(self.now, until)
            return {}
        if to == inf:  # only races are left, and clocks will win them
            self.now += _LONG
            return {}
        self.now = max(self.now, to)
        return {
            key: self.world.verdict(key) for key, at in times.items() if at <= self.now
        }

    def _patience(self, key: str) -> float:
        found = race_of(key)
        if found is None or found[0] not in self.winners:
            return self.world.patience(key)
        race, position = found
        return 0.0 if self.winners[race] == position else inf


def _text(question: Question) -> str:
    text: str = question.effect.message  # type: ignore[attr-defined]  # no program has ListRoots
    return text + ("\n\nYour last" if question.problems else "")


def _key_of(text: str) -> str:
    """Return the key of a question by its text, in which no answer fits twice."""
    asked, again, _ = text.partition("\n\nYour last")
    return asked.rpartition("@")[2] + ("~2" if again else "")
