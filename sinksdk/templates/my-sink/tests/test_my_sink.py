"""The sink is exactly once under crashes, zombies, rebalances and faults."""

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import mkdtemp

from sinksdk import SinkRecords, Token, TopicPartition
from sinksdk.testing import (
    Capabilities,
    FaultPlan,
    Guarantee,
    SinkTaskHarness,
    check_sink,
)

from my_sink import (
    MySinkConfig,
    MySinkTask,
)
from my_sink.destination import HiddenFile

# Thousands of files are synced: in a folder in memory this takes seconds.
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None


def config(folder: Path, flush_size: int = 3) -> MySinkConfig:
    keys = {"name": "test", "topics": "records", "value.converter": "json"}
    keys |= {"folder": str(folder), "flush.size": str(flush_size)}
    return MySinkConfig.parse(keys)


class Destination:
    """A new folder for each case, and its injected faults."""

    def __init__(self, faults: FaultPlan) -> None:
        self.faults = faults
        self.folder = Path(mkdtemp(dir=MEMORY))

    def remove(self) -> None:
        shutil.rmtree(self.folder)


class FaultyTask(MySinkTask):
    """A task whose writes, publishes and discards fail as planned."""

    def __init__(self, destination: Destination) -> None:
        self.faults = destination.faults

    def write(self, file: HiddenFile, records: SinkRecords) -> int:
        write = super().write
        return self.faults.run("destination", lambda: write(file, records))

    def publish(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        publish = super().publish
        self.faults.run("destination", lambda: publish(partition, tokens))

    def discard(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        discard = super().discard
        self.faults.run("destination", lambda: discard(partition, tokens))


def read_back(destination: Destination) -> Iterator[tuple[str, int, int]]:
    """Topic, partition and offset of every record that a reader sees now."""
    for path in sorted(destination.folder.glob("*.jsonl")):
        topic, _, partition = path.name.partition("+")[0].rpartition("-")
        for line in path.read_text(encoding="utf-8").splitlines():
            yield topic, int(partition), json.loads(line)["offset"]


def hidden(destination: Destination) -> list[str]:
    """Hidden files with data. A crash may leave an empty file without a token."""
    files = destination.folder.glob(".*")
    return [path.name for path in files if path.stat().st_size]


def test_each_record_is_visible_once_and_not_before_its_commit() -> None:
    check_sink(
        FaultyTask,
        read_back=read_back,
        destination=Destination,
        config=lambda destination: config(destination.folder),
        capabilities=Capabilities(Guarantee.EXACTLY_ONCE, ordered=True),
        leftovers=hidden,
        clean_up=Destination.remove,
    )


def test_a_rebalance_publishes_the_records_as_json(tmp_path: Path) -> None:
    partition = TopicPartition("readings", 0)
    settings = config(tmp_path, flush_size=100)
    harness = SinkTaskHarness(MySinkTask, settings)
    harness.start()
    harness.assign(partition)

    harness.deliver(partition, [b'{"celsius": 20}', b"null"])
    assert list(tmp_path.glob("*.jsonl")) == []
    harness.revoke(partition)  # a rebalance publishes a file that is not full

    (file,) = tmp_path.glob("*.jsonl")
    assert [json.loads(line) for line in file.read_text().splitlines()] == [
        {"offset": 0, "key": None, "value": {"celsius": 20}},
        {"offset": 1, "key": None, "value": None},
    ]
