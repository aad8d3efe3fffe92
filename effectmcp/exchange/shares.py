"""Limits on the resources of a server, and each client's share of them. No I/O.

    seats = Shares(limit=1_000, part=0.25)      things that are counted
    seats.take(party); seats.give(party)

    budget = Budget(limit=64 * MIB, part=0.25)  bytes that are held
    holding = budget.open(party, give_way)
    holding.add(size); holding.close()

A party is a user or, without authentication, an address. One party gets no more than its
part of each limit, so that it can exhaust none of them alone. The party `None` has no
share: many clients are behind it, such as the clients of a proxy.
"""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from attrs import define, field

__all__ = ["Budget", "Holding", "Shares", "network_of", "party_of", "share_of"]

_NO_LOCK: Final = nullcontext()


def party_of(principal: str | None, address: str | None) -> str | None:
    """Return the party that a client belongs to; `None` if the client is not known.

    Args:
        principal: The authenticated user.
        address: The client's address; `None` if it is not known.
    """
    if principal is not None:
        return f"user {principal}"
    return None if address is None else network_of(address)


@functools.lru_cache(maxsize=1_024)
def network_of(address: str) -> str:
    """Return the address of one client; for IPv6 its /64 network, which one client has."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address  # a name that a host or a proxy gave
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, 64), strict=False))


def share_of(limit: int, part: float) -> int:
    """Return the share of one party, which is at least one."""
    return max(1, int(limit * part))


class Shares:
    """A limited number of things, such as connections, and how many each party has.

    Args:
        limit: How many all parties may take together.
        part: The part of it that one party may take.
        lock: A lock, if several threads call this.
    """

    def __init__(
        self,
        limit: int,
        part: float = 1.0,
        lock: AbstractContextManager[object] = _NO_LOCK,
    ) -> None:
        self.limit = limit
        self.share = share_of(limit, part)
        self.count = 0
        self._by: dict[str | None, int] = {}
        self._lock = lock

    def is_spent(self, party: str | None) -> bool:
        """Return whether this party has taken its share."""
        return party is not None and self._by.get(party, 0) >= self.share

    def has_room(self, party: str | None) -> bool:
        """Return whether one is left for this party."""
        return self.count < self.limit and not self.is_spent(party)

    def take(self, party: str | None) -> bool:
        """Take one, if one is left for this party; return whether that succeeded."""
        with self._lock:
            taken = self._by.get(party, 0)
            if self.count >= self.limit or (party is not None and taken >= self.share):
                return False
            self.count += 1
            self._by[party] = taken + 1
            return True

    def give(self, party: str | None) -> None:
        """Return a thing that this party took."""
        with self._lock:
            self.count -= 1
            self._by[party] -= 1
            if not self._by[party]:
                del self._by[party]


@define(eq=False)
class _Party:
    """The bytes of one party, and its holdings, oldest first."""

    size: int = 0
    holdings: dict[Holding, None] = field(factory=dict)


def _size_of(party: _Party) -> int:
    return party.size


class Budget:
    """Bytes that are held for clients.

    If a party needs more than its share, its own oldest holding gives way. If all parties
    together need more than the limit, the oldest holding of the largest party does. So a
    slow client delays only itself. A holding may exceed both limits if it is the only
    one: a single large answer can always be sent.

    Args:
        limit: How many bytes all parties may hold together.
        part: The part of it that one party may hold.
        lock: A reentrant lock, if several threads call this.
    """

    def __init__(
        self,
        limit: int,
        part: float = 1.0,
        lock: AbstractContextManager[object] = _NO_LOCK,
    ) -> None:
        self.limit = limit
        self.share = share_of(limit, part)
        self.size = 0
        self._parties: dict[str | None, _Party] = {}
        self._lock = lock

    def open(self, party: str | None, give_way: Callable[[], None]) -> Holding:
        """Return a holding for this party, of no bytes yet.

        Args:
            party: The party.
            give_way: Called when the holding has to give way, and is closed already: free
                the bytes. Other threads may call it.
        """
        return Holding(self, party, give_way)

    def add(self, holding: Holding, size: int) -> bool:
        """Add bytes to a holding; see `Holding.add`."""
        with self._lock:
            if holding.is_closed:
                return False
            while self._exceeds_share(holding, size):
                own = self._parties[holding.party]
                if not self._make_way(own, holding):
                    if own.size > holding.size:
                        return False
                    break  # it is the only holding of its party
            while self.size + size > self.limit and self.size > holding.size:
                if not self._make_room(holding):
                    return False
            party = self._parties.setdefault(holding.party, _Party())
            party.holdings[holding] = None
            party.size += size
            self.size += size
            holding.size += size
            return True

    def remove(self, holding: Holding, size: int) -> None:
        """Remove bytes from a holding; see `Holding.remove`."""
        with self._lock:
            party = self._parties.get(holding.party)
            if party is None or holding not in party.holdings:
                return
            size = min(size, holding.size)
            holding.size -= size
            party.size -= size
            self.size -= size
            if not holding.size:
                del party.holdings[holding]
            if not party.holdings:
                del self._parties[holding.party]

    def go_first(self, holding: Holding) -> None:
        """Let a holding give way before others; see `Holding.go_first`."""
        with self._lock:
            party = self._parties.get(holding.party)
            if party is not None and holding in party.holdings:
                party.holdings = {holding: None, **party.holdings}

    def settle(self, holding: Holding) -> bool:
        """Keep a holding from giving way; see `Holding.settle`."""
        with self._lock:
            holding.is_settled = True
            return not holding.is_closed

    def _exceeds_share(self, holding: Holding, size: int) -> bool:
        party = self._parties.get(holding.party)
        return (
            holding.party is not None
            and party is not None
            and party.size + size > self.share
        )

    def _make_room(self, holding: Holding) -> bool:
        """Have a holding of the largest party give way; return whether there was one."""
        parties = self._parties.values()
        if self._make_way(max(parties, key=_size_of), holding):
            return True
        rest = sorted(parties, key=_size_of, reverse=True)
        return any(self._make_way(one, holding) for one in rest)

    def _make_way(self, party: _Party, but: Holding) -> bool:
        """Have the oldest holding of a party give way; return whether there was one."""
        for holding in party.holdings:
            if holding is not but and not holding.is_settled:
                holding.close()
                holding.give_way()
                return True
        return False


@define(eq=False)
class Holding:
    """The bytes that are held for one request, answer or stream.

    Attributes:
        party: The party that it is for.
        give_way: Frees the bytes.
        size: The number of bytes.
        is_closed: Whether it was closed, or had to give way.
        is_settled: Whether it no longer gives way.
    """

    _budget: Budget
    party: str | None
    give_way: Callable[[], None]
    size: int = 0
    is_closed: bool = False
    is_settled: bool = False

    def add(self, size: int) -> bool:
        """Add so many bytes; return false without room, or after it had to give way."""
        return self._budget.add(self, size)

    def remove(self, size: int) -> None:
        """Remove so many bytes."""
        self._budget.remove(self, size)

    def go_first(self) -> None:
        """Give way before all other holdings of this party: the bytes are hardly needed."""
        self._budget.go_first(self)

    def settle(self) -> bool:
        """Never give way again; return false if the holding is closed already."""
        return self._budget.settle(self)

    def close(self) -> None:
        """Remove all bytes; `add()` returns false afterwards."""
        self.is_closed = True
        self._budget.remove(self, self.size)
