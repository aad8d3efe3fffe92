"""The program in BROWSER: passes a URL to the test, and waits until its page is closed."""

from __future__ import annotations

import os
import socket
import sys

if __name__ == "__main__":
    port = int(os.environ["EFFECTMCP_TEST_BROWSER"])
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(sys.argv[1].encode() + b"\n")
        connection.recv(1)
