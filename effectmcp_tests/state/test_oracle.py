"""Token lengths alone reveal nothing of what a step returned.

The attacker is the client. It sees how long each token is, answers forms as it likes,
and goes back to an older token as often as it likes, so it has as many guesses as it
likes (CRIME, 2012: the guess that makes the whole shorter is right). Padding does not
help against it: fillers find the length where another block is needed, to the byte.
What helps is that what the server wrote is not deflated beside what the client wrote.

So this test has two halves. The same attacker fails against the codec as it is, and
succeeds when both are put into one stream: without the second half, the first could
come from a clumsy attacker.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from effectmcp import Accepted, Elicit, Flow, Step
from effectmcp.engine import Asked, Done, Perform
from effectmcp.exchange.rounds import begin, resume
from effectmcp.state import BoundCall, Keys, Sealer, codec, make_key

WORDS = """
    anchor autumn basket beaver bottle bridge candle canyon carpet cherry circus copper
    cotton dagger desert dinner dragon engine fabric falcon fiddle forest galaxy garden
    ginger guitar hammer harbor helmet hornet island jacket jungle kettle kitten ladder
    lagoon lizard magnet marble meadow mirror monkey needle nickel orchid oyster palace
    parrot pepper pillow planet pocket rabbit ribbon rocket saddle salmon shadow silver
    spider temple tunnel walnut
""".split()
assert len(set(WORDS)) == 64
assert {len(word) for word in WORDS} == {6}

NOW = 1_800_000_000
CALL = BoundCall(method="tools/call", target="redeem")
SEALER = Sealer(keys=Keys(make_key(bytes(range(32)))), audience="shop")
#: What does not deflate, so that each character of it is about one byte more.
FILLER = "".join(
    random.Random(7).sample([chr(n) for n in range(0x23, 0x7F) if n != 92], 80)
)

vault = [""]


def secret_word() -> str:
    """Return the secret of the server, the same for every fork of the flow."""
    return vault[0]


def redeem() -> Flow[str]:
    yield from Elicit("Your note?", str)
    word = yield from Step(secret_word)
    sure = yield from Elicit("Sure?", str)
    return word if sure == "yes" else ""


class Attacker:
    """Guesses the word in the vault from the lengths of tokens."""

    def __init__(self, seed: int = 0) -> None:
        self._chance = random.Random(seed)
        first = begin(redeem, call=CALL, sealer=SEALER, flow_id=bytes(16), now=NOW)
        assert isinstance(first.stop, Asked)
        self._key = first.stop.questions[0].key
        self._token = first.token(now=NOW)

    def fork(self, note: str) -> str:
        """Return the token of the round that got this note."""
        said = {self._key: Accepted({"value": note})}
        fork = resume(
            redeem, token=self._token, call=CALL, sealer=SEALER, now=NOW, answers=said
        )
        # This is the server's side of it, which the attacker does not see.
        assert isinstance(fork.stop, Perform)
        (want,) = fork.stop.wants
        fork.performed({want.key: Done(secret_word())})
        return fork.token(now=NOW)

    def length(self, note: str) -> int:
        """Return the length of the token for this note."""
        return len(self.fork(note))

    def edge(self, guess: str) -> int:
        """Return how much filler fits behind `guess` before a block is added.

        The guess with the most filler is the shortest.
        """
        low, high = 0, len(FILLER)
        before = self.length(guess)
        while high - low > 1:
            middle = (low + high) // 2
            if self.length(guess + FILLER[:middle]) > before:
                high = middle
            else:
                low = middle
        return high

    def edges(self) -> list[int]:
        return [self.edge(word) for word in WORDS]

    def choose(self, edges: list[int]) -> str:
        best = max(edges)
        return self._chance.choice(
            [word for word, edge in zip(WORDS, edges, strict=True) if edge == best]
        )


def attacks(secrets: Iterable[str]) -> tuple[int, set[tuple[int, ...]]]:
    """Return how many of `secrets` are guessed, and the attacker's measurements."""
    guessed, seen = 0, set()
    for number, secret in enumerate(secrets):
        vault[0] = secret
        attacker = Attacker(number)
        edges = attacker.edges()
        guessed += attacker.choose(edges) == secret
        seen.add(tuple(edges))
    return guessed, seen


@pytest.mark.parametrize("stored", [codec.STORED, 0])
def test_secret_word_does_not_show_in_lengths(
    monkeypatch: pytest.MonkeyPatch, stored: int
) -> None:
    """The attacker does no better than random guesses: of 16 secrets, each one of 64
    words, a quarter of one is expected, and three in one of 500 runs. In fact, all
    measurements are equal."""
    monkeypatch.setattr(codec, "STORED", stored)
    guessed, seen = attacks(WORDS[::4])
    assert len(seen) == 1
    assert guessed <= 2


def test_secret_word_would_show_in_one_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """The attacker is a good one: if step results shared the answers' stream, it would
    read nearly all of them."""
    monkeypatch.setattr(codec, "DEFLATED", codec.DEFLATED | {"done"})
    monkeypatch.setattr(codec, "STORED", 0)  # what is so short is not deflated at all
    guessed, seen = attacks(WORDS[::8])
    assert guessed >= 7
    assert len(seen) == 8


def test_length_of_a_secret_shows_in_blocks_only() -> None:
    """Fillers cannot push a secret over the edge of its own block either."""
    seen = set()
    for size in range(1, 60):
        vault[0] = "s" * size
        seen.add(Attacker().edge("note"))
    assert len(seen) == 1


def test_equal_secrets_make_equal_tokens() -> None:
    """A known leak: sealing is deterministic, so a client can see that nothing
    changed between two forks with the same answers in the same second."""
    tokens = set()
    for secret in ("anchor", "anchor", "autumn"):
        vault[0] = secret
        tokens.add(Attacker().fork("note"))
    assert len(tokens) == 2
