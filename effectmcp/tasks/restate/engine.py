"""Requests to Restate's HTTP interfaces: its ingress, and its admin. Blocking.

Every error is a `TaskStoreError`, and comes within a few seconds.
"""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import SplitResult, quote, urlsplit

from ...canonical import JSON
from ...errors import TaskStoreError, UsageError

__all__ = ["Engine", "parse_url"]

#: Seconds to wait for a response.
PATIENCE: Final = 5.0

#: Seconds to repeat a query that the engine cannot answer yet, and between two tries.
_REPEAT: Final = 3.0
_PAUSE: Final = 0.05

#: After so many failed attempts of an invocation, its endpoint may be gone.
_FAILED: Final = 5

#: Raised by code that reads JSON of another form.
_WRONG: Final = (
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    UsageError,
    ValueError,
)

_NO_HEAD: Final[Mapping[str, str]] = MappingProxyType({})


class _UnknownError(TaskStoreError):
    """Raised when the engine answers that it does not know a service."""


class _UnreadyError(TaskStoreError):
    """Raised when the engine answers that it cannot do this, now perhaps."""


@contextmanager
def _understood() -> Iterator[None]:
    """Raise a `TaskStoreError` for an answer of another form."""
    try:
        yield
    except _WRONG as exc:
        raise TaskStoreError(
            f"Restate's answer is not understood: {exc!r:.500}"
        ) from exc


def parse_url(url: str) -> SplitResult:
    """Return the parts of the URL of an HTTP server.

    Raises:
        UsageError: If it is not one.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises if it is not a number
        if parts.scheme in ("http", "https") and parts.hostname:
            return parts
    except ValueError:
        pass
    raise UsageError(f"{url!r} is not the URL of an HTTP server: http://HOST:PORT")


class Engine:
    """The two interfaces of one engine, or one cluster.

    Args:
        ingress: The URL of the ingress.
        admin: The URL of the admin interface.
    """

    def __init__(self, ingress: str, admin: str) -> None:
        self._ingress = _Interface(ingress)
        self._admin = _Interface(admin)

    def send(
        self, service: str, handler: str, key: str, body: bytes, *, once: str = ""
    ) -> None:
        """Have a handler of an object called later.

        When this returns, the engine has stored the request durably.

        Args:
            service: The name of the service.
            handler: The handler.
            key: The key of the object.
            body: What it is sent.
            once: While a request with this text waits or runs, another one is left out.
        """
        path = f"/{quote(service)}/{quote(key, safe='')}/{handler}/send"
        more = {"idempotency-key": once} if once else {}
        self._known(service, path, body, more)

    def _known(
        self, service: str, path: str, body: bytes, head: Mapping[str, str]
    ) -> Any:
        try:
            return self._ingress.ask(
                "POST", path, body, "application/octet-stream", head=head
            )
        except _UnknownError:
            raise TaskStoreError(
                f"Restate does not know {service} yet: start a worker, which registers it,"
                " with `effectmcp worker`"
            ) from None

    def call(self, service: str, handler: str, key: str, body: bytes) -> Any:
        """Call a handler of an object; return the JSON of its answer.

        After an error, it may be called nevertheless, now or later.
        """
        path = f"/{quote(service)}/{quote(key, safe='')}/{handler}"
        return self._known(service, path, body, {})

    def confirm(self, service: str, handler: str, key: str) -> None:
        """Wait until queries find all that the engine has stored for an object.

        After a crash, the engine answers queries before it has read its log to the end.
        Only then does it answer this question, about an invocation that does not exist.
        """
        object_ = f"{quote(service)}/{quote(key, safe='')}"
        path = f"/restate/invocation/{object_}/{handler}/nobody/output"
        try:
            self._ingress.ask("GET", path, b"", "application/json")
        except _UnknownError:
            pass

    def signal(self, ear: str, value: bytes) -> None:
        """Send a value to a running invocation."""
        path = f"/restate/awakeables/{quote(ear, safe='')}/resolve"
        self._ingress.ask("POST", path, value, "application/octet-stream")

    def query(self, sql: str, **columns: type) -> list[dict[str, Any]]:
        """Return the rows that the engine's SQL finds.

        Args:
            sql: The query.
            columns: The types of the columns, by name.
        """
        reply = self._answer(json.dumps({"query": sql}).encode())
        with _understood():
            rows: list[dict[str, Any]] = list(reply["rows"])
            for row in rows:
                for name, kind in columns.items():
                    if type(row[name]) is not kind:
                        raise TypeError(f"{name} is {row[name]!r}")
        return rows

    def _answer(self, query: bytes) -> Any:
        until = time.monotonic() + _REPEAT
        while True:
            try:
                return self._admin.ask("POST", "/query", query, "application/json")
            except _UnreadyError:
                # After a restart, its parts find each other one by one.
                if time.monotonic() >= until:
                    raise
                time.sleep(_PAUSE)

    def register(self, url: str) -> str:
        """Have the engine send new invocations to a worker's endpoint.

        Returns:
            The id of the deployment.
        """
        reply = self._change("POST", "/deployments", uri=url, force=True)
        with _understood():
            return str(reply["id"])

    def abandoned(self, service: str, *others: str, but: str) -> dict[str, str]:
        """Return the deployments of a service whose endpoints run no turn any more.

        The engine tries an invocation again where it began, however long that endpoint
        has been gone.

        Args:
            service: The name of the service.
            others: Services that the endpoints may have beside it, and no more.
            but: The id of a deployment that lives.

        Returns:
            Their URLs, by id.
        """
        failing = self.query(
            "SELECT DISTINCT last_attempt_deployment_id AS id FROM sys_invocation_state"
            f" WHERE retry_count >= {_FAILED}"
        )
        with _understood():
            ids = {one["id"] for one in failing} - {but}
        if not ids:
            return {}
        reply = self._admin.ask("GET", "/deployments", b"", "application/json")
        with _understood():
            return {
                one["id"]: one["uri"]
                for one in reply["deployments"]
                if one["id"] in ids
                and service in (names := {each["name"] for each in one["services"]})
                and names <= {service, *others}
                and not _Interface(one["uri"]).is_there()
            }

    def move(self, deployment: str, url: str) -> None:
        """Have the invocations of a deployment continue at another endpoint."""
        path = f"/deployments/{quote(deployment, safe='')}"
        self._change("PATCH", path, uri=url, overwrite=True)

    def _change(self, method: str, path: str, **value: JSON) -> Any:
        body = json.dumps({**value, "use_http_11": True}).encode()
        return self._admin.ask(method, path, body, "application/json", patience=30.0)

    def close(self) -> None:
        """Close the connections."""
        self._ingress.close()
        self._admin.close()


class _Interface:
    """One HTTP server, and the idle connections to it."""

    def __init__(self, url: str) -> None:
        parts = parse_url(url)
        self.url = url
        self._host, self._port = parts.hostname or "", parts.port
        self._path = parts.path.rstrip("/")
        self._is_secure = parts.scheme == "https"
        self._idle: deque[http.client.HTTPConnection] = deque()
        self._closings = 0

    def ask(
        self,
        method: str,
        path: str,
        body: bytes,
        content_type: str,
        *,
        patience: float | None = None,
        head: Mapping[str, str] = _NO_HEAD,
    ) -> Any:
        """Send a request; return the JSON of the response."""
        sent = {"content-type": content_type, "accept": "application/json", **head}
        seconds = PATIENCE if patience is None else patience
        request = method, self._path + path, body, sent, seconds
        closings = self._closings
        connection, is_new = self._connection()
        try:
            try:
                response, text = self._send(connection, *request)
            except ConnectionError:
                if is_new:
                    raise
                # The server may have closed a connection that was idle. A request
                # that is stored twice counts once: tasks and mail have ids.
                connection.close()
                connection = self._connect()
                response, text = self._send(connection, *request)
        except (OSError, http.client.HTTPException, UnicodeError) as exc:
            connection.close()
            raise TaskStoreError(
                f"Restate does not answer at {self.url}: {exc!r:.500}"
            ) from exc
        if response.will_close:
            connection.close()
        else:
            self._idle.append(connection)
            if closings != self._closings:
                self._drop()  # it was closed meanwhile
        if not 200 <= response.status < 300:
            said = text[:500].decode("utf-8", "replace")
            kind = _UnreadyError if response.status >= 500 else TaskStoreError
            if response.status == 404:
                kind = _UnknownError
            raise kind(f"Restate answers {response.status}: {said}")
        with _understood():
            return json.loads(text) if text else None

    def is_there(self) -> bool:
        """Return whether a server accepts connections."""
        try:
            connection = self._connect()
            connection.connect()
        except (OSError, UnicodeError):
            return False
        connection.close()
        return True

    def _connection(self) -> tuple[http.client.HTTPConnection, bool]:
        try:
            return self._idle.pop(), False
        except IndexError:
            return self._connect(), True

    def _connect(self) -> http.client.HTTPConnection:
        if self._is_secure:
            return http.client.HTTPSConnection(self._host, self._port, timeout=PATIENCE)
        return http.client.HTTPConnection(self._host, self._port, timeout=PATIENCE)

    def _send(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        target: str,
        body: bytes,
        head: dict[str, str],
        patience: float,
    ) -> tuple[http.client.HTTPResponse, bytes]:
        connection.request(method, target, body, head)
        sock: socket.socket = connection.sock
        sock.settimeout(patience)
        if hasattr(socket, "TCP_QUICKACK"):
            # The engine sends a response in two parts, and waits after the first one for
            # an acknowledgement, which the kernel would delay by 40 ms.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        response = connection.getresponse()
        return response, response.read()

    def close(self) -> None:
        self._closings += 1
        self._drop()

    def _drop(self) -> None:
        while True:
            try:
                self._idle.pop().close()
            except IndexError:
                return
