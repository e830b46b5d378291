"""Errors in a notebook's cell, which IPython formats by ``_render_traceback_``."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from sinksdk import ConfigException, ConnectException, ConnectorConfig
from sinksdk.support.traces import short_trace


def raised(what: Callable[[], object]) -> ConnectException:
    with pytest.raises(ConnectException) as found:
        what()
    return found.value


def authors_code() -> None:
    json.loads("{")


def test_short_trace_shows_the_users_line_and_the_message() -> None:
    error = raised(lambda: ConnectorConfig.parse({"name": "c", "tasks.max": "many"}))
    shown = error._render_traceback_()

    assert [line for line in shown if line.startswith("  File")] == [
        line for line in shown if line.startswith(f'  File "{__file__}"')
    ]
    assert shown[0] == "Traceback (most recent call last):"
    assert "\n".join(shown).endswith(f"sinksdk.errors.ConfigException: {error}")
    assert len(shown) < 10


def test_short_trace_shows_causes_in_an_authors_code() -> None:
    def fails() -> None:
        try:
            authors_code()
        except ValueError as error:
            message = "it failed"
            raise ConnectException(message) from error

    shown = short_trace(raised(fails))
    assert 'json.loads("{")' in shown
    assert "JSONDecodeError" in shown
    assert "decoder.py" not in shown
    assert shown.endswith("sinksdk.errors.ConnectException: it failed\n")


def test_short_trace_omits_causes_without_an_authors_line() -> None:
    def fails() -> None:
        try:
            json.loads("{")
        except ValueError as error:
            message = "it failed"
            raise ConfigException(message) from error.with_traceback(None)

    assert "JSONDecodeError" not in short_trace(raised(fails))


@pytest.mark.parametrize(
    ("file", "is_shown"), [("/home/me/sink.py", True), ("/x/site-packages/pyspark/a.py", False)]
)
def test_short_trace_shows_an_authors_lines_of_a_task(file: str, is_shown: bool) -> None:
    error = ConnectException("connector c has FAILED: no such table")
    error.add_note(
        "Traceback (most recent call last):\n"
        '  File "/y/dist-packages/sinksdk/engine/worker_sink_task.py", line 7, in put\n    self._task.put(records)\n'
        f'  File "{file}", line 3, in put\n    insert(records)\n    ^^^^^^\n'
        "LookupError: no such table\n"
    )
    shown = short_trace(error)

    assert ("insert(records)" in shown) is is_shown
    assert ("LookupError" in shown) is is_shown
    assert "engine/worker_sink_task.py" not in shown
