"""One request and its answer, step by step: no host, no loop, no clock."""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import attrs
import pytest
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from effectmcp.auth.api_keys import APIKeys, key_line
from effectmcp.drivers import turns
from effectmcp.drivers.sync import running
from effectmcp.exchange.commands import Peer, Reply
from effectmcp.exchange.sessions import Session
from effectmcp.exchange.shares import Budget, Shares
from effectmcp.protocol.authorization import RESOURCE_METADATA
from effectmcp.protocol.jsonrpc import Request
from effectmcp.protocol.legacy import Hello
from effectmcp.protocol.revisions import HANDSHAKES
from effectmcp.server import Event, HttpRefused, Server
from effectmcp.server.identity import ANONYMOUS, CredentialsError, Identity
from effectmcp.transports import conversation
from effectmcp.transports.conversation import (
    Begin,
    Conversation,
    Endpoint,
    Identify,
    Read,
    Receive,
    judge,
    tell_refusal,
)
from effectmcp.transports.web import PIECE, Head, Send, Site, length_of

from ..legacy_client import NEWEST
from .test_sessions import Kept, new_session

PAGE = "http://localhost:6274"
RESULT = {"jsonrpc": "2.0", "id": 1, "result": {}}
FIELDS = {
    "Host": "localhost",
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
    "Origin": PAGE,
}


@define
class Table:
    """An endpoint, and the clock of its sessions."""

    sessions: Kept = field(factory=Kept)
    options: dict[str, Any] = field(factory=dict)
    now: float = 0.0

    def talk(
        self,
        method: str = "POST",
        *,
        find: Callable[[], Any] | None = None,
        site: Site | None = None,
        auth: object = None,
        **headers: str,
    ) -> Conversation:
        named = {key.replace("_", "-"): one for key, one in headers.items()}
        self.sessions.app.auth = auth
        endpoint = Endpoint(
            app=self.sessions.app,
            site=Site() if site is None else site,
            **{"sessions": self.sessions, **self.options},
        )
        head = Head(method, "/mcp", {**FIELDS, **named}.items(), "127.0.0.1")
        return Conversation(endpoint, head, clock=lambda: self.now, find=find)

    def begun(self) -> Conversation:
        """A request whose exchange has started."""
        talk = self.talk()
        assert isinstance(talk.judge(), Receive)
        talk.body(b"{}")
        return talk

    def session(self) -> tuple[str, Session]:
        return self.sessions.open()


def message_of(answer: object) -> str:
    assert isinstance(answer, Send)
    assert dict(answer.headers)["Content-Type"] == "application/json"
    found: str = json.loads(answer.data)["error"]["message"]
    return found


def status_of(answer: object) -> int | None:
    assert isinstance(answer, Send)
    assert answer.is_last
    return answer.status


# ---- the request --------------------------------------------------------------------


def test_a_body_is_read_and_its_exchange_starts() -> None:
    talk = Table(options={"sessions": None}).talk()
    assert talk.judge() == Receive()
    begin = talk.body(b"{}")
    assert isinstance(begin, Begin)
    assert begin.message == b"{}"
    assert begin.peer.principal is None
    assert begin.peer.headers is not None
    assert begin.peer.headers["origin"] == PAGE


def test_a_body_with_too_large_a_declared_length_is_not_read() -> None:
    site = Site(max_body=4000)
    for length in ("4001", "9" * 4000):
        answer = Table().talk(site=site, content_length=length).judge()
        assert status_of(answer) == 413
        assert "4,000 bytes" in message_of(answer)
    assert Table().talk(site=site, content_length="4000").judge() == Receive()


def test_a_body_that_turns_out_too_long() -> None:
    talk = Table().talk(site=Site(max_body=4000))
    assert isinstance(talk.judge(), Receive)
    assert talk.part(bytes(4000)) is None
    assert status_of(talk.part(b"x")) == 413


def test_a_length_that_is_not_a_number() -> None:
    answer = Table().talk(content_length="many").judge()
    assert (status_of(answer), message_of(answer)) == (
        400,
        "Invalid request: Content-Length is a number",
    )


def test_a_host_that_needs_the_length() -> None:
    table = Table(options={"needs_length": True})
    assert status_of(table.talk().judge()) == 411
    assert isinstance(table.talk(content_length="0").judge(), Receive)


# ---- who asks -----------------------------------------------------------------------


def test_a_hook_identifies_the_client() -> None:
    talk = Table().talk(auth=lambda headers: headers["x-user"], x_user="ann")
    step = talk.judge()
    assert isinstance(step, Identify)
    assert isinstance(talk.identified(step.find()), Receive)
    begin = talk.body()
    assert isinstance(begin, Begin)
    assert begin.peer.principal == "ann"


def test_a_hook_gets_headers_of_its_own() -> None:
    """A connection keeps the parsed headers for its next request."""

    def take(headers: dict[str, str]) -> str:
        return headers.pop("x-user")

    talk = Table().talk(auth=take, x_user="ann")
    step = talk.judge()
    assert isinstance(step, Identify)
    assert [step.find(), step.find()] == ["ann", "ann"]


def test_an_error_of_the_system_is_not_shown_to_a_client() -> None:
    talk = Table().talk(auth=lambda headers: None)
    talk.judge()
    answer = talk.unidentified(PermissionError(13, "Permission denied", "/etc/secret"))
    assert answer.status == 500
    assert b"secret" not in answer.data


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
@pytest.mark.parametrize("rest", ["", "/mcp", "/mcp/", "-else"])
def test_a_path_of_documents_is_never_the_endpoint(method: str, rest: str) -> None:
    """A host routes it past what it puts before the endpoint, such as its own login."""
    head = Head(method, RESOURCE_METADATA + rest, FIELDS.items(), "127.0.0.1")
    endpoint = Endpoint(app=Server("shop"), site=Site(path=None))
    assert status_of(Conversation(endpoint, head).judge()) == 404


@pytest.mark.parametrize("name", ["anonymous", "ann"])
def test_a_hook_may_let_a_client_in_without_a_name(name: str) -> None:
    found: Any = ANONYMOUS if name == "anonymous" else name
    talk = Table().talk(auth=lambda headers: found)
    talk.judge()
    assert isinstance(talk.identified(found), Receive)
    begin = talk.body()
    assert isinstance(begin, Begin)
    assert begin.peer.principal == (None if found is ANONYMOUS else name)
    assert begin.peer.scopes == frozenset()  # and not `None`, which allows everything


def test_a_hook_that_returns_none_lets_no_client_in() -> None:
    """A hook that forgets `return` refuses; a host has let the client in itself."""
    talk = Table().talk(auth=lambda headers: None)
    talk.judge()
    answer = talk.identified(None)
    assert status_of(answer) == 401
    assert message_of(answer) == "Invalid request: who are you?"
    talk = Table().talk(find=lambda: None, auth=lambda headers: "ann")
    talk.judge()
    assert isinstance(talk.identified(None), Receive)


def test_an_identity_of_the_host_has_its_scopes() -> None:
    ann = Identity(subject="ann", issuer="https://idp.example", scopes=frozenset({"a"}))
    talk = Table().talk(find=lambda: ann)
    talk.judge()
    talk.identified(ann)
    begin = talk.body()
    assert isinstance(begin, Begin)
    assert begin.peer.identity is ann
    assert begin.peer.scopes == frozenset({"a"})
    assert begin.peer.principal == "https://idp.example ann"


@pytest.mark.parametrize("found", [7, "", True])
def test_a_hook_that_returns_something_else_is_a_fault(
    found: Any, caplog: pytest.LogCaptureFixture
) -> None:
    talk = Table().talk(auth=lambda headers: found)
    talk.judge()
    assert status_of(talk.identified(found)) == 500
    assert "an authenticator returned" in caplog.text


KEYS_OF_ANN = APIKeys([key_line("ann", "emcp_ann", ["a"])])


def test_a_check_without_the_authors_code_is_done_at_once() -> None:
    """No step, and no turn of the loop: it looks up what the process knows."""
    talk = Table().talk(auth=KEYS_OF_ANN, authorization="Bearer emcp_ann")
    assert isinstance(talk.judge(), Receive)
    begin = talk.body()
    assert isinstance(begin, Begin)
    assert (begin.peer.principal, begin.peer.scopes) == ("ann", frozenset({"a"}))


@pytest.mark.parametrize(
    ("authorization", "challenge"),
    [
        (None, "Bearer"),
        ("Bearer emcp_bob", 'Bearer error="invalid_token"'),
        ("Basic YTpi", "Bearer"),
    ],
)
def test_an_unknown_key(authorization: str | None, challenge: str) -> None:
    headers: dict[str, Any] = {}
    if authorization is not None:
        headers["authorization"] = authorization
    answer = Table().talk(auth=KEYS_OF_ANN, **headers).judge()
    assert status_of(answer) == 401
    assert isinstance(answer, Send)
    assert ("WWW-Authenticate", challenge) in answer.headers
    assert ("Access-Control-Allow-Origin", PAGE) in answer.headers


def test_one_of_several_authenticators_judges() -> None:
    """The keys know theirs, and the function gets all the rest."""

    def find(headers: Any) -> str:
        return "by the function"

    table, both = Table(), [KEYS_OF_ANN, find]
    for authorization, user in [
        ("Bearer emcp_ann", "ann"),
        ("Bearer else", "by the function"),
    ]:
        talk = table.talk(auth=both, authorization=authorization)
        step = talk.judge()
        assert isinstance(step, Identify)
        talk.identified(step.find())
        begin = talk.body()
        assert isinstance(begin, Begin)
        assert begin.peer.principal == user


@pytest.mark.parametrize(
    ("error", "status", "fields", "words"),
    [
        (
            CredentialsError("a secret"),
            401,
            {"WWW-Authenticate": 'Bearer error="invalid_token"'},
            "who are you?",
        ),
        (
            CredentialsError("a secret", error=None),
            401,
            {"WWW-Authenticate": "Bearer"},
            "who are you?",
        ),
        (
            CredentialsError(
                "a secret",
                error="insufficient_scope",
                status=403,
                scopes=frozenset({"b", "a"}),
            ),
            403,
            {"WWW-Authenticate": 'Bearer error="insufficient_scope", scope="a b"'},
            "your token does not allow this; it needs a b",
        ),
        (
            CredentialsError("a secret", error=None, status=503),
            503,
            {"Retry-After": "5"},
            "authentication is not possible now; come back later",
        ),
    ],
)
@pytest.mark.parametrize("by", ["the host", "the server"])
def test_refused_credentials(
    error: CredentialsError,
    status: int,
    fields: dict[str, str],
    words: str,
    by: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The client learns the code; the log has the reason."""
    caplog.set_level(logging.DEBUG, "effectmcp.server")
    options: dict[str, Any] = (
        {"find": len} if by == "the host" else {"auth": lambda headers: None}
    )
    talk = Table().talk(**options)
    assert isinstance(talk.judge(), Identify)
    answer = talk.unidentified(error)
    assert (status_of(answer), message_of(answer)) == (
        status,
        f"Invalid request: {words}",
    )
    found = dict(answer.headers)
    assert {name: found.get(name) for name in ("WWW-Authenticate", "Retry-After")} == {
        "WWW-Authenticate": None,
        "Retry-After": None,
        **fields,
    }
    assert b"secret" not in answer.data
    assert "a client was refused: a secret" in caplog.text


@pytest.mark.parametrize("has_gate", [False, True])
def test_reply_that_needs_scopes_names_them(has_gate: bool) -> None:
    """All at once (2026-07-28, Runtime Insufficient Scope Errors)."""
    talk = Table().talk(
        auth=KEYS_OF_ANN if has_gate else None, authorization="Bearer emcp_ann"
    )
    assert isinstance(talk.judge(), Receive)
    talk.body(b"{}")
    answer = talk.reply(Reply(RESULT, 403, needs=frozenset({"b", "a"})))
    assert status_of(answer) == 403
    assert dict(answer.headers)["WWW-Authenticate"] == (
        'Bearer error="insufficient_scope", scope="a b"'
    )


def test_a_host_that_knows_already_is_asked_instead() -> None:

    def asked(headers: Any) -> str:
        pytest.fail("it was asked")

    step = Table().talk(auth=asked, find=lambda: "bob").judge()
    assert isinstance(step, Identify)
    assert step.find() == "bob"


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (PermissionError(), 401, "who are you?"),
        (PermissionError("expired"), 401, "expired"),
        (LookupError("a bug"), 500, "authentication failed in the server"),
    ],
)
def test_failed_authentication_by_the_host(
    error: Exception, status: int, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    talk = Table().talk(find=lambda: None)
    talk.judge()
    answer = talk.unidentified(error)
    assert (status_of(answer), message_of(answer)) == (
        status,
        f"Invalid request: {message}",
    )
    assert (("WWW-Authenticate", "Bearer") in answer.headers) is (status == 401)
    assert ("a bug" in caplog.text) is (status == 500)
    caplog.clear()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Length": "x"}, 400),
        ({"Mcp-Session-Id": "unknown"}, 404),
    ],
)
def test_observers_receive_refusals(headers: dict[str, str], status: int) -> None:
    table = Table()
    seen: list[Event] = []
    table.sessions.app.observers = (seen.append,)
    endpoint = Endpoint(app=table.sessions.app, site=Site(), sessions=table.sessions)
    asked = {**FIELDS, **headers}
    for address in ("10.0.0.9", None):
        head = Head("POST", "/mcp", asked.items(), "127.0.0.1", address)
        assert status_of(Conversation(endpoint, head).judge()) == status
        assert seen.pop() == HttpRefused(status=status, address=address)


@pytest.mark.parametrize(
    ("forwarded", "is_dict", "address"),
    [
        (["203.0.113.9"], True, "203.0.113.9"),
        (["203.0.113.9"], False, "203.0.113.9"),
        ([], False, None),
    ],
)
def test_refusals_behind_a_proxy_have_the_address_of_the_client(
    forwarded: list[str], is_dict: bool, address: str | None
) -> None:
    table = Table()
    seen: list[Event] = []
    table.sessions.app.observers = (seen.append,)
    endpoint = Endpoint(app=table.sessions.app, site=Site(proxies=["10.0.0.7"]))
    fields = [("host", "x"), *(("x-forwarded-for", one) for one in forwarded)]
    headers: Any = dict(fields) if is_dict else fields
    head = Head("POST", "/none", headers, None, "10.0.0.7")
    assert status_of(Conversation(endpoint, head).judge()) == 404
    assert seen == [HttpRefused(status=404, address=address)]


def test_refusals_of_repeated_headers() -> None:
    table = Table()
    seen: list[Event] = []
    table.sessions.app.observers = (seen.append,)
    endpoint = Endpoint(app=table.sessions.app, site=Site(proxies=["10.0.0.7"]))
    fields = [("host", "x"), ("host", "y"), ("x-forwarded-for", "203.0.113.9")]
    head = Head("POST", "/mcp", fields, None, "10.0.0.7")
    assert status_of(Conversation(endpoint, head).judge()) == 400
    assert seen == [HttpRefused(status=400, address=None)]


def test_observers_receive_no_refusals_of_probes() -> None:
    table = Table()
    seen: list[Event] = []
    table.sessions.app.observers = (seen.append,)
    endpoint = Endpoint(app=table.sessions.app, site=Site())
    endpoint.readiness.is_draining = True
    for method, status in (("POST", 405), ("GET", 503)):
        head = Head(method, "/readyz", (), None, "10.0.0.9")
        assert status_of(Conversation(endpoint, head).judge()) == status
    assert seen == []


def test_a_refusal_whose_request_is_not_known() -> None:
    table = Table()
    seen: list[Event] = []
    table.sessions.app.observers = (seen.append,)
    endpoint = Endpoint(app=table.sessions.app, site=Site())
    tell_refusal(endpoint, Send(400), None)
    assert seen == [HttpRefused(status=400, address=None)]


def test_observers_receive_no_other_answers() -> None:
    table = Table()
    seen: list[Event] = []
    table.sessions.app.observers = (seen.append,)
    head = table.talk().judge()
    assert isinstance(head, Receive)
    assert status_of(table.talk("OPTIONS").judge()) == 204
    refused = judge(
        Endpoint(app=table.sessions.app, site=Site()), Head("POST", "/x", (), None)
    )
    assert isinstance(refused, Send)
    told = Conversation(Endpoint(app=table.sessions.app, site=Site()), refused).judge()
    assert (status_of(told), seen) == (404, [])


# ---- sessions -----------------------------------------------------------------------


def test_a_page_may_read_that_its_session_is_gone() -> None:
    answer = Table().talk(mcp_session_id="unknown").judge()
    assert isinstance(answer, Send)
    assert answer.status == 404
    assert ("Access-Control-Allow-Origin", PAGE) in answer.headers


def test_a_session_is_opened_by_a_reply() -> None:
    table = Table()
    opened = Session(HANDSHAKES[NEWEST], Hello(NEWEST, {}, None), None)
    answer = table.begun().reply(Reply(RESULT, opened=opened))
    id_ = dict(answer.headers)["Mcp-Session-Id"]
    assert isinstance(table.talk(mcp_session_id=id_).judge(), Receive)


def test_a_reply_opens_no_session_where_none_are_kept() -> None:
    table = Table(options={"sessions": None})
    opened = Session(HANDSHAKES[NEWEST], Hello(NEWEST, {}, None), None)
    answer = table.begun().reply(Reply(RESULT, opened=opened))
    assert "Mcp-Session-Id" not in dict(answer.headers)


def test_a_session_is_ended_with_delete() -> None:
    table = Table()
    id_, session = table.session()
    answer = table.talk("DELETE", mcp_session_id=id_).judge()
    assert status_of(answer) == 204
    assert isinstance(answer, Send)
    assert length_of(answer) == ()
    assert session.is_closed


def test_a_session_reads_its_news_with_get() -> None:
    table = Table()
    id_, session = table.session()
    step = table.talk("GET", mcp_session_id=id_).judge()
    assert isinstance(step, Read)
    assert (step.session, step.stream.name, step.after) == (session, "news", 0)


def test_a_place_that_is_forgotten() -> None:
    table = Table()
    id_, _ = table.session()
    talk = table.talk("GET", mcp_session_id=id_, last_event_id="1-7")
    assert status_of(talk.judge()) == 400


def test_a_host_without_streams() -> None:
    table = Table(options={"has_streams": False})
    id_, _ = table.session()
    answer = table.talk("GET", mcp_session_id=id_).judge()
    assert isinstance(answer, Send)
    assert answer.status == 405
    assert ("Allow", "POST") in answer.headers


def test_a_request_of_a_session_gets_a_stream_when_it_waits() -> None:
    table = Table()
    id_, session = table.session()
    talk = table.talk(mcp_session_id=id_)
    talk.judge()
    begin = talk.body(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}')
    assert isinstance(begin, Begin)
    assert isinstance(begin.message, Request)
    assert begin.peer.session is session
    step = talk.waits(1)
    assert (step.session, step.after) == (session, 0)
    answer = talk.reply(Reply(None, body=b"{}"))
    assert (answer.status, answer.data) == (200, b"{}")


# ---- the answer ---------------------------------------------------------------------


def test_a_reply_is_one_json_object() -> None:
    answer = Table().begun().reply(Reply(RESULT))
    assert (answer.status, answer.is_last) == (200, True)
    assert json.loads(answer.data) == RESULT
    headers = dict((*answer.headers, *length_of(answer)))
    assert headers["Content-Type"] == "application/json"
    assert headers["Content-Length"] == str(len(answer.data))
    assert headers["Access-Control-Allow-Origin"] == PAGE


def test_a_notification_is_accepted_with_nothing() -> None:
    answer = Table().begun().reply(Reply(None, 202))
    assert (answer.status, answer.data, answer.is_last) == (202, b"", True)
    assert length_of(answer) == (("Content-Length", "0"),)


def test_an_answer_becomes_a_stream_with_its_first_event() -> None:
    talk = Table().begun()
    first = talk.notify({"method": "a"})
    assert (first.status, first.is_last) == (200, False)
    headers = dict(first.headers)
    assert headers["Content-Type"] == "text/event-stream"
    assert headers["Access-Control-Allow-Origin"] == PAGE
    assert length_of(first) == ()
    second = talk.notify({"method": "b"})
    assert (second.status, second.headers, second.is_last) == (None, (), False)
    last = talk.reply(Reply(RESULT))
    assert (last.status, last.is_last) == (None, True)
    assert last.data.startswith(b"event: message\ndata: ")


def test_a_request_that_was_cancelled_gets_no_response() -> None:
    talk = Table().begun()
    talk.notify({"method": "a"})
    assert talk.reply(Reply(None)) == Send(None)


def test_a_comment_comes_when_it_was_quiet_for_long() -> None:
    table = Table(options={"quiet": 15})
    talk = table.begun()
    assert talk.tick() is None
    talk.heard()
    assert (talk.quiet_until, talk.tick()) == (15, None)
    table.now = 15
    comment = talk.tick()
    assert comment is not None
    assert (comment.status, comment.data) == (200, b":\n\n")
    talk.heard()
    assert (talk.quiet_until, talk.tick()) == (30, None)
    table.now = 30
    assert talk.tick() == Send(None, (), b":\n\n", is_last=False)
    talk.reply(Reply(RESULT))
    assert talk.tick() is None


def test_a_stream_ends() -> None:
    talk = Table().begun()
    talk.event(b":\n\n")
    assert talk.end() == Send(None)
    empty = Table().begun().end()
    assert (empty.status, empty.data) == (200, b"")


def test_what_fails_is_answered_while_there_is_a_place_for_it() -> None:
    answer = Table().begun().fail()
    assert status_of(answer) == 500
    assert message_of(answer) == "Internal error"
    talk = Table().begun()
    talk.event(b":\n\n")
    assert talk.fail() is None
    assert talk.fail() is None


def test_a_reply_that_fails_on_its_way_breaks_the_stream_off() -> None:
    talk = Table().begun()
    talk.reply(Reply(RESULT))
    assert talk.fail() is None


def test_a_host_that_reports_nonsense_gets_an_assertion_error() -> None:
    talk = Table().begun()
    for told in (talk.judge, partial(talk.part, b""), talk.body):
        with pytest.raises(AssertionError):
            told()


def test_a_stranger_page_reads_no_refusal(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "effectmcp.server")
    answer = Table().talk(Origin="https://evil.example").judge()
    assert isinstance(answer, Send)
    assert answer.status == 403
    assert "Access-Control-Allow-Origin" not in dict(answer.headers)
    assert "evil.example" in caplog.text


TOLD = st.lists(st.sampled_from(["notify", "tick", "heard", "later"]), max_size=8)


@given(before=TOLD, end=st.sampled_from(["reply", "end", "fail"]))
def test_an_answer_begins_once_and_ends_once(before: list[str], end: str) -> None:
    """For any reports: one status, first; one end, last; a length or a stream."""
    table = Table(options={"quiet": 10})
    talk = table.begun()
    sent: list[Send | None] = []
    for told in before:
        if told == "notify":
            sent.append(talk.notify({"method": "a"}))
        elif told == "tick":
            sent.append(talk.tick())
        elif told == "heard":
            talk.heard()
        else:
            table.now += 6
    sent.append(talk.reply(Reply(RESULT)) if end == "reply" else getattr(talk, end)())
    sent += [talk.tick(), talk.fail()]
    parts = [one for one in sent if one is not None]
    assert [one.status is not None for one in parts] == [
        True,
        *[False] * (len(parts) - 1),
    ]
    lasts = [one.is_last for one in parts]
    is_broken = end == "fail" and len(parts) > 0 and not lasts[-1]
    assert lasts == [False] * (len(parts) - 1) + [not is_broken]
    assert (length_of(parts[0]) != ()) is parts[0].is_last


# ---- limits -------------------------------------------------------------------------

MIB = 1024 * 1024


@define
class Bodies:
    """Requests of one endpoint, whose bodies are counted."""

    table: Table = field(factory=Table)
    site: Site = Site(bodies=4 * MIB, share=0.5)

    def __attrs_post_init__(self) -> None:
        self.table.options["bodies"] = Budget(self.site.bodies, self.site.share)

    @property
    def budget(self) -> Budget:
        found: Budget = self.table.options["bodies"]
        return found

    def talk(self, address: str = "192.0.2.1") -> Conversation:
        site = attrs.evolve(self.site, proxies=["unix"])
        talk = self.table.talk(site=site, x_forwarded_for=address)
        assert isinstance(talk.judge(), Receive)
        return talk


def test_small_body_is_not_counted() -> None:
    bodies = Bodies()
    talk = bodies.talk()
    assert talk.part(bytes(16 * 1024)) is None
    assert talk.holding is None
    assert talk.part(b"x") is None
    assert bodies.budget.size == 16 * 1024 + 1
    talk.close()
    assert bodies.budget.size == 0


def test_unfinished_bodies_of_one_client_give_way() -> None:
    """The slowest first: it learns that at its next part, or at its end."""
    bodies = Bodies()
    first, second, third = (bodies.talk() for _ in range(3))
    other = bodies.talk("192.0.2.2")
    for talk in (other, first, second, third):
        assert talk.part(bytes(MIB)) is None
    assert bodies.budget.size == 3 * MIB
    refused = first.part(b"more")
    assert status_of(refused) == 503
    assert isinstance(refused, Send)
    assert dict(refused.headers)["Retry-After"] == "5"
    assert "too many large requests" in message_of(refused)
    assert isinstance(other.body(), Begin)
    assert isinstance(second.body(), Begin)


def test_body_that_gave_way_is_not_taken_for_an_empty_one() -> None:
    bodies = Bodies()
    first, *others = (bodies.talk() for _ in range(3))
    assert first.part(b"{" + bytes(MIB)) is None
    for talk in others:
        assert talk.part(bytes(MIB)) is None
    assert status_of(first.body()) == 503


def test_bodies_that_are_being_answered_do_not_give_way(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bodies = Bodies()
    answering = [bodies.talk() for _ in range(2)]
    for talk in answering:
        assert isinstance(talk.body(bytes(MIB)), Begin)
    assert status_of(bodies.talk().part(bytes(MIB))) == 503
    assert (
        "the server holds too many large requests; 192.0.2.1 was refused" in caplog.text
    )
    assert bodies.talk("192.0.2.2").part(bytes(MIB)) is None
    answering[0].close()
    assert bodies.talk().part(bytes(MIB)) is None


def test_body_is_counted_while_its_call_runs_on() -> None:
    bodies = Bodies()
    talk = bodies.talk()
    talk.body(bytes(MIB))
    holding = talk.hand_over()
    talk.close()
    assert holding is not None
    assert bodies.budget.size == MIB
    holding.close()
    assert bodies.budget.size == 0


def test_too_many_sessions() -> None:
    table = Table(sessions=Kept(sessions=1))
    table.sessions.open()
    answer = table.begun().reply(Reply(RESULT, opened=new_session()))
    assert status_of(answer) == 503
    assert dict(answer.headers)["Retry-After"] == "5"
    assert "Mcp-Session-Id" not in dict(answer.headers)


def test_reply_of_a_busy_server_says_when_to_return() -> None:
    answer = Table().begun().reply(Reply(RESULT, 503))
    assert dict(answer.headers)["Retry-After"] == "5"


def test_party_before_the_user_is_known() -> None:
    talk = Table().talk()
    assert talk.party is None
    talk.judge()
    assert talk.party is None  # the table's head has no address
    head = Head("POST", "/mcp", FIELDS.items(), "127.0.0.1", "192.0.2.1")
    endpoint = Endpoint(app=Server("shop", auth=lambda headers: "ann"), site=Site())
    talk = Conversation(endpoint, head)
    assert isinstance(talk.judge(), Identify)
    assert talk.party == "192.0.2.1"
    talk.identified("ann")
    assert talk.party == "user ann"


@pytest.mark.parametrize("has_pieces", [False, True])
def test_large_answer_in_pieces(has_pieces: bool) -> None:
    """Only for a host that sends pieces: no other may lose the rest."""
    table = Table(options={"has_pieces": has_pieces})
    text = "x" * (3 * PIECE)
    answer = table.begun().reply(Reply({**RESULT, "result": {"text": text}}))
    data = b"".join([answer.data, *(answer.more or ())])
    assert (answer.more is not None) is has_pieces
    assert json.loads(data)["result"]["text"] == text
    assert answer.length == len(data)
    assert dict(length_of(answer))["Content-Length"] == str(len(data))
    talk = table.begun()
    talk.event(b":\n\n")
    last = talk.reply(Reply({**RESULT, "result": {"text": text}}))
    assert last.is_last
    assert (last.more is not None) is has_pieces
    assert text.encode() in b"".join([last.data, *(last.more or ())])


def test_unread_pieces_give_way() -> None:
    table = Table(options={"unsent": Budget(4 * MIB, 0.5)})
    talk = table.begun()
    first, second = (deque([bytes(MIB)] * 2) for _ in range(2))
    dropped: list[str] = []
    with (
        talk.holding_unsent(first, lambda: dropped.append("first")) as holding,
        talk.holding_unsent(second),
    ):
        assert not dropped
        with talk.holding_unsent(deque([bytes(MIB)])) as third:
            assert (len(first), len(second), dropped) == (0, 2, ["first"])
            assert holding.is_closed
            third.remove(MIB)
    assert talk.endpoint.unsent.size == 0


def test_unread_pieces_without_room_are_dropped() -> None:
    table = Table(options={"unsent": Budget(MIB, 1)})
    settled = table.options["unsent"].open("other", lambda: None)
    assert settled.add(MIB)
    assert settled.settle()
    more = deque([bytes(MIB)])
    with table.begun().holding_unsent(more) as holding:
        assert holding.is_closed
        assert not more


def test_requests_through_a_proxy_have_places() -> None:
    """The proxy's connections have no share, so each request is counted."""
    table = Table(options={"places": Shares(4, 0.5)})
    site = Site(proxies=["unix"])

    def begun(address: str) -> tuple[Conversation, object]:
        talk = table.talk(site=site, x_forwarded_for=address)
        assert isinstance(talk.judge(), Receive)
        return talk, talk.body(b"{}")

    first, *others = [begun("192.0.2.1") for _ in range(3)]
    assert [isinstance(step, Begin) for _, step in (first, *others)] == [
        *(True, True, False)
    ]
    assert status_of(others[-1][1]) == 503
    assert isinstance(begun("192.0.2.2")[1], Begin)
    first[0].close()
    first[0].close()
    assert isinstance(begun("192.0.2.1")[1], Begin)


def test_stream_through_a_proxy_has_a_place() -> None:
    table = Table(options={"places": Shares(1)})
    id_, _ = table.sessions.open()

    def reading() -> tuple[Conversation, object]:
        site = Site(proxies=["unix"])
        talk = table.talk(
            "GET", site=site, mcp_session_id=id_, x_forwarded_for="192.0.2.1"
        )
        return talk, talk.judge()

    talk, step = reading()
    assert isinstance(step, Read)
    assert status_of(reading()[1]) == 503
    talk.close()
    assert isinstance(reading()[1], Read)


def test_long_message_of_a_session_marks_its_party(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    noted: list[Peer] = []
    monkeypatch.setattr(conversation, "LONG", 0.0)
    monkeypatch.setattr(turns.TURNS, "note", lambda peer, took: noted.append(peer))
    table = Table()
    id_, session = table.sessions.open()
    talk = table.talk(mcp_session_id=id_)
    talk.judge()
    talk.body(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}')
    assert [one.session for one in noted] == [session]


def test_whole_body_that_came_with_the_head() -> None:
    bodies = Bodies()
    head = Head("POST", "/mcp", {**FIELDS, "content-length": "40000"}.items())
    endpoint = Endpoint(
        app=bodies.table.sessions.app, site=bodies.site, bodies=bodies.budget
    )
    talk = Conversation(endpoint, head, data=bytes(40_000))
    assert isinstance(talk.judge(), Begin)
    assert bodies.budget.size == 40_000


def test_whole_body_that_is_too_large() -> None:
    talk = Table().talk(site=Site(max_body=4000))
    talk.judge()
    assert status_of(talk.body(bytes(4001))) == 413


# ---- probes -------------------------------------------------------------------------


def probed(
    method: str,
    path: str,
    status: str = "ready",
    site: Site = Site(),  # noqa: B008  # frozen
) -> Send:
    """Ask as a balancer may: by an address, without any header."""

    @contextmanager
    def lifespan(app: Server) -> Iterator[None]:
        yield

    app = Server("shop", lifespan=lifespan)
    endpoint = Endpoint(app=app, site=site)
    endpoint.readiness.is_draining = status == "draining"
    with ExitStack() as stack:
        if status != "starting":
            stack.enter_context(running(app))
        talk = Conversation(endpoint, Head(method, path, [], "127.0.0.1", "10.0.0.1"))
        answer = talk.judge()
    assert isinstance(answer, Send)
    return answer


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(
    ("path", "when", "status", "body"),
    [
        ("/healthz", "starting", 200, b"ok\n"),
        ("/healthz", "ready", 200, b"ok\n"),
        ("/healthz", "draining", 200, b"ok\n"),
        ("/readyz", "starting", 503, b"starting\n"),
        ("/readyz", "ready", 200, b"ok\n"),
        ("/readyz", "draining", 503, b"draining\n"),
    ],
)
def test_probe(method: str, path: str, when: str, status: int, body: bytes) -> None:
    answer = probed(method, path, when)
    fields = dict(answer.headers)
    assert answer.status == status
    assert answer.data == (body if method == "GET" else b"")
    assert fields.pop("Content-Length", None) == (
        None if method == "GET" else str(len(body))
    )
    assert fields == {"Content-Type": "text/plain", "Cache-Control": "no-store"}


@pytest.mark.parametrize("method", ["POST", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_probe_by_another_method(method: str, path: str) -> None:
    answer = probed(method, path)
    assert (answer.status, answer.data) == (405, b"")
    assert ("Allow", "GET, HEAD") in answer.headers


def test_probe_has_no_user_and_no_log(caplog: pytest.LogCaptureFixture) -> None:
    """A foreign host and origin, two hosts, and a hook that lets no client pass."""

    def refuse(headers: Any) -> None:
        raise AssertionError

    caplog.set_level("DEBUG")
    endpoint = Endpoint(app=Server("shop", auth=refuse), site=Site())
    names = [("Host", "evil.example"), ("Host", "b"), ("Origin", "https://c.example")]
    head = Head("GET", "/readyz", names, "127.0.0.1")
    answer = Conversation(endpoint, head).judge()
    assert isinstance(answer, Send)
    assert answer.status == 200
    assert not any(name.startswith("Access-") for name, _ in answer.headers)
    assert not caplog.records


@pytest.mark.parametrize(
    ("site", "path", "status"),
    [
        (Site(probes=False), "/healthz", 403),
        (Site(path=None), "/readyz", 403),
        (Site(path="/healthz"), "/healthz", 403),
        (Site(path="/readyz/"), "/readyz", 403),
        (Site(path="/healthz"), "/readyz", 200),
        (Site(path="/"), "/healthz", 200),
        (Site(), "/healthz/", 403),
    ],
)
def test_paths_without_a_probe(site: Site, path: str, status: int) -> None:
    """The rules of every other request apply: this one has no host."""
    assert probed("GET", path, site=site).status == status
