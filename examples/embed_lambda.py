"""Serve as a cloud function behind an HTTP gateway, without a loop or stored data.

    EFFECTMCP_STATE_KEYS=…      the same for all instances; make it with `effectmcp keygen`
    handler: embed_lambda.handler

    python examples/embed_lambda.py         plays the gateway and a client

The events have the format of Amazon's API Gateway (HTTP API, payload 2.0); others
differ only in names. Each round of a call may reach a different instance.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from bookshop import app
from bookshop_client import HEADERS, call, next_round, text_of

from effectmcp.drivers.sync import handle
from effectmcp.transports.conversation import (
    Begin,
    Conversation,
    Endpoint,
    Next,
    Receive,
)
from effectmcp.transports.default_keys import ensure_keys
from effectmcp.transports.web import Head, Send, Site

# Accept only the gateway's name as `Host`, which prevents DNS rebinding.
SITE = Site(path="/mcp", hosts=["shop.example"])
ENDPOINT = Endpoint(app=app, site=SITE, has_streams=False)

# Runs once per instance, when it is loaded.
ensure_keys(app, is_alone=False)


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Answer one request."""
    request = event["requestContext"]
    http = request["http"]
    headers, address = event["headers"].items(), http["sourceIp"]
    head = Head(http["method"], event["rawPath"], headers, peer=address)
    talk = Conversation(ENDPOINT, head)
    step: Next = talk.judge()
    if isinstance(step, Receive):
        body = (event.get("body") or "").encode()
        if event.get("isBase64Encoded"):
            body = base64.b64decode(body)
        step = talk.body(body)
    if isinstance(step, Begin):
        # There is no `send=`: notifications are dropped, as a function cannot stream.
        step = talk.reply(handle(app, step.message, step.peer))
    assert isinstance(step, Send)  # no sessions, and no authentication
    return {
        "statusCode": step.status,
        "headers": dict(step.headers),
        "body": step.data.decode(),
    }


def main() -> None:
    ensure_keys(app, is_alone=True)
    message = call("order", {"title": "Dune"})
    while True:
        event = {
            "version": "2.0",
            "rawPath": "/mcp",
            "headers": {"host": "shop.example", **HEADERS},
            "requestContext": {"http": {"method": "POST", "sourceIp": "192.0.2.1"}},
            "body": json.dumps(message),
            "isBase64Encoded": False,
        }
        response = handler(event, None)
        print(response["statusCode"], len(response["body"]), "bytes")
        reply = json.loads(response["body"])
        following = next_round(message, reply)
        if following is None:
            break
        message = following
    print(text_of(reply))


if __name__ == "__main__":
    main()
