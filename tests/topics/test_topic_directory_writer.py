from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pyarrow.parquet as pq
import pytest

from sinksdk import ConnectException, FencedException, RetriableException, TopicPartition
from sinksdk.engine.writer import CommittedOffsets, TransactionalWriter, transactional_id
from sinksdk.offsets import OffsetRange
from sinksdk.source import SourceRecord
from sinksdk.topics import Subscription, TopicDirectorySource, write_records, write_transaction
from sinksdk.topics.directory import writer as topic_directory
from sinksdk.topics.directory.layout import FileStat
from sinksdk.topics.directory.log import Disk
from sinksdk.topics.directory.writer import TopicDirectoryOffsets, TopicDirectoryWriter
from tests.topics.test_topic_directory_log import rows
from tests.topics.writer_contract import NAME, Place, WriterContract, at, write

ALL = Subscription(regex=".*")
A0 = TopicPartition("a", 0)


class Directory:
    def __init__(self, root: Path, disk: Disk | None = None) -> None:
        self.root = root
        self.disk = disk

    def topic(self, name: str) -> str:
        return name

    def writer(self, task: int = 0) -> TransactionalWriter:
        name = transactional_id("g", NAME._replace(task=task))
        return TopicDirectoryWriter(self.root, name, NAME.connector, now=lambda: 1.5, disk=self.disk)

    def offsets(self, connector: str = NAME.connector) -> CommittedOffsets:
        return TopicDirectoryOffsets(self.root, connector)

    def values(self, topic: str) -> list[bytes | None]:
        source = TopicDirectorySource(self.root)
        found: list[bytes | None] = []
        for partition in source.partitions(ALL):
            if partition.topic == topic:
                files = source._seen[partition].files
                assert [file.first for file in files[1:]] == [file.last + 1 for file in files[:-1]]
                for file in files:
                    found += pq.read_table(file.path, partitioning=None).column("value").to_pylist()
        return found

    visible = values


@pytest.fixture
def place(tmp_path: Path) -> Directory:
    return Directory(tmp_path / "topics")


class TestTopicDirectory(WriterContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        return Directory(tmp_path / "topics")


def test_records_are_written_from_offset_0_without_gaps(place: Directory) -> None:
    writer = place.writer()
    writer.init()
    writer.begin()
    writer.send(SourceRecord({}, {}, "a.b-c_7", b"v", b"k"))
    writer.send(SourceRecord({}, {}, "a.b-c_7", b"w", partition=3, timestamp=7))
    writer.commit([])
    source = TopicDirectorySource(place.root)
    assert source.partitions(ALL) == {
        TopicPartition("a.b-c_7", 0): OffsetRange(0, 1),
        TopicPartition("a.b-c_7", 3): OffsetRange(0, 1),
    }
    (file,) = source._seen[TopicPartition("a.b-c_7", 0)].files
    (row,) = pq.read_table(file.path, partitioning=None).to_pylist()
    assert (row["offset"], row["key"], row["value"], row["headers"]) == (0, b"k", b"v", None)
    assert row["timestamp"].timestamp() == 1.5


def test_a_transaction_of_more_bytes_than_an_arrow_array_holds(
    place: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Regression: more than 2 GiB for one partition could never be written.
    monkeypatch.setattr(topic_directory, "_ARRAY_BYTES", 4)
    writer = place.writer()
    writer.init()
    values = [b"12", b"34", None, b"5", b"", b"more than four", b"6"]
    write(place, writer, values)
    write(place, writer, [b"next"])
    assert place.values("a") == [*values, b"next"]


def test_slower_of_two_writers_appends_after_the_faster(place: Directory) -> None:
    first, second = place.writer(0), place.writer(1)
    first.init()
    second.init()
    for writer, value in ((first, b"first"), (second, b"second")):
        writer.begin()
        writer.send(SourceRecord({}, {}, "a", value))
    log = second._log
    original, racing = log.append, True

    def append(entry: object) -> bool:
        nonlocal racing
        if racing:
            racing = False
            first.commit([])  # the first writer commits right before the second one
        return original(entry)

    log.append = append
    written = second.commit([])
    assert [m.offset for m in written] == [1]
    assert place.values("a") == [b"first", b"second"]
    assert len(list(place.root.glob("topic=a/partition=0/*.parquet"))) == 2


def test_commit_after_a_lost_response_finds_its_entry(tmp_path: Path) -> None:
    class Lossy(Disk):
        lose = False

        def link(self, existing: Path, name: Path) -> bool:
            done = super().link(existing, name)
            if self.lose:
                self.lose = False
                raise OSError(errno.EIO, "input/output error")
            return done

    disk = Lossy()
    place = Directory(tmp_path, disk)
    writer = place.writer()
    writer.init()
    writer.begin()
    writer.send(SourceRecord({}, {}, "a", b"1"))
    disk.lose = True
    with pytest.raises(RetriableException, match=r"cannot be written: .*input/output error"):
        writer.commit([at(1)])
    assert [m.offset for m in writer.commit([at(1)])] == [0]
    assert place.values("a") == [b"1"]

    writer.begin()
    writer.send(SourceRecord({}, {}, "a", b"2"))
    disk.lose = True
    with pytest.raises(RetriableException):
        writer.commit([at(2)])
    writer.abort()  # too late: the entry and its files exist
    assert place.values("a") == [b"1", b"2"]


def test_own_entry_found_after_a_retry_of_nfs_counts_as_created(tmp_path: Path) -> None:
    # NFS retries after a lost response, and then reports that the file exists.
    class Nfs(Disk):
        def link(self, existing: Path, name: Path) -> bool:
            super().link(existing, name)
            return super().link(existing, name)

    place = Directory(tmp_path, Nfs())
    writer = place.writer()
    writer.init()
    write(place, writer, [b"1"])
    write(place, writer, [b"2"])
    assert place.values("a") == [b"1", b"2"]
    assert len(list((tmp_path / "_transactions").glob("*.json"))) == 3


@pytest.mark.parametrize(
    ("number", "error"), [(errno.EROFS, ConnectException), (errno.ENOSPC, RetriableException)]
)
def test_full_disk_is_retriable_and_missing_rights_are_not(
    tmp_path: Path, number: int, error: type[ConnectException]
) -> None:
    class Broken(Disk):
        def link(self, existing: Path, name: Path) -> bool:
            raise OSError(number, os.strerror(number))

    with pytest.raises(ConnectException, match=r"the topic directory .* cannot be written") as caught:
        Directory(tmp_path, Broken()).writer().init()
    assert type(caught.value) is error


@pytest.mark.parametrize(
    ("topics", "topic", "remedy"),
    [
        ("file", "a", r"Not a directory.*; a file is where a folder should be"),
        ("file/topics", "a", r"Not a directory.*; a file is where a folder should be"),
    ],
)
def test_permanent_error_of_the_disk_has_a_remedy(
    tmp_path: Path, topics: str, topic: str, remedy: str
) -> None:
    (tmp_path / "file").touch()
    place = Directory(tmp_path / topics)
    writer = place.writer()

    def use() -> None:
        writer.init()
        write(place, writer, [b"1"], topic=topic)

    with pytest.raises(
        ConnectException, match=rf"the topic directory .* cannot be written: .*{remedy}"
    ) as error:
        use()
    assert not isinstance(error.value, RetriableException)


def test_new_owner_removes_uncommitted_files_of_its_predecessor(place: Directory) -> None:
    crashed, other = place.writer(0), place.writer(1)
    crashed.init()
    other.init()
    write(place, crashed, [b"1"])
    for writer in (crashed, other):
        writer.begin()
        writer.send(SourceRecord({}, {}, "a", b"half"))
        writer._log.append = lambda entry: (_ for _ in ()).throw(OSError(errno.EIO, "crash"))
        with pytest.raises(RetriableException):
            writer.commit([])
    assert len(list(place.root.glob("topic=a/*/*.parquet"))) == 3

    successor = place.writer(0)
    successor.init()
    assert len(list(place.root.glob("topic=a/*/*.parquet"))) == 2
    write(place, successor, [b"2"])
    assert place.values("a") == [b"1", b"2"]


@pytest.mark.parametrize("moment", ["after its look", "before its files", "before its entry"])
def test_writer_fenced_during_its_commit_appends_nothing(tmp_path: Path, moment: str) -> None:
    # Regression: the writer committed from a state that was outdated.
    class Interrupted(Disk):
        def write(self, path: Path, write: Callable[[Path], object]) -> None:
            suffix = {"before its files": ".parquet", "before its entry": ".tmp"}.get(moment)
            if path.suffix == suffix and self.meanwhile:
                self.meanwhile.pop()()
            super().write(path, write)

        def read(self, path: Path) -> bytes | None:
            content = super().read(path)
            if content is None and moment == "after its look" and self.meanwhile:
                self.meanwhile.pop()()
            return content

        meanwhile: ClassVar[list[Callable[[], None]]] = []

    disk = Interrupted()
    zombie, successor = Directory(tmp_path, disk).writer(), Directory(tmp_path).writer()
    zombie.init()
    disk.meanwhile.append(successor.init)
    with pytest.raises(FencedException):
        write(Directory(tmp_path), zombie, [b"zombie"])
    write(Directory(tmp_path), successor, [b"successor"])
    assert Directory(tmp_path).values("a") == [b"successor"]


def test_fenced_writer_removes_no_file(place: Directory) -> None:
    # The last commit of a fenced writer may have succeeded: only the new owner knows.
    old, new = place.writer(), place.writer()
    old.init()
    old.begin()
    old.send(SourceRecord({}, {}, "a", b"1"))
    original = old._log.append

    def lost(entry: object) -> bool:
        original(entry)
        raise OSError(errno.EIO, "lost")

    old._log.append = lost
    with pytest.raises(RetriableException):
        old.commit([])
    new.init()
    with pytest.raises(FencedException, match=r"epoch 1 was fenced by epoch 2"):
        old.abort()
    assert place.values("a") == [b"1"]


# -- the log -----------------------------------------------------------------------------------------


def tidy(root: Path) -> None:
    # Operators may empty entries that a checkpoint covers, then remove their files.
    folder = root / "_transactions"
    (checkpoint,) = folder.glob("_checkpoint-*.json")
    number = json.loads(checkpoint.read_text())["number"]
    assert checkpoint.name == f"_checkpoint-{number:020d}.json"
    for entry in sorted(folder.glob("0*.json"))[:number]:
        files = json.loads(entry.read_text())["files"]
        entry.write_text('{"files": []}')
        for file in files:
            (root / file).unlink()


@pytest.mark.slow
def test_entries_before_a_checkpoint_may_be_emptied(place: Directory) -> None:
    writer, behind = place.writer(), place.writer(1)
    behind.init()
    writer.init()
    for number in range(220):
        write(place, writer, [b"%d" % number], [at(number)])
    tidy(place.root)

    assert place.offsets().offset({"file": "x"}) == {"line": 219}
    successor = place.writer()
    successor.init()
    write(place, successor, [b"220"])
    write(place, behind, [b"221"])
    with pytest.raises(FencedException):
        write(place, writer, [b"zombie"])
    assert TopicDirectorySource(place.root).partitions(ALL) == {A0: OffsetRange(198, 222)}


@pytest.mark.slow
def test_writer_resumes_from_the_checkpoint_when_entries_were_emptied(place: Directory) -> None:
    zombie, behind, offsets = place.writer(), place.writer(1), place.offsets()
    zombie.init()
    behind.init()
    assert offsets.positions() == []
    successor, other = place.writer(), place.writer(2)
    successor.init()
    write(place, successor, [b"0"], [at(7)], topic="b")
    other.init()
    for _ in range(220):
        write(place, other, [b"x"])
    tidy(place.root)

    assert offsets.positions() == [at(7)]
    with pytest.raises(FencedException):
        write(place, zombie, [b"zombie"])
    write(place, behind, [b"1"], topic="b")
    assert TopicDirectorySource(place.root).partitions(ALL)[TopicPartition("b", 0)] == OffsetRange(1, 2)


def test_frozen_writer_finds_the_number_of_its_entry_taken(tmp_path: Path) -> None:
    # Regression: a fenced writer's transaction appeared at a number that had been freed.
    class Frozen(Disk):
        def link(self, existing: Path, name: Path) -> bool:
            if self.meanwhile:
                self.meanwhile.pop()()
            return super().link(existing, name)

        meanwhile: ClassVar[list[Callable[[], None]]] = []

    place, disk = Directory(tmp_path), Frozen()
    zombie, successor = Directory(tmp_path, disk).writer(), place.writer()

    def life_goes_on() -> None:
        successor.init()
        for number in range(120):
            write(place, successor, [b"%d" % number])
        tidy(tmp_path)

    zombie.init()
    disk.meanwhile.append(life_goes_on)
    with pytest.raises(FencedException):
        write(place, zombie, [b"zombie"])
    assert b"zombie" not in place.values("a")


@pytest.mark.slow
def test_frozen_writer_replaces_no_newer_checkpoint(tmp_path: Path) -> None:
    # Regression: an older checkpoint replaced the newer one.
    class Frozen(Disk):
        def write(self, path: Path, write: Callable[[Path], object]) -> None:
            if self.meanwhile and len(list(path.parent.glob("0*.json"))) == 100:
                self.meanwhile.pop()()
            super().write(path, write)

        meanwhile: ClassVar[list[Callable[[], None]]] = []

    place, disk = Directory(tmp_path), Frozen()
    slow, other = Directory(tmp_path, disk).writer(), place.writer(1)

    def life_goes_on() -> None:
        other.init()
        for number in range(120):
            write(place, other, [b"%d" % number], [at(number)])
        tidy(tmp_path)

    slow.init()
    disk.meanwhile.append(life_goes_on)
    for _ in range(99):
        write(place, slow, [b"x"])
    assert not disk.meanwhile
    assert place.offsets().offset({"file": "x"}) == {"line": 119}
    write(place, slow, [b"last"])
    assert place.values("a")[-1] == b"last"


def test_entry_emptied_while_its_files_are_listed_is_skipped(place: Directory) -> None:
    writer = place.writer()
    writer.init()
    write(place, writer, [b"1"])
    write(place, writer, [b"2"])
    seen = TopicDirectorySource(place.root)._transactions.read()
    entry, file = place.root / "_transactions" / f"{2:020d}.json", min(place.root.glob("topic=a/*/*.parquet"))
    left = [FileStat.of(path) for path in place.root.glob("topic=a/*/*.parquet") if path != file]
    with pytest.raises(ConnectException, match=r"empty the entry before you remove its files"):
        seen.select(str(file.parent), left)
    entry.write_text('{"files": []}')
    assert seen.select(str(file.parent), left) == left


def test_missing_entry_is_an_error(place: Directory) -> None:
    # Without the entry, a writer would assign its offsets again.
    writer = place.writer()
    writer.init()
    write(place, writer, [b"1"])
    (place.root / "_transactions" / f"{1:020d}.json").unlink()
    with pytest.raises(ConnectException, match=r"has no entry 0{19}1.json, but later ones: put it back"):
        place.writer(1).init()


def test_offsets_begin_after_entries_of_other_tools(place: Directory) -> None:
    write_records(place.root, A0, rows([0, 1, 2]))
    (file,) = place.root.glob("topic=a/partition=0/*.parquet")
    (place.root / "_transactions").mkdir()
    content = json.dumps({"files": [file.relative_to(place.root).as_posix()]})
    (place.root / "_transactions" / "by-hand.json").write_text(content)
    writer = place.writer()
    writer.init()
    write(place, writer, [b"3"])
    write_transaction(place.root, {A0: rows([4, 5])})
    write(place, writer, [b"6"])
    assert TopicDirectorySource(place.root).partitions(ALL) == {A0: OffsetRange(0, 7)}


def test_writer_refuses_a_directory_without_transactions(place: Directory) -> None:
    # With the first entry, readers would no longer see these files.
    write_records(place.root, A0, rows([0]))
    with pytest.raises(ConnectException, match=r"has files without transactions, such as .*parquet: readers"):
        place.writer().init()
    assert TopicDirectorySource(place.root).partitions(ALL) == {A0: OffsetRange(0, 1)}


@pytest.mark.parametrize("name", [f"{2:020d}.json", "notes.json"])
@pytest.mark.parametrize("content", ["[]", "{", "{}", '{"files": 1}', '{"files": ["x.parquet"]}'])
def test_invalid_entry_stops_writers(place: Directory, name: str, content: str) -> None:
    place.writer().init()
    entry = place.root / "_transactions" / name
    entry.write_text(content)
    with pytest.raises(ConnectException, match=str(entry)):
        place.writer().init()


def test_offsets_of_a_missing_directory_are_none(place: Directory) -> None:
    assert place.offsets().offset({"file": "x"}) is None
    assert not place.root.exists()


def test_reader_adds_entries_that_a_listing_missed(place: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    # A listing may have a later entry without an earlier one, whose records would then count as a gap.
    writer = place.writer()
    writer.init()
    for value in (b"1", b"2", b"3"):
        write(place, writer, [value])
    missed = f"{3:020d}.json"
    listed = FileStat.of_all

    def without(entries: object) -> object:
        return (stat for stat in listed(entries) if not stat.path.endswith(missed))

    monkeypatch.setattr(FileStat, "of_all", without)
    assert TopicDirectorySource(place.root).partitions(ALL) == {A0: OffsetRange(0, 3)}
    assert len(TopicDirectorySource(place.root)._transactions.read()._entries) == 3
