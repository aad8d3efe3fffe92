"""Lists the languages that a person speaks.

Wrong: the result is a set, and a string was promised.
"""

from __future__ import annotations

from typing import Literal

from effectmcp import Elicit, Flow, Server

app = Server("languages", version="1.0")


@app.tool
def list_languages(name: str) -> Flow[str]:
    """List languages."""
    spoken = yield from Elicit(f"What does {name} speak?", list[Literal["de", "en"]])
    if not spoken:
        return f"{name} is silent."
    found = {language.upper() for language in spoken}
    return found  # type: ignore[return-value]  # here
