"""One function per MCP method, shared by all eras.

A function takes a `Context`, whose dialect adapts its result and its errors to the era.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

from attrs import define

from ..canonical import JSON
from ..effects.control import Detach
from ..engine.journal import Journal
from ..engine.stops import Failure
from ..errors import (
    ArgumentsError,
    MissingScope,
    OutputError,
    ProtocolError,
    StateError,
    Unsupported,
)
from ..protocol.headers import HeaderMismatch, check_params
from ..protocol.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    encode,
    notification,
    result_message,
)
from ..server.features import Completion, Feature, Resource, Tool
from ..server.handlers import read_texts
from ..server.viewers import may_hear
from ..state.codec import Claims
from ..state.seal import whole_seconds
from .calls import Handle, Interim, PlainCall
from .commands import Command, Invoke, Listen, Notify, Reply
from .context import (
    Context,
    Legacy,
    caller_of,
    may_call,
    seated,
    trace_of,
    viewer_of,
)
from .intercepting import Prepared, intercept
from .lists import discover, find_completion, list_page, suggestions
from .results import (
    Misread,
    error_of,
    prompt_result,
    resource_result,
    tool_failure,
    tool_result,
    unshared,
)
from .rounds import FlowCall
from .subscriptions import open_subscription
from .task_results import result_of_task
from .task_wires import EXTENSION, support_of
from .tasks import (
    can_run,
    cancel_task,
    create_task,
    get_task,
    is_asked_for,
    is_task,
    list_tasks,
    new_row,
    read_answers_of_task,
    readable_tasks,
    update_task,
)
from .telling import tell

__all__ = ["ANSWERS", "Answering", "mismatch", "reply_to"]

Answering: TypeAlias = Generator[Command, Any, Reply]


def mismatch(exc: HeaderMismatch) -> ProtocolError:
    """Return the error for a request whose headers do not match its body."""
    return ProtocolError(exc.CODE, str(exc), status=400)


def reply_to(context: Context, outcome: Mapping[str, JSON] | Interim | Handle) -> Reply:
    """Return the response to a request that succeeded.

    The result is encoded here, while an error can still be sent in its place: a block,
    a string or the `_meta` of a handler may contain a lone surrogate or a NaN.

    Args:
        context: The request.
        outcome: The fields of its result, the questions that its flow asks, or the task
            that it has become.

    Raises:
        OutputError: If JSON cannot express the result.
    """
    dialect = context.dialect
    if isinstance(outcome, Interim):
        assert not isinstance(dialect, Legacy)  # such a flow asks live, and is kept
        if outcome.asked is not None:
            tell(context.app, outcome.asked)
        outcome = dialect.interim(outcome.questions, outcome.token)
    elif isinstance(outcome, Handle):
        assert dialect.tasks is not None  # `can_follow` has checked it
        outcome = dialect.tasks.handle(outcome.row)
    result = dialect.result(context.app.info, outcome)
    message = result_message(context.request.id, result)
    try:
        return Reply(message, body=encode(message))
    except (TypeError, ValueError, RecursionError) as exc:
        raise OutputError([f"the result: has no form in JSON: {exc}"]) from None


def _told(context: Context, error: Exception) -> Exception:
    """Return `error` as the era of this request reports it; note it for observers."""
    if context.watched is not None:
        context.watched.error = error
    if isinstance(error, Unsupported):
        return context.dialect.unsupported(context, error)
    return error


def _discover(context: Context) -> Answering:
    yield from ()
    return reply_to(context, discover(context.app))


def _list(context: Context) -> Answering:
    yield from ()
    app, request = context.app, context.request
    viewer = viewer_of(context) if app.is_filtered else None
    page = list_page(app, request.method, request.params, viewer)
    wire = context.dialect.tasks
    if "tools" in page and wire is not None and wire.is_requested and can_run(app):
        # Clients ask for tasks of these tools only (2025-11-25, Tool-Level Negotiation).
        page["tools"] = [
            {
                **one,
                "execution": {"taskSupport": support_of(app.tools.get(one["name"]))},
            }
            for one in page["tools"]
        ]
    return reply_to(context, page)


def _prepare(
    context: Context, feature: Feature, target: str, arguments: JSON
) -> Prepared:
    """Return the call of a feature's handler.

    Its `run` takes the keyword arguments, and returns the handler's value; an `Interim` if
    the handler asks; a `Handle` if the call becomes a task. It raises what the handler
    raises, and `Dropped` if the client cancelled the request of a live flow.

    Args:
        context: The request.
        feature: The feature.
        target: The name or URI by which the request calls it.
        arguments: The arguments as the client sent them: a state is bound to these.

    Raises:
        StateError: If the request has a state, and the handler asks nothing.
        Exception: If the client lacks a capability that the feature requires.
    """
    if feature.requires:
        lacking = context.dialect.lacking(context, feature.requires)
        if lacking is not None:
            raise lacking
    seconds = context.app.timeout if feature.timeout is None else feature.timeout
    has_state = context.request.params.get("requestState") is not None
    if isinstance(feature, Tool) and (
        feature.task is not None or context.dialect.tasks is not EXTENSION
    ):
        # A call that began with rounds ends with them.
        is_begun = has_state and not context.dialect.is_live
        if is_task(context, feature, is_begun=is_begun):
            return _WholeTask(context, feature, arguments)
    if feature.handler.kind == "flow":
        return FlowCall(context, feature, target, arguments, arguments, seconds)
    if has_state:
        raise StateError("target")  # this function asks nothing, so it has no states
    return PlainCall(context, feature.handler, seconds)


@define(eq=False)
class _WholeTask:
    """A call that is a task from its start."""

    _context: Context
    _tool: Tool
    arguments: JSON

    _claims: Claims | None = None
    is_resumed = False

    def open(self) -> Claims:
        """Return the start of a flow."""
        self._claims = Claims(
            flow_id=self._context.entropy(16),
            started=whole_seconds(self._context.clock()),
            journal=Journal(),
            version=self._tool.version,
            trace=trace_of(self._context),
        )
        return self._claims

    def run(self, kwargs: Mapping[str, Any]) -> Generator[Command, Any, Handle]:
        """Make it one; its arguments have been read, and so they fit."""
        context, claims = self._context, self._claims or self.open()
        row = new_row(
            context,
            self._tool,
            self.arguments,
            claims.flow_id,
            caller_of(context, claims.flow_id),
            journal=claims.journal,
            is_whole=True,
            detach=Detach(),
            version=claims.version,
            trace=claims.trace,
        )
        return Handle((yield from create_task(context, row)))


def _call_tool(context: Context) -> Answering:
    params, app = context.request.params, context.app
    name: JSON = params.get("name")
    if type(name) is not str:
        name = _text(params, "name")
    tool = app.tools.get(name)
    if tool is None or (app.is_filtered and not may_call(context, tool)):
        raise ProtocolError(INVALID_PARAMS, f"Unknown tool: {name}")
    arguments = params.get("arguments")
    if type(arguments) is not dict:
        arguments = _arguments(params)
    is_modern = context.dialect.era == "modern"  # no other era has such headers
    if tool.headers and is_modern and context.peer.headers is not None:
        try:
            check_params(context.peer.headers, tool.headers, arguments)
        except HeaderMismatch as exc:
            raise mismatch(exc) from None
    try:
        call, read = _prepare(context, tool, name, arguments), tool.handler.takes.read
        if app.has_around and (chain := app.around.get(tool)):
            going = intercept(context, chain, tool, name, arguments, call, read)
            outcome = yield from going
            if tool.is_whole_task and is_asked_for(context):
                _check_task(outcome, name)
            return reply_to(context, outcome)
        try:
            kwargs = read(arguments)
        except ArgumentsError as exc:
            raise Misread(exc.problems) from None
        value = yield from call.run(kwargs)
        if isinstance(value, (Interim, Handle)):
            return reply_to(context, value)
        return reply_to(context, tool_result(tool, value))
    except Exception as exc:
        exc = _told(context, exc)
        if (tool.is_whole_task or isinstance(exc, Misread)) and is_asked_for(context):
            # A client that asked for a task reads a task, or an error.
            raise error_of(exc, name) from exc
        return reply_to(context, tool_failure(exc, name))


def _check_task(outcome: Mapping[str, JSON] | Interim | Handle, name: str) -> None:
    """Check that a client that asked for a task gets one.

    Raises:
        ProtocolError: If an interceptor has answered in its place.
    """
    if isinstance(outcome, Mapping):
        raise ProtocolError(
            INTERNAL_ERROR, f"{name} was answered at once, and did not become a task"
        )


def _get_prompt(context: Context) -> Answering:
    params, app = context.request.params, context.app
    name = _text(params, "name")
    prompt = app.prompts.get(name)
    if prompt is None or (app.is_filtered and not may_call(context, prompt)):
        raise ProtocolError(INVALID_PARAMS, f"Unknown prompt: {name}")
    arguments = _arguments(params)

    def read(arguments: Mapping[str, JSON]) -> Mapping[str, Any]:
        if not all(isinstance(one, str) for one in arguments.values()):
            raise ProtocolError(INVALID_PARAMS, "Invalid params: arguments are strings")
        return read_texts(prompt.handler, arguments)

    try:
        call = _prepare(context, prompt, name, arguments)
        if app.has_around and (chain := app.around.get(prompt)):
            going = intercept(context, chain, prompt, name, arguments, call, read)
            return reply_to(context, (yield from going))
        try:
            kwargs = read(arguments)
        except ArgumentsError as exc:
            raise Misread(exc.problems) from None
        value = yield from call.run(kwargs)
        if isinstance(value, (Interim, Handle)):
            return reply_to(context, value)
        return reply_to(context, prompt_result(prompt, value))
    except Exception as exc:
        raise error_of(_told(context, exc), name) from exc


def _read_resource(context: Context) -> Answering:
    app, uri = context.app, _text(context.request.params, "uri")
    resource, kwargs = _find_resource(context, uri)
    try:
        call = _prepare(context, resource, uri, None)
        if app.has_around and (chain := app.around.get(resource)):
            going = intercept(
                context, chain, resource, uri, None, call, lambda given: kwargs
            )
            outcome = yield from going
        else:
            outcome = yield from call.run(kwargs)
            if not isinstance(outcome, (Interim, Handle)):
                outcome = resource_result(resource, uri, outcome)
        if isinstance(outcome, Mapping):
            outcome = unshared(app, resource, outcome)
        return reply_to(context, outcome)
    except Exception as exc:
        raise error_of(_told(context, exc), uri) from exc


def _find_resource(context: Context, uri: str) -> tuple[Resource, Mapping[str, Any]]:
    app = context.app
    resource = app.resources.get(uri)
    if resource is not None and (not app.is_filtered or may_call(context, resource)):
        return resource, {}
    missing: MissingScope | None = None
    for template in app.templates.values():
        texts = template.template.match(uri)
        if texts is None:
            continue
        try:
            found = read_texts(template.handler, texts)
        except ArgumentsError:
            continue  # the function does not take such values: try the next template
        try:
            if not app.is_filtered or may_call(context, template):
                return template, found
        except MissingScope as exc:
            missing = missing or exc  # another template may need less
    if missing is not None:
        raise missing
    raise ProtocolError(INVALID_PARAMS, "Resource not found", {"uri": uri})


def _complete(context: Context) -> Answering:
    app = context.app
    may_use = partial(may_call, context) if app.is_filtered else None
    found, text, filled = find_completion(app, context.request.params, may_use)
    if isinstance(found, Completion):
        args = (
            {"text": text, "context": filled} if found.wants_context else {"text": text}
        )
        seconds = app.timeout
        outcome = yield Invoke(
            found.call,
            args,
            is_async=found.is_async,
            deadline=None if seconds is None else context.clock() + seconds,
            variables=None if context.watched is None else context.watched.variables,
        )
        if isinstance(outcome, Failure):
            raise outcome.error
        # Suggestions of a function need not begin with `text`, so none is left out.
        return reply_to(context, suggestions(outcome.value, ""))
    return reply_to(context, suggestions(found, text))


def _listen(context: Context) -> Answering:
    subscription = open_subscription(
        context.request.id,
        context.request.params,
        partial(may_hear, context.app, viewer_of(context)),
    )
    subscription.identity = context.peer.identity
    with seated(context, "Subscribe again later."):
        if subscription.asked_tasks:
            ids = yield from readable_tasks(context, subscription.asked_tasks)
            if ids and context.app.tasks is not None:
                subscription.follow(ids, context.app.tasks.read)
        yield Listen(subscription)
    # The server shuts down, or the client's token expires. Two messages announce it: this
    # one, that the stream is closed (Cancellation), and the result, that it is a graceful
    # end (Subscriptions, Graceful Closure).
    params = {"_meta": subscription.meta, "requestId": context.request.id}
    yield Notify(notification("notifications/cancelled", params))
    return reply_to(context, {"_meta": subscription.meta})


def _of_task(
    answer: Callable[[Context], Generator[Command, Any, dict[str, JSON]]],
) -> Callable[[Context], Answering]:
    def answer_of_task(context: Context) -> Answering:
        return reply_to(context, (yield from answer(context)))

    return answer_of_task


#: The function that answers each method.
ANSWERS: Final[Mapping[str, Callable[[Context], Answering]]] = {
    "server/discover": _discover,
    "tools/list": _list,
    "tools/call": _call_tool,
    "prompts/list": _list,
    "prompts/get": _get_prompt,
    "resources/list": _list,
    "resources/templates/list": _list,
    "resources/read": _read_resource,
    "completion/complete": _complete,
    "subscriptions/listen": _listen,
    "tasks/get": _of_task(get_task),
    "tasks/result": _of_task(result_of_task),
    "tasks/list": _of_task(list_tasks),
    "tasks/input_response": _of_task(read_answers_of_task),
    "tasks/update": _of_task(update_task),
    "tasks/cancel": _of_task(cancel_task),
}


def _text(params: Mapping[str, JSON], name: str) -> str:
    value = params.get(name)
    if not isinstance(value, str):
        raise ProtocolError(
            INVALID_PARAMS, f"Invalid params: {name} is required and must be a string"
        )
    return value


def _arguments(params: Mapping[str, JSON]) -> dict[str, JSON]:
    # A client that has no arguments leaves the key out or sends null.
    arguments = params.get("arguments")
    if arguments is None:
        return {}
    if not isinstance(arguments, dict):
        raise ProtocolError(INVALID_PARAMS, "Invalid params: arguments are an object")
    return arguments
