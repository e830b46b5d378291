"""Topics in memory as the target of a source connector."""

from __future__ import annotations

from sinksdk.engine.options import TaskName
from sinksdk.engine.writer import transactional_id
from sinksdk.source.config import SourceConnectorConfig
from sinksdk.topics.memory import MemoryOffsets, MemoryTopics, MemoryWriter


class MemoryTarget:
    def __init__(self, topics: MemoryTopics) -> None:
        self._topics = topics

    def writer(self, config: SourceConnectorConfig, name: TaskName) -> MemoryWriter:
        return MemoryWriter(self._topics, transactional_id(config.group_id, name), name.connector)

    def offsets(self, config: SourceConnectorConfig) -> MemoryOffsets:
        return MemoryOffsets(self._topics, config.name)
