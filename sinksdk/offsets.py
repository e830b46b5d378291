"""Kafka's coordinates: topic partitions and offsets, and the tokens committed with offsets."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

_TOPIC_NAME: Final = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")


def is_topic_name(topic: str) -> bool:
    """Whether Kafka allows the name (``org.apache.kafka.common.internals.Topic``)."""
    # Sinks build paths from topic names: a '/' or '..' must never pass.
    return _TOPIC_NAME.fullmatch(topic) is not None


class TopicPartition(NamedTuple):
    """One ordered log of records: a topic's name and a partition's number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OffsetRange(NamedTuple):
    """A range of offsets of one topic partition: ``start``, included, to ``end``, excluded."""

    start: int
    end: int

    def __str__(self) -> str:
        return f"[{self.start}, {self.end})"


@dataclass(frozen=True, slots=True)
class Token:
    """A durable handle on data begun outside, which is invisible until it is published.

    Args:
        id: unique and never reused (an upload id, a transaction id). Two tokens with the same id are equal.
        data: further values that ``publish`` or ``discard`` need, as JSON values. Values known only at the
            end (sizes, checksums) may be added between ``context.prepared`` and the commit.
    """

    id: str
    data: Mapping[str, Any] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(self.id)

    def __str__(self) -> str:
        return self.id


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A position that can be committed.

    Args:
        offset: the next offset to read: last record + 1.
        metadata: the author's text, stored with the offset.
        publish: tokens (or plain token ids) to publish, in this order, once this offset is committed; they
            are committed with it in one atomic write. Each must have been passed to ``context.prepared``.
    """

    offset: int
    metadata: str = ""
    publish: Sequence[Token | str] = ()

    @property
    def tokens(self) -> tuple[Token, ...]:
        """``publish`` with plain ids turned into tokens."""
        return tuple(as_token(token) for token in self.publish)


def as_token(token: Token | str) -> Token:
    """Return the token itself, or a token with the given id."""
    return token if isinstance(token, Token) else Token(token)
