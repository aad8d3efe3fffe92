"""Sessions alone: the corners that no single client reaches by itself."""

from __future__ import annotations

from effectmcp.exchange.sessions import News, Session
from effectmcp.protocol.jsonrpc import Response
from effectmcp.protocol.legacy import Hello
from effectmcp.protocol.revisions import HANDSHAKES


def made(left: list[str]) -> Session:
    """A session that notes each return of a place."""
    hello = Hello("", {}, None)
    return Session(HANDSHAKES["2025-11-25"], hello, leave=lambda: left.append("place"))


def test_request_gives_its_place_back_once() -> None:
    left: list[str] = []
    session = made(left)
    running = session.begin(1)
    session.ended(running)
    session.ended(running)
    assert left == ["place"]


def test_request_that_was_cancelled_before_the_loop_could_stop_it() -> None:
    stopped: list[str] = []
    session = made([])
    session.begin(1)
    session.cancel(1)
    session.stop_with(1, lambda: stopped.append("1"))
    assert stopped == ["1"]
    session.stop_with(1, None)
    session.stop_with(2, lambda: stopped.append("2"))  # it runs no more
    assert stopped == ["1"]


def test_resource_counts_once() -> None:
    news = News()
    news.subscribe("shop://news")
    news.subscribe("shop://news")
    assert news.uris == {"shop://news"}
    news.unsubscribe("shop://news")
    news.unsubscribe("shop://news")
    assert (news.uris, news._size) == (frozenset(), 0)


class Racing(frozenset[str]):
    """Scopes that another thread answers for, while this one compares them."""

    session: Session

    def __le__(self, other: object) -> bool:
        self.session._asked.clear()
        return True


def test_reply_that_two_threads_bring_counts_once() -> None:
    session = made([])
    running = session.begin(1)
    asking = session.ask(running, [(lambda id_: {"id": id_}, None)])
    (id_,) = asking.messages
    asking.needs = needs = Racing()
    needs.session = session
    reply = Response(id_, {"id": id_, "result": {}})
    assert not session.reply(reply, frozenset())
    assert asking.replies == {}
