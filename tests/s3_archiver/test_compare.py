from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pytest

from sinksdk import OffsetAndMetadata, SinkRecord, SinkRecords, TopicPartition
from sinksdk.connectors.s3_archiver.files.settings import Limits
from sinksdk.connectors.s3_archiver.verify import reading
from sinksdk.connectors.s3_archiver.verify.check import Report, verify
from sinksdk.connectors.s3_archiver.verify.compare import compare
from tests.s3_archiver.support import TP, Bench, Turns, bench, config

RECORDS = [SinkRecord(*TP, offset=offset, value=b"%d" % offset, timestamp=7) for offset in range(10)]


@dataclass
class Log:
    kept: Sequence[SinkRecord]
    begin: int = 0
    is_compacted: bool = False

    def __str__(self) -> str:
        return "the log"

    def batches(self, partition: TopicPartition, end: int) -> Iterator[pa.RecordBatch]:
        for r in self.kept:
            if self.begin <= r.offset < end:
                row = {name: getattr(r, name, None) for name in reading.RECORDS.names}
                yield pa.RecordBatch.from_pylist([row | {"headers": []}], schema=reading.RECORDS)

    def removal_cause(self, partition: TopicPartition, offset: int) -> str:
        if offset < self.begin:
            return "which now begins at a later offset"
        return "which is compacted" if self.is_compacted else ""


def archive(records: Sequence[SinkRecord] = RECORDS, b: Bench | None = None) -> Bench:
    b = b or bench(flush_size=4)
    b.harness.deliver(TP, SinkRecords.of(TP, records))
    b.harness.revoke()
    return b


def compared(b: Bench, log: Log) -> Report:
    report = verify(config(), b.s3, lambda: b.harness.committed)
    compare(b.s3, log, report)
    return report


def notes(report: Report) -> list[str]:
    return [note for partition in report.partitions for note in partition.notes]


def test_equal_records_are_counted() -> None:
    report = compared(archive(RECORDS[:8]), Log(RECORDS))

    assert report.problems == []
    assert notes(report) == ["orders-0: 8 records are the same as in the log"]


def test_records_removed_by_retention_are_not_differences() -> None:
    report = compared(archive(), Log(RECORDS, begin=4))

    assert report.problems == []
    assert notes(report) == [
        "orders-0: 4 archived records are no longer in the log, which now begins at a later offset",
        "orders-0: 6 records are the same as in the log",
    ]


def test_records_removed_by_compaction_are_not_differences() -> None:
    report = compared(archive(), Log(RECORDS[1::2], is_compacted=True))

    assert report.problems == []
    assert "5 archived records are no longer in the log, which is compacted" in notes(report)[0]


@pytest.mark.parametrize("offset", [4, 9])
def test_an_archived_record_missing_from_the_source_is_a_difference(offset: int) -> None:
    # The log begins below the offset and is not compacted, so the source never had the archived record.
    report = compared(archive(), Log([r for r in RECORDS if r.offset != offset], begin=4))

    assert report.problems == [f"orders-0: offset {offset} is in the archive but not in the log"]


def test_a_changed_record_is_found_in_a_compacted_log_with_retention() -> None:
    changed = [*RECORDS[:6], replace(RECORDS[6], value=b"other"), *RECORDS[7:]]

    report = compared(archive(), Log(changed, begin=4, is_compacted=True))

    assert report.problems == ["orders-0: offset 6 has a different value in the archive"]


def test_records_before_the_start_offset_are_counted() -> None:
    # Such a start offset comes from auto.offset.reset=latest, offset.source=group, or altered offsets.
    b = bench(flush_size=4)
    b.harness.log = type(b.harness.log)({TP: OffsetAndMetadata(3)})
    b.harness._build()
    b.harness.start()
    b.harness.assign(TP)

    report = compared(archive(RECORDS[3:], b), Log(RECORDS))

    assert report.problems == []
    assert (
        "orders-0: 3 records of the log are not in the archive: the connector started at a later offset"
        in notes(report)
    )


def test_a_connector_started_at_the_end_has_no_records_to_compare() -> None:
    b = bench()
    b.harness.log = type(b.harness.log)({TP: OffsetAndMetadata(10)})

    report = compared(b, Log(RECORDS))

    assert report.problems == []
    assert "10 records of the log are not in the archive" in notes(report)[0]


def test_only_the_first_differences_are_listed() -> None:
    report = compared(archive(), Log([]))

    assert len(report.problems) == 6
    assert report.problems[-1] == "orders-0: 5 more records differ"


def test_files_of_a_group_are_compared_in_the_order_of_their_records() -> None:
    grouping = {"folders": Turns(3), "limits": Limits(records=4)}
    report = compared(archive(b=bench(grouping=grouping)), Log(RECORDS))

    assert report.problems == []
    assert any("10 records are the same" in note for note in notes(report))
