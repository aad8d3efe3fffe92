"""A client: call a tool, answer its questions, get the result.

    async with Client(OverHttp("http://127.0.0.1:8000/mcp"), elicit=ask_user) as client:
        result = await client.call_tool("order", {"title": "Dune"})

It runs on trio and on asyncio. All questions of a round are answered concurrently.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

import anyio

from ..canonical import JSON
from ..errors import ProtocolError, SchemaError, UsageError
from ..logs import logger_for
from ..protocol.headers import HeaderMismatch, ParamHeader, param_headers
from ..protocol.meta import UNSUPPORTED_VERSION
from ..protocol.modern import MISSING_CAPABILITY
from ..protocol.revisions import DRAFT, HANDSHAKES, VERSIONS
from .cache import Cache
from .changes import Changes
from .channels import Channel, ChannelError, Frame, Hear, Line, Refusal
from .deadlines import deadline, shortest
from .errors import ReplyError
from .handshakes import HandshakeAdapter
from .limits import LARGEST, memory_of
from .listening import Listening
from .messages import (
    INFO,
    Profile,
    StateRejected,
    belonging,
    headers_for,
    request,
    result_of,
    supported_version,
)
from .questions import (
    Answering,
    Form,
    FormAnswer,
    Link,
    LinkAnswer,
    SampleAnswer,
    Sampling,
)
from .results import Result
from .rounds import Complete, OngoingCall, Pending
from .session_tasks import TaskTools
from .steps import Steps
from .subscriptions import wanted_changes
from .task_groups import cancelled_at_end
from .tracing import ClientTracing, TracedRequest, Trail

if TYPE_CHECKING:
    from ..effects.questions import Root

__all__ = ["Client", "Steps", "Told"]

logger = logger_for("effectmcp.client")

#: Called with the parameters of a notification. May be async.
Told: TypeAlias = Callable[[Mapping[str, Any]], object]

#: Seconds for a 2026-07-28 server to answer `server/discover`.
_PROBE: Final = 10.0

#: Errors that only a 2026-07-28 server sends.
_MODERN: Final = frozenset(
    {UNSUPPORTED_VERSION, MISSING_CAPABILITY, HeaderMismatch.CODE}
)

#: The URLs of servers that were found to be legacy servers, in this process.
_SHAKING: Final[set[str | None]] = set()

#: The maximum number of pages of a list: more than a user would read.
_MOST_PAGES: Final = 1_000


class Client:
    """A client of one server.

    Args:
        channel: The channel to the server: `InMemory`, `OverPipes` or `OverHttp`.
        elicit: Lets the user fill in a form.
        open_url: Lets the user open a page.
        sample: Lets a model write a message.
        roots: The folders that the user works in, or a function that returns them.
        on_progress: Called with each progress notification, which has `progress`,
            `total` and `message`.
        on_log: Called with each log message, which has `level`, `logger` and `data`.
        on_round: Called with each interim result, before its questions are answered;
            and when the status or the message of a task has changed.
        log_level: The lowest level of log messages to send. By default `info` with
            `on_log`, else no log messages are sent.
        info: The client's `name` and `version`.
        rounds: The maximum number of interim results of one call; of a task, only those
            with questions count.
        timeout: Seconds that a call may take, including its answers; `None` for no limit.
        round_timeout: Seconds that one request may take, or a list with all its pages, or
            a handshake; `None` for no limit. The time for answers does not count.
        connect_timeout: Seconds to find out the era of the server, and to initialize a
            session, also if it has to be done again; `None` for no limit.
        version: The revision to speak. By default 2026-07-28, or an earlier one with a
            server that does not support it.
        drafts: Whether to start with `initialize` and offer the drafts of 2026-07-28,
            `2026-06-XX`. If the server chooses a released revision, that is used.
        task_tools: Which tools of a server of 2025-11-25 are called as tasks: tools that
            require it, or with `"optional"` also tools that allow it. With `"never"`, the
            client does not follow tasks in any revision, and does not declare it.
        tracing: Traces the requests, such as `ClientTelemetry()` of
            `effectmcp.observers.client_telemetry`.

    Raises:
        UsageError: If `version` is unknown, or `rounds` is less than 1.
    """

    def __init__(
        self,
        channel: Channel,
        *,
        elicit: Callable[[Form], FormAnswer | Awaitable[FormAnswer]] | None = None,
        open_url: Callable[[Link], LinkAnswer | Awaitable[LinkAnswer]] | None = None,
        sample: Callable[[Sampling], SampleAnswer | Awaitable[SampleAnswer]]
        | None = None,
        roots: Iterable[Root] | Callable[[], Any] | None = None,
        on_progress: Told | None = None,
        on_log: Told | None = None,
        on_round: Callable[[Pending], object] | None = None,
        log_level: str | None = None,
        info: Mapping[str, JSON] = INFO,
        rounds: int = 10,
        timeout: float | None = None,
        round_timeout: float | None = None,
        connect_timeout: float | None = 30.0,
        version: str | None = None,
        drafts: bool = False,
        task_tools: TaskTools = "required",
        tracing: ClientTracing | None = None,
    ) -> None:
        if version not in (None, *VERSIONS, *HANDSHAKES):
            known = ", ".join((*VERSIONS, *HANDSHAKES))
            raise UsageError(f"Client(version={version!r}): it is one of {known}")
        if rounds < 1:
            raise UsageError(f"Client(rounds={rounds}): give 1 or more")
        if task_tools not in ("required", "optional", "never"):
            raise UsageError(
                f"Client(task_tools={task_tools!r}): give 'required', 'optional' or"
                " 'never'"
            )
        if on_log is not None and log_level is None:
            log_level = "info"
        self.answering = Answering(
            elicit=elicit, open_url=open_url, sample=sample, roots=roots
        )
        self.profile = Profile(
            capabilities=self.answering.capabilities,
            info=info,
            log_level=log_level,
            follows_tasks=task_tools != "never",
        )
        self._channel = channel
        #: Sends the requests: the channel, or the adapter for a legacy server.
        self._line: Line = channel
        self._version = version
        #: The revision to offer to a legacy server.
        self._offered = DRAFT.version if drafts else version or next(iter(HANDSHAKES))
        self._is_known = version in VERSIONS and not drafts
        self._task_tools: TaskTools = task_tools
        self._shaking = anyio.Lock()
        self._on_progress = on_progress
        self._on_log = on_log
        self._on_round = on_round
        self._rounds = rounds
        self._timeout = timeout
        self._round_timeout = round_timeout
        self._connect_timeout = connect_timeout
        self._tracing = tracing
        self._ids = itertools.count(1)
        self._cache = Cache()
        #: How often `forget` was called.
        self._changes = 0
        #: The channel's tokens that the cache belongs to.
        self._tokens: int | None = None
        self._rules: dict[str, tuple[ParamHeader, ...]] | None = None

    async def __aenter__(self) -> Self:
        self._stack = AsyncExitStack()
        async with self._stack:
            await self._stack.enter_async_context(self._channel)
            self._group = anyio.create_task_group()
            await self._stack.enter_async_context(cancelled_at_end(self._group))
            with deadline(self._connect_timeout, "connection to the server"):
                await self._find_era()
            self._stack = self._stack.pop_all()
        return self

    async def __aexit__(self, *exc: Any) -> None:
        await self._stack.aclose()

    # ---- the era of the server ----

    async def _find_era(self) -> None:
        """Find out the server's era, if that has to be known before the first request."""
        if self._is_known:
            return
        origin = self._channel.origin
        if self._version is not None or self._offered == DRAFT.version:
            await self._shake()
        elif origin in _SHAKING:
            try:
                await self._shake()
            except (ProtocolError, ReplyError, ChannelError, TimeoutError) as exc:
                _SHAKING.discard(origin)  # it may be another server by now
                if isinstance(exc, TimeoutError):
                    raise
        elif self._channel.probes:
            await self._probe()

    async def _probe(self) -> None:
        # A 2026-07-28 server sends a result. A legacy server may respond with anything,
        # or not at all (stdio, Backward Compatibility).
        self._is_known = True
        half = None if self._connect_timeout is None else self._connect_timeout / 2
        try:
            with anyio.fail_after(shortest(_PROBE, half)):
                found = await self.request("server/discover", {})
            if isinstance(found, dict) and "supportedVersions" in found:
                return
        except (TimeoutError, ReplyError):
            pass
        except ProtocolError as exc:
            if exc.code in _MODERN:
                return
        await self._shake()

    async def _shake(self) -> None:
        """Initialize a session, and send all further requests in it.

        Raises:
            ProtocolError: If the server refuses.
            ReplyError: If its response is invalid.
            TimeoutError: If it takes too long.
            ChannelError: If the server cannot be reached, or sends an invalid message.
        """
        adapter = HandshakeAdapter(
            self._channel,
            self.profile,
            self.answering,
            self._group,
            lambda: next(self._ids),
            self._offered,
            self._task_tools,
            patience=shortest(self._connect_timeout, self._round_timeout),
        )
        await adapter.shake()
        self._stack.callback(adapter.close)
        self._line, self._is_known = adapter, True

    async def _exchange(
        self, message: Frame, headers: Mapping[str, str], hear: Hear
    ) -> Frame:
        line = self._line
        try:
            response = await line.exchange(message, headers, hear)
        except Refusal as exc:
            refusal = exc
            if self._is_known:
                return _said_by(refusal)
        else:
            self._is_known = True
            return response
        async with self._shaking:  # only the first of concurrent requests
            if self._line is line:
                try:
                    await self._shake()
                except (ProtocolError, ReplyError, ChannelError):
                    return _said_by(refusal)
                _SHAKING.add(self._channel.origin)
        return await self._line.exchange(message, {}, hear)

    # ---- whole calls ----

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, JSON] | None = None,
        *,
        restart: bool = False,
        on_progress: Told | None = None,
    ) -> Result:
        """Call a tool, and answer its questions.

        A server may make the call a task. The client then polls it until it ends, also
        answers its questions, and cancels it if this call fails or is cancelled.

        Args:
            name: The name of the tool.
            arguments: Its arguments.
            restart: Whether to start again, once, if the server rejects its own state.
            on_progress: Called instead of the client's `on_progress`.

        Raises:
            ProtocolError: If the server responds with an error.
            StateRejected: If the server rejects a state that it issued.
            ReplyError: If a response or a question is invalid.
            RoundsError: If the call has more interim results than allowed.
            TaskCancelled: If the task was cancelled, by the server or another client.
            TimeoutError: If the call or one of its requests takes too long.
            ChannelError: If the server cannot be reached.
        """
        params = {"name": name, "arguments": dict(arguments or {})}
        return await self._ask("tools/call", params, restart, on_progress)

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        restart: bool = False,
        on_progress: Told | None = None,
    ) -> Result:
        """Get a prompt, and answer its questions; see `call_tool`."""
        params = {"name": name, "arguments": dict(arguments or {})}
        return await self._ask("prompts/get", params, restart, on_progress)

    async def read_resource(
        self,
        uri: str,
        *,
        restart: bool = False,
        on_progress: Told | None = None,
    ) -> Result:
        """Read a resource, and answer its questions; see `call_tool`."""
        self._follow_login()
        cached = self._cache.fresh("resources/read", uri)
        if cached is not None:
            return Result(cached, 1)
        changes = self._changes
        result = await self._ask("resources/read", {"uri": uri}, restart, on_progress)
        if result.rounds == 1:
            # A result that depends on answers must not be cached (Caching, Cache Key).
            self._keep("resources/read", uri, result.fields, changes)
        return result

    async def _ask(
        self,
        method: str,
        params: Mapping[str, JSON],
        restart: bool,
        on_progress: Told | None,
    ) -> Result:
        with deadline(self._timeout, f"end of {method}"):
            try:
                return await self.start(
                    method, params, on_progress=on_progress
                ).finish()
            except StateRejected:
                if not restart:
                    raise
            steps = self.start(method, params, on_progress=on_progress)
            return await steps.finish()

    async def answers(self, pending: Pending) -> dict[str, JSON]:
        """Call the registered functions concurrently; return their answers to a round."""
        found: dict[str, JSON] = {}

        async def answer(key: str, question: Mapping[str, Any]) -> None:
            found[key] = await self.answering.answer(key, question)

        async with _bare_errors(), anyio.create_task_group() as group:
            for key, question in pending.questions.items():
                group.start_soon(answer, key, question)
        return found

    # ---- one round at a time ----

    def start(
        self,
        method: str,
        params: Mapping[str, JSON],
        *,
        on_progress: Told | None = None,
    ) -> Steps:
        """Start a call that is made one round at a time.

        call = client.start("tools/call", {"name": "order", "arguments": {...}})
        pending = await call.round()
        """
        return Steps(self, OngoingCall(method, params), on_progress)

    def resume(self, pending: Pending, *, on_progress: Told | None = None) -> Steps:
        """Resume a call that was stored, in this process or another.

        result = await client.resume(Pending.from_json(stored)).finish()
        """
        return Steps(self, pending.call, on_progress, pending)

    def _leave(self, pending: Pending) -> None:
        """Cancel a call in rounds on a legacy server, which would keep waiting."""
        if isinstance(self._line, HandshakeAdapter):
            self._line.leave(pending.call.state)

    # ---- requests ----

    async def request(
        self,
        method: str,
        params: Mapping[str, JSON],
        *,
        on_progress: Told | None = None,
        trail: Trail | None = None,
    ) -> JSON:
        """Send one request of any method, and return its result, even an interim one.

        Args:
            method: The method.
            params: The parameters, without `_meta`.
            on_progress: Called with each progress notification.
            trail: The earlier requests of the same call, for traces.

        Raises:
            UsageError: If the parameters cannot be sent.
            ProtocolError: If the server responds with an error.
            ReplyError: If its response is invalid.
            TimeoutError: If the request takes too long.
            ChannelError: If the server cannot be reached.
        """
        trail = Trail() if trail is None else trail
        try:
            return await self._send(method, params, on_progress, trail)
        except ProtocolError as exc:
            if supported_version(exc) is not None:
                # The server supports the only revision of this client after all.
                return await self._send(method, params, on_progress, trail)
            if exc.code == HeaderMismatch.CODE and method == "tools/call":
                # The tool's headers have changed since it was listed.
                self.forget()
                return await self._send(method, params, on_progress, trail)
            raise

    async def _send(
        self,
        method: str,
        params: Mapping[str, JSON],
        on_progress: Told | None,
        trail: Trail,
    ) -> JSON:
        rules: tuple[ParamHeader, ...] = ()
        if self._line.has_headers and method == "tools/call" and "name" in params:
            rules = await self._rules_of(str(params["name"]))
        id_ = next(self._ids)
        on_progress = on_progress or self._on_progress
        meta = self.profile.meta(id_ if on_progress is not None else None, method)
        traced = self._traced(method, params, trail)
        if traced is not None:
            meta |= traced.meta
        result: JSON = None
        error: BaseException | None = None
        try:
            message = request(id_, method, params, meta)
            headers: dict[str, str] = {}
            if self._line.has_headers:
                try:
                    headers = headers_for(message, rules)
                except ValueError as exc:
                    raise UsageError(f"{method}: an argument is {exc}") from None

            async def hear(told: Frame) -> None:
                await self._heard(told, on_progress)

            with deadline(self._round_timeout, f"answer to {method}"):
                response = await self._exchange(message, headers, hear)
            response = belonging(response, id_)
            result = result_of(response, has_state="requestState" in params)
            return result
        except BaseException as exc:
            error = exc
            raise
        finally:
            if traced is not None:
                traced.end(result, error)

    def _traced(
        self, method: str, params: Mapping[str, JSON], trail: Trail
    ) -> TracedRequest | None:
        if self._tracing is None:
            return None
        line = self._line
        spoken = line if isinstance(line, HandshakeAdapter) else self.profile
        traced = self._tracing.begin(
            method,
            params,
            version=spoken.version,
            first=trail.first,
            is_http=self._channel.has_headers,
        )
        trail.first = trail.first or traced.trace
        return traced

    async def _heard(self, told: Frame, on_progress: Told | None) -> None:
        method, params = told.get("method"), told.get("params")
        if not isinstance(params, dict):
            params = {}
        listener = {
            "notifications/progress": on_progress,
            "notifications/message": self._on_log,
        }.get(str(method))
        if listener is not None:
            done = listener(params)
            if inspect.isawaitable(done):
                await done

    # ---- what the server offers ----

    async def discover(self) -> Mapping[str, JSON]:
        """Return the server's description of itself, such as its capabilities."""
        return await self._cached("server/discover", {})

    async def list_tools(self) -> list[Mapping[str, Any]]:
        """Return all tools that this client can call.

        Tools whose header annotations are invalid are left out, with a warning: they
        cannot be called over HTTP, and must not be (Streamable HTTP, Custom Headers).
        """
        found = []
        rules = {}
        for tool in await self._list("tools/list", "tools"):
            name = tool.get("name")
            try:
                if not isinstance(name, str):
                    raise SchemaError("its name is not a string")
                rules[name] = param_headers(tool.get("inputSchema") or {})
            except SchemaError as exc:
                logger.warning("the tool %.80r is left out: %s", name, exc)
            else:
                found.append(tool)
        self._rules = rules
        return found

    async def list_prompts(self) -> list[Mapping[str, Any]]:
        """Return all prompts."""
        return await self._list("prompts/list", "prompts")

    async def list_resources(self) -> list[Mapping[str, Any]]:
        """Return all resources."""
        return await self._list("resources/list", "resources")

    async def list_templates(self) -> list[Mapping[str, Any]]:
        """Return all resource templates."""
        return await self._list("resources/templates/list", "resourceTemplates")

    async def complete(
        self,
        of: Mapping[str, JSON],
        argument: str,
        text: str,
        context: Mapping[str, str] | None = None,
    ) -> list[str]:
        """Return suggestions for the value of an argument.

        Args:
            of: `{"type": "ref/prompt", "name": …}` or `{"type": "ref/resource", "uri": …}`.
            argument: The name of the argument.
            text: Its value so far.
            context: The values of other arguments, by name.
        """
        params: dict[str, JSON] = {
            "ref": dict(of),
            "argument": {"name": argument, "value": text},
        }
        if context is not None:
            params["context"] = {"arguments": dict(context)}
        result = await self._complete(await self.request("completion/complete", params))
        completion = result.get("completion")
        values = completion.get("values", []) if isinstance(completion, dict) else None
        if not isinstance(values, list):
            raise ReplyError("completion/complete without a list of values")
        return [str(one) for one in values]

    @asynccontextmanager
    async def listen(
        self,
        *,
        tools: bool = False,
        prompts: bool = False,
        resources: bool = False,
        uris: Iterable[str] = (),
        tasks: Iterable[str] = (),
    ) -> AsyncIterator[AsyncIterator[Frame]]:
        """Receive notifications of changes for as long as the block runs.

            async with client.listen(tools=True) as changes:
                async for change in changes: ...

        The first notification is the server's acknowledgement, which lists the changes
        that it will report. Notifications of changed lists and resources clear the
        client's cache; a notification of a task carries the result of `tasks/get`.

        A server ends the stream when the client's token expires. On a channel that logs
        in, the client opens it again, at most once a second, until that fails. Each new
        stream begins with an acknowledgement: changes may have been missed before it.

        Args:
            tools: Whether to receive changes of the list of tools.
            prompts: Whether to receive changes of the list of prompts.
            resources: Whether to receive changes of the list of resources.
            uris: The resources whose changes to receive.
            tasks: The ids of the tasks whose changes to receive.

        Raises:
            UsageError: If an argument has another type.
            ReplyError: If 1,000 changes wait, or 64 MiB, and the block does not read them.
            TimeoutError: If the server takes longer than `round_timeout` to acknowledge.
        """
        wanted = wanted_changes(
            tools=tools, prompts=prompts, resources=resources, uris=uris, tasks=tasks
        )
        changes = Changes()

        async def open_stream(hear: Hear) -> None:
            id_, method = next(self._ids), "subscriptions/listen"
            params = {"notifications": wanted}
            message = request(id_, method, params, self.profile.meta(None, method))
            headers = headers_for(message) if self._line.has_headers else {}
            response = await self._exchange(message, headers, hear)
            result_of(response, has_state=False)

        listening = Listening(
            changes=changes,
            open=open_stream,
            # An adapter keeps a session, whose stream it opens again itself.
            reopens=lambda: (
                self._line is self._channel and self._token_version is not None
            ),
            forget=self.forget,
            patience=self._round_timeout,
        )
        async with _bare_errors(), anyio.create_task_group() as group:
            group.start_soon(listening.run)
            try:
                yield changes
            finally:
                changes.close()
            group.cancel_scope.cancel()

    # ---- lists ----

    async def _list(self, method: str, name: str) -> list[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = []
        params: dict[str, JSON] = {}
        seen: set[str] = set()
        size = 0
        with deadline(self._round_timeout, f"last page of {method}"):
            for _ in range(_MOST_PAGES):
                page = await self._cached(method, params)
                size += memory_of(dict(page))
                if size > LARGEST:
                    raise ReplyError(f"{method} takes more than {LARGEST:,} bytes")
                entries = page.get(name)
                if not isinstance(entries, list):
                    raise ReplyError(f"{method} without a list of {name}")
                found += [one for one in entries if isinstance(one, dict)]
                cursor = page.get("nextCursor")
                if not isinstance(cursor, str):
                    return found
                if cursor in seen:
                    raise ReplyError(
                        f"the pages of {method} lead back to where they were"
                    )
                seen.add(cursor)
                params = {"cursor": cursor}
            raise ReplyError(f"{method} has more than {_MOST_PAGES:,} pages")

    async def _cached(
        self, method: str, params: Mapping[str, JSON]
    ) -> Mapping[str, JSON]:
        key = params.get("cursor")
        self._follow_login()
        cached = self._cache.fresh(method, key)
        if cached is not None:
            return cached
        changes = self._changes
        result = await self._complete(await self.request(method, params))
        self._keep(method, key, result, changes)
        return result

    async def _complete(self, result: JSON) -> Mapping[str, JSON]:
        came = OngoingCall("", {}).received(result)
        assert isinstance(came, Complete)  # this method cannot ask
        return came.fields

    def _keep(
        self, method: str, key: str | None, result: Mapping[str, JSON], changes: int
    ) -> None:
        # A result that was requested before a change may be out of date, or of another
        # user.
        self._follow_login()
        if changes == self._changes:
            self._cache.keep(method, key, result)

    @property
    def _token_version(self) -> int | None:
        version: int | None = getattr(self._channel, "token_version", None)
        return version

    def _follow_login(self) -> None:
        """Clear the cache if the tokens have changed: they may be of another user."""
        version = self._token_version
        if version != self._tokens:
            self._tokens = version
            self.forget()

    def forget(self) -> None:
        """Clear the cached lists, resources and headers: they are requested again."""
        self._changes += 1
        self._cache.clear()
        self._rules = None

    async def _rules_of(self, tool: str) -> tuple[ParamHeader, ...]:
        if self._rules is None or tool not in self._rules:
            await self.list_tools()
        assert self._rules is not None
        return self._rules.get(tool, ())


def _said_by(refusal: Refusal) -> Frame:
    if refusal.frame is None:
        raise refusal
    return refusal.frame


@asynccontextmanager
async def _bare_errors() -> AsyncIterator[None]:
    """Raise the first error of a task group in the block, instead of the group."""
    error = None
    try:
        yield
    except BaseExceptionGroup as raised:
        failed = [one for one in raised.exceptions if isinstance(one, Exception)]
        error = (failed or raised.exceptions)[0]
    if error is not None:
        raise error
