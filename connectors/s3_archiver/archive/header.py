"""Metadata of files and of commits, which reveal a missing file.

A header holds the partition's files, records and end before the file's group, a commit those that it covers:
offsets alone do not distinguish a lost file from a gap in the topic.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Final, Self
from urllib.parse import quote, unquote

from sinksdk import OffsetAndMetadata, TopicPartition

_PREFIX: Final = "sinksdk."

_OBJECT_PREFIX: Final = "sinksdk-"


@dataclass(frozen=True, slots=True)
class Archived:
    """The archive of one topic partition, up to some offset.

    Args:
        files: the number of files, which includes files of keys and of headers.
        records: the number of records; a record counts once, even if its key and headers have files too.
        end: the offset after the last record. If there are no files yet, this is the offset that an operator
            has set as the beginning, or None.
        skip: rows above the committed offset that are visible already, because a commit was withdrawn after
            some of its files had been published. The value is the text of a ``Skip``.
        withdrawn_to: the offset to which that commit was withdrawn: all records below it are visible. It is
            None if ``skip`` is empty, and in commits of older versions.
        where: the layout and bucket of new files, as text of :meth:`Layout.to_text`. It is empty in commits
            of older versions.
        earlier: previous values of ``where``. Each comes with the value of ``files`` at which it was
            replaced.
    """

    files: int = 0
    records: int = 0
    end: int | None = None
    skip: str = ""
    withdrawn_to: int | None = field(default=None, compare=False)
    where: str = field(default="", compare=False)
    earlier: tuple[tuple[int, str], ...] = field(default=(), compare=False)

    def with_group(self, files: int, records: int, end: int, skip: str = "") -> Archived:
        grown = replace(self, files=self.files + files, records=self.records + records, end=end)
        return grown.with_skip(skip)

    def with_skip(self, skip: str) -> Archived:
        # Once there are no rows left to skip, the withdrawn commit has no effect.
        return replace(self, skip=skip, withdrawn_to=self.withdrawn_to if skip else None)

    def continued_in(self, where: str) -> Archived:
        """Return a copy whose next files are written to this place."""
        if self.where in ("", where) or not self.files:
            return replace(self, where=where)
        return replace(self, where=where, earlier=(*self.earlier, (self.files, self.where)))

    def to_text(self) -> str:
        said = asdict(self)
        required = ("files", "records", "end")
        return json.dumps({k: v for k, v in said.items() if k in required or v not in ("", None, ())})

    @classmethod
    def of(cls, committed: OffsetAndMetadata | None) -> Self:
        if committed is None:
            return cls()
        try:
            stored = json.loads(committed.metadata)
            return cls(
                *(int(stored["files"]), int(stored["records"]), stored["end"], stored.get("skip", "")),
                withdrawn_to=stored.get("withdrawn_to"),
                where=stored.get("where", ""),
                earlier=tuple((int(files), str(where)) for files, where in stored.get("earlier", ())),
            )
        except (ValueError, KeyError, TypeError):
            # After a commit without the archiver's metadata a new chain of files begins.
            return cls(end=committed.offset)


@dataclass(frozen=True, slots=True)
class FileHeader:
    """Metadata of a file, in its Avro header and in its object.

    Args:
        before: the partition's archive before the file's group, without ``skip``.
        may_repeat: whether a transform may have given several records one offset; None: unknown.
        separator: text behind each value of a file of bytes; None: unknown.
    """

    partition: TopicPartition
    start: int
    connector: str
    generation: int
    before: Archived
    index: int = 0
    may_repeat: bool | None = None
    separator: str | None = None

    def to_metadata(self) -> dict[str, bytes]:
        before = self.before
        values = (
            *(*self.partition, self.start, self.connector, self.generation),
            *(before.files, before.records, "" if before.end is None else before.end),
        )
        optional = {
            "index_in_group": self.index or None,
            "offsets_may_repeat": 1 if self.may_repeat else None,
            "separator": self.separator,
            "withdrawn_to": before.withdrawn_to,
        }
        entries = dict(zip(_ENTRIES, values, strict=True))
        entries |= {name: value for name, value in optional.items() if value is not None}
        return {_PREFIX + name: str(value).encode() for name, value in entries.items()}

    def to_object_metadata(self) -> dict[str, str]:
        # Object metadata is ASCII, and fixed when the upload begins.
        return {
            _OBJECT_PREFIX + name.removeprefix(_PREFIX).replace("_", "-"): quote(value)
            for name, value in self.to_metadata().items()
        }

    @classmethod
    def of_object(cls, metadata: Mapping[str, str]) -> Self:
        return cls.of(
            {
                _PREFIX + name.removeprefix(_OBJECT_PREFIX).replace("-", "_"): unquote(value)
                for name, value in metadata.items()
            }
        )

    @classmethod
    def of(cls, metadata: Mapping[str, str]) -> Self:
        """Read a file's metadata. Raises ValueError if this archiver did not write the file."""
        try:
            entry = {name: metadata[_PREFIX + name] for name in _ENTRIES}
            withdrawn_to = metadata.get(f"{_PREFIX}withdrawn_to")
            return cls(
                TopicPartition(entry["topic"], int(entry["partition"])),
                int(entry["start_offset"]),
                entry["connector"],
                int(entry["generation"]),
                Archived(
                    int(entry["files_before"]),
                    int(entry["records_before"]),
                    int(entry["previous_end"]) if entry["previous_end"] else None,
                    withdrawn_to=int(withdrawn_to) if withdrawn_to else None,
                ),
                int(metadata.get(f"{_PREFIX}index_in_group", 0)),
                True if f"{_PREFIX}offsets_may_repeat" in metadata else None,
                metadata.get(f"{_PREFIX}separator"),
            )
        except KeyError as error:
            raise ValueError(f"its header has no {error}: it was not written by this archiver") from error


_ENTRIES: Final = (
    *("topic", "partition", "start_offset", "connector", "generation"),
    *("files_before", "records_before", "previous_end"),
)
