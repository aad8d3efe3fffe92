"""A client in memory that exchanges whole messages with a server in this process.

    client = MemoryClient(app, {"Who is it for?": "Ann", "Deliver": Declined()})
    assert client.call_tool("order", title="Dune").is_error

A request takes the same path as on a server, except for HTTP: the same requests are
refused, and states are sealed.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ..canonical import JSON
from ..client.results import Result
from ..drivers.sync import handle
from ..errors import Declined, Dismissed, ProtocolError, UsageError
from ..exchange.commands import peer_of
from ..protocol.meta import CLIENT_CAPABILITIES, CLIENT_INFO
from ..protocol.revisions import PROTOCOL_VERSION, VERSIONS
from ..shapes.sources import class_source
from ..state.keys import Keys, make_key
from .loops import RunAsync, runner_of
from .values import plain

if TYPE_CHECKING:
    from ..server.app import Server
    from ..server.identity import Identity

__all__ = ["Answers", "MemoryClient"]

#: The answers to questions, by the beginning of a question's message: the content of a
#: form, or the value of its only field; `Declined()`, `Dismissed()`; `None` for no
#: answer. Or a function that gets the whole request and returns the whole response.
Answers: TypeAlias = (
    Mapping[str, Any] | Callable[[Mapping[str, JSON]], Mapping[str, JSON] | None]
)

_ALL: Final[Mapping[str, JSON]] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}},
    "roots": {},
}
#: Requests after which a conversation is taken for endless.
_MOST_ROUNDS: Final = 100


class MemoryClient:
    """A client of a server in this process.

    Args:
        app: The server. Open its lifespan with `drivers.sync.running`. A server without
            keys gets random ones, and a server without a ledger one in memory.
        answers: The answers to its questions.
        capabilities: The capabilities that the client declares.
        principal: The user that requests come from: a name, which may do everything, or
            an `Identity`.
        run_async: Runs a coroutine, as `asyncio.run` does; by default on a new loop of
            the kind that the server names.
    """

    def __init__(
        self,
        app: Server,
        answers: Answers | None = None,
        *,
        capabilities: Mapping[str, JSON] = _ALL,
        principal: Identity | str | None = None,
        run_async: RunAsync | None = None,
    ) -> None:
        if app.keys is None:
            app.keys = Keys(make_key(secrets.token_bytes(32)))
        if app.ledger is None:
            # Imported here: the rest of the kit needs no store.
            from ..tasks.sqlite import SqliteTasks

            app.ledger = SqliteTasks()
        self.app = app
        self.answers: Answers = {} if answers is None else answers
        self._peer = peer_of(principal)
        self._run_async = runner_of(app.loop) if run_async is None else run_async
        self._meta = {
            PROTOCOL_VERSION: VERSIONS[0],
            CLIENT_INFO: {"name": "MemoryClient", "version": "1"},
            CLIENT_CAPABILITIES: dict(capabilities),
        }
        self._id = 0

    def call_tool(self, name: str, /, **arguments: JSON) -> Result:
        """Call a tool, and answer what it asks.

        Raises:
            ProtocolError: If the server responds with an error.
        """
        return self.ask("tools/call", name=name, arguments=arguments)

    def get_prompt(self, name: str, /, **arguments: str) -> Result:
        """Get a prompt, and answer what it asks; see `call_tool`."""
        return self.ask("prompts/get", name=name, arguments=arguments)

    def read_resource(self, uri: str) -> Result:
        """Read a resource, and answer what it asks; see `call_tool`."""
        return self.ask("resources/read", uri=uri)

    def ask(self, method: str, **params: JSON) -> Result:
        """Send a request of any method, and answer its questions.

        Raises:
            ProtocolError: If the server responds with an error.
        """
        told: list[Mapping[str, JSON]] = []
        more: dict[str, JSON] = {}
        for number in range(1, _MOST_ROUNDS + 1):
            result = self.send(method, told.append, **params, **more)
            if result["resultType"] != "input_required":
                return Result(result, number, tuple(told))
            answers = self._answered(result)
            more = {"inputResponses": answers, "requestState": result["requestState"]}
        raise UsageError(f"{method} asks in more than {_MOST_ROUNDS} rounds")

    def send(
        self,
        method: str,
        hear: Callable[[Mapping[str, JSON]], None] = lambda message: None,
        **params: JSON,
    ) -> dict[str, JSON]:
        """Send one request, and return its result, which may be an interim result.

        Args:
            method: The method.
            hear: Called with each notification.
            **params: Its parameters; `_meta` is added.

        Raises:
            ProtocolError: If the server responds with an error.
        """
        self._id += 1
        meta = {"progressToken": self._id, **self._meta}
        message = {
            "jsonrpc": "2.0",
            "id": self._id,
            "method": method,
            "params": {**params, "_meta": meta},
        }
        reply = handle(
            self.app, message, self._peer, send=hear, run_async=self._run_async
        ).message
        assert reply is not None
        if "error" in reply:
            error = reply["error"]
            raise ProtocolError(error["code"], error["message"], error.get("data"))
        result: dict[str, JSON] = reply["result"]
        return result

    def _answered(self, result: Mapping[str, JSON]) -> dict[str, JSON]:
        found = {
            key: self._answer(request)
            for key, request in result["inputRequests"].items()
        }
        return {key: one for key, one in found.items() if one is not None}

    def _answer(self, request: Mapping[str, Any]) -> Mapping[str, JSON] | None:
        if not isinstance(self.answers, Mapping):
            return self.answers(request)
        params = request.get("params", {})
        message = params.get("message", request["method"])
        for begin, answer in self.answers.items():
            if message.startswith(begin):
                return _written(answer, params)
        raise UsageError(f"no answer is given for {message!r}")


def _written(answer: Any, params: Mapping[str, Any]) -> Mapping[str, JSON] | None:
    match answer:
        case None:
            return None
        case Declined() | False if not _is_field(params):
            return {"action": "decline"}  # False declines a Confirm
        case True if not _is_field(params):
            return {"action": "accept", "content": {}}
        case Declined():
            return {"action": "decline"}
        case Dismissed():
            return {"action": "cancel"}
        case Mapping():
            if "action" in answer or "mode" not in params:
                return answer  # a whole response
            content = {name: plain(one) for name, one in answer.items()}
            return {"action": "accept", "content": content}
        case str() if "messages" in params:
            block = {"type": "text", "text": answer}
            return {"role": "assistant", "content": block, "model": "test-model"}
        case _:
            return {"action": "accept", "content": _content(answer, params)}


def _is_field(params: Mapping[str, Any]) -> bool:
    return bool(params.get("requestedSchema", {}).get("properties"))


def _content(answer: Any, params: Mapping[str, Any]) -> dict[str, JSON]:
    fields: Collection[str] = params.get("requestedSchema", {}).get("properties", {})
    class_: Any = type(answer)
    source = class_source(class_)
    if source is not None and not source.is_root:
        names: dict[str, str] = {
            part.name: part.own_name or part.name for part in source.parts
        }
        found = {name: getattr(answer, names.get(name, name), None) for name in fields}
        return {name: plain(one) for name, one in found.items() if one is not None}
    if len(fields) != 1:
        raise UsageError(
            f"{answer!r} is not an answer to {params.get('message')!r}, which needs"
            f" {', '.join(fields) or 'True or False'}"
        )
    return {name: plain(answer) for name in fields}
