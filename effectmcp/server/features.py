"""Tools, prompts, resources: a handler, and how it is listed.

A feature is made once, when it is registered, together with its list item. So making a
list only means joining the items, and errors are reported at import.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias, get_origin

import attrs
from attrs import field, frozen

from ..canonical import JSON, dumps
from ..content import Annotations, Block, Icon, ToolResult
from ..effects.base import InputRequest
from ..errors import CanonicalError, SchemaError
from ..protocol.headers import ParamHeader, param_headers
from ..protocol.templates import UriTemplate, parse_template
from ..schema.functions import read_signature
from ..schema.raw import RawSchema
from ..schema.results import Output, output_of
from .handlers import Handler, make_handler
from .identity import checked_scopes
from .interceptors import checked_interceptors
from .listeners import check_test

if TYPE_CHECKING:
    from ..engine.rules import Rules
    from .interceptors import CallKind, Interceptor
    from .viewers import ViewerTest

__all__ = [
    "Completion",
    "Feature",
    "Prompt",
    "Resource",
    "ResourceTemplate",
    "TaskSupport",
    "Tool",
    "checked_timeout",
    "make_completion",
    "make_prompt",
    "make_resource",
    "make_tool",
]

#: The names that clients accept (2026-07-28, Tools, Tool Names).
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")


@frozen(eq=False, kw_only=True)
class Feature:
    """Base class of tools, prompts and resources.

    Attributes:
        kind: What it is, as interceptors name it.
        name: The name of the feature.
        handler: The function that runs.
        listing: The item that a list shows.
        requires: Questions that a client must be able to answer; checked before the
            handler runs.
        timeout: Seconds per request; `None` for the server's default.
        version: The handler's version, for reports about flows that started with
            another one.
        single_use: Whether each state of a call counts for one request. Only tools may.
        tags: Names by which interceptors select it.
        interceptors: The interceptors of this feature alone.
        visible: Returns whether it exists for a viewer; `None`: for all of them.
        scopes: What a caller must be allowed to do to use it.
    """

    kind: ClassVar[CallKind]

    name: str
    handler: Handler
    listing: Mapping[str, JSON]
    requires: tuple[type[InputRequest[Any]], ...] = ()
    timeout: float | None = None
    version: str | None = None
    single_use: bool = False
    tags: frozenset[str] = frozenset()
    interceptors: tuple[Interceptor, ...] = ()
    visible: ViewerTest | None = None
    scopes: frozenset[str] = frozenset()


TaskSupport: TypeAlias = Literal["optional", "required", "deferred"]


@frozen(eq=False, kw_only=True)
class Tool(Feature):
    """A tool.

    Attributes:
        output: How a result becomes `structuredContent`; `None` if the function's
            annotation promises none.
        raw_output: The output schema, if it was written by hand.
        headers: Arguments that clients mirror into HTTP headers.
        task: Whether a call is a task from its start: `"optional"` if the client can
            follow tasks, `"required"` always. If only a `Detach` makes it one: `None`, or
            `"deferred"` to offer that to clients of 2025-11-25 and the drafts, too.
    """

    kind: ClassVar[CallKind] = "tool"

    output: Output | None = None
    raw_output: RawSchema | None = None
    headers: tuple[ParamHeader, ...] = ()
    task: TaskSupport | None = None

    @property
    def is_whole_task(self) -> bool:
        """Whether a call may be a task from its start."""
        return self.task in ("optional", "required")

    def rules_of(self, rules: Rules) -> Rules:
        """Return some rules as they are for this tool.

        A tool that is a task for some clients has been written for it, so it may sleep
        in a request, too (docs/internals/replay.md#v3). The first request of a call has
        no state that could count once, so it brings no answers (docs/internals/replay.md#q3).
        """
        if self.is_whole_task:
            rules = attrs.evolve(rules, later=True)
        if self.single_use:
            rules = attrs.evolve(rules, early_answers=False)
        return rules


@frozen(eq=False, kw_only=True)
class Completion:
    """Suggestions for one argument.

    Attributes:
        call: The function; it takes `text`, and may take `context`, by keyword.
        wants_context: Whether it takes the arguments that are filled in already.
        is_async: Whether it must be awaited.
    """

    call: Callable[..., Any]
    wants_context: bool = False
    is_async: bool = False


@frozen(eq=False, kw_only=True)
class Prompt(Feature):
    """A prompt.

    Attributes:
        description: The description in its result.
    """

    kind: ClassVar[CallKind] = "prompt"

    description: str = ""


@frozen(eq=False, kw_only=True)
class Resource(Feature):
    """A resource with one URI.

    Attributes:
        uri: The URI, or the template.
        mime_type: The MIME type of the contents.
        ttl: Seconds that a client may cache the contents.
        scope: `"public"` if all users get the same contents, else `"private"`.
    """

    kind: ClassVar[CallKind] = "resource"

    uri: str
    mime_type: str | None = None
    ttl: float = 0
    scope: str = "private"


@frozen(eq=False, kw_only=True)
class ResourceTemplate(Resource):
    """Resources whose URIs follow a template.

    Attributes:
        template: The template, parsed.
    """

    template: UriTemplate = field(repr=False)


def _head(
    name: str,
    title: str | None,
    description: str | None,
    icons: Iterable[Icon],
    meta: Mapping[str, JSON] | None,
    **more: JSON,
) -> dict[str, JSON]:
    fields: dict[str, JSON] = {
        "name": name,
        "title": title,
        "description": description or None,
        **more,
        "icons": [icon.to_wire() for icon in icons] or None,
        "_meta": None if meta is None else dict(meta),
    }
    listing = {key: value for key, value in fields.items() if value is not None}
    try:
        dumps(listing)
    except CanonicalError as exc:
        raise SchemaError(
            f"{name}: its entry in the list is not JSON: {exc.problem}"
        ) from None
    return listing


def _checked_name(name: str, noun: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise SchemaError(
            f"the {noun} name {name!r}: use 1 to 128 of A-Z a-z 0-9 _ . - and say the"
            " rest in title="
        )
    return name


def _checked_limits(of: str, requires: Any, timeout: Any) -> dict[str, Any]:
    questions = (
        tuple(map(_without_form, requires))
        if isinstance(requires, Iterable) and not isinstance(requires, (str, type))
        else (None,)
    )
    if not all(map(_is_question, questions)):
        raise SchemaError(
            f"{of}: requires={requires!r}: give the questions that are asked, such as"
            " (Elicit,)"
        )
    return {"requires": questions, "timeout": checked_timeout(of, timeout)}


def _checked_guards(
    of: str, tags: Any, interceptors: Any, visible: Any, scopes: Any
) -> dict[str, Any]:
    if isinstance(tags, str) or not all(isinstance(one, str) for one in tags):
        raise SchemaError(f"{of}: tags={tags!r}: give a list of strings")
    if visible is not None:
        check_test(f"{of}: visible=", visible, of=1)
    return {
        "tags": frozenset(tags),
        "interceptors": checked_interceptors(of, interceptors),
        "visible": visible,
        "scopes": checked_scopes(f"{of}: scopes=", scopes) if scopes else frozenset(),
    }


def _without_form(given: Any) -> Any:
    origin: Any = get_origin(given)  # `Elicit[str]` counts as `Elicit` here
    return given if origin is None else origin


def _is_question(given: object) -> bool:
    return isinstance(given, type) and issubclass(given, InputRequest)


def checked_timeout(of: str, seconds: Any) -> float | None:
    """Return a timeout as a float; `None` for no limit.

    Raises:
        SchemaError: If `seconds` is not a positive number.
    """
    if seconds is None:
        return None
    try:
        if not isinstance(seconds, (bool, str, bytes)) and float(seconds) > 0:
            return float(seconds)
    except (TypeError, ValueError, OverflowError):
        pass
    raise SchemaError(f"{of}: timeout={seconds!r}: give seconds, more than 0")


def _function_name(function: Callable[..., Any]) -> str:
    name: str = getattr(function, "__name__", type(function).__name__)
    return name


def make_tool(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    icons: Sequence[Icon] = (),
    read_only: bool | None = None,
    destructive: bool | None = None,
    idempotent: bool | None = None,
    open_world: bool | None = None,
    input_schema: Mapping[str, JSON] | None = None,
    output_schema: Mapping[str, JSON] | None = None,
    requires: Sequence[type[InputRequest[Any]]] = (),
    timeout: float | None = None,
    version: str | None = None,
    meta: Mapping[str, JSON] | None = None,
    task: TaskSupport | None = None,
    single_use: bool = False,
    tags: Iterable[str] = (),
    interceptors: Iterable[Interceptor] = (),
    visible: ViewerTest | None = None,
    scopes: Collection[str] = (),
) -> Tool:
    """Make a tool; see `Server.tool` for the parameters."""
    name = _checked_name(name or _function_name(function), "tool")
    handler = make_handler(function, schema=input_schema, of=f"input_schema of {name}")
    if task not in (None, "optional", "required", "deferred"):
        raise SchemaError(
            f"{name}: task={task!r}: give 'optional', 'required' or 'deferred'"
        )
    if task is not None and handler.kind != "flow":
        raise SchemaError(
            f"{name}: task={task!r} is for a generator that yields effects: write a flow"
            " whose steps are what takes long"
        )
    if single_use not in (True, False):
        raise SchemaError(f"{name}: single_use={single_use!r}: give True or False")
    if single_use and handler.kind != "flow":
        raise SchemaError(
            f"{name}: single_use=True is for a generator that yields effects: other"
            " functions ask nothing, so they have no state to use twice"
        )
    schema = dict(handler.takes.schema)
    output, raw = None, None
    if output_schema is not None:
        raw = RawSchema(output_schema, of=f"output_schema of {name}")
    elif handler.returns is not None:
        of = f"{handler.name}(), the result"
        output = output_of(handler.returns, content=(Block, ToolResult), of=of)
    if output is not None or raw is not None:
        handler = attrs.evolve(handler, declared=None)  # the schema says more
    published = raw.schema if raw is not None else output and output.schema
    hints = {
        "readOnlyHint": read_only,
        "destructiveHint": destructive,
        "idempotentHint": idempotent,
        "openWorldHint": open_world,
    }
    listing = _head(
        name,
        title,
        description or handler.takes.description,
        icons,
        meta,
        inputSchema=schema,
        outputSchema=published,
        annotations={key: one for key, one in hints.items() if one is not None} or None,
    )
    return Tool(
        name=name,
        handler=handler,
        listing=listing,
        **_checked_limits(name, requires, timeout),
        **_checked_guards(name, tags, interceptors, visible, scopes),
        version=version,
        output=output,
        raw_output=raw,
        headers=param_headers(schema),
        task=task,
        single_use=single_use,
    )


def make_prompt(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    icons: Sequence[Icon] = (),
    requires: Sequence[type[InputRequest[Any]]] = (),
    timeout: float | None = None,
    version: str | None = None,
    meta: Mapping[str, JSON] | None = None,
    tags: Iterable[str] = (),
    interceptors: Iterable[Interceptor] = (),
    visible: ViewerTest | None = None,
    scopes: Collection[str] = (),
) -> Prompt:
    """Make a prompt; see `Server.prompt` for the parameters."""
    name = _checked_name(name or _function_name(function), "prompt")
    handler = make_handler(function)
    schema = handler.takes.schema
    required = schema.get("required", [])
    arguments = []
    for argument, one in schema.get("properties", {}).items():
        shown = {"name": argument, "title": one.get("title")}
        shown |= {
            "description": one.get("description"),
            "required": argument in required,
        }
        arguments.append(
            {key: value for key, value in shown.items() if value is not None}
        )
    text = description or handler.takes.description
    return Prompt(
        name=name,
        handler=handler,
        listing=_head(
            name, title, text, icons, meta, arguments=arguments if arguments else None
        ),
        **_checked_limits(name, requires, timeout),
        **_checked_guards(name, tags, interceptors, visible, scopes),
        version=version,
        description=text,
    )


def make_resource(
    function: Callable[..., Any],
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
    scope: str = "private",
    requires: Sequence[type[InputRequest[Any]]] = (),
    timeout: float | None = None,
    version: str | None = None,
    meta: Mapping[str, JSON] | None = None,
    tags: Iterable[str] = (),
    interceptors: Iterable[Interceptor] = (),
    visible: ViewerTest | None = None,
    scopes: Collection[str] = (),
) -> Resource:
    """Make a resource or a template; see `Server.resource` for the parameters."""
    if scope not in ("public", "private"):
        raise SchemaError(f"{uri}: scope is 'public' or 'private', not {scope!r}")
    name = name or _function_name(function)
    handler = make_handler(function)
    is_template = "{" in uri
    listing = _head(
        name,
        title,
        description or handler.takes.description,
        icons,
        meta,
        **{"uriTemplate" if is_template else "uri": uri},
        mimeType=mime_type,
        size=size,
        annotations=None if annotations is None else annotations.to_wire(),
    )
    takes = list(handler.takes.schema.get("properties", {}))
    common: dict[str, Any] = {
        "name": name,
        "handler": handler,
        "listing": listing,
        **_checked_limits(uri, requires, timeout),
        **_checked_guards(uri, tags, interceptors, visible, scopes),
        "version": version,
        "uri": uri,
        "mime_type": mime_type,
        "ttl": ttl,
        "scope": scope,
    }
    if not is_template:
        if takes:
            raise SchemaError(
                f"{uri}: {handler.name} takes {takes[0]!r}, and a URI without"
                f" {{{takes[0]}}} in it has none to give"
            )
        _check_uri(uri)
        return Resource(**common)
    template = parse_template(uri)
    required = set(handler.takes.schema.get("required", []))
    always = set(template.variables) - template.optional
    if not required <= always or not set(template.variables) <= set(takes):
        raise SchemaError(
            f"{uri}: its variables are {', '.join(template.variables)}, and"
            f" {handler.name} takes {', '.join(takes) or 'nothing'}"
        )
    return ResourceTemplate(**common, template=template)


def make_completion(function: Callable[..., Any]) -> Completion:
    """Make a completion of `function`.

    Raises:
        SchemaError: If `function` takes other parameters than `text` and `context`, or
            yields effects.
    """
    signature = read_signature(function)
    takes = [parameter.name for parameter in signature.parameters]
    if takes not in (["text"], ["text", "context"]):
        raise SchemaError(
            f"{signature.name}: a completion takes (text) or (text, context)"
        )
    kind = make_handler(function).kind
    if kind == "flow":
        raise SchemaError(f"{signature.name}: a completion cannot yield effects")
    return Completion(
        call=function,
        wants_context="context" in takes,
        is_async=kind == "async",
    )


_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s\x00-\x20\x7f]+")


def _check_uri(uri: str) -> None:
    if _SCHEME.fullmatch(uri) is None:
        raise SchemaError(
            f"{uri!r} is not a URI; start it with a scheme of your own, as in"
            " shop://books/dune"
        )
