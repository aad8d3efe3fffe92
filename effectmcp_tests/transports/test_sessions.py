"""Sessions and their streams, by a clock that is moved by hand."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from effectmcp import Server
from effectmcp.errors import ProtocolError
from effectmcp.exchange.commands import Peer
from effectmcp.exchange.sessions import Session
from effectmcp.protocol.legacy import Hello
from effectmcp.protocol.revisions import HANDSHAKES
from effectmcp.server import Change
from effectmcp.transports.sessions import SessionLimits, Sessions, Stream, StreamReader
from effectmcp.transports.web import Send

from ..legacy_client import NEWEST


def new_session(principal: str | None = None) -> Session:
    return Session(HANDSHAKES[NEWEST], Hello(NEWEST, {}, None), principal)


class Kept(Sessions):
    """Sessions, and the clock that they use."""

    def __init__(self, *, share: float = 1, **limits: Any) -> None:
        self.now = 0.0
        self.app = Server("shop")
        kept = SessionLimits(**limits)
        super().__init__(self.app, kept, share=share, clock=lambda: self.now)

    def open(
        self, principal: str | None = None, party: str | None = None
    ) -> tuple[str, Session]:
        session = new_session(principal)
        id_ = self.keep(session, party)
        assert id_ is not None
        return id_, session

    def stream(self, session: Session) -> Stream:
        stream = self.open_stream(session)
        assert isinstance(stream, Stream)
        return stream

    def find(self, session: Session, last: str | None = None) -> tuple[Stream, int]:
        found = self.find_stream(session, headers_of(last))
        assert not isinstance(found, Send), found
        return found

    def status(self, session: Session, last: str | None = None) -> int | None:
        """Return the status of the refusal to resume from `last`."""
        found = self.find_stream(session, headers_of(last))
        assert isinstance(found, Send)
        return found.status


def headers_of(last: str | None) -> dict[str, str]:
    return {} if last is None else {"last-event-id": last}


def peer(id_: str | None, principal: str | None = None, **headers: str) -> Peer:
    known = {} if id_ is None else {"mcp-session-id": id_}
    more = {key.replace("_", "-"): value for key, value in headers.items()}
    return Peer(principal=principal, headers={**known, **more})


def admitted(sessions: Sessions, by: Peer) -> Session | None:
    found = sessions.admit(by)
    assert isinstance(found, Peer)
    return found.session


def refused(sessions: Sessions, by: Peer) -> int | None:
    found = sessions.admit(by)
    assert isinstance(found, Send)
    return found.status


def open_ones(*sessions: Session) -> int:
    return sum(not one.is_closed for one in sessions)


def is_over(reader: StreamReader) -> bool:
    return reader.is_over


def nothing() -> None:
    pass


# ---- who they are -------------------------------------------------------------------


def test_ids_are_visible_ascii_and_never_the_same() -> None:
    sessions = Kept()
    ids = {sessions.open()[0] for _ in range(50)}
    assert len(ids) == 50
    assert all(re.fullmatch(r"[\x21-\x7e]{32,}", one) for one in ids)


def test_a_session_is_found_by_its_id() -> None:
    sessions = Kept()
    id_, session = sessions.open()
    assert admitted(sessions, peer(id_)) is session
    for version in (*HANDSHAKES, "2026-06-XX"):
        shown = peer(id_, mcp_protocol_version=version)
        assert admitted(sessions, shown) is session


def test_a_request_without_a_session_id_has_no_session() -> None:
    sessions = Kept()
    sessions.open()
    assert admitted(sessions, peer(None)) is None
    assert admitted(sessions, Peer()) is None


@pytest.mark.parametrize("version", ["2026-07-28", "1999-01-01", ""])
def test_in_other_revisions_the_header_means_nothing(version: str) -> None:
    sessions = Kept()
    id_, _ = sessions.open()
    for one in (id_, "unknown"):
        shown = peer(one, mcp_protocol_version=version)
        assert admitted(sessions, shown) is None


def test_an_unknown_session_is_a_404() -> None:
    sessions = Kept()
    sessions.open()
    assert refused(sessions, peer("unknown")) == 404


@pytest.mark.parametrize(
    ("owner", "other"), [("ann", "bob"), ("ann", None), (None, "bob")]
)
def test_a_session_of_another_user_is_as_good_as_none(
    owner: str | None, other: str | None
) -> None:
    sessions = Kept()
    id_, session = sessions.open(owner)
    assert refused(sessions, peer(id_, other)) == 404
    assert admitted(sessions, peer(id_, owner)) is session


def test_another_user_does_not_keep_a_session_alive() -> None:
    sessions = Kept(idle=10)
    id_, session = sessions.open("ann")
    sessions.now = 9
    refused(sessions, peer(id_, "bob"))
    sessions.now = 10
    sessions.sweep()
    assert session.is_closed


# ---- how long they last -------------------------------------------------------------


def test_a_session_ends_when_it_was_quiet_for_long() -> None:
    sessions = Kept(idle=10)
    id_, session = sessions.open()
    sessions.now = 9.5
    assert sessions.sweep() == 0.5
    assert open_ones(session) == 1
    sessions.now = 10
    assert refused(sessions, peer(id_)) == 404
    assert open_ones(session) == 0
    assert len(sessions) == 0
    assert sessions.sweep() == 10


def test_a_session_that_sends_something_lasts() -> None:
    sessions = Kept(idle=10)
    (first, one), (_, two) = sessions.open(), sessions.open()
    sessions.now = 6
    admitted(sessions, peer(first))
    sessions.now = 12
    assert sessions.sweep() == 4
    assert (one.is_closed, two.is_closed) == (False, True)


def test_a_session_that_reads_lasts_and_has_all_its_time_afterwards() -> None:
    sessions = Kept(idle=10)
    _, session = sessions.open()
    for by in (+1, +1, -1):
        sessions.reading(session, by)
    sessions.now = 25
    assert sessions.sweep() == 10
    sessions.now = 30
    sessions.reading(session, -1)
    sessions.now = 39
    assert sessions.sweep() == 1
    sessions.now = 40
    sessions.sweep()
    assert session.is_closed


def test_a_session_that_is_read_does_not_keep_others_alive() -> None:
    sessions = Kept(idle=10)
    (_, read), (_, other) = sessions.open(), sessions.open()
    sessions.reading(read, +1)
    sessions.now = 10
    sessions.sweep()
    assert (read.is_closed, other.is_closed) == (False, True)


def test_one_too_many_ends_the_quietest() -> None:
    sessions = Kept(sessions=2, resume=0)
    (first, one), (_, two) = sessions.open(), sessions.open()
    admitted(sessions, peer(first))
    _, three = sessions.open()
    assert [x.is_closed for x in (one, two, three)] == [False, True, False]
    assert len(sessions) == 2


def test_a_session_that_is_read_is_not_the_quietest() -> None:
    """Otherwise a client with many handshakes would end what others wait for."""
    sessions = Kept(sessions=2, resume=0)
    (_, one), (_, two) = sessions.open(), sessions.open()
    sessions.reading(one, +1)
    _, three = sessions.open()
    assert [x.is_closed for x in (one, two, three)] == [False, True, False]
    sessions.reading(three, +1)
    assert sessions.keep(new_session()) is None
    assert [x.is_closed for x in (one, three)] == [False, False]


def test_a_client_ends_its_own() -> None:
    sessions = Kept()
    (first, one), (second, two) = sessions.open(), sessions.open()
    sessions.close(one)
    sessions.close(one)
    assert refused(sessions, peer(first)) == 404
    assert admitted(sessions, peer(second)) is two
    sessions.close_all()
    assert two.is_closed
    assert len(sessions) == 0


def test_a_session_that_ended_meanwhile() -> None:
    sessions = Kept()
    _, session = sessions.open()
    news, _ = sessions.find(session)
    sessions.close(session)
    found = sessions.open_stream(session)
    assert isinstance(found, Send)
    assert found.status == 404
    assert sessions.status(session) == 404
    sessions.reading(session, -1)
    sessions.collect(session, news)


def test_its_streams_end_with_it() -> None:
    sessions = Kept()
    _, session = sessions.open()
    stream, news = sessions.stream(session), sessions.find(session)[0]
    rung: list[str] = []
    stream.read(0, lambda: rung.append("stream"))
    news.read(0, lambda: rung.append("news"))
    sessions.close(session)
    assert stream.is_over
    assert news.is_over
    assert sorted(rung) == ["news", "stream"]
    # Its flow is cancelled a moment later, and may have messages left to send.
    stream.add(b"{}")
    stream.end(b"{}")
    assert numbers(stream.read(0, nothing)) == []


def test_a_session_that_ended_does_not_listen_for_changes() -> None:
    sessions = Kept()
    _, session = sessions.open()
    news, _ = sessions.find(session)
    sessions.close(session)
    sessions.app.changes.publish(Change("tools"))
    assert news.last == 0
    assert sessions.app.changes._listeners == {}


def test_many_threads() -> None:
    """Threads share sessions, as in a WSGI host."""
    sessions = Kept(sessions=5, resume=0)

    def live() -> None:
        for _ in range(50):
            session = new_session(None)
            # All five may have a reader just now, and then none of them may end.
            while (id_ := sessions.keep(session)) is None:
                time.sleep(0)
            sessions.reading(session, +1)
            sessions.admit(peer(id_))
            sessions.reading(session, -1)
            sessions.sweep()
            sessions.close(session)

    threads = [threading.Thread(target=live) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(sessions) == 0


# ---- streams ------------------------------------------------------------------------


def numbers(reader: StreamReader) -> list[str]:
    """The ids of what a reader takes, each held against its message."""
    found = []
    for event in reader.take():
        match = re.fullmatch(rb"id: (.*-(\d+))\ndata: (.*)\n\n", event)
        assert match, event
        assert match[3].startswith(b"%s:" % match[2])
        found.append(match[1].decode())
    return found


def said(number: int, size: int = 0) -> bytes:
    return (b"%d:" % number).ljust(size, b"x")


def test_a_reader_gets_past_and_future_events() -> None:
    rung: list[int] = []
    stream = Stream("s", 100)
    stream.add(said(1))
    reader = stream.read(0, lambda: rung.append(stream.last))
    assert numbers(reader) == ["s-1"]
    assert numbers(reader) == []
    assert reader.is_over is False
    stream.add(said(2))
    stream.add(said(3))
    assert rung == [2, 3]
    stream.end()
    assert is_over(reader)
    assert numbers(reader) == ["s-2", "s-3"]


def test_a_stream_that_was_left_wakes_no_reader() -> None:
    stream = Stream("s", 100)
    reader = stream.read(0, lambda: pytest.fail("it left"))
    reader.leave()
    stream.add(said(1))
    assert numbers(stream.read(0, nothing)) == ["s-1"]
    reader.leave()  # and the other one stays
    assert stream.last == 1


@pytest.mark.parametrize("after", range(6))
def test_reading_on_after_any_event(after: int) -> None:
    stream = Stream("s", 100)
    for n in range(1, 6):
        stream.add(said(n))
    stream.end()
    found = numbers(stream.read(after, nothing))
    assert found == [f"s-{n}" for n in range(after + 1, 6)]


def test_a_second_reader_takes_over() -> None:
    rung: list[str] = []
    stream = Stream("s", 100)
    first = stream.read(0, lambda: rung.append("first"))
    stream.add(said(1))
    stream.add(said(2))
    events = first.take()
    next(events)
    rung.clear()
    second = stream.read(0, lambda: rung.append("second"))
    assert rung == ["first"]
    assert first.is_over
    assert not second.is_over
    assert list(events) == []  # in the middle of them
    assert numbers(first) == []
    assert numbers(second) == ["s-1", "s-2"]
    first.leave()
    stream.add(said(3))
    assert rung == ["first", "second"]


def test_the_event_to_resume_from() -> None:
    stream = Stream("s", 100)
    assert stream.read(0, nothing).first(1.5) == b"id: s-0\nretry: 1500\ndata: \n\n"
    assert stream.read(7, nothing).first(0) == b"id: s-7\nretry: 0\ndata: \n\n"


def test_a_stream_is_bounded_by_its_bytes() -> None:
    stream = Stream("s", 100)
    for n in range(1, 101):
        stream.add(said(n, 30))
    assert numbers(stream.read(0, nothing)) == ["s-98", "s-99", "s-100"]
    assert numbers(stream.read(98, nothing)) == ["s-99", "s-100"]
    assert stream.last == 100


def test_the_last_event_is_kept_however_large_it_is() -> None:
    stream = Stream("s", 0)
    stream.add(said(1, 1000))
    stream.end(said(2, 1000))
    assert numbers(stream.read(0, nothing)) == ["s-2"]


def test_many_events_are_read_in_a_moment() -> None:
    """Finding the next event does not require a walk through all kept events."""
    stream = Stream("s", 10_000_000)
    reader = stream.read(0, nothing)
    for n in range(1, 50_001):
        stream.add(said(n))
        if n % 100 == 0:
            assert sum(1 for _ in reader.take()) == 100


def test_only_a_response_that_is_alone_is_one_object() -> None:
    stream = Stream("s", 100)
    stream.end(b"{}")
    assert stream.only == b"{}"
    stream = Stream("s", 100)
    stream.add(said(1))
    stream.end(b"{}")
    assert stream.only is None
    stream = Stream("s", 100)
    stream.add(said(1))
    stream.end()
    assert stream.only is None


# ---- streams of a session -----------------------------------------------------------


def test_a_stream_is_found_by_its_events() -> None:
    sessions = Kept()
    _, session = sessions.open()
    one, two = sessions.stream(session), sessions.stream(session)
    for stream in (one, two):
        stream.add(said(1))
    assert one.name != two.name
    for stream in (one, two):
        assert sessions.find(session, f"{stream.name}-1") == (stream, 1)
        assert sessions.find(session, f"{stream.name}-0") == (stream, 0)


@pytest.mark.parametrize(
    "last",
    ["", "-", "1", "1-", "-1", "2-1", "1-2", "1-x", "1--1", "1-²", "news-1", "1-1-1"]
    + ["1-" + "9" * 9, "1-" + "9" * 5000, "News-0", "x", "\x00-0"],
)
def test_events_that_were_never_sent(last: str) -> None:
    sessions = Kept()
    _, session = sessions.open()
    sessions.stream(session).add(said(1))
    # At a 404 the client would have to repeat the handshake.
    assert sessions.status(session, last) == 400


def test_events_of_another_session() -> None:
    sessions = Kept()
    (_, one), (_, two) = sessions.open(), sessions.open()
    stream = sessions.stream(one)
    stream.add(said(1))
    assert sessions.status(two, f"{stream.name}-1") == 400


def test_streams_that_are_over_are_forgotten_in_time() -> None:
    sessions = Kept(streams=2)
    _, session = sessions.open()
    goes_on = sessions.stream(session)
    names = []
    for _ in range(5):
        stream = sessions.stream(session)
        stream.end(said(1))
        names.append(stream.name)
    assert sessions.find(session, f"{goes_on.name}-0") == (goes_on, 0)
    # One more than two, until the next one comes.
    for name in names[-3:]:
        assert sessions.find(session, f"{name}-0")[1] == 0
    for name in names[:-3]:
        assert sessions.status(session, f"{name}-0") == 400


# ---- news ---------------------------------------------------------------------------


def told(reader: StreamReader) -> list[bytes]:
    return [event.partition(b"data: ")[2].strip() for event in reader.take()]


def test_news_holds_what_was_published_while_no_client_read() -> None:
    sessions = Kept()
    _, session = sessions.open()
    session.news.subscribe("x:1")
    changes = sessions.app.changes
    for change in (
        Change("tools"),
        Change("tools"),
        Change("resource", "x:2"),
        Change("resource", "x:1"),
    ):
        changes.publish(change)
    # A reader of the stream of a request takes nothing away.
    sessions.collect(session, sessions.stream(session))
    news, after = sessions.find(session)
    reader = news.read(after, nothing)
    sessions.collect(session, news)
    one, two = told(reader)
    assert b"notifications/tools/list_changed" in one
    assert b"x:1" in two
    # It was sent; it is sent again only to a client that comes with an id.
    assert sessions.find(session) == (news, 2)
    assert sessions.find(session, "news-1") == (news, 1)
    assert told(news.read(1, nothing)) == [two]


def test_news_wakes_its_readers() -> None:
    sessions = Kept()
    _, session = sessions.open()
    news, after = sessions.find(session)
    rung: list[int] = []
    news.read(after, lambda: rung.append(1))
    sessions.app.changes.publish(Change("prompts"))
    assert rung == [1]


def test_the_last_news_comes_before_the_end() -> None:
    sessions = Kept()
    _, session = sessions.open()
    news, after = sessions.find(session)
    reader = news.read(after, nothing)
    sessions.app.changes.publish(Change("tools"))
    sessions.app.changes.publish(Change("end"))
    sessions.collect(session, news)
    assert reader.is_over
    assert len(told(reader)) == 1


# ---- nothing lost, and nothing twice ------------------------------------------------

Sizes = st.integers(0, 60)
ACTIONS = st.one_of(
    st.tuples(st.just("add"), Sizes),
    st.tuples(st.just("take"), st.integers(0, 4)),
    st.tuples(st.just("lose"), st.integers(0, 4)),
    st.tuples(st.just("leave"), st.integers(0, 1)),
    st.tuples(st.just("end"), st.just(0)),
)


@given(st.lists(ACTIONS, max_size=60), st.sampled_from([0, 100, 10_000]))
@example([("add", 0), ("add", 0), ("take", 0)], 0)  # comes, and looks only later
def test_nothing_is_lost_and_nothing_comes_twice(
    actions: list[tuple[str, int]], kept: int
) -> None:
    """However a client comes and goes: what it saw is what was sent, in order, less what
    was too old to be kept when it came for it."""
    sessions = Kept(kept=kept)
    _, session = sessions.open()
    stream = sessions.stream(session)
    sizes: list[int] = []
    seen: list[int] = []
    old: list[StreamReader] = []
    reader: StreamReader | None = None
    has_come = False

    def oldest() -> int:
        """The number of the first event that must be there."""
        room, number = kept, len(sizes)
        for size in reversed(sizes):
            room -= size
            if room < 0 and number < len(sizes):
                break
            number -= 1
        return number + 1

    def see(limit: int | None = None, *, is_lost: bool = False) -> None:
        nonlocal reader, has_come
        if reader is None:
            has_come = True
            last = f"{stream.name}-{seen[-1]}" if seen else None
            headers: Mapping[str, str] = headers_of(last or f"{stream.name}-0")
            found = sessions.find_stream(session, headers)
            assert not isinstance(found, Send)
            reader = found[0].read(found[1], nothing)
        events = reader.take()
        count = 0
        while (limit is None or count < limit) and (event := next(events, None)):
            count += 1
            number = int(event.partition(b"\n")[0].rpartition(b"-")[2])
            following = seen[-1] + 1 if seen else 1
            # Only who comes back may have missed something, and nothing that is kept.
            assert following <= number <= max(following, oldest())
            assert number == following or has_come
            has_come = False
            if is_lost:
                return  # the connection broke off with it: the client never saw it
            seen.append(number)

    for action, number in actions:
        if action == "add" and not stream.is_over:
            message = said(len(sizes) + 1, number)
            stream.add(message)
            sizes.append(len(message))
        elif action == "take":
            see(number)
        elif action in ("lose", "leave"):
            if action == "lose":
                see(1, is_lost=True)
            if reader is not None and number % 2:
                reader.leave()
            elif reader is not None:
                old.append(reader)  # its disconnect was not noticed
            reader = None
        elif action == "end":
            stream.end()
    see()
    for one in old:
        assert list(one.take()) == []
    assert seen == sorted(set(seen))
    if sizes:
        assert seen[-1:] == [len(sizes)]
    if kept == 10_000:
        assert seen == list(range(1, len(sizes) + 1))


def test_messages_being_read_are_not_dropped() -> None:
    stream = Stream("s", 10)
    reader = stream.read(0, lambda: None)
    for number in range(5):
        stream.add(b"x" * 10 + b"%d" % number)
    assert len(list(reader.take())) == 5
    stream.add(b"last")  # and now the others may go
    assert stream.after(0) == (6, b"last")


def test_a_question_is_not_dropped_while_no_client_reads() -> None:
    stream = Stream("s", 10)
    stream.add(b"news" * 5)
    stream.add(b"question" * 5, is_question=True)
    for _ in range(5):
        stream.add(b"news" * 5)
    found = list(stream.read(0, lambda: None).take())
    assert len(found) == 6
    assert b"question" in found[0]


# ---- shares -------------------------------------------------------------------------


def closed(*sessions: Session) -> list[bool]:
    return [one.is_closed for one in sessions]


def test_party_with_its_share_loses_its_own_longest_gone() -> None:
    sessions = Kept(sessions=4, share=0.5, resume=60)
    _, other = sessions.open(party="b")
    (_, first), (_, second) = (sessions.open(party="a") for _ in range(2))
    sessions.now = 60
    sessions.open(party="a")
    assert closed(other, first, second) == [False, True, False]
    # Clients that were gone for less than that may still return.
    sessions.admit(peer(sessions._by_session[second].id))
    assert sessions.keep(new_session(), "a") is None
    assert closed(other, second) == [False, False]


def test_client_within_its_resume_time_is_not_evicted() -> None:
    """A hundred clients that initialize a session and leave end no other session."""
    sessions = Kept(sessions=3, resume=60)
    held = [sessions.open(party=f"{n}")[1] for n in range(3)]
    sessions.now = 59.9
    assert all(sessions.keep(new_session(), "late") is None for _ in range(100))
    assert closed(*held) == [False] * 3
    sessions.now = 60
    assert sessions.keep(new_session(), "late") is not None
    assert closed(*held) == [True, False, False]


def test_session_with_an_open_stream_is_never_evicted() -> None:
    sessions = Kept(sessions=1, resume=60, idle=1800)
    _, session = sessions.open()
    sessions.reading(session, +1)
    sessions.now = 100_000
    assert sessions.keep(new_session()) is None
    sessions.reading(session, -1)
    assert sessions.keep(new_session()) is None
    sessions.now += 60
    assert sessions.keep(new_session()) is not None
    assert session.is_closed


def test_session_that_was_refused_leaves_nothing() -> None:
    sessions = Kept(sessions=1)
    sessions.open()
    for _ in range(3):
        assert sessions.keep(new_session()) is None
    assert len(sessions) == sessions._count.count == 1
    assert len(sessions.app.changes._listeners) == 1


def test_requests_of_all_sessions_are_limited() -> None:
    """Requests continue without their clients, so each session could leave some."""
    sessions = Kept(running=4, share=0.5)
    (_, first), (_, second), (_, other) = (sessions.open(party=one) for one in "aab")
    running = [first.begin(1), second.begin(1)]
    with pytest.raises(ProtocolError, match="too many requests are running"):
        first.begin(2)
    other.begin(1)
    first.ended(running[0])
    first.ended(running[0])
    assert second.begin(2).id == 2
    with pytest.raises(ProtocolError, match="too many requests are running"):
        first.begin(3)


def answered(sessions: Kept, session: Session, size: int, *, reads: bool) -> str:
    """Return an event id to resume from, of a stream whose answer was written or not."""
    stream = sessions.stream(session)
    reader = stream.read(0, nothing)
    stream.add(said(1))
    if reads:
        stream.end(said(2, size))
        assert numbers(reader) == [f"{stream.name}-1", f"{stream.name}-2"]
    reader.leave(is_done=reads)
    stream.end(said(2, size))
    return f"{stream.name}-0"


@pytest.mark.parametrize("reads", [True, False])
@pytest.mark.parametrize("size", [50, 200])
def test_answer_is_kept_while_it_may_be_needed(reads: bool, size: int) -> None:
    """After it was written, a small answer is kept for the resume time. Unread, a small
    answer is kept as long as the session, and a large answer for the resume time.
    """
    sessions = Kept(kept=100, resume=60, idle=1800)
    _, session = sessions.open()
    last = answered(sessions, session, size, reads=reads)
    if reads and size > 100:
        assert sessions.status(session, last) == 400  # written, and too large
    else:
        stream, _ = sessions.find(session, last)
        assert numbers(stream.read(0, nothing))[-1].endswith("-2")
        stream.read(0, nothing).leave()
    sessions.now = 61
    sessions.sweep()
    if reads or size > 100:
        assert sessions.status(session, last) == 400
        assert sessions._budget.size == 0
    else:
        assert numbers(sessions.find(session, last)[0].read(0, nothing))


def test_sweep_returns_in_time_for_the_next_answer() -> None:
    sessions = Kept(resume=60, idle=1800)
    _, session = sessions.open()
    sessions.now = 10
    answered(sessions, session, 50, reads=True)
    sessions.now = 20
    assert sessions.sweep() == 50


def test_answer_that_is_being_read_again_stays() -> None:
    sessions = Kept(kept=100, resume=60)
    _, session = sessions.open()
    last = answered(sessions, session, 50, reads=True)
    stream, _ = sessions.find(session, last)
    reader = stream.read(0, nothing)
    sessions.now = 61
    sessions.sweep()
    assert len(numbers(reader)) == 2


def test_streams_of_all_sessions_share_a_budget() -> None:
    sessions = Kept(held=1_000, share=0.5, kept=10_000)
    (_, first), (_, second), (_, other) = (sessions.open(party=one) for one in "aab")
    streams = [sessions.stream(one) for one in (first, second, other)]
    for stream in streams:
        stream.add(said(1, 300))
    assert [one.is_lost for one in streams] == [True, False, False]
    assert sessions.status(first, "1-0") == 400
    assert numbers(streams[0].read(0, nothing)) == []
    assert sessions._budget.size == 600


def test_written_streams_are_lost_before_running_ones() -> None:
    """Otherwise a client with many finished calls would lose the one that runs."""
    sessions = Kept(held=1_000, kept=10_000)
    _, session = sessions.open()
    running = sessions.stream(session)
    running.add(said(1, 20))
    last = answered(sessions, session, 500, reads=True)
    sessions.stream(session).add(said(1, 600))
    assert not running.is_lost
    assert sessions.status(session, last) == 400


def test_stream_that_is_lost_wakes_its_reader() -> None:
    sessions = Kept(held=100, kept=10_000)
    _, session = sessions.open()
    rung: list[str] = []
    stream = sessions.stream(session)
    reader = stream.read(0, lambda: rung.append("rung"))
    stream.add(said(1, 90))
    sessions.stream(session).add(said(1, 90))
    assert rung == ["rung", "rung"]
    assert is_over(reader)
    stream.add(said(2))
    assert numbers(reader) == []


def test_stream_without_room_is_lost() -> None:
    sessions = Kept(held=100, kept=10_000)
    _, session = sessions.open()
    stream = sessions.stream(session)
    stream.add(said(1, 60))
    assert stream._holding is not None
    stream._holding.settle()
    other = sessions.stream(session)
    other.add(said(1, 60))
    assert (stream.is_lost, other.is_lost) == (False, True)


def test_trimmed_messages_are_counted_no_more() -> None:
    sessions = Kept(held=1_000, kept=100)
    _, session = sessions.open()
    stream = sessions.stream(session)
    for number in range(10):
        stream.add(said(number, 40))
    assert sessions._budget.size == 80


def test_a_small_message_in_place_of_a_large_one_frees_the_rest() -> None:
    sessions = Kept(held=1_000, kept=100)
    _, session = sessions.open()
    stream = sessions.stream(session)
    stream.add(said(1, 90))
    stream.add(said(2, 20))
    assert sessions._budget.size == 20


def test_session_that_ends_frees_its_streams() -> None:
    sessions = Kept()
    _, session = sessions.open()
    unread, read = sessions.stream(session), sessions.stream(session)
    reader = read.read(0, nothing)
    for stream in (unread, read):
        stream.add(said(1, 40))
    sessions.close(session)
    assert sessions._budget.size == 40
    assert numbers(reader) == ["2-1"]
    reader.leave(is_done=True)
    assert sessions._budget.size == 0
    sessions.answered(session, read)  # the session has ended


def test_answer_that_was_not_an_event_is_dropped() -> None:
    sessions = Kept()
    _, session = sessions.open()
    stream = sessions.stream(session)
    stream.end(b"{}")
    sessions.answered(session, stream)
    assert sessions._budget.size == 0
    assert sessions.status(session, "1-0") == 400
