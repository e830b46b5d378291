"""Polls of a topic directory in which little changes, with the calls of the file system counted."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sinksdk import OffsetRange, RetriableException, TopicPartition
from sinksdk.testing.faults import ManualClock
from sinksdk.topics.base import Subscription
from sinksdk.topics.directory import TopicDirectorySource, write_records, write_transaction
from tests.helpers.modules import changed

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def rows(first: int, last: int) -> pa.Table:
    offsets = list(range(first, last + 1))
    return pa.table({"offset": offsets, "key": [b"k"] * len(offsets), "value": [b"v"] * len(offsets)})


class Place:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = ManualClock()
        self.directory = TopicDirectorySource(root, clock=self.clock.now)

    def poll(self) -> dict[TopicPartition, OffsetRange]:
        self.clock.advance(1.0)
        return self.directory.partitions(Subscription(("t",)))

    def settle(self) -> None:
        for _ in range(4):
            self.poll()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    for number in (0, 1):
        for at in range(20):
            write_records(tmp_path, TopicPartition("t", number), rows(at, at))
    return Place(tmp_path)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    counted: Counter[str] = Counter()
    here = threading.current_thread()  # threads of earlier tests may list folders, too

    def counting(name: str) -> Callable[..., Any]:
        inner = getattr(os, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            counted[name] += threading.current_thread() is here
            return inner(*args, **kwargs)

        return call

    for name in ("scandir", "stat"):
        monkeypatch.setattr(os, name, counting(name))
    return counted


def test_poll_without_changes_lists_nothing(place: Place, calls: Counter[str]) -> None:
    place.settle()
    calls.clear()
    assert place.poll() == {P0: OffsetRange(0, 20), P1: OffsetRange(0, 20)}
    assert calls["scandir"] <= 1  # the folder of transactions does not exist
    assert calls["stat"] <= 8


def test_poll_without_changes_lists_no_transactions(tmp_path: Path, calls: Counter[str]) -> None:
    for at in range(20):
        write_transaction(tmp_path, {P0: rows(at, at)})
    place = Place(tmp_path)
    place.settle()
    calls.clear()
    assert place.poll() == {P0: OffsetRange(0, 20)}
    assert calls["scandir"] == 0
    write_transaction(tmp_path, {P0: rows(20, 24)})
    assert place.poll() == {P0: OffsetRange(0, 25)}


def test_next_poll_sees_a_new_file(place: Place) -> None:
    for at in range(20, 32):
        write_records(place.root, P0, rows(at, at))
        assert place.poll()[P0].end == at + 1
        if at % 3 == 0:
            place.settle()


def test_next_poll_sees_a_new_partition_and_a_new_topic(place: Place) -> None:
    place.settle()
    write_records(place.root, TopicPartition("t", 2), rows(0, 4))
    assert place.poll()[TopicPartition("t", 2)] == OffsetRange(0, 5)
    write_records(place.root, TopicPartition("u", 0), rows(0, 4))
    found = place.directory.partitions(Subscription(regex=".*"))
    assert found[TopicPartition("u", 0)] == OffsetRange(0, 5)


def test_second_change_with_the_same_modification_time_is_seen(place: Place) -> None:
    folder = place.root / "topic=t" / "partition=0"
    write_records(place.root, P0, rows(20, 20))
    before = folder.stat()
    assert place.poll()[P0].end == 21
    write_records(place.root, P0, rows(21, 21))
    os.utime(folder, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert place.poll()[P0].end == 22


def test_last_file_written_again_in_place_is_seen(place: Place) -> None:
    # The folder's modification time does not change.
    file = write_records(place.root, P0, rows(20, 20))
    place.settle()
    content = write_records(place.root / "elsewhere", P0, rows(20, 29)).read_bytes()
    place.settle()
    with file.open("wb") as same:
        same.write(content)
    assert place.poll()[P0].end == 30


def test_file_growing_in_place_is_read_when_complete(place: Place) -> None:
    content = write_records(place.root / "elsewhere", P0, rows(20, 29)).read_bytes()
    place.settle()
    file = place.root / "topic=t" / "partition=0" / "grows.parquet"
    file.write_bytes(content[:100])
    for _ in range(5):
        with pytest.raises(RetriableException):
            place.poll()
    with file.open("ab") as same:
        same.write(content[100:])
    assert place.poll()[P0].end == 30


def test_folder_without_modification_times_is_detected(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    # Some file systems do not update modification times.
    place.settle()
    stat, frozen = os.stat, {}

    def without_times(path: Any, *args: Any, **kwargs: Any) -> os.stat_result:
        found = stat(path, *args, **kwargs)
        if os.path.isdir(path):  # noqa: PTH112 - of any path
            found = frozen.setdefault(str(path), found)
        return found

    monkeypatch.setattr("sinksdk.topics.directory.layout.os", changed(os, stat=without_times))
    place.settle()
    write_records(place.root, P0, rows(20, 20))
    seconds = 0
    while place.poll()[P0].end < 21:
        seconds += 1
        assert seconds <= 30
    for at in range(21, 25):
        place.settle()
        write_records(place.root, P0, rows(at, at))
        assert place.poll()[P0].end == at + 1


def test_change_without_a_new_modification_time_is_seen_within_minutes(tmp_path: Path) -> None:
    # Regression: an entry written again in place with one more file was never read.
    for at in (0, 5):
        write_transaction(tmp_path, {P0: rows(at, at + 4)})
    *_, entry = sorted((tmp_path / "_transactions").glob("[0-9]*.json"))
    whole = entry.read_text()
    entry.write_text('{"files": []}')
    place = Place(tmp_path)
    place.settle()
    assert place.poll() == {P0: (0, 5)}
    entry.write_text(whole)
    place.clock.advance(301.0)
    assert place.poll() == {P0: (0, 10)}


def test_a_reader_of_many_partitions_lists_each_folder_once(tmp_path: Path, calls: Counter[str]) -> None:
    # Regression: the topic's folder was listed for each of its partitions.
    partitions = [TopicPartition("t", number) for number in range(30)]
    for partition in partitions:
        write_records(tmp_path, partition, rows(0, 0))
    place = Place(tmp_path)
    place.settle()
    calls.clear()
    place.directory.reader(dict.fromkeys(partitions, OffsetRange(0, 1)))
    assert calls["scandir"] == 1 + 1 + len(partitions), "the root, the topic, each partition"
