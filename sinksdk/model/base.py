"""The store keeps models with these bases as JSON (docs/store-format.md)."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from sinksdk.offsets import TopicPartition


class Value(BaseModel):
    """A stored value ignores unknown fields and refuses missing ones."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    @property
    def format(self) -> int:
        # The number is higher only if an older sinksdk would misread the value, and so must refuse it.
        return 1

    def as_json(self) -> dict[str, Any]:
        return self.model_dump(mode="json")


class Lasting(Value):
    """Rewriting a value that exactly-once depends on keeps the fields of newer versions."""

    model_config = ConfigDict(extra="allow")


class OfPartition(Value):
    topic: str
    partition: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class NamedPartition(OfPartition, Lasting): ...
