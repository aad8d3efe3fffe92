"""Deletes an account, once the user has typed its name.

Wrong: a user who declines is caught by `except Exception`, and the account is deleted.
"""

from __future__ import annotations

from effectmcp import Elicit, Flow, Server, step

app = Server("accounts", version="1.0")


@step
def delete(account: str) -> None:
    """Simulates the database. To delete again does no harm."""


@app.tool
def close_account(account: str) -> Flow[str]:
    """Close an account."""
    try:
        yield from Elicit(f"Type the name of {account} to close it.", str)
    except Exception:  # here
        pass
    yield from delete(account)
    return f"{account} is closed."
