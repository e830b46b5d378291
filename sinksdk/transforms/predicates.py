"""Kafka's predicates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic import Field, field_validator

from sinksdk.records import SinkRecords
from sinksdk.support.java_regex import JavaRegexError, java_pattern
from sinksdk.transforms.base import Keys
from sinksdk.transforms.headers import Name, are_tombstones
from sinksdk.transforms.parts import headers_of


class RecordIsTombstone:
    """Records whose value is null."""

    keys_class: ClassVar[type[Keys]] = Keys

    def __init__(self, keys: Any) -> None: ...

    def test(self, records: SinkRecords) -> Sequence[bool]:
        found: list[bool] = are_tombstones(records).tolist()
        return found


class TopicNameMatchesKeys(Keys):
    pattern: str = Field(description="A Java regular expression that must match the topic's whole name.")

    @field_validator("pattern")
    @classmethod
    def _compiled(cls, pattern: str) -> str:
        try:
            java_pattern(pattern)
        except JavaRegexError as error:
            raise ValueError(f"Invalid regex: {error}") from error
        return pattern


class TopicNameMatches:
    """Records of topics whose name matches a pattern."""

    keys_class: ClassVar[type[Keys]] = TopicNameMatchesKeys

    def __init__(self, keys: Any) -> None:
        self._pattern = java_pattern(keys.pattern)

    def test(self, records: SinkRecords) -> Sequence[bool]:
        return [self._pattern.fullmatch(records.partition.topic) is not None] * len(records)


class HasHeaderKeyKeys(Keys):
    name: Name = Field(description="The header's name.")


class HasHeaderKey:
    """Records with a certain header."""

    keys_class: ClassVar[type[Keys]] = HasHeaderKeyKeys

    def __init__(self, keys: Any) -> None:
        self._name = keys.name

    def test(self, records: SinkRecords) -> Sequence[bool]:
        return [any(header.key == self._name for header in row) for row in headers_of(records)]
