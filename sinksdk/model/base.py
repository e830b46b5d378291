"""Bases of the frozen models whose JSON form the store keeps (docs/store-format.md)."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from sinksdk.offsets import TopicPartition


class Value(BaseModel):
    """A stored value. Unknown fields are ignored, missing ones are errors."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    @property
    def format(self) -> int:
        """Format version; raised only if an older sinksdk would misread the value, so that it refuses it."""
        return 1

    def as_json(self) -> dict[str, Any]:
        return self.model_dump(mode="json")


class Lasting(Value):
    """A value that exactly-once depends on: rewriting one keeps the fields of newer versions."""

    model_config = ConfigDict(extra="allow")


class OfPartition(Value):
    """A value about one partition."""

    topic: str
    partition: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class NamedPartition(OfPartition, Lasting):
    """A partition without further fields."""
