"""pytest, run inside of pytest."""

from __future__ import annotations

import subprocess
import sys

import pytest

from effectmcp.testing import Transcript

pytest_plugins = ["pytester"]

HEALTHY = """
from effectmcp import Confirm, Flow, Server

app = Server("shop")

@app.tool
def order(title: str) -> Flow[str]:
    if (yield from Confirm(f"Order {title}?")):
        return "Ordered."
    return "Not ordered."

@app.tool
def plain() -> str:
    return "plain"
"""
BROKEN = HEALTHY.replace(
    '        return "Ordered."', '        raise ValueError("out of stock")'
)


@pytest.fixture(autouse=True)
def a_process_of_its_own(pytester: pytest.Pytester) -> None:
    """Imports and profiling of the inner run must not affect this process."""
    pytester.makeini("[pytest]\naddopts = -p no:cacheprovider")


def run(pytester: pytest.Pytester, *argv: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess("--effectmcp-conversations=20", *argv)


def test_every_handler_that_asks_becomes_a_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(shop=HEALTHY)
    result = run(pytester, "-v", "--effectmcp", "shop:app")
    result.assert_outcomes(passed=1)
    assert not (pytester.path / ".effectmcp").exists()


def test_a_failure_is_reported_without_a_traceback_and_saved(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(shop=BROKEN)
    result = run(pytester, "--effectmcp", "shop.py:app")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*order: it raises ValueError: out of stock",
            f"  at {pytester.path}/shop.py:8",
        ]
    )
    result.stdout.no_fnmatch_line("*checking.py*")
    (file,) = (pytester.path / ".effectmcp").iterdir()
    transcript = Transcript.loads(file.read_text(encoding="utf-8"))
    assert transcript.target == "order"
    # ... and is repeated first in the next run: one conversation is enough to find it.
    again = pytester.runpytest_subprocess(
        "--effectmcp", "shop.py:app", "--effectmcp-conversations=1"
    )
    again.assert_outcomes(failed=1)
    again.stdout.fnmatch_lines(["*checked order: 1 conversations"])


def test_a_fixed_handler_passes_with_its_transcript(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(shop=BROKEN)
    run(pytester, "--effectmcp", "shop.py:app").assert_outcomes(failed=1)
    pytester.makepyfile(shop=HEALTHY)
    run(pytester, "--effectmcp", "shop.py:app").assert_outcomes(passed=1)


def test_a_folder_that_holds_something_else_is_warned_about(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(shop=HEALTHY)
    folder = pytester.mkdir(".effectmcp")
    (folder / "notes.json").write_text("{}")
    result = run(pytester, "--effectmcp", "shop.py")
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(["*notes.json: not a transcript*"])


def test_an_invalid_target_is_a_usage_error(pytester: pytest.Pytester) -> None:
    result = run(pytester, "--effectmcp", "gone.py:app")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["*--effectmcp gone.py:app: there is no file 'gone.py'"]
    )


def test_the_fixture_opens_the_lifespan(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        shop=HEALTHY,
        test_shop="""
        from contextlib import contextmanager
        from shop import app

        def test_order(effectmcp_client):
            seen = []

            @contextmanager
            def lifespan(app):
                seen.append("open")
                yield {}
                seen.append("closed")

            app.lifespan = lifespan
            client = effectmcp_client(app, {"Order": True})
            assert client.call_tool("order", title="Dune").text == "Ordered."
            assert effectmcp_client(app).call_tool("plain").text == "plain"
            assert seen == ["open"]
        """,
    )
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


def test_nothing_is_imported_before_it_is_asked_for() -> None:
    code = (
        "import effectmcp.testing.plugin, sys;"
        "print([one for one in sys.modules if one.startswith(('hypothesis', 'trio',"
        " 'effectmcp.server', 'effectmcp.testing.', 'effectmcp.engine'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "['effectmcp.testing.plugin']"


def test_each_test_starts_with_no_counts(pytester: pytest.Pytester) -> None:
    """The plugin does it, so that tests do not depend on each other."""
    pytester.makepyfile(
        """
        import pytest
        from effectmcp.logs import LIMIT, logger_for

        @pytest.mark.parametrize("turn", [1, 2])
        def test_logs(turn, caplog):
            for _ in range(LIMIT + 1):
                logger_for("effectmcp.test").warning("again")
            assert len(caplog.records) == LIMIT
        """
    )
    pytester.runpytest_subprocess("-q").assert_outcomes(passed=2)
