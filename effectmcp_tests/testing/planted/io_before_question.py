"""Takes an order from the menu of the day, which is a file that the kitchen edits.

Wrong: the file is read in every round and on every machine. Once the kitchen has edited
it, the question that was answered is another one. A step would record what it said.
"""

from __future__ import annotations

from pathlib import Path

from effectmcp import Elicit, Flow, IdempotencyKey, Server, step

app = Server("canteen", version="1.0")

MENU = Path(__file__).with_name("menu.txt")


@step
def cook(dish: str, table: int, key: str) -> str:
    """Simulates the kitchen, which cooks once for each key."""
    return f"{dish} for table {table} ({key[:6]})"


@app.tool
def order_lunch(table: int) -> Flow[str]:
    """Order lunch."""
    menu = MENU.read_text(encoding="utf-8")  # here
    dish = yield from Elicit(f"Today we have:\n{menu}\nWhat would you like?", str)
    if not dish.strip():
        return "Nothing was ordered."
    key = yield from IdempotencyKey("lunch")
    return (yield from cook(dish.strip(), table, key))
