"""Records that no converter can read: reported and skipped, or the end of their partition."""

from __future__ import annotations

import threading
from concurrent.futures import Future

import pytest

from sinksdk import (
    ConfigException,
    DataException,
    OffsetAndMetadata,
    RetriableException,
    SinkRecord,
    SinkRecords,
)
from sinksdk.engine import EngineOptions
from sinksdk.engine.retry import RetryPolicy
from sinksdk.testing import SinkTaskHarness
from tests.engine.sinks import P0, Letters, Sink


def number(topic: str, data: bytes | None) -> int:
    """Convert a number; raise DataException for a text, and RetriableException for 503."""
    if data == b"503":
        raise RetriableException("registry unavailable")
    if data == b"401":
        raise ConfigException("wrong password")
    if data == b"bug":
        raise KeyError("a bug in the converter")
    try:
        return int(data)
    except ValueError as error:
        raise DataException(f"no number: {data}") from error


def converting(*, tolerate: bool, timeout: float = 300.0) -> tuple[SinkTaskHarness, Letters]:
    letters = Letters()
    options = EngineOptions(
        tolerate_errors=tolerate, value_converter=number, retry=RetryPolicy(timeout), context_headers=True
    )
    harness = SinkTaskHarness(Sink, options=options, dead_letters=letters)
    harness.start()
    harness.assign(P0)
    return harness, letters


@pytest.mark.parametrize("bad", ["x", "bug"])
def test_tolerated_conversion_errors_skip_their_records(bad: str) -> None:
    harness, letters = converting(tolerate=True)
    harness.deliver(P0, ["1", bad, "3"])
    assert [record.value for record in harness.called("put")[0].arguments[0]] == [1, 3]
    assert [(record.offset, record.value) for record in letters.records] == [(1, bad.encode())]
    headers = dict(letters.records[0].headers)
    assert headers["__connect.errors.stage"] == b"VALUE_CONVERTER"
    assert headers["__connect.errors.class.name"].endswith(b".number"), "what failed, not the task"
    harness.commit()
    assert harness.committed == {P0: OffsetAndMetadata(3)}


@pytest.mark.parametrize("bad", ["x", "bug"])
def test_untolerated_conversion_errors_fail_the_partition(bad: str) -> None:
    harness, letters = converting(tolerate=False)
    harness.deliver(P0, ["1"])
    harness.deliver(P0, ["2", bad, "x"])
    assert "flights-0 at offset 2 failed in VALUE_CONVERTER" in harness.outcome(P0).failure.message
    assert [record.offset for record in letters.records] == [2]
    assert harness.committed == {P0: OffsetAndMetadata(1)}


@pytest.mark.parametrize("tolerate", [False, True])
def test_an_unavailable_converter_skips_no_record(tolerate: bool) -> None:
    harness, letters = converting(tolerate=tolerate, timeout=1.0)
    harness.deliver(P0, ["1"])
    harness.deliver(P0, ["2", "503"])
    while harness.worker.pending:
        harness.advance(harness.worker.wait())
    assert "registry unavailable" in harness.outcome(P0).failure.message
    assert "converting flights-0 at offset 1 failed" in harness.outcome(P0).failure.message
    assert harness.committed == {P0: OffsetAndMetadata(1)}
    assert letters.records == []
    assert len(harness.called("put")) == 1


@pytest.mark.parametrize("tolerate", [False, True])
def test_a_misconfigured_converter_skips_no_record(tolerate: bool) -> None:
    harness, letters = converting(tolerate=tolerate)
    harness.deliver(P0, ["1"])
    harness.deliver(P0, ["2", "401"])
    assert harness.outcome(P0).failure.message == "wrong password"
    assert harness.committed == {P0: OffsetAndMetadata(1)}
    assert letters.records == []


def test_a_dead_letter_is_durable_before_the_records_around_it_are_put() -> None:
    # A sink that commits in `put`, with its own offset, may skip records that could not be converted, but not
    # too early.

    class SlowLetters(Letters):
        def send(self, record: SinkRecord) -> Future[None]:
            future = super().send(record)
            threading.Timer(0.02, future.set_result, (None,)).start()
            return future

    letters = SlowLetters(automatic=False)

    class OwnOffsets(Sink):
        def put(self, records: SinkRecords) -> None:
            assert letters.futures[0].done()
            super().put(records)

    options = EngineOptions(tolerate_errors=True, value_converter=number)
    harness = SinkTaskHarness(OwnOffsets, options=options, dead_letters=letters)
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, ["1", "x", "3"])
    harness.commit()
    assert harness.task.taken == {P0: [0, 2]}
    assert harness.committed == {P0: OffsetAndMetadata(3)}


def test_a_converter_that_is_available_again_converts_the_batch() -> None:
    answers = [RetriableException("503"), None]

    def passing(topic: str, data: bytes | None) -> bytes | None:
        error = answers.pop() if data == b"b" and answers else None
        if error:
            raise error
        return data

    harness = SinkTaskHarness(Sink, options=EngineOptions(value_converter=passing))
    harness.start()
    harness.assign(P0)
    answers.reverse()
    harness.deliver(P0, ["a", "b"])
    assert harness.called("put") == []
    harness.advance(0.3)
    assert harness.task.taken == {P0: [0, 1]}


def test_a_retried_put_does_not_convert_its_batch_again() -> None:
    harness, letters = converting(tolerate=True)
    harness.task.faults["put"].extend([RetriableException("busy"), RetriableException("busy")])
    harness.deliver(P0, ["1", "x", "3"])
    while harness.worker.pending:
        harness.advance(harness.worker.wait())
    assert [record.offset for record in letters.records] == [1]
    batches = [call.arguments[0] for call in harness.called("put")]
    assert len(batches) == 3
    assert all(batch is batches[0] for batch in batches)


def test_a_retried_conversion_reports_bad_records_once() -> None:
    attempts = []

    def flaky(topic: str, data: bytes | None) -> bytes | None:
        if data == b"x":
            raise DataException("bad")
        if data == b"503" and len(attempts) < 3:
            attempts.append(data)
            raise RetriableException("registry unavailable")
        return data

    letters = Letters()
    options = EngineOptions(tolerate_errors=True, value_converter=flaky)
    harness = SinkTaskHarness(Sink, options=options, dead_letters=letters)
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, ["x", "503"])
    while harness.worker.pending:
        harness.advance(harness.worker.wait())
    assert [record.offset for record in letters.records] == [0]
    assert harness.task.taken == {P0: [1]}
