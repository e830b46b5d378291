"""Keys of archived files, owner markers and schemas in the bucket, and checks of names in them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from sinksdk import ConnectException, TopicPartition

_EXTENSIONS: Final = r"\.avro|\.json(?:\.gz)?|(?:\.[a-z0-9]+)?\.parquet"
_VIEWS: Final = "keys|headers"
_OWN_FOLDER: Final = "_sinksdk"
_MARKER: Final = ".json"
_RELEASED: Final = "deleted"
_PROBES: Final = "probes"
_SCHEMAS: Final = "schemas"
_SCHEMA: Final = ".avsc"


class FileName(NamedTuple):
    """The parts of an archived file's key.

    Args:
        number: of the first record among those that a transform returned for its offset.
        view: ``keys`` or ``headers``; empty for values and records.
    """

    partition: TopicPartition
    start: int
    path: str
    number: int = 0
    extension: str = ".avro"
    view: str = ""


@dataclass(frozen=True, slots=True)
class Layout:
    """Layout of keys as in Confluent's sink."""

    topics_dir: str = "topics"  # if empty, topics are at the top of the bucket
    directory_delim: str = "/"
    file_delim: str = "+"
    offset_width: int = 10  # digits of the start offset
    bytes_extension: str = ".bin"

    def to_text(self, bucket: str) -> str:
        """Return the place of files, as commits record it."""
        plain = Layout(self.topics_dir)
        others = {
            key: getattr(self, name)
            for key, name in _KEYS_OF_LAYOUT.items()
            if getattr(self, name) != getattr(plain, name)
        }
        query = f"?{urlencode(others)}" if others else ""
        return f"s3://{bucket}/{quote(self.topics_dir)}{query}"

    @classmethod
    def of_text(cls, text: str) -> tuple[str, Self]:
        found = urlsplit(text)
        if found.scheme != "s3" or not found.netloc:
            raise ValueError(f"'{text}' is not the location of an archive, s3://BUCKET/PREFIX")
        others: dict[str, Any] = {
            _KEYS_OF_LAYOUT[key]: value
            for key, value in parse_qsl(found.query, keep_blank_values=True)
            if key in _KEYS_OF_LAYOUT
        }
        if "offset_width" in others:
            others["offset_width"] = int(others["offset_width"])
        return found.netloc, cls(unquote(found.path[1:]), **others)

    def folder(self, topic: str) -> str:
        return self._below(topic, "")  # the key ends with a delimiter

    def file(self, name: FileName) -> str:
        topic = name.partition.topic
        # Such a name would lead to the keys of other topics.
        if topic in ("", ".", "..") or "/" in topic or self.directory_delim in topic:
            raise ConnectException(
                f"topic {topic!r} cannot be archived: its name is not valid in Kafka, or contains "
                f"'directory.delim'"
            )
        return self._file(name)

    def _file(self, name: FileName) -> str:
        topic, number = name.partition
        words = [topic, str(number), f"{name.start:0{self.offset_width}d}"]
        if name.number:
            words.append(str(name.number))
        end = f".{name.view}{name.extension}" if name.view else name.extension
        return self._below(topic, name.path, self.file_delim.join(words) + end)

    def released(self, incarnation: str) -> str:
        """Return the key of the object by which a deleted connector gives up its owner markers."""
        return self._below(_OWN_FOLDER, _RELEASED, f"{incarnation}{_MARKER}")

    def tried(self, incarnation: str) -> str:
        """Return the key of the object that a connector uploads at its start to test the endpoint."""
        return self._below(_OWN_FOLDER, _PROBES, incarnation)

    def marker(self, topic: str) -> str:
        return self._below(_OWN_FOLDER, f"{topic}{_MARKER}")

    def probe(self, topic: str) -> str:
        """Return a key as long as those of a topic's files, which no file has."""
        return self.file(FileName(TopicPartition(topic, 0), 0, _OWN_FOLDER))

    def schema(self, schema_id: str) -> str:
        # The id is the registry's, or a GUID.
        return self._below(_OWN_FOLDER, _SCHEMAS, f"{schema_id}{_SCHEMA}")

    def markers(self) -> str:
        return self._below(_OWN_FOLDER, "")

    def topic_of_marker(self, key: str) -> str | None:
        name = key.removeprefix(self.markers())
        topic = name.removesuffix(_MARKER)
        if name.partition(self.directory_delim)[0] in (_RELEASED, _PROBES, _SCHEMAS):
            return None
        return topic if topic != name and self.marker(topic) == key else None

    def parse(self, key: str) -> FileName | None:
        topic, _, rest = key.removeprefix(self._below("")).partition(self.directory_delim)
        path, _, name = rest.rpartition(self.directory_delim)
        delim = re.escape(self.file_delim)
        found = re.fullmatch(
            rf"{re.escape(topic)}{delim}(?P<partition>\d+){delim}(?P<start>\d+)(?:{delim}(?P<number>\d+))?"
            rf"(?:\.(?P<view>{_VIEWS}))?(?P<extension>{_EXTENSIONS}|{re.escape(self.bytes_extension)}(?:\.gz)?)",
            name,
        )
        if found is None or not path:
            return None
        name_of_file = FileName(
            TopicPartition(topic, int(found["partition"])),
            int(found["start"]),
            path,
            int(found["number"] or 0),
            found["extension"],
            found["view"] or "",
        )
        # A key with other digits or delimiters is not the archiver's own.
        return name_of_file if self._file(name_of_file) == key else None

    def _below(self, *names: str) -> str:
        return self.directory_delim.join((self.topics_dir, *names) if self.topics_dir else names)


_KEYS_OF_LAYOUT: Final[Mapping[str, str]] = {
    "directory.delim": "directory_delim",
    "file.delim": "file_delim",
    "filename.offset.zero.pad.width": "offset_width",
    "format.bytearray.extension": "bytes_extension",
}


def folder_of(partition: TopicPartition) -> str:
    """Return a partition's folder for the default partitioner."""
    return f"partition={partition.partition}"


_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")

# Spark, Athena and pyarrow.dataset skip files whose names begin with one of these.
_HIDDEN: Final = ("_", ".")


def path_problem(name: str) -> str:
    wrong = [part for part in name.split("/") if part in (".", "..")]
    if wrong:
        return (
            f"'{wrong[0]}' is not a folder's name: tools that list folders would not find the files below it"
        )
    return "it contains control characters" if _CONTROL.search(name) else ""


def topic_problem(topic: str) -> str:
    if _TOPIC.fullmatch(topic) and topic not in (".", ".."):
        return ""
    return (
        f"'{topic}' is not a valid topic name: Kafka allows up to 249 letters, digits, dots, hyphens and "
        f"underscores, and the keys of files contain the name"
    )


def hidden_warning(topics: Iterable[str]) -> Iterator[str]:
    hidden = sorted(topic for topic in topics if topic.startswith(_HIDDEN))
    if hidden:
        yield (
            f"names of the files of {', '.join(hidden)} begin with '_' or '.', like the topic's: Spark, "
            f"Athena and pyarrow.dataset skip such files without an error (docs/read-an-archive.md explains "
            f"how to read them)"
        )
