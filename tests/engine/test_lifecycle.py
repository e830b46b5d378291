"""initialize, start, open and stop: which methods are called, and how often, after any exception."""

from __future__ import annotations

import pytest

from sinksdk import ConnectException, OffsetAndMetadata, OffsetRange
from sinksdk.engine import EngineOptions
from sinksdk.testing import SinkTaskHarness
from tests.engine.sinks import P0, P1, Sink, rows


def test_stop_is_called_once_and_last() -> None:
    harness = SinkTaskHarness(Sink)
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    harness.stop()
    harness.stop()
    assert harness.names()[-2:] == ["close", "stop"]
    assert harness.names().count("stop") == 1


@pytest.mark.parametrize("method", ["initialize", "start"])
def test_stop_is_called_after_a_failed_start(method: str) -> None:
    harness = SinkTaskHarness(Sink)
    harness.task.faults[method].append(ConnectException("no"))
    with pytest.raises(ConnectException, match="no"):
        harness.start()
    harness.stop()
    assert harness.names()[-1] == "stop"
    assert harness.called("close") == harness.called("pre_commit") == []


def test_a_task_that_was_never_started_is_not_stopped() -> None:
    harness = SinkTaskHarness(Sink)
    harness.stop()
    assert harness.calls == []


def test_an_exception_of_stop_is_logged_and_ignored(caplog: pytest.LogCaptureFixture) -> None:
    harness = SinkTaskHarness(Sink)
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    harness.task.faults["stop"].append(ConnectException("socket gone"))
    harness.stop()
    assert "stop raised; ignored" in caplog.text
    assert harness.committed == {P0: OffsetAndMetadata(1)}


def test_start_gets_the_configuration() -> None:
    config = {"folder": "/tmp"}
    harness = SinkTaskHarness(Sink, config)
    harness.start()
    assert harness.called("start")[0].arguments == (config,)
    assert harness.called("initialize")[0].arguments == (harness.task.context,)


def test_open_gets_only_the_new_partitions() -> None:
    harness = SinkTaskHarness(Sink)
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    harness.assign(P1)
    assert [call.arguments for call in harness.called("open")] == [([P0],), ([P1],)]
    assert harness.task.context.assignment() == {P0, P1}
    assert harness.position(P0) == 1


def test_open_is_not_called_without_partitions() -> None:
    harness = SinkTaskHarness(Sink)
    harness.start()
    harness.assign()
    assert harness.called("open") == []


def test_the_assignment_contains_the_open_partitions() -> None:
    seen = []

    class Watching(Sink):
        def open(self, partitions: object) -> None:
            seen.append(("open", self.context.assignment()))

        def pre_commit(self, offsets: object) -> object:
            seen.append(("pre_commit", self.context.assignment()))
            return offsets

        def close(self, partitions: object) -> None:
            seen.append(("close", self.context.assignment()))

    harness = SinkTaskHarness(Watching)
    harness.start()
    assert harness.task.context.assignment() == frozenset()
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    harness.revoke()
    assert seen == [("open", {P0}), ("pre_commit", {P0}), ("close", frozenset())]


def test_the_context_has_generation_and_configuration() -> None:
    harness = SinkTaskHarness(Sink, generation=9)
    harness.start()
    assert harness.task.context.generation() == 9
    harness.task.context.configs()["x"] = "y"
    assert harness.task.context.configs() == {}


def test_an_empty_batch_is_not_put() -> None:
    # Connect calls put with an empty list in every turn.
    harness = SinkTaskHarness(Sink)
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, [])
    harness.deliver(P0, rows(P0))
    harness.advance(3600)
    assert harness.called("put") == []


def test_a_completely_filtered_batch_is_not_put() -> None:
    def nothing(topic: str, data: object) -> object:
        raise ValueError("no")

    harness = SinkTaskHarness(Sink, options=EngineOptions(tolerate_errors=True, value_converter=nothing))
    harness.start()
    harness.assign(P0, limits=OffsetRange(0, 5))
    harness.deliver(P0, ["a", "b"])
    harness.finish(P0)
    assert harness.called("put") == []
    assert harness.committed == {P0: OffsetAndMetadata(5)}
