"""`Server`: the features by name, and the settings for all of them."""

from __future__ import annotations

from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Mapping,
    MutableMapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar, overload
from weakref import WeakKeyDictionary

import attrs

from ..canonical import JSON, dumps
from ..engine.rules import LIVE, RETRY, Rules
from ..errors import CanonicalError, SchemaError, UsageError
from ..logs import logger_for
from ..protocol.methods import methods_of
from ..protocol.revisions import NEWEST
from ..state.keys import Keys
from ..state.seal import Sealer
from .changes import Change, Changes
from .features import (
    Completion,
    Feature,
    Prompt,
    Resource,
    ResourceTemplate,
    TaskSupport,
    Tool,
    checked_timeout,
    make_completion,
    make_prompt,
    make_resource,
    make_tool,
)
from .identity import Gate
from .interceptors import checked_interceptor
from .listeners import check_test, checked_listeners
from .loop_name import LOOPS, LoopName

if TYPE_CHECKING:
    from ..content import Annotations, Icon
    from ..effects.base import InputRequest
    from ..exchange.ledger import Ledger
    from ..exchange.task_rows import TaskHost
    from ..protocol.methods import Capability, Method
    from .events import Observer
    from .interceptors import CallKind, Interceptor
    from .taps import Tap
    from .viewers import ViewerFilter, ViewerTest

__all__ = ["Server"]

logger = logger_for("effectmcp.server")

F = TypeVar("F", bound=Callable[..., Any])
Provided: TypeAlias = Mapping[Any, Any]
Lifespan: TypeAlias = Callable[
    ["Server"],
    AbstractAsyncContextManager[Provided | None]
    | AbstractContextManager[Provided | None],
]

_EMPTY: Final[Provided] = MappingProxyType({})


class Server:
    """An MCP server: its tools, prompts, resources and settings.

        app = Server("bookshop", version="1.0")

        @app.tool
        def order(title: str) -> Flow[str]: ...

    Args:
        name: The server's name. States are bound to it, so all replicas must use the
            same name.
        version: The server's version.
        title: A name for people.
        description: A description for people.
        website: The URL of a page about the server.
        icons: Icons that clients may show.
        instructions: How a model should use the server.
        keys: The ring of keys that seals states. Without it, transports read
            `EFFECTMCP_STATE_KEYS`, or use a random key if only one process serves.
        auth: Who may call it over HTTP: an object of `effectmcp.auth`, such as `JWTAuth`;
            a function of the headers, perhaps async, which returns an `Identity`, the
            name of a user, or `None` to refuse; or a list of these.
        tasks: The store of tasks, such as `effectmcp.tasks.SqliteTasks("tasks.db")`.
            Without it, transports keep them in memory if only one process serves.
        ledger: Where requests that count once are counted, for tools with
            `single_use=True` and questions with `once=True`. The default is the store of
            tasks.
        lifespan: A function that returns a context manager, which is entered once,
            before requests are served. It may be async if there is an event loop. Steps
            and plain functions get the values that it yields in their `= Provided()`
            parameters, by name or by annotation.
        loop: The event loop that its async functions and lifespan need, `"trio"` or
            `"asyncio"`; every command then runs the server there. By default trio, and
            any loop of a host.
        observers: Functions that are called with each `Event`.
        taps: Functions that are called with each `TappedMessage`: every JSON-RPC message,
            in both directions.
        visible: Returns whether a feature exists for a `Viewer`. It is asked about each
            feature, and must be quick.
        timeout: Seconds per request, unless a feature sets its own; `None`: no limit.
        threads: How many threads one blocking function may use at once. One user or,
            without authentication, one address gets half of them.
        ttl: Seconds that a client may cache lists.
        page_size: Items per page of a list.
        rounds: Limit of interim results per call.
        branches: Limit of `Gather` branches that a call may have at once, and so of
            questions in a round.
        early_answers: Whether the first request of a call may already contain answers.
        shed: Whether `Checkpoint` sends the state to the client.
        legacy: Whether to serve clients that use the `initialize` handshake: revisions
            2025-03-26, 2025-06-18 and 2025-11-25.
        drafts: Whether to also serve clients that speak the drafts of 2026-07-28, known
            as `2026-06-XX`.
        state_ttl: Seconds until a state expires; each round gets a new state.
        state_life: Seconds that a flow may take in total.

    Attributes:
        tools: The tools by name. `prompts` are by name, too; `resources` and
            `templates` are by URI.
        capabilities: The kinds of features that the server has now.
        methods: The methods of the newest revision that it offers now.
        rules: The rules of flows, by whether the feature is a tool, and whether it asks
            live.
        changes: Notifies listeners when a list or a resource changes.
        around: The interceptors of each feature that has some, the outermost first.
        has_around: Whether there have been any.
        is_filtered: Whether features may be hidden from some users.
    """

    def __init__(
        self,
        name: str,
        *,
        version: str = "0",
        title: str | None = None,
        description: str | None = None,
        website: str | None = None,
        icons: Sequence[Icon] = (),
        instructions: str | None = None,
        keys: Keys | None = None,
        auth: object = None,
        tasks: TaskHost | None = None,
        ledger: Ledger | None = None,
        lifespan: Lifespan | None = None,
        loop: LoopName | None = None,
        observers: Iterable[Observer] = (),
        taps: Iterable[Tap] = (),
        visible: ViewerFilter | None = None,
        timeout: float | None = None,
        threads: int = 40,
        ttl: float = 60,
        page_size: int = 100,
        rounds: int = 9,
        branches: int = 1_000,
        early_answers: bool = True,
        shed: bool = True,
        legacy: bool = True,
        drafts: bool = False,
        state_ttl: int = 3600,
        state_life: int = 24 * 3600,
    ) -> None:
        if page_size < 1:
            raise UsageError(f"Server(page_size={page_size}): give 1 or more")
        if loop is not None and loop not in LOOPS:
            raise UsageError(f"Server(loop={loop!r}): give one of {', '.join(LOOPS)}")
        if threads < 1:
            raise UsageError(f"Server(threads={threads}): give 1 or more")
        self.name = name
        self.version = version
        self.instructions = instructions
        self.lifespan = lifespan
        self.loop: LoopName | None = loop
        self.observers = checked_listeners("observers", observers)
        self.taps = checked_listeners("taps", taps)
        if visible is not None:
            check_test("Server(visible=...)", visible, of=2)
        self.visible = visible
        self.auth = auth
        self.timeout = checked_timeout(f"Server({name!r})", timeout)
        self.threads = threads
        self.ttl = ttl
        self.page_size = page_size
        self.legacy = legacy
        self.drafts = drafts
        retry: Rules = attrs.evolve(
            RETRY, rounds=rounds, early_answers=early_answers, shed=shed
        )
        # Prompts and resources cannot become tasks.
        self.rules: Mapping[tuple[bool, bool], Rules] = {
            (is_tool, is_live): attrs.evolve(
                LIVE if is_live else retry, detach=is_tool, branches=branches
            )
            for is_tool in (True, False)
            for is_live in (True, False)
        }
        self.info = {
            key: value
            for key, value in {
                "name": name,
                "version": version,
                "title": title,
                "description": description,
                "websiteUrl": website,
                "icons": [icon.to_wire() for icon in icons] or None,
            }.items()
            if value is not None
        }
        try:
            dumps([self.info, instructions])
        except CanonicalError as exc:
            raise UsageError(f"Server({name!r}): {exc.problem}") from None
        #: Whether the server is being served, and the values that its lifespan yielded.
        self.is_running = False
        self.provided: Provided = _EMPTY
        # Replaced, never changed: a request may read them while a thread adds a tool.
        self.tools: Mapping[str, Tool] = {}
        self.prompts: Mapping[str, Prompt] = {}
        self.resources: Mapping[str, Resource] = {}
        self.templates: Mapping[str, ResourceTemplate] = {}
        self.completions: Mapping[tuple[str, str], Completion] = {}
        # By identity, and as long as a call or a turn has the feature: a feature that was
        # removed or replaced meanwhile keeps its interceptors.
        self.around: MutableMapping[Feature, tuple[Interceptor, ...]] = (
            WeakKeyDictionary()
        )
        self.has_around = False
        self.is_filtered = visible is not None
        self._interceptors: list[_Selected] = []
        #: The features whose interceptors are in `around`, if they have some.
        self._guarded: dict[str, frozenset[Feature]] = {
            what: frozenset() for what in ("tools", "prompts", "resources", "templates")
        }
        self.capabilities: frozenset[Capability] = frozenset()
        self.methods: Mapping[str, Method] = methods_of(NEWEST, ())
        self.changes = Changes()
        self._tasks: TaskHost | None = None
        #: The registered features, by attribute, each in a list of its own. Threads share
        #: it without a lock: each access is one operation of a dict or a list, and the
        #: list shows which of two threads removed the feature. `_publish` copies it.
        self._publishing: dict[str, object] = {}
        self._registered: dict[str, dict[Any, Any]] = {
            what: {}
            for what in ("tools", "prompts", "resources", "templates", "completions")
        }
        self._state_ttl = state_ttl
        self._state_life = state_life
        self.sealer: Sealer | None = None
        self.keys = keys
        self._ledger = ledger
        self.tasks = tasks

    def __repr__(self) -> str:
        return f"<Server {self.name!r}>"

    @property
    def is_watched(self) -> bool:
        """Whether an observer is not idle now."""
        for observer in self.observers:
            is_idle: Callable[[], bool] | None = getattr(observer, "is_idle", None)
            try:
                if is_idle is None or not is_idle():
                    return True
            except Exception:
                logger.exception("is_idle() of an observer failed: it is not idle")
                return True
        return False

    @property
    def keys(self) -> Keys | None:
        """The ring that seals states; without one, no handler may ask."""
        return None if self.sealer is None else self.sealer.keys

    @keys.setter
    def keys(self, keys: Keys | None) -> None:
        given: object = keys
        if given is not None and not isinstance(given, Keys):
            raise UsageError("Server(keys=...): give Keys(...)")  # may be secret
        self.sealer = (
            None
            if keys is None
            else Sealer(
                keys=keys,
                audience=self.name,
                ttl=self._state_ttl,
                life=self._state_life,
            )
        )

    @property
    def auth(self) -> object:
        """The authenticators of callers over HTTP; `None` to let all clients in."""
        return self._auth

    @auth.setter
    def auth(self, auth: object) -> None:
        self._auth = auth
        #: The authenticators that transports ask; `None` lets all clients in.
        self.gate = None if auth is None else Gate(auth)

    @property
    def tasks(self) -> TaskHost | None:
        """The store of tasks; without one, `Detach()` returns `False`."""
        return self._tasks

    @tasks.setter
    def tasks(self, tasks: TaskHost | None) -> None:
        self._tasks = tasks
        self._publish("tools")

    @property
    def ledger(self) -> Ledger | None:
        """The ledger of requests that count once; without it, such requests are refused."""
        if self._ledger is not None:
            return self._ledger
        tasks: Any = self._tasks
        # A store of tasks need not be a ledger, too.
        is_ledger = all(hasattr(tasks, one) for one in ("take", "keep", "leave"))
        return tasks if is_ledger else None

    @ledger.setter
    def ledger(self, ledger: Ledger | None) -> None:
        self._ledger = ledger

    def run(self, *, http: str | None = None) -> None:
        """Serve until the process ends, on standard input and output or over HTTP.

            if __name__ == "__main__":
                app.run()

        It is `effectmcp serve` for a file that is a program. The command has more options.

        Args:
            http: The address to serve Streamable HTTP on, such as `127.0.0.1:8000`.

        Raises:
            UsageError: If the address cannot be used, or this is not the main thread, or a
                loop runs here.
            KeysError: If the keys are invalid.
        """
        # By name: programs stand on this module, and it imports no loop and no socket.
        program = import_module("effectmcp.transports.program")
        program.run_server(self, http)

    def change_rules(self, **changes: Any) -> None:
        """Change the rules of all flows, for example in tests."""
        self.rules = {
            key: attrs.evolve(one, **changes) for key, one in self.rules.items()
        }

    # ---- tools ----

    @overload
    def tool(self, function: F, /) -> F: ...
    @overload
    def tool(
        self,
        *,
        name: str | None = ...,
        title: str | None = ...,
        description: str | None = ...,
        icons: Sequence[Icon] = ...,
        read_only: bool | None = ...,
        destructive: bool | None = ...,
        idempotent: bool | None = ...,
        open_world: bool | None = ...,
        input_schema: Mapping[str, JSON] | None = ...,
        output_schema: Mapping[str, JSON] | None = ...,
        requires: Sequence[type[InputRequest[Any]]] = ...,
        timeout: float | None = ...,
        version: str | None = ...,
        meta: Mapping[str, JSON] | None = ...,
        task: TaskSupport | None = ...,
        single_use: bool = ...,
        tags: Iterable[str] = ...,
        interceptors: Iterable[Interceptor] = ...,
        visible: ViewerTest | None = ...,
        scopes: Collection[str] = ...,
    ) -> Callable[[F], F]: ...
    def tool(self, *functions: Any, **options: Any) -> Any:
        """Offer a function as a tool, at import or at any later time.

        The tool's name, description and schemas come from the function, which is
        returned unchanged.

        Args:
            *functions: A generator that yields effects, or a plain or async function.
            name: The tool's name; the default is the function's.
            title: A name for people.
            description: A description; the default is the docstring's first paragraph.
            icons: Icons that clients may show.
            read_only: A hint: the tool changes nothing.
            destructive: A hint: the tool may delete or overwrite data.
            idempotent: A hint: calling it twice has the same effect as calling it once.
            open_world: A hint: the tool interacts with the outside world.
            input_schema: A schema written by hand. The function gets the arguments by
                keyword, as the client sent them.
            output_schema: A schema written by hand, for results that are already JSON.
            requires: Question effects, such as `Elicit`. Clients that cannot answer
                them are refused before the function runs.
            timeout: Seconds per request; the default is the server's `timeout`.
            version: The handler's version, for reports after a deploy.
            meta: The `_meta` that the list shows.
            task: Whether a call is a task from its start: `"optional"` if the client can
                follow tasks, else inline; `"required"` refuses other clients. A tool that
                becomes one by `Detach()` needs `"deferred"` only to be offered as such to
                clients of 2025-11-25, which ask for tasks by themselves.
            single_use: Whether each state of a call counts for one request: sent again,
                the same request gets the same reply, and any other one is refused. Needs
                a ledger.
            tags: Names by which interceptors select tools; clients do not see them.
            interceptors: Functions around each call; see `intercept`.
            visible: Returns whether the tool exists for a `Viewer`: for others it is not
                listed and cannot be called. It must be quick.
            scopes: What a caller must be allowed to do, such as `{"orders:write"}`. For
                others the tool is not listed, and a call gets status 403, so that the
                client can log in for more.

        Raises:
            SchemaError: If something about the function cannot be published. The
                message names it, with the code to write instead.
        """

        def register(function: F) -> F:
            self.add(make_tool(function, **options))
            return function

        return register(*functions) if functions else register

    # ---- prompts ----

    @overload
    def prompt(self, function: F, /) -> F: ...
    @overload
    def prompt(
        self,
        *,
        name: str | None = ...,
        title: str | None = ...,
        description: str | None = ...,
        icons: Sequence[Icon] = ...,
        requires: Sequence[type[InputRequest[Any]]] = ...,
        timeout: float | None = ...,
        version: str | None = ...,
        meta: Mapping[str, JSON] | None = ...,
        tags: Iterable[str] = ...,
        interceptors: Iterable[Interceptor] = ...,
        visible: ViewerTest | None = ...,
        scopes: Collection[str] = ...,
    ) -> Callable[[F], F]: ...
    def prompt(self, *functions: Any, **options: Any) -> Any:
        """Offer a function as a prompt. It returns strings, blocks or `Message`s.

        Clients send a prompt's arguments as strings; they are converted for parameters
        that are numbers or booleans. For the options, see `tool`.
        """

        def register(function: F) -> F:
            self.add(make_prompt(function, **options))
            return function

        return register(*functions) if functions else register

    # ---- resources ----

    def resource(
        self,
        uri: str,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        size: int | None = None,
        icons: Sequence[Icon] = (),
        annotations: Annotations | None = None,
        ttl: float = 0,
        scope: Literal["public", "private"] = "private",
        requires: Sequence[type[InputRequest[Any]]] = (),
        timeout: float | None = None,
        version: str | None = None,
        meta: Mapping[str, JSON] | None = None,
        tags: Iterable[str] = (),
        interceptors: Iterable[Interceptor] = (),
        visible: ViewerTest | None = None,
        scopes: Collection[str] = (),
    ) -> Callable[[F], F]:
        """Offer a function as the resource `uri`, or as all resources of a template.

            @app.resource("shop://books/{title}")
            def book(title: str) -> str: ...

        The function returns a string, bytes, `ResourceContents`, or a list of these;
        any other value is served as JSON.

        Args:
            uri: A URI, or a template: `{name}` matches a part of a path, without
                slashes, and `{+path}` several segments. No value can lead out of a
                directory.
            name: The resource's name; the default is the function's.
            title: A name for people.
            description: A description; the default is the docstring's first paragraph.
            mime_type: The MIME type of the contents.
            size: The size of the contents in bytes.
            icons: Icons that clients may show.
            annotations: Hints for clients that show the resource.
            ttl: Seconds that a client may cache the contents.
            scope: `"public"` if all users get the same contents.
            requires: See `tool`, also for `timeout`, `version`, `meta`, `tags`,
                `interceptors`, `visible` and `scopes`.
        """
        given: object = uri
        if not isinstance(given, str):
            name = getattr(given, "__name__", repr(given))
            raise SchemaError(
                f"{name} is at no URI: write @app.resource('shop://...') above it"
            )

        def register(function: F) -> F:
            self.add(
                make_resource(
                    function,
                    uri,
                    name=name,
                    title=title,
                    description=description,
                    mime_type=mime_type,
                    size=size,
                    icons=icons,
                    annotations=annotations,
                    ttl=ttl,
                    scope=scope,
                    requires=requires,
                    timeout=timeout,
                    version=version,
                    meta=meta,
                    tags=tags,
                    interceptors=interceptors,
                    visible=visible,
                    scopes=scopes,
                )
            )
            return function

        return register

    def updated(self, uri: str) -> None:
        """Notify the clients that subscribed to the resource `uri` that it changed."""
        self.changes.publish(Change("resource", uri))

    # ---- completions ----

    def completion(self, of: str, argument: str) -> Callable[[F], F]:
        """Offer suggestions for an argument of a prompt, or a variable of a template.

            @app.completion("review", "language")
            def languages(text: str) -> list[str]: ...

        Choices (`Literal`, `Enum`) are suggested without this.

        Args:
            of: The prompt's name, or the template as it was registered.
            argument: The argument's name. The function gets the user's unfinished input
                as `text`. Functions that take a `context` also get the arguments that
                are filled in already.
        """

        def register(function: F) -> F:
            feature = self.prompts.get(of) or self.templates.get(of)
            if feature is None:
                raise SchemaError(f"{of!r} is neither a prompt nor a template here")
            if argument not in feature.handler.takes.schema.get("properties", {}):
                raise SchemaError(f"{of!r} takes no {argument!r}")
            made = make_completion(function)
            self._registered["completions"][of, argument] = [made]
            self._publish("completions")
            return function

        return register

    # ---- interceptors ----

    @overload
    def intercept(
        self, function: F, /, *, kind: CallKind | None = ..., tag: str | None = ...
    ) -> F: ...
    @overload
    def intercept(
        self, *, kind: CallKind | None = ..., tag: str | None = ...
    ) -> Callable[[F], F]: ...
    def intercept(
        self,
        *functions: Any,
        kind: CallKind | None = None,
        tag: str | None = None,
    ) -> Any:
        """Have calls go through a function, which may change, answer or refuse them.

            @app.intercept
            def only_office_hours(call: Call) -> Intercepting:
                ...
                result = yield from call
                return result

        The order, from the outside: those for all calls, for a kind, for a tag, and for
        one feature (`interceptors=`); within each of these, as they were registered.

        Args:
            *functions: The interceptor, a generator function that takes the `Call`.
            kind: Only calls of this kind: `"tool"`, `"prompt"` or `"resource"`.
            tag: Only calls of features with this tag.

        Raises:
            SchemaError: If the function is not an interceptor, or if both `kind` and `tag`
                are given.
        """
        if kind is not None and kind not in _KINDS:
            raise SchemaError(
                f"intercept(kind={kind!r}): give one of {', '.join(_KINDS)}"
            )
        if kind is not None and tag is not None:
            raise SchemaError("intercept(): give kind or tag, not both")

        def register(function: F) -> F:
            checked = checked_interceptor("intercept()", function)
            self._interceptors.append(_Selected(checked, kind, tag))
            for what in self._guarded:
                self._publish(what, is_guarded_anew=True)
            return function

        return register(*functions) if functions else register

    def _chain(self, feature: Feature) -> tuple[Interceptor, ...]:
        """Return the interceptors of a feature, the outermost first."""
        found = [one for one in self._interceptors if one.is_for_all]
        found += [one for one in self._interceptors if one.kind == feature.kind]
        found += [one for one in self._interceptors if one.tag in feature.tags]
        return (*[one.function for one in found], *feature.interceptors)

    # ---- adding and removing ----

    def add(self, feature: Tool | Prompt | Resource) -> None:
        """Add a feature, and notify clients.

        Raises:
            SchemaError: If there is a feature of that kind and name already.
        """
        what, key = _place(feature)
        mine = [feature]
        if self._registered[what].setdefault(key, mine) is not mine:
            raise SchemaError(f"there is another {what.removesuffix('s')} {key!r}")
        self._publish(what)
        self.changes.publish(attrs.evolve(_CHANGES[what], feature=feature))

    def remove(self, feature: Tool | Prompt | Resource) -> None:
        """Stop offering a feature, such as `app.tools["order"]`, and notify clients.

        Its completions are removed, too. Calls that are running continue.

        Raises:
            UsageError: If the server does not offer the feature.
        """
        what, key = _place(feature)
        held = self._registered[what].get(key, [])
        try:
            if held[0] is not feature:
                raise IndexError
            held.pop()  # of two threads that remove it, one finds it
        except IndexError:
            raise UsageError(f"{key!r} is not among the {what} of {self!r}") from None
        del self._registered[what][key]
        self._publish(what)
        if what in ("prompts", "templates"):
            completions = self._registered["completions"]
            for place in completions.copy():
                if place[0] == key:
                    completions.pop(place, None)
            self._publish("completions")
        self.changes.publish(attrs.evolve(_CHANGES[what], feature=feature))

    def _publish(self, what: str, *, is_guarded_anew: bool = False) -> None:
        # One thread at a time: what another one has computed before would be published
        # after, and miss a feature whose registration has returned. Pure parts import no
        # locks, so one operation of a dict decides, and the others try again.
        mine = object()
        while self._publishing.setdefault("", mine) is not mine:
            pass
        try:
            held = self._held(what)
            if is_guarded_anew:
                self._guarded[what] = frozenset()
            if what in self._guarded:
                self._guard(what, frozenset(held.values()))
            setattr(self, what, held)
            able = self._capabilities()
            if able != self.capabilities:
                self.capabilities, self.methods = able, methods_of(NEWEST, able)
        finally:
            del self._publishing[""]

    def _guard(self, what: str, features: frozenset[Feature]) -> None:
        """Decide, for new features, what is around their calls and who may see them."""
        new = features - self._guarded[what]
        self._guarded[what] = features
        for one in new:
            if chain := self._chain(one):
                self.around[one] = chain
                self.has_around = True
        # All of this before the features can be seen. It never becomes false again.
        self.is_filtered |= any(one.visible is not None or one.scopes for one in new)

    def _held(self, what: str) -> dict[Any, Any]:
        held = self._registered[what].copy().items()
        return {key: one for key, ones in held for one in ones[:1]}

    def _capabilities(self) -> frozenset[Capability]:
        features: dict[Capability, object] = {
            "tools": self.tools,
            "prompts": self.prompts,
            "resources": self.resources or self.templates,
            # Arguments of prompts and variables of templates can be completed.
            "completions": self.prompts or self.templates,
            "tasks": self._tasks is not None
            and any(tool.handler.kind == "flow" for tool in self.tools.values()),
        }
        return frozenset([name for name, some in features.items() if some])


@attrs.frozen(eq=False)
class _Selected:
    """An interceptor, and the calls that it is for."""

    function: Interceptor
    kind: CallKind | None
    tag: str | None

    @property
    def is_for_all(self) -> bool:
        return self.kind is None and self.tag is None


_KINDS: Final[tuple[CallKind, ...]] = ("tool", "prompt", "resource")

_CHANGES: Final = {
    "tools": Change("tools"),
    "prompts": Change("prompts"),
    "resources": Change("resources"),
    "templates": Change("resources"),
}


def _place(feature: Tool | Prompt | Resource) -> tuple[str, str]:
    match feature:
        case Tool():
            return "tools", feature.name
        case Prompt():
            return "prompts", feature.name
        case ResourceTemplate():
            return "templates", feature.uri
        case _:
            return "resources", feature.uri
