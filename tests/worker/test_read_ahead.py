"""A task's input: its number, and the batches of its reader, read ahead."""

from __future__ import annotations

import threading
from collections.abc import Generator

import pytest

from sinksdk import ConfigException, SinkRecord, SinkRecords, TopicPartition
from sinksdk.worker.sink_task import InputError, ReadAhead

P0 = TopicPartition("t", 0)


def records(offset: int) -> SinkRecords:
    return SinkRecords.of(P0, [SinkRecord(*P0, offset=offset)])


def test_batches_are_read_in_order_and_none_marks_a_pause() -> None:
    # While the source is silent the task gets None again and again.
    more, one = threading.Event(), records(1)  # created here: the first batches take time

    def source() -> Generator[SinkRecords | None]:
        yield one
        yield None
        more.wait(10)
        yield records(2)

    ahead = ReadAhead(source())
    items = iter(ahead)
    first = next(item for item in items if item is not None)
    assert next(items) is None
    more.set()
    rest = [item for item in items if item is not None]
    assert [batch.arrow.column("offset").to_pylist() for batch in (first, *rest)] == [[1], [2]]
    ahead.close()


def test_an_exception_of_a_reader_keeps_its_type_and_message() -> None:
    # Regression: the error of a refused login only said that the input could not be read.

    def refused() -> Generator[SinkRecords]:
        raise ConfigException("the login is refused")
        yield records(0)

    def broken() -> Generator[SinkRecords]:
        yield records(0)
        raise OSError("the disk is gone")

    with pytest.raises(ConfigException, match="the login is refused"):
        list(ReadAhead(refused()))
    with pytest.raises(InputError, match="the disk is gone"):
        list(ReadAhead(broken()))


def test_a_reader_is_closed_when_its_task_finishes() -> None:
    closed = threading.Event()

    def endless() -> Generator[SinkRecords]:
        try:
            while True:
                yield records(0)
        finally:
            closed.set()

    ahead = ReadAhead(endless())
    assert any(item is not None for item in ahead)
    ahead.close()
    assert closed.is_set()
