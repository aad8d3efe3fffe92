from __future__ import annotations

import logging
import threading

import pytest

from effectmcp.server.changes import Change, Changes

TOOLS = Change("tools")


def test_changes_are_received_until_the_end() -> None:
    changes = Changes()
    heard: list[Change] = []
    changes.publish(TOOLS)
    end = changes.listen(heard.append)
    changes.publish(TOOLS)
    changes.publish(Change("resource", "shop://x"))
    end()
    end()
    changes.publish(TOOLS)
    assert heard == [TOOLS, Change("resource", "shop://x")]


def test_whether_there_are_listeners() -> None:
    changes = Changes()
    found = [changes.has_listeners]
    ends = [changes.listen(lambda change: None) for _ in range(2)]
    for end in ends:
        found.append(changes.has_listeners)
        end()
    assert [*found, changes.has_listeners] == [False, True, True, False]


def test_changes_reach_all_listeners_if_one_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    changes = Changes()
    heard: list[Change] = []

    def failing(change: Change) -> None:
        raise OSError("the pipe is gone")

    changes.listen(failing)
    changes.listen(heard.append)
    with caplog.at_level(logging.ERROR):
        changes.publish(TOOLS)
    assert heard == [TOOLS]
    assert "a listener failed" in caplog.text


def test_changes_from_many_threads() -> None:
    """Each listener that comes and goes meanwhile leaves the others alone."""
    changes = Changes()
    heard: list[Change] = []
    changes.listen(heard.append)

    def work() -> None:
        for _ in range(100):
            end = changes.listen(lambda change: None)
            changes.publish(TOOLS)
            end()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(heard) == 400
    assert len(changes._listeners) == 1


def test_changes_are_over_for_late_subscribers() -> None:
    """A subscription that begins while the server shuts down ends at once."""
    changes = Changes()
    over = []
    for what in (TOOLS, Change("end")):
        changes.publish(what)
        over.append(changes.is_over)
    assert over == [False, True]
    heard: list[Change] = []
    changes.listen(heard.append)
    assert heard == [Change("end")]


def test_changes_after_the_end() -> None:
    """A late listener receives the end at once, and does not wait."""
    changes = Changes()
    changes.publish(Change("end"))
    heard: list[Change] = []
    changes.listen(heard.append)
    assert heard == [Change("end")]
