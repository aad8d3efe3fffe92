"""Adapt a server of an earlier revision to the client's 2026-07-28 requests.

`HandshakeAdapter` is a channel around a channel. Above it, the client makes a call in
rounds, and questions arrive as the result of a round, as usual. Below it, a single
request runs for all rounds, and the server sends its questions as requests:

    above   tools/call ──→ input_required ──→ again, with the answers ──→ the result
    below   tools/call ──→ elicitation/create ──→ its response ─────────→ the result

So the same functions answer, errors are raised in the same places, and a call can be made
one round at a time. Another process cannot resume it, as it runs in this one.
"""

from __future__ import annotations

import itertools
import math
import secrets
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NoReturn

import anyio
from anyio.abc import TaskGroup
from attrs import define, field, frozen

from ..canonical import JSON
from ..errors import ProtocolError, StateError
from ..logs import logger_for
from ..protocol.drafts import is_incomplete
from ..protocol.jsonrpc import (
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    error_message,
    notification,
)
from ..protocol.meta import (
    SERVER_INFO,
    SUBSCRIPTION_ID,
)
from ..protocol.revisions import DRAFT, HANDSHAKES
from .channels import Channel, ChannelError, Frame, Hear, SessionEnded
from .deadlines import deadline
from .errors import ReplyError
from .legacy_messages import older, own_result, pages_first, result_for
from .limits import LARGEST, MOST_TOLD, memory_of
from .messages import Profile, belonging, result_of
from .rounds import MAY_ASK
from .session_tasks import TASK_METHODS, SessionTasks, TaskTools
from .tasks import MOST_QUESTIONS

if TYPE_CHECKING:
    from .questions import Answering

__all__ = ["HandshakeAdapter", "RunningCall"]

logger = logger_for("effectmcp.client")

#: Seconds for which further questions are collected into the same round: a legacy server
#: sends concurrent questions one after the other.
_TOGETHER: Final = 0.05

#: Seconds for the stream to start that belongs to no request. Some servers send no head
#: before its first message, so waiting longer would be useless.
_PATIENCE: Final = 1.0

#: How many questions that belong to no call may be answered at once. A server may send
#: pings without reading the responses.
_MOST_ANSWERED: Final = 100

#: How often one call may be repeated because the user had to open pages.
_MOST_PAGES: Final = 10


@frozen
class _HeldQuestion:
    id: Any
    request: Mapping[str, JSON]


@define(eq=False)
class _Page:
    """A page to open before a call is repeated. It is the id of its question.

    Attributes:
        is_answered: Set with the response.
        response: The client's response.
    """

    is_answered: anyio.Event = field(factory=anyio.Event)
    response: JSON = None


@define(eq=False)
class RunningCall:
    """A request that is running below.

    Attributes:
        may_ask: Whether questions can belong to it.
        token: Its progress token.
        scope: The cancel scope of its task.
        send: The sending end of `came`.
        came: Received questions and notifications, and the response or error.
        asked: The questions that the client has not answered yet, by their keys above.
        strays: The questions among them that did not come on the request's own stream.
        size: The memory of its questions, and of the notifications that wait, in bytes.
        problem: Why the call must end, if its server sends too much.
    """

    may_ask: bool
    token: JSON
    scope: anyio.CancelScope
    send: Any
    came: Any
    asked: dict[str, _HeldQuestion] = field(factory=dict)
    strays: list[Frame] = field(factory=list)
    size: int = 0
    problem: ReplyError | None = None

    def put(self, told: Frame) -> None:
        """Keep a message for the round that reads it.

        Too many notifications are dropped, as the channel must not wait. Questions must
        not be lost, so too many of them end the call.
        """
        size = memory_of(dict(told))
        waiting = self.send.statistics().current_buffer_used
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            if waiting < MOST_TOLD and self.size + size <= LARGEST:
                self.size += size
                self.send.send_nowait(told)
            elif "id" in told and self.problem is None:
                self.problem = ReplyError("the server asks too much at once")
                self.send.send_nowait(self.problem)

    def took(self, came: Any) -> None:
        """Account for something that was read.

        Raises:
            ReplyError: If the call must end.
        """
        if self.problem is not None:
            raise self.problem
        if isinstance(came, dict) and "method" in came and "id" not in came:
            self.size -= memory_of(came)
        if len(self.asked) >= MOST_QUESTIONS:
            raise ReplyError(f"the server asks {MOST_QUESTIONS:,} questions at once")


@frozen
class _Listener:
    hear: Hear
    wanted: Mapping[str, Any]

    @property
    def uris(self) -> list[str]:
        found: list[str] = self.wanted.get("resourceSubscriptions", [])
        return found

    def wants(self, told: Frame) -> bool:
        """Return whether a change is of a requested kind.

        URIs are not compared, as an update may be about a part of a resource.
        """
        wanted = self.wanted.get(_CHANGES[str(told["method"])], False)
        return bool(wanted)


#: Notifications of changes, and the fields of `subscriptions/listen` that request them.
_CHANGES: Final[Mapping[str, str]] = {
    "notifications/tools/list_changed": "toolsListChanged",
    "notifications/prompts/list_changed": "promptsListChanged",
    "notifications/resources/list_changed": "resourcesListChanged",
    "notifications/resources/updated": "resourceSubscriptions",
}


class HandshakeAdapter:
    """An adapter for a legacy server, around a channel to it.

    Args:
        channel: The channel to the server.
        profile: The client's name, capabilities and log level.
        answering: Answers questions that belong to no call.
        group: Runs tasks that outlast a round.
        ids: Returns ids for requests.
        version: The revision to offer.
        task_tools: Which tools are called as tasks.
        patience: Seconds that a handshake may take; `None` for no limit.
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
        task_tools: TaskTools = "required",
        *,
        patience: float | None = None,
    ) -> None:
        self._channel = channel
        self._profile = profile
        self._answering = answering
        self._group = group
        self._new_id = ids
        self._version = version
        self._patience = patience
        self._welcome: Mapping[str, Any] = {}
        self._headers: Mapping[str, str] = {}
        self._is_initialized = False
        self._shaking = anyio.Lock()
        self._attending: anyio.CancelScope | None = None
        #: Running calls, by the state that the client has for each, in order of start.
        self._calls: dict[str, RunningCall] = {}
        self._keys = itertools.count(1)
        #: How many questions that belong to no call are being answered.
        self._answers = 0
        #: Listeners for changes, by the ids of their requests.
        self._listening: dict[Any, _Listener] = {}
        self._tasks = SessionTasks(self, task_tools)

    @property
    def version(self) -> str:
        """The revision that the session speaks."""
        return self._headers[_VERSION]

    @property
    def retries(self) -> bool:
        """Whether the session speaks the drafts, in which calls are retried."""
        return self._headers[_VERSION] == DRAFT.version

    # ---- the handshake ----

    async def shake(self) -> None:
        """Initialize a session.

        Raises:
            ProtocolError: If the server refuses.
            ReplyError: If its response is invalid.
            TimeoutError: If it takes too long.
            ChannelError: If the server cannot be reached, or sends an invalid message.
        """
        with deadline(self._patience, "end of the handshake"):
            await self._shake()

    async def _shake(self) -> None:
        self._is_initialized = False
        self._tasks.forget_tools()
        if self._attending is not None:
            self._attending.cancel()
        params = {
            "protocolVersion": self._version,
            "capabilities": dict(self._profile.capabilities),
            "clientInfo": dict(self._profile.info),
        }
        message = self._request("initialize", params)
        welcome = own_result(
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
        self._is_initialized = True
        await self._wish()

    async def _attend(self) -> None:
        """Start to receive the messages that belong to no request."""
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
        """Set log level and subscriptions of a new session; log it if this is refused."""
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
                own_result(
                    message,
                    await self._channel.exchange(message, self._headers, self._heard),
                )
            except (ProtocolError, ReplyError) as exc:
                logger.warning("the server refuses %s: %s", method, exc)

    def _request(self, method: str, params: Mapping[str, JSON]) -> dict[str, JSON]:
        id_ = self._new_id()
        return {"jsonrpc": "2.0", "id": id_, "method": method, "params": dict(params)}

    async def _session(self) -> Mapping[str, str]:
        """Return the headers of the session; initialize one if there is no session."""
        async with self._shaking:  # only the first of concurrent requests
            if not self._is_initialized:
                await self.shake()
            return self._headers

    async def _exchange(self, message: Frame, hear: Hear) -> Frame:
        """Send a request; repeat it in a new session if the session has ended."""
        headers = await self._session()
        try:
            response = await self._channel.exchange(message, headers, hear)
        except SessionEnded:
            # Repeating is safe: without the session, the server cannot have started the
            # request (2025-11-25, Session Management).
            logger.info("the server ended the session; initializing a new one")
            if self._headers is headers:
                self._is_initialized = False
            message = {**message, "id": self._new_id()}
            headers = await self._session()
            response = await self._channel.exchange(message, headers, hear)
        return belonging(response, message["id"])

    # ---- messages that the server sends ----

    async def _heard(self, told: Frame, call: RunningCall | None = None) -> None:
        """Handle a message. `call` is the call on whose stream it came, if any."""
        asks = "id" in told
        if not asks and told["method"] in _CHANGES:
            return await self._changed(told)
        if not asks or told["method"] != "ping":
            if self._tasks.is_of_task(told):
                call = self._tasks.take(told)
                if call is None:
                    return  # kept until the task is read again
            is_stray = call is None
            call = call or self._call_of(told)
            if call is not None:
                call.put(told)
                if asks and is_stray and call.problem is None:
                    call.strays.append(told)
                return
        if asks and self._answers < _MOST_ANSWERED:
            self._answers += 1
            self._group.start_soon(self._answer, told)

    def _call_of(self, told: Frame) -> RunningCall | None:
        """Return the call for a message that came on no call's own stream, if any.

        This is a guess: a question goes to the latest call that may ask, a notification
        to the latest call, or to the one with its progress token.
        """
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
        if told["method"] == "notifications/tools/list_changed":
            self._tasks.forget_tools()
        params = told.get("params")
        params = params if isinstance(params, dict) else {}
        for id_, listener in tuple(self._listening.items()):
            if listener.wants(told):
                meta = {SUBSCRIPTION_ID: id_}
                await listener.hear({**told, "params": {**params, "_meta": meta}})

    async def _answer(self, question: Frame) -> None:
        """Answer a question that belongs to no call. Errors are only logged."""
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
        except Exception as exc:  # also if JSON cannot encode it
            logger.warning("the answer to %.80s was not sent: %s", method, exc)
        finally:
            self._answers -= 1

    # ---- requests of `Client` ----

    async def exchange(
        self, message: Frame, headers: Mapping[str, str], hear: Hear
    ) -> Frame:
        """Send a 2026-07-28 request in the form of the server's revision."""
        method, params = message["method"], message["params"]
        if method == "server/discover":
            return result_for(message, self._discovered())
        if method == "subscriptions/listen":
            await self._listen(message, hear)
        if method in TASK_METHODS:
            return await self._of_task(message, hear)
        await self._session()
        state = params.get("requestState")
        is_live = not self.retries
        if method == "tools/call" and not (state is not None and is_live):
            capabilities = self._welcome.get("capabilities")
            if await self._tasks.asks_for_task(params.get("name"), capabilities):
                message = {**message, "params": {**params, "task": {}}}
        if state is not None and is_live:
            call = self._calls.get(state)
            if call is None:
                # The call ran in another process, or before the client was closed.
                error = ProtocolError(StateError.CODE, StateError.PUBLIC)
                return error_message(message["id"], error)
            await self.reply_to(call, params.get("inputResponses") or {})
        else:
            state, call = self._begin(message)
        return await self._next(message, state, call, hear)

    # ---- for `SessionTasks` ----

    async def _of_task(self, message: Frame, hear: Hear) -> Frame:
        try:
            return result_for(message, await self._tasks.answer(message, hear))
        except ProtocolError as exc:
            return error_message(message["id"], exc)

    async def own_request(
        self, method: str, params: Mapping[str, JSON]
    ) -> Mapping[str, Any]:
        """Send a request of another form than the one above; return its result.

        Raises:
            ProtocolError: If the server responds with an error.
            ReplyError: If its response is invalid.
            ChannelError: If it cannot be reached.
        """
        message = self._request(method, params)
        return own_result(message, await self._exchange(message, self._heard))

    def time(self) -> float:
        """Return the loop's time, in seconds from an arbitrary start."""
        return anyio.current_time()

    def begin_task_result(self, id_: str) -> tuple[str, RunningCall]:
        """Begin to wait for the result of a task; return the call, and its name."""
        params = {"taskId": id_, "_meta": {}}
        return self._begin(self._request("tasks/result", params), may_ask=True)

    async def next_of_task(
        self,
        call: RunningCall,
        hear: Hear,
        until: float,
        *,
        new_key: Callable[[], str],
    ) -> tuple[Mapping[str, Any], Frame | None]:
        """Wait for questions of a task or its result.

        Args:
            call: The running `tasks/result`.
            hear: Called with notifications.
            until: The time when to stop waiting.
            new_key: Returns a key for a question.

        Returns:
            The outstanding questions, and the response if it has come.
        """
        if call.asked:
            until = -math.inf
        while (came := await _next_of(call, until)) is not None:
            if isinstance(came, Exception):
                raise came
            if "method" not in came:
                return {}, came
            call.took(came)
            if "id" not in came:
                await hear(came)
                continue
            self._hold(call, came, new_key())
            until = min(until, anyio.current_time() + _TOGETHER)
        return {key: one.request for key, one in call.asked.items()}, None

    def _hold(self, call: RunningCall, came: Frame, key: str) -> None:
        params = came.get("params")
        params = params if isinstance(params, dict) else {}
        if isinstance(came["id"], _Page) and "elicitationId" in params:
            key = str(params["elicitationId"])
        request = {"method": str(came["method"]), "params": params}
        call.asked[key] = _HeldQuestion(came["id"], request)

    def _begin(
        self, message: Frame, *, may_ask: bool | None = None
    ) -> tuple[str, RunningCall]:
        # Without a limit, as responses must not be lost: `put` limits the messages.
        send, came = anyio.create_memory_object_stream[Any](math.inf)
        token = message["params"]["_meta"].get("progressToken")
        if may_ask is None:
            may_ask = message["method"] in MAY_ASK
        call = RunningCall(may_ask, token, anyio.CancelScope(), send, came)
        # Random, so that a state stored by another client matches no call here.
        state = f"live-{secrets.token_urlsafe(12)}"
        self._calls[state] = call
        self._group.start_soon(self._run, older(message), call)
        return state, call

    async def _run(self, message: Frame, call: RunningCall) -> None:
        """Run one request below, from start to end. Errors go to `call.send`."""

        async def hear(told: Frame) -> None:
            await self._heard(told, call)

        with call.scope, call.send:
            try:
                found: Any = await self._sent(message, call, hear)
            except Exception as exc:
                found = exc
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                await call.send.send(found)

    async def _sent(self, message: Frame, call: RunningCall, hear: Hear) -> Frame:
        response = await self._exchange(message, hear)
        for _ in range(_MOST_PAGES if call.may_ask else 0):
            pages = pages_first(response)
            if not pages or not await self._opened(pages, call):
                break
            message = {**message, "id": self._new_id()}
            response = await self._exchange(message, hear)
        return response

    async def _opened(self, pages: list[Mapping[str, Any]], call: RunningCall) -> bool:
        """Let the user open pages; return whether they agreed to all of them.

        They are questions of the call: its user answers them between two requests, so
        that their time is not the server's.
        """
        for page in pages:
            asked = _Page()
            params = {**page, "mode": "url"}
            call.put({"id": asked, "method": "elicitation/create", "params": params})
            await asked.is_answered.wait()
            said = asked.response
            if not isinstance(said, dict) or said.get("action") != "accept":
                return False
        return True

    async def reply_to(self, call: RunningCall, responses: Mapping[str, JSON]) -> None:
        """Send the answers to questions of a call, by the keys that they have above."""
        for key, response in responses.items():
            question = call.asked.pop(key, None)
            if question is not None:
                if isinstance(question.id, _Page):
                    question.id.response = response
                    question.id.is_answered.set()
                    continue
                call.strays = [one for one in call.strays if one["id"] != question.id]
                reply = _reply(question, response)
                try:
                    await self._channel.tell(reply, self._headers)
                except ValueError:
                    raise ChannelError(
                        f"JSON cannot carry the id of a question, {question.id!r:.80}"
                    ) from None

    async def _next(
        self, message: Frame, state: str, call: RunningCall, hear: Hear
    ) -> Frame:
        """Wait for the call's response or its next questions."""
        # Counted from the first question, so that endless questions end up in rounds.
        until = math.inf
        try:
            while True:
                if call.asked and until == math.inf:
                    until = anyio.current_time() + _TOGETHER
                came = await _next_of(call, until)
                if came is None:
                    asked = {key: one.request for key, one in call.asked.items()}
                    fields = {"inputRequests": asked, "requestState": state}
                    return result_for(
                        message, {"resultType": "input_required", **fields}
                    )
                if isinstance(came, Exception):
                    raise came
                if "method" not in came:
                    strays = call.strays
                    stray_ids = [one["id"] for one in strays]
                    early = [
                        one for one in call.asked.values() if one.id not in stray_ids
                    ]
                    self._end(state, call)
                    answered = self._answered(message, came, early)
                    for stray in strays:
                        await self._heard(stray)
                    return answered
                call.took(came)
                if "id" not in came:
                    await hear(came)
                    continue
                self._hold(call, came, f"question-{next(self._keys)}")
        except BaseException:
            self.leave(state)
            raise

    def leave(self, state: str | None) -> None:
        """Cancel the call of `state`, if it is still running."""
        call = self._calls.get(state or "")
        if state is None or call is None:
            return
        self._end(state, call)
        for stray in call.strays:
            # It may belong to another call. If not, drop it: do not ask the user a
            # question of a call that was cancelled.
            if self._call_of(stray) is not None:
                self._group.start_soon(self._heard, stray)

    def close(self) -> None:
        """Cancel all calls."""
        for state, call in tuple(self._calls.items()):
            self._end(state, call)

    def _end(self, state: str, call: RunningCall) -> None:
        self._calls.pop(state, None)
        call.scope.cancel()
        call.came.close()

    def _answered(
        self, message: Frame, response: Frame, asked: Iterable[_HeldQuestion]
    ) -> Frame:
        response = {**response, "id": message["id"]}
        result = response.get("result")
        if isinstance(result, dict) and result.get("resultType") == "task":
            # The handshake does not declare that this client follows tasks.
            raise ReplyError("a result of the unknown type 'task'")
        if (
            "task" in message["params"]
            and isinstance(result, dict)
            and "task" in result
        ):
            frames = [{"id": one.id, **one.request} for one in asked]
            response["result"] = self._tasks.announced(result, frames)
            return response
        if (
            self._headers[_VERSION] == DRAFT.version
            and isinstance(result, dict)
            and is_incomplete(result)
        ):
            response["result"] = {**result, "resultType": "input_required"}
        return response

    # ---- methods that earlier revisions do not have ----

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
        """Pass notifications of changes to `hear` until cancelled."""
        wanted = dict(message["params"]["notifications"])
        wanted.pop("taskIds", None)  # a session has no tasks
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


def _reply(question: _HeldQuestion, response: JSON) -> dict[str, JSON]:
    reply: dict[str, JSON] = {"jsonrpc": "2.0", "id": question.id}
    if question.request["method"] == "sampling/createMessage":
        action = response.get("action") if isinstance(response, dict) else None
        if action in ("decline", "cancel"):
            # The result of sampling has no actions (2025-11-25, Sampling, Error Handling).
            error = {"code": -1, "message": "User rejected sampling request"}
            return {**reply, "error": error}
    return {**reply, "result": response}


_VERSION: Final = "MCP-Protocol-Version"


async def _next_of(call: RunningCall, until: float) -> Any:
    """Return the next message or error of a call; `None` if none comes before `until`."""
    with suppress(anyio.WouldBlock, anyio.EndOfStream, anyio.ClosedResourceError):
        return call.came.receive_nowait()  # also if there is no time left
    with anyio.CancelScope(deadline=until):
        try:
            return await call.came.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            raise ChannelError("the client was closed") from None
    return None
