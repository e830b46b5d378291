"""The writes of drivers and tasks to a store, step by step, for tests of the protocol."""

from __future__ import annotations

from sinksdk import OffsetAndMetadata, Token, TopicPartition
from sinksdk.model.plan import RangePlan
from sinksdk.store import Store, table
from sinksdk.store.keys import (
    plan_key,
    task_count_key,
    task_key,
)
from sinksdk.store.records import (
    GenerationPlan,
    PartitionCommit,
    PreparedTokens,
    TaskCountRecord,
    TaskPlan,
    TaskRecord,
)

P0, P1, P2 = (TopicPartition("flights", partition) for partition in range(3))
A, B, C = Token("a", {"n": 1}), Token("b"), Token("c")


def entry(partition: TopicPartition, offset: int, generation: int, *tokens: Token) -> PartitionCommit:
    return PartitionCommit.of(partition, OffsetAndMetadata(offset, publish=tokens), generation)


def note(partition: TopicPartition, *tokens: Token) -> PreparedTokens:
    return PreparedTokens(topic=partition.topic, partition=partition.partition, tokens=tokens)


def claim(store: Store, generation: int) -> None:
    row = table.read(store, task_count_key("c"), TaskCountRecord)
    record = row.value if row else TaskCountRecord(claimed=0)
    table.write(
        store,
        task_count_key("c"),
        record.model_copy(update={"claimed": generation}),
        row.version if row else None,
    )


def fence(store: Store, task: int, generation: int) -> TaskRecord | None:
    row = table.read(store, task_key("c", task), TaskRecord)
    before = row.value if row else TaskRecord(generation=generation)
    moved = before.model_copy(update={"generation": generation, "attempt": 0})
    table.write(store, task_key("c", task), moved, row.version if row else None)
    return row.value if row else None


def plan(
    store: Store,
    generation: int,
    *tasks: list[TopicPartition],
    config: dict[str, str] | None = None,
    **base: tuple[object, ...],
) -> GenerationPlan:
    planned = GenerationPlan(
        generation=generation,
        config_version=1,
        tasks=tuple(
            TaskPlan(ranges=tuple(RangePlan.of(p, 0, end=100) for p in partitions)) for partitions in tasks
        ),
        committed=base.get("committed", ()),
        stale=base.get("stale", ()),
        config=config or {},
    )
    table.write(store, plan_key("c", generation), planned, None)
    row = table.read(store, task_count_key("c"), TaskCountRecord)
    record = TaskCountRecord(claimed=generation, planned=generation, tasks=len(tasks), config_version=1)
    table.write(store, task_count_key("c"), record, row.version if row else None)
    return planned


def recorded(store: Store, task: int = 0) -> TaskRecord:
    return table.read(store, task_key("c", task), TaskRecord).value
