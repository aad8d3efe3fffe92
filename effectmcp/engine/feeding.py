"""The first phase of a run: a fast loop while there is only one sequence.

Most flows have no branches, and most of a replay is matching entries: waves of one leaf
each. This loop leaves out everything that cannot happen to those. At the first effect
that needs more, it hands the sequence over to the waves as it is, with its generator
(docs/internals/replay.md#b1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ..effects.control import Checkpoint, Detach, Restart
from .answers import STALE
from .effect_table import FED, LOCAL, NAMES
from .generators import Ended, Failed, Yielded
from .journal import check_key
from .misuse import translated
from .tree import Wanted

if TYPE_CHECKING:
    from .generation import Generation

__all__ = ["feed"]

#: Tags whose entries always deliver a plain value.
_PLAIN: Final = frozenset({"accepted", "chance", "known", "done"})

#: Effects that change the rules, the tree or the rounds.
_TURNING: Final = (Restart, Detach, Checkpoint)


def feed(generation: Generation) -> None:
    """Run the handler while it has no branches and its entries match."""
    flow = generation.flow
    root, receiver, places = generation.root, generation.receiver, generation.places
    in_task = flow.rules.task
    running, entries, ordinals = root.running, root.entries, root.ordinals
    assert running is not None
    run, send_in, prints = root.context.run, running.send, flow.prints
    shapes, hasher = prints.shapes, prints.hasher
    last = len(entries)
    if generation.cancelled is not None:
        last = min(last, generation.cancelled)
    position, waits = 0, 0
    value: Any = None
    error: BaseException | None = None
    fed = FED if flow.watch is None else {}
    while True:
        try:
            if error is None:
                effect = run(send_in, value)
            else:
                effect = run(running.throw, error)
        except KeyboardInterrupt:
            raise
        except StopIteration as stop:
            root.position = generation.waves = position
            root.ends(Ended(stop.value))
            break
        except BaseException as exc:
            root.position = generation.waves = position
            root.ends(Failed(translated(exc, root)))
            break
        wanted = None
        kind = fed.get(type(effect))
        if kind is not None:
            # The same as `Receiver.identify`, without a call for each effect.
            try:
                explicit = None
                if kind.is_question:
                    explicit = effect.key
                    if explicit is not None:
                        check_key(explicit, NAMES)
                elif not kind.is_free:
                    receiver.check_steps(effect)
                name, schema = kind.name, kind.schema(effect)
                print_ = hasher.copy()
                print_.update(kind.render(effect))
                if explicit is None:
                    ordinals[name] = nth = ordinals.get(name, 0) + 1
                    key = f"{name}-{nth}"
                else:
                    nth = root.next_ordinal(f"={explicit}")
                    key = explicit if nth == 1 else f"{explicit}#{nth}"
            except Exception:
                pass  # the slow path raises the error again
            else:
                render = print_.digest()
                shape = shapes.get((name, explicit, schema)) or prints.shape(
                    name, explicit, schema
                )
                if position < last:
                    entry = entries[position]
                    if (
                        entry.key == key
                        and entry.render == render
                        and entry.shape == shape
                        and entry.tag in _PLAIN
                    ):
                        try:
                            value, error = kind.read(effect, entry.payload), None
                        except Exception:
                            pass  # raised or asked again below
                        else:
                            position += 1
                            waits += kind.is_wait
                            continue
                is_local = kind.wave is LOCAL and not (kind.is_wait and in_task)
                wanted = root.wanted = Wanted(
                    effect, effect, kind, key, key, shape, render, is_local
                )
        root.position = generation.waves = position
        generation.waits = waits if in_task else 0
        if wanted is None:
            # The slow path: refusals, effects without entries, all unusual cases.
            generation.took(root, Yielded(effect))
            wanted = root.wanted
            if wanted is None:
                break
        if position < last:
            entry = entries[position]
            if (
                isinstance(wanted.subject, _TURNING)
                or not wanted.is_of(entry)
                or not generation.compute((root, wanted), entry)
            ):
                break
        elif wanted.place in generation.answers.own and generation.cancelled is None:
            outcome = generation.answers.take_own(wanted)
            if outcome is STALE:
                generation.note_stale(root, wanted)
                break
            if outcome is None:
                break
            entry = wanted.entry(*outcome)
            if not generation.compute((root, wanted), entry):
                places.count(wanted.place)
                break
            root.append(entry)
            if flow.muted:
                flow.unmute()
            flow.spend()
        else:
            break
        value, error = wanted.value, wanted.error
        root.wanted = None
        position += 1
        waits += wanted.row.is_wait
