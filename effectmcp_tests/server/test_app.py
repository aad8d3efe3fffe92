from __future__ import annotations

import threading
import time
from functools import partial
from typing import Any

import pytest

from effectmcp import SchemaError, UsageError
from effectmcp.content import Icon
from effectmcp.server import Change, Server
from effectmcp.state import Keys, make_key

from ..wire import fits


def shop() -> tuple[Server, list[Change]]:
    """A server, and the changes that it publishes."""
    app = Server("shop")
    heard: list[Change] = []
    app.changes.listen(heard.append)
    return app, heard


def hello() -> str:
    return "hi"


def test_server_info_has_its_names_and_icons() -> None:
    app = Server(
        "shop",
        version="1.0",
        title="Shop",
        description="Sells.",
        website="https://x",
        icons=[Icon("https://x/i.png")],
    )
    assert repr(app) == "<Server 'shop'>"
    fits("Implementation", app.info)
    assert app.info == {
        "name": "shop",
        "version": "1.0",
        "title": "Shop",
        "description": "Sells.",
        "websiteUrl": "https://x",
        "icons": [{"src": "https://x/i.png"}],
    }
    assert Server("shop").info == {"name": "shop", "version": "0"}


def test_server_makes_rules_of_its_options() -> None:
    app = Server("shop", rounds=3, early_answers=False, shed=False)
    rules = app.rules[True, False]
    assert (rules.rounds, rules.early_answers, rules.shed) == (3, False, False)
    assert rules.detach
    assert not app.rules[False, False].detach
    live = app.rules[True, True]
    assert (live.rounds, live.shed, live.detach) == (None, False, True)


def test_server_with_pages_of_nothing() -> None:
    with pytest.raises(UsageError, match="give 1 or more"):
        Server("shop", page_size=0)


@pytest.mark.parametrize(
    "options",
    [
        {"name": "\ud800"},
        {"title": "\ud800"},
        {"version": 1.5j},
        {"instructions": "\ud800"},
        {"icons": [Icon("https://x/\ud800.png")]},
    ],
    ids=repr,
)
def test_server_with_options_that_cannot_be_sent(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"^Server\('.*'\): "):
        Server(**{"name": "shop", **options})


def test_server_keys_may_come_later() -> None:
    app, keys = Server("shop", state_ttl=5, state_life=6), Keys(make_key(bytes(32)))
    found = [(app.keys, app.sealer)]
    app.keys = keys
    sealer = app.sealer
    assert sealer is not None
    assert (sealer.audience, sealer.ttl, sealer.life) == ("shop", 5, 6)
    assert app.keys is keys
    app.keys = None
    found += [(app.keys, app.sealer)]
    assert found == [(None, None)] * 2
    assert Server("shop", keys=keys).keys is keys


def test_server_with_a_bare_key_does_not_show_it() -> None:
    key: Any = "c2VjcmV0"
    with pytest.raises(UsageError) as caught:
        Server("shop", keys=key)
    assert "Server(keys=...): give Keys(...)" in str(caught.value)
    assert "c2VjcmV0" not in str(caught.value)


def test_resource_without_a_uri() -> None:
    """The function would be registered nowhere, without an error."""
    uris: dict[str, Any] = {"hello": hello, "5": 5}
    for name, uri in uris.items():
        with pytest.raises(SchemaError, match=f"{name} is at no URI: write @app.reso"):
            Server("shop").resource(uri)


def test_decorators_return_the_function_unchanged() -> None:
    app = Server("shop")
    assert app.tool(hello) is hello
    assert app.tool(name="b")(hello) is hello
    assert app.prompt(hello) is hello
    assert app.prompt(name="b")(hello) is hello
    assert app.resource("shop://hello")(hello) is hello
    assert list(app.tools) == list(app.prompts) == ["hello", "b"]
    assert list(app.resources) == ["shop://hello"]


def test_adding_and_removing_publishes_changes() -> None:
    app, heard = shop()
    app.tool(hello)
    app.prompt(hello)
    app.resource("shop://x")(hello)

    @app.resource("shop://x/{y}")
    def book(y: str) -> str:
        return y

    resources = Change("resources")
    kinds = [Change("tools"), Change("prompts"), resources, resources]
    assert heard == kinds
    heard.clear()
    app.remove(app.tools["hello"])
    app.remove(app.prompts["hello"])
    app.remove(app.resources["shop://x"])
    app.remove(app.templates["shop://x/{y}"])
    assert heard == kinds
    assert [app.tools, app.prompts, app.resources, app.templates] == [{}] * 4


def test_updated_publishes_a_change_of_one_resource() -> None:
    app, heard = shop()
    app.updated("shop://x")
    assert heard == [Change("resource", "shop://x")]


def test_name_is_taken() -> None:
    app, heard = shop()
    app.tool(hello)
    with pytest.raises(SchemaError, match="there is another tool 'hello'"):
        app.tool(hello)
    app.resource("shop://x")(hello)
    with pytest.raises(SchemaError, match="another resource 'shop://x'"):
        app.resource("shop://x", name="other")(hello)
    assert len(heard) == 2


def test_removing_what_is_not_there() -> None:
    app, _ = shop()
    app.tool(hello)
    tool = app.tools["hello"]
    app.remove(tool)
    with pytest.raises(UsageError, match="'hello' is not among the tools"):
        app.remove(tool)
    app.tool(hello)
    with pytest.raises(UsageError):
        app.remove(tool)  # another one, of the same name


def test_listing_that_is_being_read_does_not_change() -> None:
    app, _ = shop()
    app.tool(hello)
    before = app.tools
    app.tool(name="b")(hello)
    assert list(before) == ["hello"]


# ---- completions ----


def languages(text: str) -> list[str]:
    return ["py", "js"]


def test_completion_for_prompts_and_templates() -> None:
    app, _ = shop()

    @app.prompt
    def review(language: str) -> str:
        return language

    @app.resource("shop://{language}")
    def of(language: str) -> str:
        return language

    assert app.completion("review", "language")(languages) is languages
    app.completion("shop://{language}", "language")(languages)
    assert set(app.completions) == {
        ("review", "language"),
        ("shop://{language}", "language"),
    }


@pytest.mark.parametrize(
    ("of", "argument", "words"),
    [
        ("order", "x", "neither a prompt nor a template"),
        ("review", "x", "takes no 'x'"),
    ],
)
def test_completion_of_nothing(of: str, argument: str, words: str) -> None:
    app, _ = shop()

    @app.prompt
    def review(language: str) -> str:
        return language

    with pytest.raises(SchemaError, match=words):
        app.completion(of, argument)(languages)


def test_completion_goes_with_its_prompt() -> None:
    """A new prompt of that name has suggestions of its own."""
    app, _ = shop()

    def review(language: str) -> str:
        return language

    for _ in range(2):
        app.prompt(review)
        assert app.completions == {}
        app.completion("review", "language")(languages)
        app.remove(app.prompts["review"])


def test_completions_of_other_prompts_stay() -> None:
    app, _ = shop()

    @app.prompt
    def review(language: str) -> str:
        return language

    @app.prompt
    def praise(language: str) -> str:
        return language

    for name in ("review", "praise"):
        app.completion(name, "language")(languages)
    app.remove(app.prompts["review"])
    assert set(app.completions) == {("praise", "language")}


def test_server_keeps_its_options() -> None:
    app = Server("shop", timeout=1, ttl=2, instructions="Ask.", observers=[print])
    assert (app.timeout, app.ttl, app.instructions) == (1, 2, "Ask.")
    assert app.observers == (print,)


def test_features_from_many_threads_are_all_offered() -> None:
    app, heard = shop()
    refused: list[str] = []
    start = threading.Barrier(4)

    def work(thread: int) -> None:
        start.wait()
        for number in range(50):
            app.tool(name=f"tool-{thread}-{number}")(hello)
            try:
                app.tool(name=f"tool-{number}")(hello)
            except SchemaError as exc:
                refused.append(str(exc))
            app.remove(app.tools[f"tool-{thread}-{number}"])

    threads = [threading.Thread(target=work, args=[one]) for one in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert app.tools.keys() == {f"tool-{number}" for number in range(50)}
    assert len(refused) == 150
    assert len(heard) == 450


def test_one_thread_publishes_at_a_time() -> None:
    class Held(dict[str, object]):
        tries = 0

        def setdefault(self, key: str, default: object = None, /) -> object:
            self.tries += 1
            return super().setdefault(key, default)

    app, _ = shop()
    held = app._publishing = Held({"": "another thread"})
    thread = threading.Thread(target=lambda: app.tool(name="late")(hello))
    thread.start()
    while held.tries < 2:
        time.sleep(0.001)
    assert "late" not in app.tools
    del held[""]
    thread.join()
    assert "late" in app.tools


def test_feature_is_removed_once() -> None:
    app = Server("shop")

    def order() -> str:
        """Order a book."""
        return "new"

    app.tool(order)
    old = app.tools["order"]
    app.remove(old)
    app.tool(order)
    with pytest.raises(UsageError, match="not among the tools"):
        app.remove(old)
    assert app.tools["order"] is not old
    with pytest.raises(SchemaError, match="another tool"):
        app.add(app.tools["order"])


# ---- observers and taps -------------------------------------------------------------


async def waits(event: object) -> None: ...


@pytest.mark.parametrize("what", ["observers", "taps"])
def test_listeners_that_would_never_run(what: str) -> None:
    wholes: Any = (print, "x")
    for whole in wholes:
        with pytest.raises(UsageError, match=f"{what}=...\\): give a list"):
            Server("shop", **{what: whole})
    ones: Any = (None, "x", waits, partial(waits), lambda: None)
    for one in ones:
        options: Any = {what: [one]}
        with pytest.raises(UsageError, match="is not a plain function of one argument"):
            Server("shop", **options)


def test_listeners_whose_arguments_are_not_known() -> None:
    """Builtins do not always tell."""
    given: Any = [print, [].append, dict.fromkeys, type]
    assert Server("shop", observers=given).observers == tuple(given)
