from __future__ import annotations

import io
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sinksdk import OffsetAndMetadata, SinkRecord, SinkRecords, TopicPartition
from sinksdk.connectors.s3_archiver import __main__ as command
from sinksdk.connectors.s3_archiver.archive.header import Archived, FileHeader
from sinksdk.connectors.s3_archiver.archive.layout import FileName
from sinksdk.connectors.s3_archiver.config import S3ArchiverConfig
from sinksdk.connectors.s3_archiver.files.settings import Limits
from sinksdk.connectors.s3_archiver.formats.base import Encoded
from sinksdk.connectors.s3_archiver.formats.codecs import codec
from sinksdk.connectors.s3_archiver.formats.container import ContainerWriter
from sinksdk.connectors.s3_archiver.formats.datums import EncodedRows
from sinksdk.connectors.s3_archiver.partitioners.folders import Split
from sinksdk.connectors.s3_archiver.s3 import crc
from sinksdk.connectors.s3_archiver.s3.client import Location
from sinksdk.connectors.s3_archiver.verify import inspection
from sinksdk.connectors.s3_archiver.verify.check import Report, verify
from sinksdk.connectors.s3_archiver.verify.compare import TopicDirectory, compare
from sinksdk.connectors.s3_archiver.verify.inspection import Configured
from sinksdk.records import HEADERS_TYPE, Header
from tests.s3_archiver.fake_s3 import FakeS3, denied
from tests.s3_archiver.support import MINIMAL, OTHER, TP, Bench, Turns, bench, config, header, records


def archive(*counts: int, flush_size: int = 100, codec: str = "null") -> Bench:
    b = bench(flush_size=flush_size, avro_codec=codec)
    for count in counts:
        b.put(count)
        b.harness.revoke()
        b.harness.assign(TP)
    return b


def checked(b: Bench) -> Report:
    return verify(config(), b.s3, lambda: b.harness.committed)


def remove(b: Bench, index: int) -> str:
    key = b.visible()[index]
    del b.s3.objects[Location("bucket", key)]
    return key


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "zstandard", "bzip2", "xz"])
def test_a_complete_archive_has_no_problems(codec: str) -> None:
    report = checked(archive(250, 30, codec=codec))

    assert report.problems == []
    (found,) = report.partitions
    assert (found.files, found.records, found.first, found.last, found.committed) == (4, 280, 0, 279, 280)
    assert (found.gaps, found.overlaps) == (0, 0)


@pytest.mark.parametrize(
    ("index", "words"), [(0, "the first 1 files"), (1, "in between"), (-1, "at the end")]
)
def test_a_missing_file_is_found_at_every_position(index: int, words: str) -> None:
    b = archive(450)
    remove(b, index)

    report = checked(b)

    assert len(report.problems) == 1
    assert words in report.problems[0]


def test_several_missing_files_are_counted() -> None:
    b = archive(450)
    for _ in range(3):
        remove(b, -1)

    assert "3 files are missing at the end" in checked(b).problems[0]


def test_missing_archive_is_found() -> None:
    b = archive(250)
    b.s3.objects.clear()

    assert "3 files are missing" in checked(b).problems[0]


def test_gaps_of_the_topic_are_counted_and_are_not_problems() -> None:
    b = bench(flush_size=3)
    b.harness.deliver(
        TP, SinkRecords.of(TP, [SinkRecord(*TP, offset=offset, value=b"v") for offset in (5, 6, 9, 20, 22)])
    )
    b.harness.revoke()

    report = checked(b)

    assert report.problems == []
    assert report.partitions[0].gaps == (2 + 10 + 1)


def test_overlapping_files_are_found() -> None:
    b = archive(100)
    other = bench(flush_size=100)
    other.harness.log = type(other.harness.log)({TP: OffsetAndMetadata(90)})
    other.harness._build()
    other.harness.start()
    other.harness.assign(TP)
    other.put(30)
    other.harness.revoke()
    b.s3.objects.update(other.s3.objects)

    report = checked(b)

    assert report.partitions[0].overlaps == 10
    assert any("offsets 90 to 99 are in" in problem for problem in report.problems)
    transformed = config({"records.transform": "tests.s3_archiver.support:config"})
    assert verify(transformed, b.s3, lambda: b.harness.committed).partitions[0].overlaps == 10


# -- groups of files ---------------------------------------------------------------------------------


def groups(*counts: int, folders: int = 3) -> Bench:
    b = bench(grouping={"folders": Turns(folders), "limits": Limits(records=10)})
    for count in counts:
        b.put(count)
        b.harness.revoke()
        b.harness.assign(TP)
    return b


def test_complete_groups_of_files_have_no_problems() -> None:
    report = checked(groups(25, 8))

    assert report.problems == []
    (found,) = report.partitions
    assert (found.files, found.records, found.first, found.last, found.gaps) == (12, 33, 0, 32, 0)


@pytest.mark.parametrize("index", range(9))
def test_every_missing_file_of_a_group_is_found(index: int) -> None:
    b = groups(30)
    remove(b, index)

    (problem,) = checked(b).problems

    assert "missing" in problem


@pytest.mark.parametrize("index", range(6))
def test_a_damaged_file_of_a_group_is_found(index: int) -> None:
    b = groups(20)
    key = b.visible()[index]
    data = b.s3.objects[Location("bucket", key)].data
    b.s3.objects[Location("bucket", key)].data = data[:-20] + bytes([data[-20] ^ 1]) + data[-19:]

    found = checked(b).problems

    assert any(key in problem for problem in found)
    assert len(found) == 2


@pytest.mark.parametrize("index", range(6))
def test_a_duplicated_file_of_a_group_is_found(index: int) -> None:
    b = groups(20)
    one = Location("bucket", b.visible()[index])
    other = Location("bucket", one.key.replace("turn=", "copy="))
    b.s3.objects[other] = b.s3.objects[one]

    found = checked(b).problems

    assert any(one.key in problem and other.key in problem and "again in" in problem for problem in found)
    assert any("are both marked as file" in problem for problem in found)


def test_missing_group_is_found() -> None:
    b = groups(30)
    for key in b.visible():
        if FileHeader.of(header(b.s3.data(key))).before.files == 3:
            del b.s3.objects[Location("bucket", key)]

    (problem,) = checked(b).problems

    assert "states 6 files of 20 records up to offset 20" in problem
    assert "there are 3 files of 10 records up to offset 10" in problem


def test_unpublished_files_of_a_group_are_named() -> None:
    b = groups(10)
    b.put(10)
    b.s3.fail_next("CompleteMultipartUpload", KeyboardInterrupt(), after_effect=True)
    with pytest.raises(KeyboardInterrupt):
        b.harness.commit()

    found = checked(b).problems

    assert len(found) == 2
    assert all("is committed but not visible yet" in problem for problem in found)


def test_visible_files_of_a_withdrawn_group_are_named() -> None:
    b = groups(10)
    b.put(10)
    b.s3.fail_next("CompleteMultipartUpload", KeyboardInterrupt(), after_effect=True)
    with pytest.raises(KeyboardInterrupt):
        b.harness.commit()
    b.s3.uploads.clear()
    b.harness.crash()
    b.harness.start()
    b.harness.assign(TP)

    report = checked(b)

    assert report.problems == []
    assert "some of its files had expired" in report.partitions[0].notes[0]
    committed = b.harness.committed[TP]
    forgotten = OffsetAndMetadata(committed.offset, replace(Archived.of(committed), skip="").to_text())
    (problem,) = verify(config(), b.s3, lambda: {TP: forgotten}).problems
    assert "are visible, but only those below 10 are committed" in problem


class TurnsOfRows(Turns):
    def split(self, partition: TopicPartition, batch: pa.RecordBatch, now: float) -> Split:
        """See :class:`~sinksdk.connectors.s3_archiver.partitioners.folders.Folders`."""
        turns = np.array([int(value) for value in batch.column("value").to_pylist()], np.int32)
        return Split([f"partition={partition.partition}/turn={turn}" for turn in range(2)], turns, turns)


def of_turns(first: int, *turns: str) -> SinkRecords:
    rows = [(offset, turn.encode()) for offset, several in enumerate(turns, first) for turn in several]
    batch = records(TP, len(rows)).arrow
    for name, column in (
        ("offset", pa.array([r[0] for r in rows])),
        ("value", pa.array([r[1] for r in rows])),
    ):
        batch = batch.set_column(batch.schema.get_field_index(name), name, column)
    return SinkRecords(TP, batch)


@pytest.mark.parametrize(
    "turns",
    [
        *[("0", "01"), ("1", "01"), ("1", "10"), ("01", "10"), ("0", "001", "1")],
        *[("1", "0", "01"), ("1", "0", "10"), ("1", "00", "10"), ("1", "10", "10", "0")],
    ],
    ids="-".join,
)
def test_rows_of_one_offset_in_two_commits_are_not_problems(turns: Sequence[str]) -> None:
    settings = config({"records.transform": "tests.s3_archiver.support:config"})
    b = bench(settings=settings, grouping={"folders": TurnsOfRows(), "limits": Limits(records=10)})
    b.harness.deliver(TP, of_turns(0, *turns))
    b.s3.fail_next("CompleteMultipartUpload", KeyboardInterrupt(), after_effect=True)
    with pytest.raises(KeyboardInterrupt):
        b.harness.revoke()
    b.s3.uploads.clear()
    for _ in ("withdraws the commit", "reads again"):
        b.harness.crash()
        b.harness.start()
        b.harness.assign(TP)
    for offset, each in enumerate(turns):
        b.harness.deliver(TP, of_turns(offset, each))
        b.harness.revoke()
        b.harness.assign(TP)

    report = verify(settings, b.s3, lambda: b.harness.committed)

    assert report.problems == []
    assert sorted(b.offsets()) == [n for n, each in enumerate(turns) for _ in each]


class LinesOf(list[bytes]):
    def slice(self, start: int, stop: int) -> LinesOf:
        return LinesOf(self[start:stop])


class Lines:
    extension = ".json"
    columns = None

    def learn(self, batch: pa.RecordBatch) -> None:
        """Load nothing: this format needs no other system."""

    def kinds(self, partition: TopicPartition, batch: pa.RecordBatch) -> None:
        return None

    def encode(self, partition: TopicPartition, batch: pa.RecordBatch) -> Encoded[LinesOf]:
        return Encoded(LinesOf(b'"%s"\n' % value for value in batch.column("value").to_pylist()), {})

    def begin(self, header: FileHeader, key: str, kind: object) -> Lines:
        return self

    buffered = 0

    def header(self) -> Iterator[bytes]:
        return iter(())

    def append(self, rows: LinesOf) -> Iterator[bytes]:
        return iter(rows)

    def finish(self) -> Iterator[bytes]:
        return iter(())


def values_archive() -> Bench:
    b = bench(grouping={"folders": Turns(3), "limits": Limits(records=10), "file_format": Lines()})
    b.put(30)
    b.harness.revoke()
    return b


def test_files_of_values_are_checked_by_their_objects_metadata() -> None:
    report = checked(values_archive())

    assert report.problems == []
    (found,) = report.partitions
    assert (found.files, found.records, found.first, found.last, found.gaps) == (9, 30, 0, 29, 0)


def test_gaps_of_values_are_counted_below_the_last_group_of_a_running_connector() -> None:
    # When this was read, the commit of that group did not exist.
    b = values_archive()
    behind = OffsetAndMetadata(20, Archived(6, 20, 20).to_text())
    answers = iter([{TP: behind}, {TP: OffsetAndMetadata(40, Archived(12, 40, 40).to_text())}])
    report = verify(config(), b.s3, lambda: next(answers))

    assert report.problems == []
    assert (report.partitions[0].records, report.partitions[0].gaps) == (30, 0)


def test_gaps_are_unknown_where_transforms_may_multiply_records() -> None:
    b = values_archive()
    settings = config({"records.transform": "tests.s3_archiver.support:config"})
    report = verify(settings, b.s3, lambda: b.harness.committed)

    assert (report.problems, report.partitions[0].gaps) == ([], None)
    out = io.StringIO()
    command.show(report, out)
    assert out.getvalue().splitlines()[1].split()[6] == "-"


@pytest.mark.parametrize("index", range(9))
def test_a_missing_file_of_values_is_found(index: int) -> None:
    b = values_archive()
    remove(b, index)

    (problem,) = checked(b).problems

    assert "missing" in problem


def test_a_damaged_or_shortened_file_of_values_is_found() -> None:
    b = values_archive()
    made = b.s3.objects[Location("bucket", b.visible()[4])]
    made.data = made.data[made.data.index(b"\n") + 1 :]

    assert any("is damaged" in problem for problem in checked(b).problems)


@pytest.mark.parametrize("line", [b"{a:1}", b'{"a":1}{"a":2}', b'{"a":2,,}', b'"\xff"', b"", b"nope"])
def test_an_invalid_json_line_makes_its_file_unreadable(line: bytes) -> None:
    # The checksum and the number of lines are right.
    class Broken(Lines):
        def encode(self, partition: TopicPartition, batch: pa.RecordBatch) -> Encoded[LinesOf]:
            good = super().encode(partition, batch)
            return Encoded(LinesOf([*list(good.rows)[:-1], line + b"\n"]), {})

    b = bench(grouping={"limits": Limits(records=10), "file_format": Broken()})
    b.put(10)
    b.harness.revoke()

    problems = checked(b).problems
    assert any("line 10 is not JSON" in problem for problem in problems), problems


@pytest.mark.parametrize("datum", [b"\x06ab", b"\x06abcd", b"\x01", b"\x06\xff\xff\xff"])
def test_a_datum_that_does_not_match_its_schema_makes_its_file_unreadable(datum: bytes) -> None:
    # Readers do not skip a datum that they cannot read.
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]}
    name = FileName(TP, 0, "partition=0")
    metadata = FileHeader(TP, 0, "archive", 1, Archived()).to_metadata()
    rows = EncodedRows(memoryview(b"\x06abc" + datum), np.array([0, 4, 4 + len(datum)]))
    writer = ContainerWriter(schema, codec("null"), metadata, b"s" * 16)
    pieces = [
        bytes(piece) for part in (writer.header(), writer.append(rows), writer.finish()) for piece in part
    ]

    with pytest.raises(ValueError, match=r"row [12] does not fit the file's schema"):
        inspection._read_avro(inspection._Counted(io.BytesIO(b"".join(pieces))), name, Configured())


def archived_in(b: Bench, settings: S3ArchiverConfig, values: Sequence[bytes]) -> Bench:
    made = bench(settings=settings, s3=b.s3)
    made.harness.log = type(made.harness.log)(dict(b.harness.committed))
    made.harness._build()
    made.harness.start()
    made.harness.assign(TP)
    first = b.harness.committed[TP].offset
    rows = [SinkRecord(*TP, offset=first + n, value=value, timestamp=1) for n, value in enumerate(values)]
    made.harness.deliver(TP, SinkRecords.of(TP, rows))
    made.harness.revoke()
    return made


JSON: Mapping[str, str] = {
    "format.class": "JsonFormat",
    "value.converter": "json",
    "value.converter.schemas.enable": "false",
}


@pytest.mark.parametrize(
    "changed",
    [
        {"topics.dir": "elsewhere/deep"},
        {"directory.delim": "_"},
        {"file.delim": "-", "filename.offset.zero.pad.width": "3"},
        JSON,
        {**JSON, "topics.dir": "elsewhere"},
        {"format.class": "ByteArrayFormat", "format.bytearray.extension": ".raw", "value.converter": "bytes"},
    ],
    ids=str,
)  # fmt: skip
def test_files_are_checked_by_the_configuration_at_their_commit(changed: dict[str, str]) -> None:
    before, after = config({"flush.size": "2"}), config({"flush.size": "2", **changed})
    b = bench(settings=before)
    b.put(4)
    b.harness.revoke()
    for now, values in ((after, [b'{"a":1}', b'{"a":2}', b'{"a":3}']), (before, [b"x"])):
        b = archived_in(b, now, values)
        report = verify(now, b.s3, lambda b=b: b.harness.committed)  # type: ignore[misc]
        assert report.problems == []
    (found,) = report.partitions
    assert found.files == 5
    assert len({(run.where, run.content) for run in found.file_runs}) == 2
    assert len([note for note in report.notes if "were checked as" in note]) == len(found.file_runs) == 3


def test_missing_file_of_an_earlier_folder_is_found() -> None:
    one = bench(settings=config({"flush.size": "2"}))
    one.put(4)
    one.harness.revoke()
    settings = config({"topics.dir": "elsewhere", "flush.size": "2"})
    other = archived_in(one, settings, [b"x", b"y"])
    del other.s3.objects[Location("bucket", one.visible()[0])]

    (problem,) = verify(settings, other.s3, lambda: other.harness.committed).problems
    assert "missing" in problem


def test_files_above_the_commit_are_found() -> None:
    # The records of this file would be archived again.
    b = archive(250)
    commits = {TP: OffsetAndMetadata(200, '{"files": 2, "records": 200, "end": 200}')}

    report = verify(config(), b.s3, lambda: commits)

    assert "offsets up to 249 are visible, but only those below 200 are committed" in report.problems[0]


def test_archive_without_any_commit_is_a_problem() -> None:
    b = archive(10)

    assert "nothing is committed" in verify(config(), b.s3, dict).problems[0]


def test_committed_files_that_are_not_visible_are_named() -> None:
    # After a crash between commit and publish, the next start publishes the file.
    b = bench(flush_size=10)
    b.put(10)
    b.harness.commit()
    b.s3.fail_next("CompleteMultipartUpload", KeyboardInterrupt())
    b.put(10)
    with pytest.raises(KeyboardInterrupt):
        b.harness.commit()

    report = checked(b)

    assert len(report.problems) == 1
    assert "offsets [10, 20), is committed but not visible yet" in report.problems[0]
    assert any("the connector will publish it" in note for note in report.notes)


def test_published_tokens_are_not_problems() -> None:
    # The store records a publication only with the task's next write.
    b = archive(10)
    assert b.harness.committed[TP].tokens or b.harness.committed[TP].offset == 10

    assert checked(b).problems == []


def test_a_running_connector_causes_no_problems() -> None:
    # Files that appear during the listing are below the commit, which is read afterwards.
    b = archive(100)
    early = dict(b.harness.committed)
    b.put(100)
    b.harness.commit()
    answers = iter([early, b.harness.committed])

    assert verify(config(), b.s3, lambda: next(answers)).problems == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: data[:-1],
        lambda _: b"not Avro at all",
        lambda _: b"",
        lambda data: data[:2000] + bytes([data[2000] ^ 1]) + data[2001:],
        lambda data: data + b"more",
    ],
    ids=["cut in half", "last byte missing", "other content", "empty", "one bit", "more at the end"],
)
@pytest.mark.parametrize("codec", ["null", "deflate", "zstandard", "snappy"])
def test_a_damaged_file_is_found(damage: Any, codec: str) -> None:
    b = archive(100, codec=codec, flush_size=1000)
    made = b.s3.objects[Location("bucket", b.visible()[0])]
    assert len(made.data) > 2000
    made.data = damage(made.data)

    problems = checked(b).problems

    assert any(b.visible()[0] in problem for problem in problems)


def test_a_file_under_another_name_is_found() -> None:
    b = archive(250)
    one, two = (Location("bucket", key) for key in b.visible()[:2])
    b.s3.objects[two] = b.s3.objects[one]

    assert any("does not match its name" in problem for problem in checked(b).problems)


def test_a_file_of_another_partition_is_found() -> None:
    b = bench(TP, OTHER, flush_size=100)
    b.put(10)
    b.put(10, OTHER)
    b.harness.revoke()
    mine, other = (Location("bucket", key) for key in b.visible())
    b.s3.objects[mine] = b.s3.objects[other]

    assert any("orders-1" in problem for problem in checked(b).problems)


def test_altered_offsets_begin_a_new_chain() -> None:
    b = archive(100)
    b.harness.log = type(b.harness.log)({TP: OffsetAndMetadata(150)})
    b.harness._build()
    b.harness.start()
    b.harness.assign(TP)
    b.put(10)
    b.harness.revoke()

    report = checked(b)

    assert report.problems == []
    assert "begins a new chain of files at offset 150" in report.partitions[0].notes[0]


def test_pending_uploads_are_listed_with_their_sizes() -> None:
    b = bench(settings=config(flush_size=1000, part_size=500))
    for name in ("empty", "too"):
        b.s3.create_upload(Location("bucket", f"topics/orders/partition=0/{name}"), {})
    b.put(100)

    notes = checked(b).notes

    assert "2 uploads are empty; they cost nothing" in notes, "one line, however many there are"
    assert len(notes) == 2
    assert any("bytes, of a running task" in note for note in notes)


def test_pending_uploads_in_earlier_locations_are_listed() -> None:
    # Uploads in a previous location cost money, too.
    one = bench(settings=config({"flush.size": "2"}))
    one.put(4)
    one.harness.revoke()
    settings = config({"topics.dir": "elsewhere", "flush.size": "2"})
    other = archived_in(one, settings, [b"x", b"y"])
    for folder in ("topics", "elsewhere"):
        location = Location("bucket", f"{folder}/orders/partition=0/left")
        upload = other.s3.create_upload(location, {})
        other.s3.upload_part(location, upload, 1, b"12345", crc.encode(zlib.crc32(b"12345")))

    notes = verify(settings, other.s3, lambda: other.harness.committed).notes

    pending = [note for note in notes if "5 bytes, of a running task" in note]
    assert ["topics/orders" in note for note in pending] == [False, True]


def test_other_objects_in_the_folder_are_named() -> None:
    b = archive(10)
    b.s3.put(Location("bucket", "topics/orders/_SUCCESS"), b"")

    assert "topics/orders/_SUCCESS is not a file of this archive and was not read" in checked(b).notes


# -- comparing with the source -------------------------------------------------------------------

RECORDS = [
    SinkRecord(*TP, offset=0, key=None, value=None, timestamp=None, timestamp_type=-1),
    SinkRecord(*TP, offset=3, key=b"k", value=b"v", timestamp=1_700_000_000_123, timestamp_type=1),
    SinkRecord(*TP, offset=4, key=b"", value=b"x" * 1000, timestamp=0, headers=(Header("é", b"1"),) * 2),
    SinkRecord(*TP, offset=9, value=b"last", timestamp=5, headers=(Header("h", None),)),
]


def write_source(directory: Path, records: list[SinkRecord], name: str = "a") -> None:
    # Spark writes timestamps in microseconds.
    batch = SinkRecords.of(TP, records).arrow
    index = batch.schema.get_field_index("timestamp")
    batch = batch.set_column(index, "timestamp", batch.column(index).cast(pa.timestamp("us", tz="UTC")))
    folder = directory / f"topic={TP.topic}" / f"partition={TP.partition}"
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_batches([batch]), folder / f"{name}.parquet")


def compared(directory: Path, records: list[SinkRecord] = RECORDS) -> list[str]:
    b = bench(flush_size=2)
    b.harness.deliver(TP, SinkRecords.of(TP, records))
    b.harness.revoke()
    report = checked(b)
    compare(b.s3, TopicDirectory(directory), report)
    return report.problems


def test_a_complete_archive_equals_its_source(tmp_path: Path) -> None:
    write_source(tmp_path, RECORDS[2:], "a")
    write_source(tmp_path, RECORDS[:2], "b")
    write_source(tmp_path, [SinkRecord(*TP, offset=10, value=b"not committed yet")], "c")

    assert compared(tmp_path) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("key", b"other"),
        ("value", None),
        ("timestamp", 7),
        ("timestamp_type", 0),
        ("headers", (Header("h", b""),)),
    ],
)
def test_a_different_record_is_reported_with_its_field(tmp_path: Path, field: str, value: Any) -> None:
    write_source(tmp_path, [RECORDS[0], replace(RECORDS[1], **{field: value}), *RECORDS[2:]])

    (problem,) = compared(tmp_path)
    assert "offset 3 has a different" in problem
    assert field in problem


def test_a_parquet_archive_is_compared_with_its_source(tmp_path: Path) -> None:
    settings = config({"format.class": "ParquetFormat", "archive.content": "record", "flush.size": "2"})
    b = bench(settings=settings)
    b.harness.deliver(TP, SinkRecords.of(TP, RECORDS))
    b.harness.revoke()
    write_source(tmp_path, [replace(RECORDS[0], value=b"another"), *RECORDS[1:]])

    report = verify(settings, b.s3, lambda: b.harness.committed)
    compare(b.s3, TopicDirectory(tmp_path), report)

    assert report.problems == ["orders-0: offset 0 has a different value in the archive"]


def parquet_archive(alter: Callable[[pa.Table], pa.Table]) -> tuple[S3ArchiverConfig, Bench]:
    settings = config({"format.class": "ParquetFormat", "archive.content": "record", "flush.size": "4"})
    b = bench(settings=settings)
    b.harness.deliver(TP, SinkRecords.of(TP, RECORDS))
    b.harness.revoke()
    for made in b.s3.objects.values():
        file, body = pq.ParquetFile(io.BytesIO(made.data)), io.BytesIO()
        said = {key: text for key, text in file.metadata.metadata.items() if key != b"ARROW:schema"}
        pq.write_table(alter(file.read()).replace_schema_metadata(said), body)
        made.data = body.getvalue()
        made.crc32 = None
    return settings, b


@pytest.mark.parametrize("column", ["timestamp", "key", "value", "headers"])
def test_a_parquet_archive_without_a_column_is_reported(column: str) -> None:
    settings, b = parquet_archive(lambda table: table.drop_columns(column))

    report = verify(settings, b.s3, lambda: b.harness.committed)

    assert any(f"has no column '{column}'" in problem for problem in report.problems)


@pytest.mark.parametrize(
    ("column", "kind"),
    [("headers", None), ("timestamp_type", None), ("timestamp", pa.timestamp("us", "UTC"))],
)
def test_what_a_topic_directory_may_leave_out_is_a_difference_in_a_parquet_archive(
    tmp_path: Path, column: str, kind: pa.DataType | None
) -> None:
    def altered(table: pa.Table) -> pa.Table:
        place = table.schema.get_field_index(column)
        old = table.column(place)
        return table.set_column(
            place, column, pa.nulls(len(old), old.type) if kind is None else old.cast(kind)
        )

    settings, b = parquet_archive(altered)
    write_source(tmp_path, RECORDS)

    report = verify(settings, b.s3, lambda: b.harness.committed)
    compare(b.s3, TopicDirectory(tmp_path), report)

    assert report.problems
    assert all(f"has a different {column} in the archive" in problem for problem in report.problems)


def test_records_missing_on_either_side_are_named(tmp_path: Path) -> None:
    write_source(tmp_path, [RECORDS[0], SinkRecord(*TP, offset=1, value=b"lost"), *RECORDS[1:3]])

    assert compared(tmp_path) == [
        f"orders-0: offset 1 is in the topic directory {tmp_path} but not in the archive",
        f"orders-0: offset 9 is in the archive but not in the topic directory {tmp_path}",
    ]


def test_records_have_the_sources_header_type() -> None:
    assert SinkRecords.of(TP, RECORDS).arrow.schema.field("headers").type == HEADERS_TYPE


# -- the command ---------------------------------------------------------------------------------


def run(
    tmp_path: Path,
    b: Bench,
    monkeypatch: pytest.MonkeyPatch,
    *options: str,
    keys: Mapping[str, str] | None = None,
) -> int:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"name": "archive", "config": {**MINIMAL, **(keys or {})}}))
    monkeypatch.setattr(command, "committed_offsets", lambda _store, _name: b.harness.committed)
    return command.main(
        ["verify", str(path), "--store", "sqlite:///x", *options],
        connect=lambda _config, _endpoint=None: b.s3,
    )


def test_the_command_exits_with_0_for_a_complete_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, archive(250), monkeypatch) == 0
    assert "250 records in 3 files of 1 topic partitions: each offset once" in capsys.readouterr().out


def test_the_command_exits_with_1_for_problems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    b = archive(250)
    remove(b, 1)

    assert run(tmp_path, b, monkeypatch) == 1
    assert "wrong: orders-0:" in capsys.readouterr().out


def test_the_command_exits_with_2_if_the_archive_cannot_be_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    b = archive(10)
    b.s3.fail_next("HeadBucket", denied())

    assert run(tmp_path, b, monkeypatch) == 2
    assert "AccessDenied" in capsys.readouterr().err
    missing = tmp_path / "missing.json"
    assert command.main(["verify", str(missing), "--store", "sqlite:///x"]) == 2


def test_values_are_not_compared_with_a_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    values = {"format.class": "JsonFormat"}

    assert run(tmp_path, archive(3), monkeypatch, "--topic-directory", str(tmp_path), keys=values) == 2
    assert "holds values without their offsets" in capsys.readouterr().err


def test_the_command_compares_with_a_source_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_source(tmp_path, [SinkRecord(*TP, offset=0, value=b"other")])

    assert run(tmp_path, archive(1), monkeypatch, "--topic-directory", str(tmp_path)) == 1
    assert "has a different" in capsys.readouterr().out


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_report_is_a_table_on_a_terminal_and_lines_elsewhere(
    *, is_terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    out = io.StringIO()
    out.isatty = lambda: is_terminal  # type: ignore[method-assign] # pretends
    b = bench(TP, OTHER, flush_size=100)
    b.put(50)
    b.put(60, OTHER)
    b.harness.revoke()

    command.show(checked(b), out)

    text = out.getvalue()
    assert ("──" in text) == is_terminal
    for word in ("orders-0", "orders-1", "total", "110"):
        assert word in text


def test_an_empty_archive_of_a_new_connector_has_no_problems() -> None:
    report = verify(config(), FakeS3(), dict)

    assert report.problems == []
    assert report.partitions == []
    assert TopicPartition("orders", 0) not in {found.partition for found in report.partitions}
