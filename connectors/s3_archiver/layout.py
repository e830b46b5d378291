"""Names of archived files and owner markers, and what each file says of itself, so that a missing one shows.

A file's header holds what its partition's archive consisted of before it: how many files, how many
records, and the offset they ended at. A commit holds the same for what it covers. So a lost file
breaks the chain of numbers, wherever it was, and the last one is missed by the commit. Offsets alone
could not tell it from a gap in the topic.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from sinksdk import OffsetAndMetadata, TopicPartition

_EXTENSION: Final = ".avro"
_OWN_FOLDER: Final = "_sinksdk"
_MARKER: Final = ".json"
_SCHEMAS: Final = "schemas"
_SCHEMA: Final = ".avsc"


class FileName(NamedTuple):
    """What an archived file's key says."""

    partition: TopicPartition
    start: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Keys as Confluent's DefaultPartitioner makes them.

    Args:
        topics_dir: prefix of all keys.
        offset_width: digits of the start offset.
    """

    topics_dir: str = "topics"
    directory_delim: str = "/"
    file_delim: str = "+"
    offset_width: int = 10

    def folder(self, topic: str) -> str:
        """Prefix of all files of a topic, with the delimiter at its end."""
        return self._join(self.topics_dir, topic, "")

    def file(self, partition: TopicPartition, start: int) -> str:
        """Key of the file whose first record has this offset."""
        topic, number = partition
        name = self.file_delim.join((topic, str(number), f"{start:0{self.offset_width}d}"))
        return self._join(self.topics_dir, topic, f"partition={number}", name + _EXTENSION)

    def marker(self, topic: str) -> str:
        """Key of a topic's owner marker."""
        return self._join(self.topics_dir, _OWN_FOLDER, f"{topic}{_MARKER}")

    def schema(self, schema_id: int) -> str:
        """Key of the schema that the registry has under this id."""
        return self._join(self.topics_dir, _OWN_FOLDER, _SCHEMAS, f"{schema_id}{_SCHEMA}")

    def markers(self) -> str:
        """Prefix of all owner markers."""
        return self._join(self.topics_dir, _OWN_FOLDER, "")

    def marked(self, key: str) -> str | None:
        """The topic whose owner marker has this key, None when it is no marker."""
        name = key.removeprefix(self.markers())
        topic = name.removesuffix(_MARKER)
        return topic if topic != name and self.marker(topic) == key else None

    def parse(self, key: str) -> FileName | None:
        """What a key says, None when it is not the key of an archived file."""
        topic, _, rest = key.removeprefix(self._join(self.topics_dir, "")).partition(self.directory_delim)
        found = re.fullmatch(
            rf"partition=(?P<partition>\d+){re.escape(self.directory_delim)}{re.escape(topic)}"
            rf"{re.escape(self.file_delim)}(?P=partition){re.escape(self.file_delim)}(?P<start>\d+)"
            rf"{re.escape(_EXTENSION)}",
            rest,
        )
        if found is None:
            return None
        name = FileName(TopicPartition(topic, int(found["partition"])), int(found["start"]))
        return name if self.file(*name) == key else None

    def _join(self, *names: str) -> str:
        return self.directory_delim.join(names)


_PREFIX: Final = "sinksdk."


@dataclass(frozen=True, slots=True)
class Archived:
    """What the archive of one topic partition consists of, up to some point.

    Args:
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
        start: offset of its first record.
        before: what the partition's archive consisted of before it.
    """

    partition: TopicPartition
    start: int
    connector: str
    generation: int
    before: Archived

    def to_metadata(self) -> dict[str, bytes]:
        """Entries of the Avro header."""
        before = self.before
        values = (
            *(*self.partition, self.start, self.connector, self.generation),
            *(before.files, before.records, "" if before.end is None else before.end),
        )
        return {_PREFIX + name: str(value).encode() for name, value in zip(_ENTRIES, values, strict=True)}

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
            raise ValueError(f"its header has no {error}: it was not written by this archiver") from error


_ENTRIES: Final = (
    *("topic", "partition", "start_offset", "connector", "generation"),
    *("files_before", "records_before", "previous_end"),
)
