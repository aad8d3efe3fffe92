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
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup
from attrs import define, field, frozen

from ..canonical import JSON
from ..errors import ProtocolError, StateError
from ..protocol.drafts import DRAFT, is_incomplete
from ..protocol.jsonrpc import METHOD_NOT_FOUND, error_message, notification
from ..protocol.legacy import REVISIONS
from ..protocol.meta import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    LOG_LEVEL,
    PROTOCOL_VERSION,
    SERVER_INFO,
    SUBSCRIPTION_ID,
)
from .channels import Channel, ChannelError, Frame, Hear, SessionEnded
from .messages import Profile, result_of
from .questions import Answering

__all__ = ["Shaken"]

logger = logging.getLogger("effectmcp.client")

#: Seconds in which questions that are asked side by side come in, one after the other.
_TOGETHER: Final = 0.05

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
        scope: Cancels it.
        came: What came for it: questions, notifications, and its response or error.
        asked: The questions that were handed up and not answered, by their keys there.
    """

    scope: anyio.CancelScope
    send: Any
    came: Any
    asked: dict[str, _Question] = field(factory=dict)


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
        self._calls: dict[str, _Call] = {}
        self._names = itertools.count(1)
        #: Those that hear of changes.
        self._listening: dict[Any, Hear] = {}
        #: Those that wait for a request, the latest last.
        self._hearing: dict[Any, Hear] = {}

    # ---- the handshake ----

    async def shake(self) -> None:
        """Shake hands.

        Raises:
            ProtocolError: The server refuses.
            ChannelError: It cannot be reached, or talks nonsense.
        """
        self._headers = {}
        params = {
            "protocolVersion": self._version,
            "capabilities": dict(self._profile.capabilities),
            "clientInfo": dict(self._profile.info),
        }
        welcome = await self._own("initialize", params)
        version = welcome.get("protocolVersion")
        offered = {*REVISIONS, self._version}
        if not isinstance(version, str) or version not in offered:
            raise ChannelError(
                f"the server speaks {version!r}, and this client does not"
            )
        self._welcome = welcome
        self._headers = {"MCP-Protocol-Version": version}
        await self._channel.tell(
            notification("notifications/initialized", {}), self._headers
        )
        await self._group.start(self._attend)
        capabilities = welcome.get("capabilities")
        if self._profile.log_level is not None and "logging" in (capabilities or {}):
            await self._own("logging/setLevel", {"level": self._profile.log_level})

    async def _own(self, method: str, params: Mapping[str, JSON]) -> Mapping[str, Any]:
        message = {
            "jsonrpc": "2.0",
            "id": self._new_id(),
            "method": method,
            "params": dict(params),
        }
        response = await self._channel.exchange(message, self._headers, self._heard)
        result = result_of(response, has_state=False)
        if not isinstance(result, dict):
            raise ChannelError(f"the server answers {method} with {result!r:.80}")
        return result

    async def _attend(self, *, task_status: Any) -> None:
        with suppress(ChannelError):
            await self._channel.attend(self._heard, self._headers, task_status.started)
        with suppress(RuntimeError):
            task_status.started()  # it was told that there is nothing to attend to

    # ---- what the server sends of its own accord ----

    async def _heard(self, told: Frame) -> None:
        """Something that is not on a call's own stream."""
        if "id" in told:
            calls = [*self._calls.values()]
            if calls and told.get("method") != "ping":
                with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                    await calls[-1].send.send(told)
                    return
            self._group.start_soon(self._answer, told)
            return
        method = str(told.get("method"))
        if (
            method.endswith("/list_changed")
            or method == "notifications/resources/updated"
        ):
            for id_, hear in tuple(self._listening.items()):
                params = told.get("params")
                params = params if isinstance(params, dict) else {}
                meta = {SUBSCRIPTION_ID: id_}
                await hear({**told, "params": {**params, "_meta": meta}})
            return
        for hear in reversed(tuple(self._hearing.values())):
            return await hear(told)  # one is enough

    async def _answer(self, question: Frame) -> None:
        """Answer what belongs to no call. Raises nothing."""
        id_, method = question["id"], question.get("method")
        reply: dict[str, JSON] = {"jsonrpc": "2.0", "id": id_}
        try:
            if method == "ping":
                reply["result"] = {}
            else:
                asked = {"method": method, "params": question.get("params") or {}}
                reply["result"] = await self._answering.answer(str(method), asked)
        except Exception as exc:
            logger.warning("%s of the server was not answered: %s", method, exc)
            error = ProtocolError(METHOD_NOT_FOUND, f"{method} is not answered here")
            reply = error_message(id_, error)
        with suppress(ChannelError):
            await self._channel.tell(reply, self._headers)

    # ---- requests, as `Client` makes them ----

    async def exchange(
        self, message: Frame, headers: Mapping[str, str], hear: Hear
    ) -> Frame:
        """Have the server answer a request of this revision, in its own words."""
        method, params = message["method"], message["params"]
        if method == "server/discover":
            return _result(message, self._discovered())
        if method == "subscriptions/listen":
            return await self._listen(message, hear)
        self._hearing[message["id"]] = hear
        try:
            state = params.get("requestState")
            if state is not None and self._headers.get(_VERSION) != DRAFT.version:
                call = self._calls.get(state)
                if call is None:
                    # It was here, in another process or before the client was closed.
                    error = ProtocolError(StateError.CODE, StateError.PUBLIC)
                    return error_message(message["id"], error)
                await self._reply(call, params.get("inputResponses") or {})
            else:
                state, call = await self._begin(message)
            return await self._next(message, state, call, hear)
        finally:
            self._hearing.pop(message["id"], None)

    async def _begin(self, message: Frame) -> tuple[str, _Call]:
        send, came = anyio.create_memory_object_stream[Any](1_000)
        call = _Call(anyio.CancelScope(), send, came)
        state = f"live-{next(self._names)}"
        self._calls[state] = call
        self._group.start_soon(self._run, _older(message), call)
        return state, call

    async def _run(self, message: Frame, call: _Call) -> None:
        """One request below, from its beginning to its end. Raises nothing."""

        async def hear(told: Frame) -> None:
            if told.get("method") == "ping" and "id" in told:
                return await self._answer(told)
            await call.send.send(told)

        with call.scope, call.send:
            try:
                found: Any = await self._sent(message, hear)
            except Exception as exc:
                found = exc
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                await call.send.send(found)

    async def _sent(self, message: Frame, hear: Hear) -> Frame:
        while True:
            try:
                response = await self._channel.exchange(message, self._headers, hear)
            except SessionEnded:
                # Nothing was done: a server without the session cannot have begun
                # (2025-11-25, Session Management).
                logger.info("the session has ended; shaking hands again")
                await self.shake()
                message = {**message, "id": self._new_id()}
                continue
            pages = _pages(response)
            if not pages or not await self._opened(pages):
                return response
            message = {**message, "id": self._new_id()}

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
                reply = {"jsonrpc": "2.0", "id": question.id, "result": response}
                await self._channel.tell(reply, self._headers)

    async def _next(self, message: Frame, state: str, call: _Call, hear: Hear) -> Frame:
        """What comes of a call next: its response, or what is asked."""
        try:
            while True:
                came: Any = None
                with anyio.move_on_after(_TOGETHER if call.asked else None):
                    came = await call.came.receive()
                if came is None:
                    asked = {key: one.request for key, one in call.asked.items()}
                    fields = {"inputRequests": asked, "requestState": state}
                    return _result(message, {"resultType": "input_required", **fields})
                if isinstance(came, Exception):
                    raise came
                if "method" not in came:
                    self._end(state, call)
                    return self._answered(message, came)
                if "id" not in came:
                    await hear(came)
                    continue
                key = f"{state}-{came['id']}"
                params = came.get("params")
                params = params if isinstance(params, dict) else {}
                request = {"method": came["method"], "params": params}
                call.asked[key] = _Question(came["id"], request)
        except anyio.EndOfStream:
            self._end(state, call)
            raise ChannelError("the client was closed") from None
        except BaseException:
            self._end(state, call)
            raise

    def _end(self, state: str, call: _Call) -> None:
        """Wait for it no more."""
        self._calls.pop(state, None)
        call.scope.cancel()
        call.came.close()

    def close(self) -> None:
        """Wait for nothing any more."""
        for state, call in tuple(self._calls.items()):
            self._end(state, call)

    def _answered(self, message: Frame, response: Frame) -> Frame:
        response = {**response, "id": message["id"]}
        result = response.get("result")
        if (
            self._headers.get(_VERSION) == DRAFT.version
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

    async def _listen(self, message: Frame, hear: Hear) -> Frame:
        """Hear of changes until cancelled; nothing is said of lists, all are told."""
        wanted = message["params"]["notifications"]
        uris = wanted.get("resourceSubscriptions", [])
        id_ = message["id"]
        self._listening[id_] = hear
        try:
            for uri in uris:
                await self._own("resources/subscribe", {"uri": uri})
            meta = {SUBSCRIPTION_ID: id_}
            params = {"notifications": wanted, "_meta": meta}
            await hear(notification("notifications/subscriptions/acknowledged", params))
            await anyio.sleep_forever()
        finally:
            self._listening.pop(id_, None)
            with anyio.move_on_after(1, shield=True), suppress(Exception):
                for uri in uris:
                    await self._own("resources/unsubscribe", {"uri": uri})
        raise AssertionError("it is cancelled, and nothing else")


_VERSION: Final = "MCP-Protocol-Version"


def _result(message: Frame, fields: Mapping[str, JSON]) -> Frame:
    return {"jsonrpc": "2.0", "id": message["id"], "result": fields}


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


def _pages(response: Frame) -> list[Mapping[str, Any]]:
    """The pages that a server wants opened first, instead of an answer."""
    error = response.get("error")
    if not isinstance(error, dict) or error.get("code") != _PAGES_FIRST:
        return []
    data = error.get("data")
    pages = data.get("elicitations") if isinstance(data, dict) else None
    return [one for one in pages or () if isinstance(one, dict) and one.get("url")]
