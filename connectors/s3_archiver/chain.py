"""How each archived file says what it follows, so that a missing file shows.

A file's header holds what its partition's archive consisted of before it: how many files, how many
records, and the offset they ended at. A commit holds the same for what it covers. So a lost file
breaks the chain of numbers, wherever it was, and the last one is missed by the commit. Offsets alone
could not tell it from a gap in the topic.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from sinksdk import OffsetAndMetadata, TopicPartition

_PREFIX: Final = "sinksdk."


@dataclass(frozen=True, slots=True)
class Archived:
    """What the archive of one topic partition consists of, up to some point.

    Args:
        files: number of files.
        records: number of records in them.
        end: offset after the last record; with no files, the offset the archive begins at, if it was
            committed by other means (altered by hand).
    """

    files: int = 0
    records: int = 0
    end: int | None = None

    def with_file(self, records: int, end: int) -> Archived:
        """The same with one more file."""
        return Archived(self.files + 1, self.records + records, end)

    def to_text(self) -> str:
        """As the metadata of a commit."""
        return json.dumps({"files": self.files, "records": self.records, "end": self.end})

    @classmethod
    def of(cls, committed: OffsetAndMetadata | None) -> Self:
        """What a commit covers. One that is not ours (no metadata of ours) begins a new chain."""
        if committed is None:
            return cls()
        try:
            said = json.loads(committed.metadata)
            return cls(int(said["files"]), int(said["records"]), said["end"])
        except (ValueError, KeyError, TypeError):
            return cls(end=committed.offset)


@dataclass(frozen=True, slots=True)
class FileHeader:
    """What a file says of itself in its Avro metadata.

    Args:
        partition: where its records come from.
        start: offset of its first record.
        connector: name of the connector that wrote it.
        generation: number of the generation that wrote it.
        before: what the partition's archive consisted of before it.
    """

    partition: TopicPartition
    start: int
    connector: str
    generation: int
    before: Archived

    def to_metadata(self) -> dict[str, bytes]:
        """Entries of the Avro header."""
        entries = {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "start_offset": self.start,
            "connector": self.connector,
            "generation": self.generation,
            "files_before": self.before.files,
            "records_before": self.before.records,
            "previous_end": "" if self.before.end is None else self.before.end,
        }
        return {_PREFIX + name: str(value).encode() for name, value in entries.items()}

    @classmethod
    def of(cls, metadata: Mapping[str, str]) -> Self:
        """Read it back. Raises ValueError when the file was not written by this archiver."""
        try:
            entry = {name: metadata[_PREFIX + name] for name in _ENTRIES}
            return cls(
                TopicPartition(entry["topic"], int(entry["partition"])),
                int(entry["start_offset"]),
                entry["connector"],
                int(entry["generation"]),
                Archived(
                    int(entry["files_before"]),
                    int(entry["records_before"]),
                    int(entry["previous_end"]) if entry["previous_end"] else None,
                ),
            )
        except KeyError as error:
            message = f"its header has no {error}: it was not written by this archiver"
            raise ValueError(message) from error


_ENTRIES: Final = (
    "topic",
    "partition",
    "start_offset",
    "connector",
    "generation",
    "files_before",
    "records_before",
    "previous_end",
)
