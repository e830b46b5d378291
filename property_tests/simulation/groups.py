"""Several files of a topic partition in a simulated cluster: what makes them, and which rows are whose."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from property_tests.simulation.world import Process, World
from sinksdk import TopicPartition
from sinksdk.connectors.s3_archiver.folders import Folders, Split
from sinksdk.connectors.s3_archiver.formats import Kinds
from sinksdk.connectors.s3_archiver.formats.record_avro import RecordAvro
from sinksdk.connectors.s3_archiver.limits import Limits
from sinksdk.connectors.s3_archiver.ranges import RowRanges, numbers_of

FLUSH_SIZE = 6

Runs = Sequence[tuple[int, int]]


class Groups:
    """Groups of files, in some schedules.

    Args:
        world: whose.
        are_wanted: False: each topic partition has one file open.
    """

    def __init__(self, world: World, *, are_wanted: bool) -> None:
        self.dice = random.Random(f"{world.seed} groups")  # noqa: S311 - chance, not secrets; drawn apart
        self.arguments: dict[str, Any] = {}
        """Of the archiver's task, that make several files."""
        self.siblings_expire = 0.0
        """Chance that an upload of a group expires when another one of it becomes visible."""
        self.gone: dict[Process, set[str]] = {}
        """Uploads that had expired when a process began to publish."""
        self._runs: dict[str, Runs] = {}
        if are_wanted and self.dice.random() < 0.5:
            world.happened["schedules with groups of files"] += 1
            self.siblings_expire = self.dice.choice((0.0, 0.1, 0.4))
            self.arguments = {
                "folders": SimulatedFolders(world.seed, self.dice),
                "limits": _limits(self.dice),
                "file_format": SimulatedFormat() if self.dice.random() < 0.3 else None,
            }

    def runs_of(self, data: Mapping[str, Any]) -> Runs:
        """Runs of offsets that a token's file has."""
        return self.runs(data["ranges"]) if "ranges" in data else [(data["start"], data["end"] - 1)]

    def runs(self, text: str) -> Runs:
        """Runs of offsets that a text says; each text is read once."""
        if text not in self._runs:
            ranges = RowRanges.of_text(text)
            self._runs[text] = list(zip(ranges.first.tolist(), ranges.last.tolist(), strict=True))
        return self._runs[text]


def is_in(runs: Runs, offset: int) -> bool:
    """Whether an offset is in one of some runs."""
    return any(first <= offset <= last for first, last in runs)


def _limits(chance: random.Random) -> Limits:
    """What ends groups of files besides their count; the simulation's parts are small."""
    return Limits(
        records=FLUSH_SIZE,
        bytes=chance.choice((None, None, 500)),
        interval=chance.choice((None, None, 4_000, 10_000)),
        is_of_one_folder=chance.random() < 0.2,
        files=chance.choice((None, None, 2, 3)),
        buffered=chance.choice((1_000_000, 1_000_000, 1_500)),
        runs=chance.choice((1_000, 1_000, 4)),
    )


class SimulatedFolders(Folders):
    """Where records' files lie: by their rows, some also by the wall clock, which is another one the next time.

    Args:
        seed: of the schedule.
        chance: draws the kind of folders.
    """

    def __init__(self, seed: int, chance: random.Random) -> None:
        self._seed = seed
        self._folders = chance.choice((1, 2, 2, 3, 5))
        self._in_a_row = chance.choice((1, 1, 2, 7))
        self._is_wall_clock = chance.random() < 0.2
        self._late = chance.choice((0, 2_000, 5_000))

    def split(self, partition: TopicPartition, batch: pa.RecordBatch, now: float) -> Split:
        """See :class:`~sinksdk.connectors.s3_archiver.folders.Folders`."""
        offsets = np.asarray(batch.column("offset"))
        rows = offsets // self._in_a_row * 7919 + numbers_of(offsets) * 31 + self._seed
        codes = (rows % 104_729 % self._folders).astype(np.int32)
        at = f"at={int(now // 10)}/" if self._is_wall_clock else ""
        paths = [f"{at}partition={partition.partition}/n={number}" for number in range(self._folders)]
        return Split(paths, codes, offsets * 1_000 - rows * 104_729 % (self._late + 1))


class SimulatedFormat(RecordAvro):
    """Record Avro whose records are of two kinds."""

    def __init__(self) -> None:
        super().__init__("null", None, 64)

    def kinds(self, partition: TopicPartition, batch: pa.RecordBatch) -> Kinds | None:  # type: ignore[override]
        """See :class:`~sinksdk.connectors.s3_archiver.formats.Format`."""
        return Kinds(["a", "b"], (np.asarray(batch.column("offset")) // 3 % 2).astype(np.int32))
