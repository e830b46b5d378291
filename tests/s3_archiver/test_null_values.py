"""Records without a value that are left out are reported, as Confluent's sink reports them."""

from __future__ import annotations

import logging

import pytest

from sinksdk import SinkRecord, SinkRecords
from tests.s3_archiver.support import TP, bench, config
from tests.s3_archiver.test_bad_input import Letters

IGNORE = {"behavior.on.null.values": "ignore"}
LETTERS = {"errors.deadletterqueue.topic.name": "letters", "errors.tolerance": "all"}
LINES = {"format.class": "JsonFormat", "value.converter": "json", "value.converter.schemas.enable": "false"}
FORMATS = {
    "lines": LINES,
    "Avro": {"format.class": "AvroFormat", "value.converter": "string"},
    "Parquet": {
        "format.class": "ParquetFormat",
        "value.converter": "json",
        "value.converter.schema": "a INT",
    },
    "bytes": {"format.class": "ByteArrayFormat", "value.converter": "bytes"},
    "by field": {**LINES, "partitioner.class": "FieldPartitioner", "partition.field.name": "a"},
    "with keys": {**LINES, "store.kafka.keys": "true"},
}
VALUES = (b'{"a":1}', None, b'{"a":2}', None)


def delivered(
    keys: dict[str, str], values: tuple[bytes | None, ...] = VALUES
) -> tuple[list[int], int | None]:
    """Offsets of the dead letters, and the commit."""
    letters = Letters()
    made = bench(settings=config(keys), dead_letters=letters)
    records = [SinkRecord(*TP, offset=n, key=b"k", value=value) for n, value in enumerate(values)]
    made.harness.deliver(TP, SinkRecords.of(TP, records))
    made.harness.revoke()
    return [record.offset for record in letters.records], made.committed()


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("said", [{}, {"report.null.values.to.dlq": "true"}])
def test_null_values_that_are_left_out_are_dead_letters(name: str, said: dict[str, str]) -> None:
    """``report.null.values.to.dlq`` is true by default."""
    assert delivered({**FORMATS[name], **IGNORE, **LETTERS, **said}) == ([1, 3], 4)


@pytest.mark.parametrize("name", FORMATS)
def test_null_values_are_no_dead_letters_where_that_is_not_wanted(name: str) -> None:
    """``report.null.values.to.dlq=false``."""
    assert delivered({**FORMATS[name], **IGNORE, **LETTERS, "report.null.values.to.dlq": "false"}) == ([], 4)


def test_null_values_vanish_without_dead_letters_or_a_log() -> None:
    """Connect has no reporter then."""
    assert delivered({**LINES, **IGNORE}) == ([], 4)


def test_null_values_that_are_left_out_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """With ``errors.log.enable`` alone."""
    with caplog.at_level(logging.ERROR):
        assert delivered({**LINES, **IGNORE, "errors.tolerance": "all", "errors.log.enable": "true"})[1] == 4
    assert [record.message.count("'report.null.values.to.dlq' false") for record in caplog.records] == [1, 1]


def test_a_reported_null_value_fails_its_partition_where_errors_are_not_tolerated() -> None:
    """``errors.tolerance=none``: so does each report in Connect; the record is a dead letter all the same."""
    assert delivered({**LINES, **IGNORE, **LETTERS, "errors.tolerance": "none"}) == ([1], None)


def test_null_values_do_not_count_as_errors() -> None:
    """A topic may hold mostly tombstones: the limits of errors are for what is not expected."""
    values = (b'{"a":1}', *[None] * 1_500)

    offsets, committed = delivered({**LINES, **IGNORE, **LETTERS}, values)
    assert (len(offsets), committed) == (1_500, 1_501)
