"""`shop.py` as a server that requires a login, in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx2
from attrs import frozen

from ..conformance.servers import Served, Server, serving
from ..tasks.restate.engines import free_ports
from .provider import PATIENCE, Provider

__all__ = ["Shop", "shop"]

HERE: Final = Path(__file__).parent

#: A request that each server answers.
_LIST: Final = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/list",
    "params": {
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }
    },
}

_HEADERS: Final = {
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": "2026-07-28",
    "MCP-Method": "tools/list",
}


@frozen(eq=False)
class Shop:
    """A server that is running.

    Attributes:
        url: Its URL, which is also the resource of tokens.
        served: Its process.
    """

    url: str
    served: Served
    _clock: Path

    def pass_time(self, seconds: float) -> None:
        """Set the clock of the server forward, from the real time."""
        self._clock.write_text(str(seconds))

    def ask(self, token: str, scheme: str = "Bearer") -> httpx2.Response:
        """Send a request with a token."""
        headers = {**_HEADERS, "Authorization": f"{scheme} {token}"}
        return httpx2.post(self.url, json=_LIST, headers=headers, timeout=PATIENCE)


@contextmanager
def shop(
    provider: Provider,
    folder: Path,
    *options: str,
    auth: str | None = None,
    target: Path = HERE / "shop.py",
) -> Iterator[Shop]:
    """Run a server.

    Args:
        provider: Who issues tokens.
        folder: A folder for its clock.
        options: More options of `effectmcp serve`.
        auth: How it knows its callers: see `shop.py`; `None` for the options of the
            command line.
        target: Another server.
    """
    (port,) = free_ports(1)
    path = "/opaque" if auth == "introspection" else "/mcp"
    url = f"http://127.0.0.1:{port}{path}"
    clock = folder / f"clock-{port}"
    clock.write_text("0")
    variables = {"SHOP_CLOCK": str(clock)}
    command = ["effectmcp", "serve", f"{target}:app"]
    command += [f"--http=127.0.0.1:{port}", f"--path={path}", *options]
    if auth is None:
        command += ["--auth", provider.issuer, "--require-scope", "orders:read"]
    else:
        named: dict[str, Any] = {
            "AUTH": auth,
            "ISSUER": provider.issuer,
            "RESOURCE": url,
        }
        variables |= {f"SHOP_{key}": value for key, value in named.items()}
    server = Server("effectmcp", tuple(command), variables=variables)
    with serving(server) as served:
        yield Shop(url, served, clock)
    assert "Traceback" not in "".join(served.log), "".join(served.log)
