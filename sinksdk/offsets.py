"""Kafka's coordinates: topic partitions, offsets, and the tokens committed with them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

_TOPIC_NAME: Final = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")


def is_topic_name(topic: str) -> bool:
    """Whether Kafka allows the name (``org.apache.kafka.common.internals.Topic``): sinks make paths of it."""
    return _TOPIC_NAME.fullmatch(topic) is not None


class TopicPartition(NamedTuple):
    """One ordered log of records: a topic's name and a partition's number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OffsetRange(NamedTuple):
    """Offsets ``start`` (first) to ``end`` (the one after the last) of one topic partition."""

    start: int
    end: int

    def __str__(self) -> str:
        return f"[{self.start}, {self.end})"


@dataclass(frozen=True, slots=True)
class Token:
    """A durable handle on something begun outside, invisible until it is published.

    Args:
        id: unique and never reused (an upload id, a transaction id). Two tokens with the same id are the
            same.
        data: what else ``publish`` or ``discard`` need, as JSON values. Values known only at the end (sizes,
            checksums) may be added between ``context.prepared`` and the commit.
    """

    id: str
    data: Mapping[str, Any] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(self.id)

    def __str__(self) -> str:
        return self.id


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A position that may be committed.

    Args:
        offset: the next offset to read, i.e. last record + 1.
        metadata: the author's text, stored with the offset.
        publish: tokens (or plain token ids) to publish in this order once this offset is committed;
            committed with it in one atomic write. Each must have been passed to ``context.prepared``.
    """

    offset: int
    metadata: str = ""
    publish: Sequence[Token | str] = ()

    @property
    def tokens(self) -> tuple[Token, ...]:
        """``publish`` with plain ids turned into tokens."""
        return tuple(as_token(token) for token in self.publish)


def as_token(token: Token | str) -> Token:
    """The token itself, or a token whose id is the given text."""
    return token if isinstance(token, Token) else Token(token)
