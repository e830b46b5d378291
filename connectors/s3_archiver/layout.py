"""Where things are in the bucket: the names of archived files and of owner markers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from sinksdk import TopicPartition

_EXTENSION: Final = ".avro"
_OWN_FOLDER: Final = "_sinksdk"
_MARKER: Final = ".json"


class FileName(NamedTuple):
    """What an archived file's key says."""

    partition: TopicPartition
    start: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Keys as Confluent's DefaultPartitioner makes them.

    Args:
        topics_dir: prefix of all keys.
        directory_delim: separates folders.
        file_delim: separates the parts of a file's name.
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
