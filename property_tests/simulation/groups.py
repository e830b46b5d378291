"""Several files of a topic partition in a simulated cluster: what makes them, what they hold, which rows are whose."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import fastavro
import numpy as np
import pyarrow as pa

from property_tests.simulation.world import Process, World
from sinksdk import Token, TopicPartition
from sinksdk.connectors.s3_archiver.archive.layout import FileName
from sinksdk.connectors.s3_archiver.archive.ranges import RowRanges, Skip, numbers_of
from sinksdk.connectors.s3_archiver.files.limits import Limits
from sinksdk.connectors.s3_archiver.formats.base import Kinds
from sinksdk.connectors.s3_archiver.formats.record_avro import RecordAvro
from sinksdk.connectors.s3_archiver.partitioners.folders import Folders, Split

FLUSH_SIZE = 6
_STRINGS: Final = "org.apache.kafka.connect.storage.StringConverter"
VALUES: Final = {"format.class": "JsonFormat", "value.converter": _STRINGS}
"""Settings for lines of values, of which those are bad that are no UTF-8."""
_WITH_KEYS_AND_HEADERS: Final = {
    **VALUES,
    "store.kafka.keys": "true",
    "keys.format.class": "JsonFormat",
    "key.converter": _STRINGS,
    "store.kafka.headers": "true",
    "headers.format.class": "JsonFormat",
}

Runs = Sequence[tuple[int, int]]


class Content(NamedTuple):
    """What files of a topic partition hold: values (or whole records), keys, or headers.

    Args:
        view: see :class:`~sinksdk.connectors.s3_archiver.formats.views.View`.
    """

    partition: TopicPartition
    view: str

    def __str__(self) -> str:
        return f"{self.view or 'records'} of {self.partition}"


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
        self.settings: dict[str, str] = {}
        """Of the connector, for files of keys and headers beside those of values."""
        self.views: tuple[str, ...] = ("",)
        self.tombstones = 0
        """Each so many offsets a record has no value, and lies in a folder for these; 0: none has."""
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
            self._have_keys_beside(world)

    def _have_keys_beside(self, world: World) -> None:
        chance = random.Random(f"{world.seed} keys")  # noqa: S311 - chance, not secrets; drawn apart
        if chance.random() < 0.4:
            world.happened["schedules with files of keys and headers"] += 1
            self.views = ("", "keys", "headers")
            self.settings = dict(_WITH_KEYS_AND_HEADERS)
            self.arguments["file_format"] = None  # what the settings say
            if chance.random() < 0.5:
                world.happened["schedules with records that have a key and no value"] += 1
                self.settings["behavior.on.null.values"] = "write"
                self.tombstones = chance.choice((2, 3, 7))

    def runs_of(self, token: Token) -> Runs:
        """Runs of offsets that a token's file has."""
        data = token.data
        return self._read(data["ranges"]) if "ranges" in data else [(data["start"], data["end"] - 1)]

    def runs(self, skip: str, view: str) -> Runs:
        """Runs of offsets that a commit says are to be passed over."""
        return self._read(Skip.of_text(skip).of.get(view, RowRanges()).to_text())

    def _read(self, text: str) -> Runs:
        """What a text says; each text is read once."""
        if text not in self._runs:
            ranges = RowRanges.of_text(text)
            self._runs[text] = list(zip(ranges.first.tolist(), ranges.last.tolist(), strict=True))
        return self._runs[text]


def offsets_in(name: FileName, data: bytes) -> list[int]:
    """Offsets of a file's rows, as their values, keys or headers say them."""
    if name.extension == ".avro":
        return [row["offset"] for row in fastavro.reader(io.BytesIO(data))]  # type: ignore[index, call-overload]
    return numbers_in(name, data)


def numbers_in(name: FileName, data: bytes) -> list[int]:
    """What the values, keys or headers of a file's rows say: offsets, or more in a topic that was created again."""
    if name.extension == ".avro":
        return [int(row["value"] or 0) for row in fastavro.reader(io.BytesIO(data))]  # type: ignore[index, call-overload]
    rows = [json.loads(line) for line in data.splitlines()]
    if name.view == "headers":
        rows = [header["value"] for row in rows for header in row["headers"]]
    return [int(row) for row in rows]


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
        """See :class:`~sinksdk.connectors.s3_archiver.partitioners.folders.Folders`."""
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
        """See :class:`~sinksdk.connectors.s3_archiver.formats.base.Format`."""
        return Kinds(["a", "b"], (np.asarray(batch.column("offset")) // 3 % 2).astype(np.int32))
