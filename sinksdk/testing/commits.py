"""A commit log in memory, with the crash, the successor and the fence that real ones meet."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Self

from sinksdk.errors import FencedException
from sinksdk.records import OffsetAndMetadata, TopicPartition
from sinksdk.store.ledger import Ledger
from sinksdk.store.records import Entry, TaskRecord, by_partition


class MemoryCommitLog(Ledger):
    """What one attempt at a task has committed, kept in memory."""

    def __init__(self, committed: Mapping[TopicPartition, OffsetAndMetadata] | None = None) -> None:
        entries = tuple(Entry.of(p, offset, 0) for p, offset in (committed or {}).items())
        self._begin(TaskRecord(generation=1, attempt=1, entries=entries))

    def _begin(self, record: TaskRecord) -> None:
        super().__init__(record, {})
        self.saved = record
        self.is_fenced = False

    def succeed(self) -> Self:
        """Fence this log; the successor's log starts from what was saved, as after a crash."""
        self.is_fenced = True
        successor = copy.copy(self)
        after = self.saved.model_copy(update={"attempt": self.saved.attempt + 1})
        successor._begin(after)  # noqa: SLF001 - of its own class
        return successor

    @property
    def offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What is durable: commits, each with its tokens that are not published yet."""
        return {entry.topic_partition: entry.committed() for entry in self.saved.entries}

    @property
    def noted(self) -> dict[TopicPartition, list[str]]:
        """Ids of the tokens that are noted and not committed, as they are durable."""
        return {p: list(tokens) for p, tokens in by_partition(self.saved.prepared).items()}

    def _save(self, record: TaskRecord) -> None:
        if self.is_fenced:
            message = "a newer attempt owns this task"
            raise FencedException(message)
        # Kept as a store keeps it: after a crash everything comes back as JSON does.
        self.saved = TaskRecord.model_validate_json(json.dumps(record.as_json()))
