"""`effectmcp serve module:app`: serve over stdio, or over HTTP."""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ..errors import UsageError
from ..server.target import load_app
from .log_options import add_logging, settings_of
from .loop_option import add_loop

if TYPE_CHECKING:
    from ..server.app import Server
    from ..transports.authenticating import AuthSettings

__all__ = ["add"]

_OF_HTTP: Final = (
    "path",
    "workers",
    "allow_host",
    "allow_origin",
    "trust_proxy",
    "leave",
    "drain",
    "certificate",
    "key",
    "auth",
    "resource",
    "audience",
    "require_scope",
    "api_keys",
)


def add(parsers: Any) -> None:
    """Add the subcommand."""
    parser = parsers.add_parser(
        "serve",
        help="serve a server",
        description="Serve a server on standard input and output, or over HTTP. States"
        " are sealed with the keys in EFFECTMCP_STATE_KEYS (comma separated, the oldest"
        " first).",
    )
    parser.add_argument("target", help="module:app, or path/file.py:app")
    parser.add_argument(
        "--http",
        metavar="HOST:PORT",
        help="serve Streamable HTTP on this address, instead of stdio",
    )
    parser.add_argument("--path", help="the path of the endpoint (/mcp)")
    parser.add_argument(
        "--workers", type=int, metavar="N", help="processes that serve HTTP (1)"
    )
    parser.add_argument(
        "--allow-host",
        action="append",
        metavar="NAME",
        help="a host name that clients may use (repeatable)",
    )
    parser.add_argument(
        "--allow-origin",
        action="append",
        metavar="ORIGIN",
        help="an origin whose pages may call the server (repeatable)",
    )
    parser.add_argument(
        "--trust-proxy",
        action="append",
        metavar="ADDRESS",
        help="a proxy, or a network of proxies, that sets X-Forwarded-For; each of its"
        " clients then has a share of its own (repeatable)",
    )
    parser.add_argument(
        "--leave",
        type=float,
        metavar="SECONDS",
        help="close streams of clients of 2025-11-25 after so long, so that they"
        " reconnect",
    )
    parser.add_argument(
        "--drain",
        type=float,
        metavar="SECONDS",
        help="when stopped, serve clients for so long, while /readyz tells a balancer to"
        " send no more (0)",
    )
    parser.add_argument(
        "--certificate", metavar="FILE", help="serve TLS with this certificate chain"
    )
    parser.add_argument("--key", metavar="FILE", help="the certificate's private key")
    parser.add_argument(
        "--auth",
        action="append",
        metavar="ISSUER",
        help="let in clients with a token of this authorization server, such as"
        " https://idp.example (repeatable)",
    )
    parser.add_argument(
        "--resource",
        metavar="URL",
        help="with --auth: the URL of this server as clients write it, which tokens name"
        " as their audience; by default the URL of --http, if its address is of this machine"
        " only and has a port",
    )
    parser.add_argument(
        "--audience",
        action="append",
        metavar="NAME",
        help="with --auth: another audience that tokens may name, instead of --resource"
        " (repeatable)",
    )
    parser.add_argument(
        "--require-scope",
        action="append",
        metavar="SCOPE",
        help="with --auth: a scope that every request needs (repeatable)",
    )
    parser.add_argument(
        "--api-keys",
        metavar="FILE",
        help="let in clients with a key of this file, made by `effectmcp keygen --api-key`",
    )
    add_loop(parser)
    add_logging(parser)
    parser.add_argument(
        "--tasks",
        metavar="PATH",
        help="keep tasks in this file, which is made if needed, so that they outlive the"
        " process; all processes on this machine may use it at once. Or on Restate, for"
        " several machines: restate+http://INGRESS:8080?admin=http://ADMIN:9070",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="for development: refuse what would be salvaged, and log what a handler does"
        " that no replay can repeat",
    )
    parser.add_argument(
        "--record",
        metavar="FOLDER",
        help="for development: write a transcript of each conversation there, with the"
        " results of steps masked",
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    if options.http is not None:
        _serve_http(options)
        return 0
    for name in _OF_HTTP:
        if getattr(options, name) is not None:
            option = name.replace("_", "-")
            raise UsageError(f"--{option} is for --http HOST:PORT")
    from ..transports import program, stdio

    # First, because a module may print when it is imported.
    streams = stdio.set_aside()
    program.serve_stdio(_load(options), streams)
    return 0


def _load(options: argparse.Namespace) -> Server:
    app = load_app(options.target)
    if options.loop is not None:
        app.loop = options.loop
    if options.tasks is not None or app.tasks is not None:
        from ..transports.stores import keep_tasks

        keep_tasks(app, options.tasks)
    if options.strict:
        from ..testing.sanitizer import make_strict

        make_strict(app)
    if options.record is not None:
        from ..testing.recording import Recorder

        Recorder(app, options.record)
    return app


def _serve_http(options: argparse.Namespace) -> None:
    from ..transports import program
    from ..transports.connection import Limits
    from ..transports.sessions import SessionLimits
    from ..transports.sockets import tls_context
    from ..transports.web import Site, parse_address

    host, port = parse_address(options.http)
    path = "/mcp" if options.path is None else options.path
    if not path.startswith("/"):
        raise UsageError(f"--path {path}: it begins with a /")
    site = Site(
        path=path,
        hosts=options.allow_host,
        origins=options.allow_origin or (),
        proxies=options.trust_proxy or (),
    )
    files = {"certificate": options.certificate, "key": options.key}
    limits: dict[str, Any] = {}
    if options.drain is not None:
        if not 0 <= options.drain < float("inf"):
            raise UsageError("--drain: give some seconds, or 0")
        limits["limits"] = Limits(drain=options.drain)
    auth = _auth(options, host, port, path)
    workers = 1 if options.workers is None else options.workers
    if workers != 1 and (options.strict or options.record):
        raise UsageError("--strict and --record are for one process, without --workers")
    if workers != 1 and options.leave is not None:
        raise UsageError("--leave is for one process: several keep no sessions")
    if workers == 1:
        app = _load(options)
        auth.apply(app)
        try:
            sessions = SessionLimits(leave=options.leave)
        except ValueError:
            raise UsageError(f"--leave {options.leave:g}: give some seconds") from None
        program.serve_http(
            app, host, port, site=site, sessions=sessions, **limits, **files
        )
    else:
        import trio

        tls_context(**files)  # before anything runs, and again in the workers
        of = options.target, workers, host, port
        shared = {"site": site, "tasks": options.tasks, "loop": options.loop, **files}
        shared["auth"] = auth
        shared |= {"log": settings_of(options), **limits}
        trio.run(partial(_serve_together, *of, **shared))


def _auth(options: argparse.Namespace, host: str, port: int, path: str) -> AuthSettings:
    """Return who may call.

    Raises:
        UsageError: If options are missing, or do not fit together.
    """
    from ..transports.authenticating import AuthSettings
    from ..transports.web import is_local

    resource = options.resource
    if options.auth is None:
        for name in ("resource", "audience", "require_scope"):
            if getattr(options, name) is not None:
                raise UsageError(f"--{name.replace('_', '-')} is for --auth ISSUER")
    elif resource is None:
        if not is_local(host) or port == 0:
            raise UsageError(
                "--auth needs --resource URL: the URL of this server as clients write it"
            )
        scheme = "http" if options.certificate is None else "https"
        place = f"[{host}]" if ":" in host else host
        resource = f"{scheme}://{place}:{port}{path}"
    return AuthSettings(
        issuers=options.auth or (),
        resource=resource,
        audience=options.audience or (),
        scopes=options.require_scope or (),
        api_keys=options.api_keys,
    )


async def _serve_together(
    target: str, n: int, host: str, port: int, **options: Any
) -> None:
    from ..transports.sockets import BindError, not_bound
    from ..transports.workers import run_workers

    try:
        await run_workers(target, n, host, port, **options)
    except (BindError, ExceptionGroup) as exc:
        found: BaseException = exc  # a group, if a worker could not bind again
        while isinstance(found, ExceptionGroup):
            found = found.exceptions[0]
        if not isinstance(found, BindError):
            raise
        raise not_bound(host, port, found) from None
