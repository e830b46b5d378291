"""Write several files per topic partition in the simulated archive: the division of rows, and the content."""

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
from sinksdk.connectors.s3_archiver.files.settings import Limits
from sinksdk.connectors.s3_archiver.formats.base import Kinds
from sinksdk.connectors.s3_archiver.formats.encoder import RecordAvro
from sinksdk.connectors.s3_archiver.partitioners.folders import Folders, Split

FLUSH_SIZE = 6
_STRINGS: Final = "org.apache.kafka.connect.storage.StringConverter"
# Values that are not UTF-8 are bad records here.
VALUES: Final = {"format.class": "JsonFormat", "value.converter": _STRINGS}
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
    partition: TopicPartition
    view: str

    def __str__(self) -> str:
        return f"{self.view or 'records'} of {self.partition}"


class Groups:
    def __init__(self, world: World, *, are_wanted: bool) -> None:
        self.dice = random.Random(f"{world.seed} groups")  # noqa: S311 - chance, not secrets
        self.arguments: dict[str, Any] = {}
        self.siblings_expire = 0.0
        self.settings: dict[str, str] = {}
        self.views: tuple[str, ...] = ("",)
        # Every n-th record is a tombstone, and archived in the folder for tombstones; 0: none.
        self.tombstones = 0
        self.gone: dict[Process, set[str]] = {}
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
        chance = random.Random(f"{world.seed} keys")  # noqa: S311 - chance, not secrets
        if chance.random() < 0.4:
            world.happened["schedules with files of keys and headers"] += 1
            self.views = ("", "keys", "headers")
            self.settings = dict(_WITH_KEYS_AND_HEADERS)
            self.arguments["file_format"] = None  # None: the settings name the format
            if chance.random() < 0.5:
                world.happened["schedules with records that have a key and no value"] += 1
                self.settings["behavior.on.null.values"] = "write"
                self.tombstones = chance.choice((2, 3, 7))

    def runs_of(self, token: Token) -> Runs:
        data = token.data
        return self._read(data["ranges"]) if "ranges" in data else [(data["start"], data["end"] - 1)]

    def runs(self, skip: str, view: str) -> Runs:
        return self._read(Skip.of_text(skip).of.get(view, RowRanges()).to_text())

    def _read(self, text: str) -> Runs:
        if text not in self._runs:
            ranges = RowRanges.of_text(text)
            self._runs[text] = list(zip(ranges.first.tolist(), ranges.last.tolist(), strict=True))
        return self._runs[text]


def offsets_in(name: FileName, data: bytes) -> list[int]:
    if name.extension == ".avro":
        return [row["offset"] for row in fastavro.reader(io.BytesIO(data))]  # type: ignore[index, call-overload]
    return numbers_in(name, data)


def numbers_in(name: FileName, data: bytes) -> list[int]:
    # Records of a recreated topic have numbers that are larger than the topic's offsets.
    if name.extension == ".avro":
        return [int(row["value"] or 0) for row in fastavro.reader(io.BytesIO(data))]  # type: ignore[index, call-overload]
    rows = [json.loads(line) for line in data.splitlines()]
    if name.view == "headers":
        rows = [header["value"] for row in rows for header in row["headers"]]
    return [int(row) for row in rows]


def is_in(runs: Runs, offset: int) -> bool:
    return any(first <= offset <= last for first, last in runs)


def _limits(chance: random.Random) -> Limits:
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
    # Some folders depend on the wall clock, so a row that is read again may get another folder.
    def __init__(self, seed: int, chance: random.Random) -> None:
        self._seed = seed
        self._folders = chance.choice((1, 2, 2, 3, 5))
        self._in_a_row = chance.choice((1, 1, 2, 7))
        self._is_wall_clock = chance.random() < 0.2
        self._late = chance.choice((0, 2_000, 5_000))

    def split(self, partition: TopicPartition, batch: pa.RecordBatch, now: float) -> Split:
        offsets = np.asarray(batch.column("offset"))
        rows = offsets // self._in_a_row * 7919 + numbers_of(offsets) * 31 + self._seed
        codes = (rows % 104_729 % self._folders).astype(np.int32)
        at = f"at={int(now // 10)}/" if self._is_wall_clock else ""
        paths = [f"{at}partition={partition.partition}/n={number}" for number in range(self._folders)]
        return Split(paths, codes, offsets * 1_000 - rows * 104_729 % (self._late + 1))


class SimulatedFormat(RecordAvro):
    def __init__(self) -> None:
        super().__init__("null", None, 64)

    def kinds(self, partition: TopicPartition, batch: pa.RecordBatch) -> Kinds | None:  # type: ignore[override]
        return Kinds(["a", "b"], (np.asarray(batch.column("offset")) // 3 % 2).astype(np.int32))
