from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pyarrow as pa
import pytest

from sinksdk import ConfigException, ConnectException, OffsetAndMetadata, TopicPartition
from sinksdk.connector import ConnectorContext, ConnectorIdentity
from sinksdk.connectors.s3_archiver import S3ArchiverConnector
from sinksdk.connectors.s3_archiver.config import S3ArchiverConfig
from sinksdk.connectors.s3_archiver.files.settings import Limits
from sinksdk.connectors.s3_archiver.partitioners.folders import Split
from sinksdk.connectors.s3_archiver.s3.client import Location, ObjectSummary
from sinksdk.connectors.s3_archiver.verify import extent
from sinksdk.connectors.s3_archiver.verify.extent import files_of
from tests.s3_archiver.fake_s3 import FakeObject, FakeS3, denied
from tests.s3_archiver.support import OTHER, TP, Bench, Turns, bench, config, records
from tests.s3_archiver.test_groups import expire, grouped, restarted, stop_before

MINE = ConnectorIdentity("store-1", "archive", "first")
VALUES = {"format.class": "JsonFormat", "value.converter": "bytes"}
Commits = Callable[[], Mapping[TopicPartition, OffsetAndMetadata]]


class Committed(ConnectorContext):
    def __init__(self, read: Commits) -> None:
        self._read = read

    def committed(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        return self._read()


def connector(b: Bench, commits: Commits | None = None) -> S3ArchiverConnector:
    made = S3ArchiverConnector(connect=lambda _config, _endpoint=None: b.s3)
    made.identity = MINE
    made.context = Committed(commits or (lambda: b.harness.committed))
    return made


def archived(count: int = 250, **arguments: object) -> Bench:
    b = bench(**arguments)  # type: ignore[arg-type] # as given
    while b.harness.position(TP) < count:
        b.put(min(100, count - b.harness.position(TP)))
    b.harness.revoke(TP)
    assert b.committed() == count
    return b


# -- offsets that are altered ------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [None, 0, 100, 150, 200, 240, 249])
def test_an_offset_below_the_archives_end_is_refused(offset: int | None) -> None:
    # Regression: files ended at other offsets than before a restart, so that 400 records were archived twice.
    b = archived()

    with pytest.raises(
        ConnectException, match=r"orders-0.* would be archived twice.*the archive ends at offset 250"
    ):
        connector(b).alter_offsets(config(), {TP: offset})


@pytest.mark.parametrize("offset", [250, 251, 10_000])
def test_an_offset_at_or_above_the_archives_end_is_accepted(offset: int) -> None:
    b = archived()

    assert connector(b).alter_offsets(config(), {TP: offset, OTHER: 0}) is False
    assert connector(b).alter_offsets(config(), {OTHER: None}) is False


def test_the_start_offset_of_moved_files_is_accepted() -> None:
    b = archived()
    del b.s3.objects[Location("bucket", "topics/orders/partition=0/orders+0+0000000200.avro")]
    del b.s3.objects[Location("bucket", "topics/orders/partition=0/orders+0+0000000100.avro")]

    assert connector(b).alter_offsets(config(), {TP: 100}) is False
    with pytest.raises(ConnectException, match="ends at offset 100"):
        connector(b).alter_offsets(config(), {TP: 99})


def test_the_archives_end_includes_files_in_every_folder() -> None:
    # The last file of a group may begin below the given offset and end above it.
    b = archived(12, grouping={"folders": Turns(), "limits": Limits(records=6)})
    for key in b.visible():
        if key.endswith(("turn=0/orders+0+0000000006.avro",)):
            del b.s3.objects[Location("bucket", key)]
    for offset in (7, 11):
        with pytest.raises(ConnectException, match=r"turn=1/orders\+0\+0000000007.avro"):
            connector(b).alter_offsets(config(), {TP: offset})
    assert connector(b).alter_offsets(config(), {TP: 12}) is False


def gapped() -> tuple[Bench, S3ArchiverConfig]:
    settings = config({**VALUES, "flush.size": "3"})
    b = bench(settings=settings)
    for offset in range(0, 12, 2):
        b.harness.deliver(TP, records(first=offset))
    b.harness.revoke(TP)
    assert b.committed() == 11
    return b, settings


@pytest.mark.parametrize("offset", [None, 0, 5, 8, 9, 10])
def test_an_offset_within_a_file_of_values_with_gaps_is_refused(offset: int | None) -> None:
    # Regression: the file was assumed to have as many offsets as rows, and its last record came twice.
    b, settings = gapped()

    with pytest.raises(ConnectException, match=r"would be archived twice.*the archive ends at offset 11"):
        connector(b).alter_offsets(settings, {TP: offset})
    assert connector(b).alter_offsets(settings, {TP: 11}) is False


def test_an_offset_after_a_file_of_unknown_end_needs_the_operators_confirmation() -> None:
    b, settings = gapped()
    del b.s3.objects[Location("bucket", "topics/orders/partition=0/orders+0+0000000006.json")]

    with pytest.raises(ConnectException, match=r"would be archived twice.*at or above offset 3"):
        connector(b).alter_offsets(settings, {TP: 2})
    with pytest.raises(ConnectException, match=r"may be archived.*at most 11.*recover.*orders-0=6"):
        connector(b).alter_offsets(settings, {TP: 6})
    assert connector(b).alter_offsets(settings, {TP: 11}) is False
    recovering = connector(b)
    assert recovering.recover_offsets(settings, {TP: 6}) == {TP: 6}
    assert recovering.alter_offsets(settings, {TP: 6}) is False


@pytest.mark.parametrize("commits", [{}, {TP: OffsetAndMetadata(6, '{"files": 1, "records": 3, "end": 5}')}])
def test_an_offset_above_files_of_values_needs_confirmation_with_an_older_store(
    commits: Mapping[TopicPartition, OffsetAndMetadata],
) -> None:
    b, settings = gapped()

    with pytest.raises(ConnectException, match=r"may be archived twice.*recover CONFIG orders-0=10000"):
        connector(b, lambda: commits).alter_offsets(settings, {TP: 10_000})
    recovering = connector(b, lambda: commits)
    assert recovering.recover_offsets(settings, {TP: 8}) == {TP: 8}
    with pytest.raises(ConnectException, match=r"would be archived twice.*at or above offset 9"):
        recovering.alter_offsets(settings, {TP: 8})


def test_an_offset_at_or_above_an_operators_commit_is_accepted() -> None:
    b, settings = gapped()
    commits = {TP: OffsetAndMetadata(20)}

    assert connector(b, lambda: commits).alter_offsets(settings, {TP: 20}) is False
    with pytest.raises(ConnectException, match="may be archived twice"):
        connector(b, lambda: commits).alter_offsets(settings, {TP: 19})


def test_recovery_takes_the_end_of_files_of_values_from_the_commit() -> None:
    b, settings = gapped()

    assert b.harness.committed[TP].offset == 11
    assert connector(b).recover_offsets(settings, {}) == {}


@pytest.mark.parametrize("operation", ["ListObjectsV2", "HeadObject", "GetObject"])
def test_offsets_cannot_be_altered_while_the_archive_is_unreadable(operation: str) -> None:
    # The operator's offset may be too high or too low: an unreadable archive does not show which.
    b = archived()
    b.s3.fail_next(operation, denied())

    with pytest.raises(ConnectException, match="AccessDenied"):
        connector(b).alter_offsets(config(), {TP: 250})


# -- a store that was restored or lost ---------------------------------------------------------------


def test_a_store_restored_from_an_older_copy_is_refused_before_anything_is_written() -> None:
    b = archived()
    older = OffsetAndMetadata(100, b.harness.committed[TP].metadata)
    made = connector(b, lambda: {TP: older})
    made.start(config())
    seen = len(b.s3.visible())

    with pytest.raises(ConfigException) as caught:
        made.subscribed(["orders"])

    for part in ("connector archive", "orders-0: offset 100 is committed", "2 files", "0000000100.avro"):
        assert part in str(caught.value)
    assert "sinksdk offsets recover" in str(caught.value)
    assert len(b.s3.visible()) == seen


class Folder(Turns):
    name = "before"

    def split(self, partition: TopicPartition, batch: pa.RecordBatch, now: float) -> Split:
        """See :class:`~sinksdk.connectors.s3_archiver.partitioners.folders.Folders`."""
        zeros = np.zeros(batch.num_rows, np.int32)
        return Split([f"partition={partition.partition}/{self.name}"], zeros, zeros)


@pytest.mark.parametrize("place", ["before", "after"])
def test_a_restored_store_with_a_later_withdrawn_commit_is_refused(place: str) -> None:
    # Regression: its upload had expired and its records were archived again. In another folder they were
    # archived twice; under the same key the tasks failed again and again.
    folder = Folder()
    b = bench(grouping={"folders": folder, "limits": Limits(records=10)})
    b.put(10)
    b.s3.fail_next("CompleteMultipartUpload", KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        b.harness.commit()
    older = b.harness.committed[TP]
    assert (older.offset, len(older.tokens)) == (10, 1)
    b.s3.uploads.clear()
    for _ in ("withdraws the commit", "reads again"):
        b.harness.crash()
        b.harness.start()
        b.harness.assign(TP)
    folder.name = place
    b.put(10)
    b.harness.revoke(TP)
    assert b.offsets() == list(range(10))
    made = connector(b, lambda: {TP: older})
    made.start(config())

    with pytest.raises(
        ConfigException, match=r"offset 10 is committed, not yet visible from 0 on, but 1 file holds"
    ):
        made.subscribed(["orders"])


def test_a_commit_covers_its_unpublished_files() -> None:
    b = bench(grouping={"folders": Turns(3), "limits": Limits(records=10)})
    b.put(10)
    b.s3.fail_next("CompleteMultipartUpload", KeyboardInterrupt(), after_effect=True)
    with pytest.raises(KeyboardInterrupt):
        b.harness.commit()
    made = connector(b)
    made.start(config())
    made.subscribed(["orders"])
    b.s3.uploads.clear()
    for _ in ("withdraws the commit", "reads again"):
        b.harness.crash()
        b.harness.start()
        b.harness.assign(TP)
    b.put(10)
    b.s3.fail_next("CompleteMultipartUpload", KeyboardInterrupt(), after_effect=True)
    with pytest.raises(KeyboardInterrupt):
        b.harness.revoke()
    assert len(b.harness.committed[TP].tokens) == 2
    made = connector(b)
    made.start(config())
    made.subscribed(["orders"])


def test_the_archives_end_includes_visible_files_of_a_withdrawn_commit() -> None:
    # Regression: after the store was lost, the message advised the end of the newest file, and 5 records came
    # twice.
    b = grouped(Limits(records=20), Turns(2, 5))
    b.put(20)
    stop_before(b, 1)
    expire(b, 1)
    for _ in ("withdraws the commit", "reads again"):
        restarted(b)
    for count in (8, 6):
        b.put(count)
        b.harness.revoke()
        restarted(b)
    assert b.offsets() == [*range(5), *range(10, 15), *range(5, 10)]

    with pytest.raises(
        ConnectException, match=r"orders-0=15\. Otherwise move .* \(3 files\) away.*orders-0=0$"
    ):
        connector(b, dict).recover_offsets(config(), {})
    with pytest.raises(ConnectException, match="orders-0=14 would be archived twice"):
        connector(b, dict).alter_offsets(config(), {TP: 14})
    assert connector(b, dict).alter_offsets(config(), {TP: 15}) is False


@pytest.mark.parametrize("folders", [None, Turns(3)])
def test_a_store_without_commits_is_refused_in_any_layout(folders: Turns | None) -> None:
    # Folders by the wall clock would never meet an existing key.
    b = archived(grouping={"folders": folders, "limits": Limits(records=90)} if folders else None)
    made = connector(b, dict)
    made.start(config())

    with pytest.raises(ConfigException, match="orders-0: nothing is committed"):
        made.subscribed(["orders"])


def test_commits_that_cover_the_archive_are_accepted() -> None:
    b = archived()
    older = OffsetAndMetadata(100, "")
    reads: list[Mapping[TopicPartition, OffsetAndMetadata]] = [{TP: older}, b.harness.committed]
    made = connector(b, lambda: reads.pop(0) if len(reads) > 1 else reads[0])
    made.start(config())
    made.subscribed(["orders"])

    grouped = bench(grouping={"folders": Turns(), "limits": Limits(records=10)})
    grouped.s3.plan = None
    grouped.put(10)
    grouped.s3.fail_next("CompleteMultipartUpload", denied(), times=1)
    grouped.harness.revoke(TP)
    made = connector(grouped)
    made.start(config())
    made.subscribed(["orders"])


def test_a_large_archive_is_compared_with_few_requests() -> None:
    class Pages(FakeS3):
        pages = 0

        def list(self, bucket: str, prefix: str, after: str = "") -> Iterator[ObjectSummary]:
            for number, found in enumerate(super().list(bucket, prefix, after)):
                self.pages += number % 1_000 == 0
                yield found

    s3, nothing = Pages(), FakeObject(b"", {}, None)
    for partition, start in itertools.product(range(3), range(20_000)):
        key = f"topics/orders/partition={partition}/orders+{partition}+{start:010d}.avro"
        s3.objects[Location("bucket", key)] = nothing
    begin = {TopicPartition("orders", partition): 19_990 for partition in range(3)}
    names = files_of(s3, config(), ["orders"], begin)

    assert {len(found) for found in names.values()} == {10}
    assert s3.pages <= 3 * 2 + 1


def test_keys_beyond_the_listing_limit_are_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # Regression: a restored store was accepted, because one large topic hid the others.
    s3, nothing = FakeS3(), FakeObject(b"", {}, None)
    for day in range(30):
        for topic in ("large", "small") if day < 10 else ("large",):
            key = f"topics/{topic}/day={day:04d}/{topic}+0+{day * 10:010d}.avro"
            s3.objects[Location("bucket", key)] = nothing
    monkeypatch.setattr(extent, "_MOST_LISTED", 20)
    small = TopicPartition("small", 0)
    commits = {TopicPartition("large", 0): OffsetAndMetadata(250), small: OffsetAndMetadata(50)}

    (problem,) = extent.above(s3, config(), ["large", "small"], lambda: commits)

    assert problem.startswith("small-0: offset 50 is committed, but 5 files hold")
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "topic large has more than 20 keys; those from topics/large/day=0020/" in warning


# -- recovering what the archive holds -----------------------------------------------------------------


def test_recovery_returns_the_archives_end_and_takes_over_the_markers() -> None:
    b = archived()
    other = connector(b)
    other.identity = ConnectorIdentity("store-lost", "archive", "lost")
    other.start(config())

    assert connector(b, dict).recover_offsets(config(), {}) == {TP: 250}

    made = connector(b)
    made.start(config())
    made.subscribed(["orders"])


def test_recovery_finds_topics_of_a_regular_expression_by_their_markers() -> None:
    b = archived()
    for name, topic in (("archive", "orders"), ("backup", "ships")):
        other = connector(b)
        other.identity = ConnectorIdentity("store-lost", name, "lost")
        other.start(config(topics=topic))

    other.stop(is_deleted=True)
    other.identity = ConnectorIdentity("store-lost", "archive", "deleted")
    other.stop(is_deleted=True)
    settings = config({"topics": "", "topics.regex": ".*"})
    assert connector(b, dict).recover_offsets(settings, {}) == {TP: 250}
    marker = Location("bucket", "topics/_sinksdk/ships.json")
    assert b'"connector": "backup"' in b.s3.objects[marker].data


def test_recovery_of_files_of_values_needs_the_operators_confirmation() -> None:
    settings = config({**VALUES, "flush.size": "100"})
    b = archived(settings=settings)

    with pytest.raises(ConnectException, match=r"no gaps.*orders-0=250.*Otherwise move.*orders-0=200"):
        connector(b, dict).recover_offsets(settings, {})
    assert connector(b, dict).recover_offsets(settings, {TP: 250}) == {TP: 250}
