"""A server of an earlier revision, made to look like one of this.

`Shaken` is a channel around a channel. Above it everything is as ever: a call is made in
rounds, and what is asked comes as the result of one. Below it there is one request that
goes on for all of them, and whose server sends requests of its own:

    above   tools/call ──→ input_required ──→ again, with the answers ──→ the result
    below   tools/call ──→ elicitation/create ──→ its response ─────────→ the result

So the same functions answer, errors are raised where they always are, and a call can be
taken a round at a time; only not in another process, as its state is here.
"""

from __future__ import annotations

import itertools
import logging
import math
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NoReturn

import anyio
from anyio.abc import TaskGroup
from attrs import define, field, frozen

from ..canonical import JSON
from ..errors import ProtocolError, StateError
from ..protocol.drafts import is_incomplete
from ..protocol.jsonrpc import (
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    error_message,
    notification,
)
from ..protocol.meta import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    LOG_LEVEL,
    SERVER_INFO,
    SUBSCRIPTION_ID,
)
from ..protocol.revisions import DRAFT, HANDSHAKES, PROTOCOL_VERSION
from .channels import Channel, ChannelError, Frame, Hear, SessionEnded
from .messages import Profile, belonging, result_of
from .rounds import MAY_ASK, ReplyError

if TYPE_CHECKING:
    from .questions import Answering

__all__ = ["Shaken"]

logger = logging.getLogger("effectmcp.client")

#: Seconds in which questions that are asked side by side come in, one after the other.
_TOGETHER: Final = 0.05

#: Seconds for the stream to begin on which a server speaks of its own accord: some send
#: no head before there is something to say.
_PATIENCE: Final = 1.0

#: Notifications that may wait for who goes on with a call.
_MOST_TOLD: Final = 1_000

#: How often one call may be repeated because pages had to be opened.
_MOST_PAGES: Final = 10

#: Pages to open first, says an old server, and then call again.
_PAGES_FIRST: Final = -32042

#: Of `_meta`, what belongs to the newer revisions.
_NEWER: Final = frozenset(
    {PROTOCOL_VERSION, CLIENT_INFO, CLIENT_CAPABILITIES, LOG_LEVEL}
)


@frozen
class _Question:
    id: Any
    request: Mapping[str, JSON]


@define(eq=False)
class _Call:
    """A request that is under way below.

    Attributes:
        may_ask: Whether questions can belong to it.
        token: What its progress is told under.
        scope: Cancels it.
        came: What came for it: questions, notifications, and its response or error.
        asked: The questions that were handed up and not answered, by their keys there.
        strays: Those that did not say whose they are.
    """

    may_ask: bool
    token: JSON
    scope: anyio.CancelScope
    send: Any
    came: Any
    asked: dict[str, _Question] = field(factory=dict)
    strays: list[Frame] = field(factory=list)


@frozen
class _Listener:
    hear: Hear
    wanted: Mapping[str, Any]

    @property
    def uris(self) -> list[str]:
        found: list[str] = self.wanted.get("resourceSubscriptions", [])
        return found

    def wants(self, told: Frame) -> bool:
        """Whether a change is among those; what is updated may be a part of a resource."""
        wanted = self.wanted.get(_CHANGES[str(told["method"])], False)
        return bool(wanted)


#: What changes are told by, and asked for, here and there.
_CHANGES: Final[Mapping[str, str]] = {
    "notifications/tools/list_changed": "toolsListChanged",
    "notifications/prompts/list_changed": "promptsListChanged",
    "notifications/resources/list_changed": "resourcesListChanged",
    "notifications/resources/updated": "resourceSubscriptions",
}


class Shaken:
    """A channel to a server that shakes hands.

    Args:
        channel: How to reach it.
        profile: What to say of this client.
        answering: Who answers what is asked outside of any call.
        group: For what goes on between two rounds.
        ids: For requests of its own.
        version: The revision to offer.
    """

    has_headers = False

    def __init__(
        self,
        channel: Channel,
        profile: Profile,
        answering: Answering,
        group: TaskGroup,
        ids: Callable[[], int],
        version: str,
    ) -> None:
        self._channel = channel
        self._profile = profile
        self._answering = answering
        self._group = group
        self._new_id = ids
        self._version = version
        self._welcome: Mapping[str, Any] = {}
        self._headers: Mapping[str, str] = {}
        self._is_shaken = False
        self._shaking = anyio.Lock()
        self._attending: anyio.CancelScope | None = None
        #: By what stands for their state above. The latest is the last.
        self._calls: dict[str, _Call] = {}
        self._keys = itertools.count(1)
        #: Those that hear of changes.
        self._listening: dict[Any, _Listener] = {}

    # ---- the handshake ----

    async def shake(self) -> None:
        """Shake hands.

        Raises:
            ProtocolError: The server refuses.
            ChannelError: It cannot be reached, or talks nonsense.
        """
        self._is_shaken = False
        if self._attending is not None:
            self._attending.cancel()
        params = {
            "protocolVersion": self._version,
            "capabilities": dict(self._profile.capabilities),
            "clientInfo": dict(self._profile.info),
        }
        message = self._request("initialize", params)
        welcome = _own_result(
            message, await self._channel.exchange(message, {}, self._heard)
        )
        version = welcome.get("protocolVersion")
        offered = {*HANDSHAKES, self._version}
        if not isinstance(version, str) or version not in offered:
            raise ChannelError(
                f"the server speaks {version!r:.80}, and this client does not"
            )
        self._welcome = welcome
        self._headers = {_VERSION: version}
        await self._channel.tell(
            notification("notifications/initialized", {}), self._headers
        )
        await self._attend()
        self._is_shaken = True
        await self._wish()

    async def _attend(self) -> None:
        """Have heard from now on what belongs to no request."""
        is_ready = anyio.Event()
        scope = self._attending = anyio.CancelScope()

        async def attend() -> None:
            with scope, suppress(ChannelError):
                await self._channel.attend(self._heard, self._headers, is_ready.set)
            is_ready.set()

        self._group.start_soon(attend)
        with anyio.move_on_after(_PATIENCE):
            await is_ready.wait()

    async def _wish(self) -> None:
        """Say what a session should know. One that does not is still one."""
        capabilities = self._welcome.get("capabilities")
        level = self._profile.log_level
        wishes = [
            ("resources/subscribe", {"uri": uri})
            for one in self._listening.values()
            for uri in one.uris
        ]
        if level is not None and isinstance(capabilities, dict):
            if "logging" in capabilities:
                wishes.append(("logging/setLevel", {"level": level}))
        for method, params in wishes:
            message = self._request(method, params)
            try:
                _own_result(
                    message,
                    await self._channel.exchange(message, self._headers, self._heard),
                )
            except (ProtocolError, ReplyError) as exc:
                logger.warning("the server refuses %s: %s", method, exc)

    def _request(self, method: str, params: Mapping[str, JSON]) -> dict[str, JSON]:
        id_ = self._new_id()
        return {"jsonrpc": "2.0", "id": id_, "method": method, "params": dict(params)}

    async def _session(self) -> Mapping[str, str]:
        """The headers of the session that there is, or else of a new one."""
        async with self._shaking:  # of requests side by side, one
            if not self._is_shaken:
                await self.shake()
            return self._headers

    async def _exchange(self, message: Frame, hear: Hear) -> Frame:
        """Send a request; once more where the session has ended meanwhile."""
        headers = await self._session()
        try:
            response = await self._channel.exchange(message, headers, hear)
        except SessionEnded:
            # Nothing was done: a server without the session cannot have begun
            # (2025-11-25, Session Management).
            logger.info("the session has ended; shaking hands again")
            if self._headers is headers:
                self._is_shaken = False
            message = {**message, "id": self._new_id()}
            headers = await self._session()
            response = await self._channel.exchange(message, headers, hear)
        return belonging(response, message["id"])

    # ---- what the server sends of its own accord ----

    async def _heard(self, told: Frame, call: _Call | None = None) -> None:
        """Something that came on a call's own stream, or on one that is nobody's."""
        asks = "id" in told
        if not asks and told["method"] in _CHANGES:
            return await self._changed(told)
        if not asks or told["method"] != "ping":
            is_stray = call is None
            call = call or self._call_of(told)
            if call is not None:
                if asks and is_stray:
                    call.strays.append(told)
                if not asks and call.send.statistics().current_buffer_used > _MOST_TOLD:
                    return  # nobody listens, and whoever reads must not wait for that
                with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                    await call.send.send(told)
                return
        if asks:
            self._group.start_soon(self._answer, told)

    def _call_of(self, told: Frame) -> _Call | None:
        """Whose it may be that does not come with a call's response."""
        params = told.get("params")
        token = params.get("progressToken") if isinstance(params, dict) else None
        for call in reversed(self._calls.values()):
            if "id" in told:
                is_its = call.may_ask
            else:
                is_its = token is None or token == call.token
            if is_its:
                return call
        return None

    async def _changed(self, told: Frame) -> None:
        params = told.get("params")
        params = params if isinstance(params, dict) else {}
        for id_, listener in tuple(self._listening.items()):
            if listener.wants(told):
                meta = {SUBSCRIPTION_ID: id_}
                await listener.hear({**told, "params": {**params, "_meta": meta}})

    async def _answer(self, question: Frame) -> None:
        """Answer what belongs to no call. Raises nothing."""
        id_, method = question["id"], str(question["method"])
        reply: dict[str, JSON] = {"jsonrpc": "2.0", "id": id_}
        try:
            if method == "ping":
                reply["result"] = {}
            else:
                asked = {"method": method, "params": question.get("params") or {}}
                reply["result"] = await self._answering.answer(method, asked)
        except Exception as exc:
            logger.warning("%.80s of the server was not answered: %s", method, exc)
            is_unknown = isinstance(exc, ReplyError)
            code = METHOD_NOT_FOUND if is_unknown else INTERNAL_ERROR
            error = ProtocolError(code, f"{method} is not answered here")
            reply = error_message(id_, error)
        try:
            await self._channel.tell(reply, self._headers)
        except Exception as exc:  # it may be nothing that JSON can carry
            logger.warning("the answer to %.80s was not sent: %s", method, exc)

    # ---- requests, as `Client` makes them ----

    async def exchange(
        self, message: Frame, headers: Mapping[str, str], hear: Hear
    ) -> Frame:
        """Have the server answer a request of this revision, in its own words."""
        method, params = message["method"], message["params"]
        if method == "server/discover":
            return _result(message, self._discovered())
        if method == "subscriptions/listen":
            await self._listen(message, hear)
        state = params.get("requestState")
        if state is not None and self._headers[_VERSION] != DRAFT.version:
            call = self._calls.get(state)
            if call is None:
                # It was here, in another process or before the client was closed.
                error = ProtocolError(StateError.CODE, StateError.PUBLIC)
                return error_message(message["id"], error)
            await self._reply(call, params.get("inputResponses") or {})
        else:
            state, call = self._begin(message)
        return await self._next(message, state, call, hear)

    def _begin(self, message: Frame) -> tuple[str, _Call]:
        # What must not be lost is bounded by who sends it; the rest in `_heard`.
        send, came = anyio.create_memory_object_stream[Any](math.inf)
        token = message["params"]["_meta"].get("progressToken")
        may_ask = message["method"] in MAY_ASK
        call = _Call(may_ask, token, anyio.CancelScope(), send, came)
        # One that was stored by another client is none of this one's.
        state = f"live-{secrets.token_urlsafe(12)}"
        self._calls[state] = call
        self._group.start_soon(self._run, _older(message), call)
        return state, call

    async def _run(self, message: Frame, call: _Call) -> None:
        """One request below, from its beginning to its end. Raises nothing."""

        async def hear(told: Frame) -> None:
            await self._heard(told, call)

        with call.scope, call.send:
            try:
                found: Any = await self._sent(message, hear)
            except Exception as exc:
                found = exc
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                await call.send.send(found)

    async def _sent(self, message: Frame, hear: Hear) -> Frame:
        response = await self._exchange(message, hear)
        for _ in range(_MOST_PAGES):
            pages = _pages(response)
            if not pages or not await self._opened(pages):
                break
            message = {**message, "id": self._new_id()}
            response = await self._exchange(message, hear)
        return response

    async def _opened(self, pages: list[Mapping[str, Any]]) -> bool:
        """Have the user open pages. Returns whether they agreed to all of them."""
        for page in pages:
            asked = {"method": "elicitation/create", "params": {**page, "mode": "url"}}
            said = await self._answering.answer(str(page.get("elicitationId")), asked)
            if said["action"] != "accept":
                return False
        return True

    async def _reply(self, call: _Call, responses: Mapping[str, JSON]) -> None:
        for key, response in responses.items():
            question = call.asked.pop(key, None)
            if question is not None:
                call.strays = [one for one in call.strays if one["id"] != question.id]
                reply = {"jsonrpc": "2.0", "id": question.id, "result": response}
                try:
                    await self._channel.tell(reply, self._headers)
                except ValueError:
                    raise ChannelError(
                        f"JSON cannot carry the id of a question, {question.id!r:.80}"
                    ) from None

    async def _next(self, message: Frame, state: str, call: _Call, hear: Hear) -> Frame:
        """What comes of a call next: its response, or what is asked."""
        # From the first question on: who asks without an end has several rounds.
        until = math.inf
        try:
            while True:
                if call.asked and until == math.inf:
                    until = anyio.current_time() + _TOGETHER
                came = await _next_of(call, until)
                if came is None:
                    asked = {key: one.request for key, one in call.asked.items()}
                    fields = {"inputRequests": asked, "requestState": state}
                    return _result(message, {"resultType": "input_required", **fields})
                if isinstance(came, Exception):
                    raise came
                if "method" not in came:
                    strays = call.strays
                    self._end(state, call)
                    for stray in strays:
                        await self._heard(stray)
                    return self._answered(message, came)
                if "id" not in came:
                    await hear(came)
                    continue
                params = came.get("params")
                params = params if isinstance(params, dict) else {}
                request = {"method": str(came["method"]), "params": params}
                key = f"question-{next(self._keys)}"
                call.asked[key] = _Question(came["id"], request)
        except BaseException:
            self.leave(state)
            raise

    def leave(self, state: str | None) -> None:
        """Nobody goes on with a call, if it is still there."""
        call = self._calls.get(state or "")
        if state is None or call is None:
            return
        self._end(state, call)
        for stray in call.strays:
            # Another may wait for it; but nobody is asked for who has gone.
            if self._call_of(stray) is not None:
                self._group.start_soon(self._heard, stray)

    def close(self) -> None:
        """Wait for nothing any more."""
        for state, call in tuple(self._calls.items()):
            self._end(state, call)

    def _end(self, state: str, call: _Call) -> None:
        self._calls.pop(state, None)
        call.scope.cancel()
        call.came.close()

    def _answered(self, message: Frame, response: Frame) -> Frame:
        response = {**response, "id": message["id"]}
        result = response.get("result")
        if (
            self._headers[_VERSION] == DRAFT.version
            and isinstance(result, dict)
            and is_incomplete(result)
        ):
            response["result"] = {**result, "resultType": "input_required"}
        return response

    # ---- what there was no word for ----

    def _discovered(self) -> dict[str, JSON]:
        fields = {
            key: self._welcome[key]
            for key in ("capabilities", "instructions")
            if key in self._welcome
        }
        return {
            "supportedVersions": [self._headers[_VERSION]],
            "_meta": {SERVER_INFO: self._welcome.get("serverInfo", {})},
            **fields,
        }

    async def _listen(self, message: Frame, hear: Hear) -> NoReturn:
        """Hear of changes until cancelled."""
        wanted = message["params"]["notifications"]
        id_ = message["id"]
        listener = self._listening[id_] = _Listener(hear, wanted)
        try:
            for uri in listener.uris:
                await self._subscribe("resources/subscribe", uri)
            meta = {SUBSCRIPTION_ID: id_}
            params = {"notifications": wanted, "_meta": meta}
            await hear(notification("notifications/subscriptions/acknowledged", params))
            while True:
                await anyio.sleep_forever()
        finally:
            del self._listening[id_]
            others = {uri for one in self._listening.values() for uri in one.uris}
            with anyio.move_on_after(1, shield=True), suppress(Exception):
                for uri in {*listener.uris} - others:
                    await self._subscribe("resources/unsubscribe", uri)

    async def _subscribe(self, method: str, uri: str) -> None:
        message = self._request(method, {"uri": uri})
        result_of(await self._exchange(message, self._heard), has_state=False)


_VERSION: Final = "MCP-Protocol-Version"


def _result(message: Frame, fields: Mapping[str, JSON]) -> Frame:
    return {"jsonrpc": "2.0", "id": message["id"], "result": fields}


def _own_result(message: Frame, response: Frame) -> Mapping[str, Any]:
    """What a request came to that is none of the caller's."""
    result = result_of(belonging(response, message["id"]), has_state=False)
    if not isinstance(result, dict):
        raise ReplyError(f"{message['method']} came to {result!r:.80}")
    return result


def _older(message: Frame) -> Frame:
    """A request without what its revision has no place for."""
    params = dict(message["params"])
    meta = {
        key: one for key, one in params.pop("_meta", {}).items() if key not in _NEWER
    }
    if meta:
        params["_meta"] = meta
    older = {key: one for key, one in message.items() if key != "params"}
    return {**older, "params": params} if params else older


async def _next_of(call: _Call, until: float) -> Any:
    """What came; `None` if that is nothing until then."""
    with anyio.CancelScope(deadline=until):
        try:
            return await call.came.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            raise ChannelError("the client was closed") from None
    return None


def _pages(response: Frame) -> list[Mapping[str, Any]]:
    """The pages that a server wants opened first, instead of an answer."""
    error = response.get("error")
    if not isinstance(error, dict) or error.get("code") != _PAGES_FIRST:
        return []
    data = error.get("data")
    pages = data.get("elicitations") if isinstance(data, dict) else None
    if not isinstance(pages, list):
        return []
    return [one for one in pages if isinstance(one, dict) and one.get("url")]
