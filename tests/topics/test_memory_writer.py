from __future__ import annotations

import pytest

from sinksdk import RetriableException
from sinksdk.engine.writer import CommittedOffsets, TransactionalWriter, transactional_id
from sinksdk.source import SourceRecord
from sinksdk.topics.memory import MemoryOffsets, MemoryTopics, MemoryWriter
from tests.topics.writer_contract import NAME, Place, WriterContract


class Memory:
    def __init__(self) -> None:
        self.topics = MemoryTopics()

    def topic(self, name: str) -> str:
        return name

    def writer(self, task: int = 0) -> TransactionalWriter:
        return MemoryWriter(self.topics, transactional_id("g", NAME._replace(task=task)), NAME.connector)

    def offsets(self, connector: str = NAME.connector) -> CommittedOffsets:
        return MemoryOffsets(self.topics, connector)

    def values(self, topic: str) -> list[bytes | None]:
        return [record.value for record in self.topics.records(topic)]

    visible = values


class TestMemory(WriterContract):
    @pytest.fixture
    def place(self) -> Place:
        return Memory()


def test_repeated_commit_after_a_lost_response_writes_nothing() -> None:
    outcomes = iter([True, True, False, True])

    def lossy(what: str, effect: object) -> object:
        result = effect()
        if not next(outcomes):
            raise RetriableException(what)
        return result

    topics = MemoryTopics(lossy)
    writer = MemoryWriter(topics, "id", "files")
    writer.init()
    writer.begin()
    writer.send(SourceRecord({}, {}, "a", b"1"))
    with pytest.raises(RetriableException, match="id commits 1 records"):
        writer.commit([])
    assert [m.offset for m in writer.commit([])] == [0]
    assert len(topics.records("a")) == 1


def test_transactional_id_is_group_connector_and_task() -> None:
    assert transactional_id("cluster", NAME) == "cluster-files-0"
