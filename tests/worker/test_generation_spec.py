"""The specification that every task of a generation receives."""

from __future__ import annotations

import pickle

from sinksdk import TopicPartition
from sinksdk.topics.directory.reader import DataFile, TopicDirectoryReader
from sinksdk.topics.kafka import KafkaClient
from sinksdk.topics.kafka.reader import KafkaReader
from sinksdk.worker.generation_spec import packed, unpacked

TASKS, FILES = 1_000, 100


def file(number: int, first: int) -> DataFile:
    path = f"/data/topics/orders/partition={number}/{first:020d}.parquet"
    return DataFile(path, first, first + 9, 1_000, frozenset({"offset", "key", "value"}))


def test_a_packed_reader_has_only_the_files_of_its_task() -> None:
    partitions = [TopicPartition("orders", number) for number in range(3)]
    reader = TopicDirectoryReader({p: (file(p.partition, 0),) for p in partitions})
    readers = packed(reader.of([partition]) for partition in partitions)
    assert [unpacked(each) for each in readers] == [
        TopicDirectoryReader({p: (file(p.partition, 0),)}) for p in partitions
    ]


def test_packed_readers_are_small() -> None:
    # Regression: each of 1,000 tasks of 100 files took half a second to learn of the files of all of them.
    partitions = [TopicPartition("orders", number) for number in range(TASKS)]
    files = {p: tuple(file(p.partition, 10 * n) for n in range(FILES)) for p in partitions}
    directory = TopicDirectoryReader(files)
    assert len(pickle.dumps(packed(directory.of([p]) for p in partitions))) < 2_000_000
    kafka = KafkaReader(KafkaClient("broker.example:9092"))
    assert len(pickle.dumps(packed(kafka.of([p]) for p in partitions))) < 5_000
