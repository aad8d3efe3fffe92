"""Limits on what clients take, and the share of each: counted things, and bytes."""

from __future__ import annotations

import pytest
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from effectmcp.exchange.shares import Budget, Holding, Shares, network_of, party_of

# ---- parties ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("principal", "address", "party"),
    [
        ("ann", "192.0.2.1", "user ann"),
        (None, "192.0.2.1", "192.0.2.1"),
        (None, "::ffff:192.0.2.1", "192.0.2.1"),
        # One client has 2**64 addresses.
        (None, "2001:db8:1:2::1", "2001:db8:1:2::/64"),
        (None, "2001:db8:1:2:ffff::1", "2001:db8:1:2::/64"),
        (None, "fe80::1%eth0", "fe80::/64"),
        (None, "testclient", "testclient"),
        (None, None, None),
    ],
)
def test_party(principal: str | None, address: str | None, party: str | None) -> None:
    assert party_of(principal, address) == party


def test_user_is_not_an_address() -> None:
    assert party_of("192.0.2.1", None) != party_of(None, "192.0.2.1")


@given(st.ip_addresses())
def test_network_of_a_network(address: object) -> None:
    """Each address belongs to one party, and an IPv4 address to itself."""
    found = network_of(str(address))
    assert found == str(address) or found.endswith("/64") or ":" not in found


# ---- things that are counted --------------------------------------------------------


def test_party_gets_its_share() -> None:
    seats = Shares(4, 0.5)
    assert [seats.take("a") for _ in range(3)] == [True, True, False]
    assert seats.is_spent("a")
    assert not seats.is_spent("b")
    seats.give("a")
    assert seats.take("a")


def test_all_parties_get_no_more_than_the_limit() -> None:
    seats = Shares(3, 0.5)
    assert [seats.take(party) for party in "abcd"] == [True, True, True, False]
    assert not seats.is_spent("d")


def test_party_without_a_name_has_no_share() -> None:
    seats = Shares(4, 0.25)
    assert [seats.take(None) for _ in range(5)] == [True] * 4 + [False]


def test_share_is_at_least_one() -> None:
    assert Shares(2, 0.1).take("a")


_PARTIES = st.sampled_from(["a", "b", "c", None])


@given(
    st.integers(1, 6),
    st.floats(0.01, 1),
    st.lists(st.tuples(st.booleans(), _PARTIES), max_size=40),
)
def test_shares_like_a_list(
    limit: int, part: float, steps: list[tuple[bool, str | None]]
) -> None:
    """The oracle is a list of the parties."""
    seats, taken = Shares(limit, part), list[str | None]()
    for gives, party in steps:
        if gives and party in taken:
            seats.give(party)
            taken.remove(party)
        elif not gives:
            has_share = party is None or taken.count(party) < max(1, int(limit * part))
            may = len(taken) < limit and has_share
            assert seats.take(party) is may
            taken += [party] * may
        assert seats.count == len(taken)
    for party in taken:
        seats.give(party)
    assert not seats._by


# ---- bytes --------------------------------------------------------------------------


@define(eq=False)
class Held:
    """Base class: hold some bytes, and note whether they had to give way."""

    budget: Budget
    party: str | None
    has_given_way: bool = False
    holding: Holding = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.holding = self.budget.open(self.party, self.give_way)

    def give_way(self) -> None:
        assert self.holding.is_closed
        self.has_given_way = True


def test_oldest_holding_of_a_party_gives_way() -> None:
    budget = Budget(100, 0.5)
    first, second, third, other = (Held(budget, party) for party in "aaab")
    assert other.holding.add(50)
    assert all(one.holding.add(25) for one in (first, second, third))
    assert [one.has_given_way for one in (first, second, third, other)] == [
        *(True, False, False, False)
    ]
    assert budget.size == 100
    assert not first.holding.add(1)


def test_largest_party_gives_way_to_others() -> None:
    budget = Budget(100, 0.5)
    large, small = Held(budget, "a"), Held(budget, "b")
    assert small.holding.add(45)
    assert large.holding.add(50)
    assert Held(budget, "c").holding.add(10)
    assert (large.has_given_way, small.has_given_way) == (True, False)
    assert budget.size == 55


def test_single_holding_may_exceed_its_share_and_the_limit() -> None:
    budget = Budget(100, 0.5)
    alone = Held(budget, "a")
    assert alone.holding.add(80)
    assert alone.holding.add(80)
    rival = Held(budget, "b")
    assert rival.holding.add(10)
    assert alone.has_given_way


def test_settled_holding_does_not_give_way() -> None:
    budget = Budget(100, 0.5)
    settled = Held(budget, "a")
    assert settled.holding.add(50)
    assert settled.holding.settle()
    assert not Held(budget, "a").holding.add(1)
    other = Held(budget, "b")
    assert other.holding.add(50)
    assert other.holding.settle()
    assert not Held(budget, "c").holding.add(1)
    assert not settled.has_given_way
    settled.holding.close()
    assert Held(budget, "c").holding.add(50)


def test_next_party_gives_way_if_the_largest_is_settled() -> None:
    budget = Budget(100, 1)
    settled, other = Held(budget, "a"), Held(budget, "b")
    assert settled.holding.add(60)
    assert settled.holding.settle()
    assert other.holding.add(40)
    assert Held(budget, "c").holding.add(20)
    assert (settled.has_given_way, other.has_given_way) == (False, True)


def test_it_is_too_late_to_settle() -> None:
    budget = Budget(10)
    first, second = Held(budget, "a"), Held(budget, "b")
    assert first.holding.add(10)
    assert second.holding.add(10)
    assert not first.holding.settle()


def test_party_without_a_name_gives_way_like_others() -> None:
    budget = Budget(100, 0.25)
    first, second = Held(budget, None), Held(budget, None)
    assert first.holding.add(60)
    assert second.holding.add(40)
    assert Held(budget, "a").holding.add(10)
    assert (first.has_given_way, second.has_given_way) == (True, False)


def test_holding_that_is_hardly_needed_gives_way_first() -> None:
    budget = Budget(100, 0.5)
    first, second = Held(budget, "a"), Held(budget, "a")
    assert first.holding.add(25)
    assert second.holding.add(25)
    second.holding.go_first()
    assert Held(budget, "a").holding.add(10)
    assert (first.has_given_way, second.has_given_way) == (False, True)
    second.holding.go_first()  # it has given way


def test_room_for_one_more() -> None:
    seats = Shares(2, 0.5)
    assert seats.has_room("a")
    seats.take("a")
    assert not seats.has_room("a")
    assert seats.has_room("b")
    seats.take("b")
    assert not seats.has_room("c")


def test_holding_that_shrinks() -> None:
    budget = Budget(100)
    one = Held(budget, "a")
    assert one.holding.add(60)
    one.holding.remove(20)
    assert (one.holding.size, budget.size) == (40, 40)
    one.holding.remove(1_000)
    assert (one.holding.size, budget.size) == (0, 0)
    one.holding.remove(1)
    assert not budget._parties
    assert one.holding.add(10)


_LIMIT, _SHARE = 12, 6
_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["open", "add", "remove", "settle", "close"]),
        st.integers(0, 5),
        st.integers(1, 8),
        _PARTIES,
    ),
    max_size=60,
)


@given(_STEPS)
def test_budget_keeps_its_rules(steps: list[tuple[str, int, int, str | None]]) -> None:
    """Only one holding exceeds a limit; only rivals give way, oldest first."""
    budget, all_ = Budget(_LIMIT, _SHARE / _LIMIT), list[Held]()
    order: list[Held] = []  # of those with bytes, oldest first
    for verb, index, size, party in steps:
        if verb == "open" or not all_:
            all_.append(Held(budget, party))
            continue
        one = all_[index % len(all_)]
        before = [held for held in all_ if held.has_given_way]
        if verb == "add":
            rivals = [held for held in order if held is not one]
            added = one.holding.add(size)
            if one in order and not added:
                assert one.holding.size
            if not added and not one.holding.is_closed:
                # Everything that could have given way has done so.
                left = [held for held in rivals if not held.has_given_way]
                assert all(
                    held.holding.is_settled or held.party != one.party for held in left
                )
            elif added and one not in order:
                order.append(one)
        elif verb == "remove":
            one.holding.remove(size)
        elif verb == "settle":
            assert one.holding.settle() is not one.holding.is_closed
        else:
            one.holding.close()
        given_way = [held for held in all_ if held.has_given_way and held not in before]
        assert not given_way or verb == "add"
        assert one not in given_way
        assert not any(held.holding.is_settled for held in given_way)
        for held in given_way:
            older = order[: order.index(held)]
            assert not [
                left
                for left in older
                if left.party == held.party
                and not left.has_given_way
                and not left.holding.is_settled
                and left is not one
            ]
        order = [held for held in order if held.holding.size]
        assert budget.size == sum(held.holding.size for held in order)
        assert budget.size <= _LIMIT or len(order) == 1
        for name in ("a", "b", "c"):
            own = [held for held in order if held.party == name]
            total = sum(held.holding.size for held in own)
            assert total <= _SHARE or len(own) == 1
