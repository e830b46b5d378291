"""Checks the sink with the kit under random schedules, crashes and zombies."""

import csv
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from csv_folder_sink import CsvConfig, CsvTask

from sinksdk import Token, TopicPartition
from sinksdk.testing import Capabilities, FaultPlan, Guarantee, check_sink


class Destination:
    """A new folder for each case, and its injected faults."""

    def __init__(self, faults: FaultPlan) -> None:
        self.faults = faults
        self.folder = Path(tempfile.mkdtemp())

    def remove(self) -> None:
        shutil.rmtree(self.folder)


class FaultyTask(CsvTask):
    """A task whose publishes and discards fail as planned."""

    def __init__(self, destination: Destination) -> None:
        self.faults = destination.faults

    def publish(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        publish = super().publish
        self.faults.run("destination", lambda: publish(partition, tokens))

    def discard(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        discard = super().discard
        self.faults.run("destination", lambda: discard(partition, tokens))


def read_back(destination: Destination) -> Iterator[tuple[str, int, int]]:
    """Yield topic, partition and offset of every row; the file names contain the first two."""
    for path in sorted(destination.folder.glob("*.csv")):
        topic, _, partition = path.name.partition("+")[0].rpartition("-")
        with path.open(newline="", encoding="utf-8") as file:
            yield from ((topic, int(partition), int(row[0])) for row in csv.reader(file))


def configured(destination: Destination) -> CsvConfig:
    folder = str(destination.folder)
    return CsvConfig.parse({"name": "csv", "topics": "records", "folder": folder, "flush.size": "3"})


def test_the_csv_folder_sink_is_exactly_once() -> None:
    check_sink(
        FaultyTask,
        read_back=read_back,
        destination=Destination,
        config=configured,
        capabilities=Capabilities(guarantee=Guarantee.EXACTLY_ONCE, ordered=True),
        leftovers=lambda found: (path.name for path in found.folder.glob(".*") if path.stat().st_size),
        clean_up=Destination.remove,
    )
