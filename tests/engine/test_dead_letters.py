"""A dead letter has the bytes that were read; letters and log lines contain only what the keys allow."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from sinksdk import DataException, Header, OffsetAndMetadata, SinkRecord, SinkRecords
from sinksdk.engine import EngineOptions
from sinksdk.engine.converters import JsonConverter, StringConverter
from sinksdk.testing import SinkTaskHarness
from tests.engine.sinks import P0, Letters, Offsets, Sink

CONVERTING = EngineOptions(
    tolerate_errors=True, key_converter=StringConverter(), value_converter=JsonConverter()
)
BAD = SinkRecord(
    *P0,
    offset=7,
    key=b"k",
    value=b'{"bad":  true}',
    timestamp=5,
    timestamp_type=1,
    headers=(Header("h", b"1"),),
)


class Refusing(Sink):
    """Reports each record after ``self.reported`` has changed it."""

    def put(self, records: SinkRecords) -> None:
        for record in records:
            self.context.errant_record_reporter().report(self.reported(record), ValueError("refused"))

    def reported(self, record: SinkRecord) -> SinkRecord:
        return record


def delivered(
    sink: type[Sink], options: EngineOptions = CONVERTING, records: Sequence[SinkRecord] = (BAD,)
) -> tuple[SinkTaskHarness, Letters]:
    letters = Letters()
    harness = SinkTaskHarness(sink, options=options, dead_letters=letters)
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, records)
    return harness, letters


def test_a_converted_record_is_dead_lettered_as_it_was_read() -> None:
    harness, letters = delivered(Refusing)
    assert letters.records == [BAD]
    harness.commit()
    assert harness.committed == {P0: OffsetAndMetadata(8)}


def test_a_record_changed_by_the_task_is_dead_lettered_as_it_was_read() -> None:
    class Changing(Refusing):
        def reported(self, record: SinkRecord) -> SinkRecord:
            return replace(record, value={"other": 1})

    assert delivered(Changing)[1].records == [BAD]


def test_a_record_after_skipped_ones_is_dead_lettered_as_it_was_read() -> None:
    records = [replace(BAD, offset=6, value=b"no JSON"), BAD, replace(BAD, offset=8, value=b"8")]
    letters = delivered(Refusing, records=records)[1]
    assert letters.records == records


def test_a_record_created_by_the_task_is_dead_lettered_if_it_has_bytes() -> None:
    own = SinkRecord(*P0, offset=7, value=b"mine")

    class Own(Refusing):
        def reported(self, record: SinkRecord) -> SinkRecord:
            return own

    assert delivered(Own)[1].records == [own]


@pytest.mark.parametrize(("field", "kind"), [("key", "str"), ("value", "dict")])
def test_a_record_created_by_the_task_without_bytes_fails_its_partition(field: str, kind: str) -> None:
    content: dict[str, Any] = {field: {"str": "text", "dict": {}}[kind]}

    class Own(Refusing):
        def reported(self, record: SinkRecord) -> SinkRecord:
            return SinkRecord(*P0, offset=7, **content)

    harness, letters = delivered(Own)
    failure = harness.outcome(P0).failure
    assert failure is not None
    assert (
        f"flights-0 at offset 7 cannot go to the dead letters: its {field} is of type {kind}"
        in failure.message
    )
    assert letters.records == []
    assert harness.committed == {}


def test_context_headers_are_off_by_default() -> None:
    # Connect's headers are added only if errors.deadletterqueue.context.headers.enable is true.
    (plain,) = delivered(Refusing)[1].records
    assert plain.headers == BAD.headers
    (told,) = delivered(Refusing, replace(CONVERTING, context_headers=True))[1].records
    assert told.headers[:1] == BAD.headers
    context = dict(told.headers[1:])
    assert context["__connect.errors.offset"] == b"7"
    assert context["__connect.errors.class.name"] == b"Refusing"
    assert (told.key, told.value, told.timestamp) == (BAD.key, BAD.value, BAD.timestamp)


def test_context_headers_escape_lone_surrogates() -> None:
    class Odd(Sink):
        def put(self, records: SinkRecords) -> None:
            error = DataException("half a pair: \ud800")
            self.context.errant_record_reporter().report(records[0], error)

    (told,) = delivered(Odd, replace(CONVERTING, context_headers=True))[1].records
    assert dict(told.headers)["__connect.errors.exception.message"] == b"half a pair: \\ud800"


@pytest.mark.parametrize("shown", [False, True])
def test_keys_and_values_are_logged_only_if_configured(shown: bool, caplog: pytest.LogCaptureFixture) -> None:
    options = replace(CONVERTING, log_errors=True, log_messages=shown)
    unreadable = replace(BAD, offset=6, value=b'{"unreadable": 1')
    delivered(Refusing, options, [unreadable, BAD])
    messages = [record.getMessage() for record in caplog.records]
    assert [f"offset {offset}" in message for offset, message in zip((6, 7), messages, strict=True)] == [
        True
    ] * 2
    everything = "".join(logging.Formatter().format(record) for record in caplog.records)
    assert ("unreadable" in everything) == shown
    assert ("(key b'k', value b'{\"bad\":  true}')" in messages[1]) == shown


def test_the_log_shortens_large_values(caplog: pytest.LogCaptureFixture) -> None:
    options = replace(CONVERTING, log_errors=True, log_messages=True)
    delivered(Refusing, options, [replace(BAD, value=b'"' + b"x" * 1_000_000 + b'"')])
    (record,) = caplog.records
    assert 1_000 < len(record.getMessage()) < 2_000


def test_written_dead_letters_are_forgotten_before_the_commit() -> None:
    # Durable dead letters are forgotten, so that memory does not grow until the next commit.
    harness, letters = delivered(Refusing)
    options = [replace(BAD, offset=8 + i) for i in range(50)]
    harness.deliver(P0, options)
    assert len(letters.records) == 51
    assert len(harness.worker._states[P0].letters) == 1


def test_a_lost_dead_letter_among_written_ones_fails_the_partition() -> None:
    class AtCommit(Refusing):
        def pre_commit(self, offsets: Offsets) -> Offsets:
            pytest.fail("a dead letter was lost")

    letters = Letters(automatic=False)
    harness = SinkTaskHarness(AtCommit, options=CONVERTING, dead_letters=letters)
    harness.start()
    harness.assign(P0)
    for offset in range(3):
        harness.deliver(P0, [replace(BAD, offset=offset)])
        if offset == 1:
            letters.futures[offset].set_exception(OSError("gone"))
        else:
            letters.futures[offset].set_result(None)
    harness.commit()
    assert harness.committed == {}
    assert "a dead letter of flights-0 was not written: OSError: gone" in harness.outcome(P0).failure.message
