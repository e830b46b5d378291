"""What a record of a source must be, so that no reader of its topic ever stumbles over it.

A task's mistake must end the task. Once the record is committed it would end every reader of the topic.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from sinksdk.errors import ConnectException, DataException
from sinksdk.records import Header
from sinksdk.source.positions import SourcePosition, is_utf8
from sinksdk.source.records import SourceRecord

_PARTITIONS: Final = range(2**31)  # Kafka's numbers of partitions have 32 bits
_TIMESTAMPS: Final = range((2**63 - 1) // 1000 + 1)  # Spark has microseconds in 64 bits


def checked_position(record: Any, label: str) -> SourcePosition:
    """How far the source is read with a record.

    Args:
        record: what a task's ``poll`` gave as one.
        label: connector and task, for messages.

    Raises:
        ConnectException: it is no record.
        DataException: it is one that no writer could write, or no reader read.
    """
    if not isinstance(record, SourceRecord):
        raise ConnectException(
            f"{label}: poll returned a {type(record).__name__} among its records; it must return a "
            f"sequence of SourceRecord"
        )
    for problem in _problems(record):
        raise DataException(f"{label}: a record for topic {_shown(record.topic)}: {problem}")
    try:
        return SourcePosition.of(record.source_partition, record.source_offset)
    except DataException as error:
        raise DataException(f"{label}: a record for topic {record.topic}: {error}") from error


def _problems(record: Any) -> Iterator[str]:
    topic, partition, timestamp = record.topic, record.partition, record.timestamp
    if not isinstance(topic, str) or not topic or "\0" in topic or not is_utf8(topic):
        yield "its topic must be a text of at least one character, without NUL and lone surrogates"
    for what, content in (("key", record.key), ("value", record.value)):
        if content is not None and not isinstance(content, bytes):
            yield f"its {what} is of type {type(content).__name__}; encode it to bytes"
    # The type first: 1.0 and True are in a range of integers, too.
    if partition is not None and (type(partition) is not int or partition not in _PARTITIONS):
        yield f"its partition is {partition!r}; give it an int from 0 to {_PARTITIONS[-1]}, or None"
    if timestamp is not None and (type(timestamp) is not int or timestamp not in _TIMESTAMPS):
        yield f"its timestamp is {timestamp!r}; give it milliseconds since the epoch as an int, or None"
    if record.headers != ():
        yield from _problems_of_headers(record.headers)


def _problems_of_headers(headers: Any) -> Iterator[str]:
    if not isinstance(headers, (tuple, list)):
        yield f"its headers are of type {type(headers).__name__}; give it a tuple of Header"
        return
    for header in headers:
        if not isinstance(header, Header):
            yield f"among its headers is a {type(header).__name__}; give it a tuple of Header"
            continue
        key: Any = header.key
        value: Any = header.value
        if not isinstance(key, str) or not is_utf8(key):
            yield f"a header's key is {key!r}; it must be a text without lone surrogates"
        if value is not None and not isinstance(value, bytes):
            yield f"the value of its header {key!r} is of type {type(value).__name__}; encode it to bytes"


def _shown(topic: Any) -> str:
    return topic if isinstance(topic, str) and topic.isprintable() and topic else repr(topic)
