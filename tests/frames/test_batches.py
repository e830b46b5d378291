"""Micro-batches in a store: commit, skip, fence, abort. Without Spark."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partialmethod
from typing import Any

import pyarrow as pa
import pytest

from sinksdk import (
    ConnectException,
    ConnectorConfig,
    FencedException,
    OffsetAndMetadata,
    SinkConnector,
    SinkRecords,
    SinkTask,
    Token,
    TopicPartition,
    UnpublishableException,
    committed_offsets,
)
from sinksdk.engine.options import TaskName
from sinksdk.frames.batches import FrameBatches, Outcomes, Terms, one_by_one
from sinksdk.frames.protocol import Share, Writing
from sinksdk.frames.task import FrameTask
from sinksdk.store import Store, TakenOver, newest_plan, table
from sinksdk.store.keys import plan_key
from sinksdk.store.records import GenerationPlan
from sinksdk.testing.faults import ManualClock
from tests.engine.sinks import Letters
from tests.helpers.memory_store import MemoryStore

CONFIG = {"name": "c", "connector.class": "it", "topics": "t"}
Offsets = Mapping[TopicPartition, OffsetAndMetadata]


@dataclass
class Outside:
    """The destination of a sink's task, which can fail."""

    calls: list[str] = field(default_factory=list)
    values: list[str] = field(default_factory=list)
    fails: Exception | None = None
    keeps: bool = False
    is_ahead_at: int | None = None


def text_of(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


class Task(SinkTask):
    def __init__(self, outside: Outside) -> None:
        self.outside = outside
        self.records: list[tuple[int, str]] = []

    def open(self, partitions: Collection[TopicPartition]) -> None:
        if self.outside.is_ahead_at is not None:
            self.context.offset(dict.fromkeys(partitions, self.outside.is_ahead_at))

    def put(self, records: SinkRecords) -> None:
        self.records += [(record.offset, text_of(record.value)) for record in records]

    def pre_commit(self, offsets: Offsets) -> Offsets:
        if self.outside.keeps:
            return {}
        self.outside.values += [f"{offset}:{value}" for offset, value in self.records]
        (partition, offset), *_ = offsets.items()
        token = Token(f"{partition.partition}@{offset.offset}#{len(self.outside.values)}")
        self.context.prepared({partition: [token]})
        self.outside.calls.append(f"{self.context.closing_reason()} {token}")
        return {partition: OffsetAndMetadata(offset.offset, publish=[token])}

    def publish(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        if self.outside.fails is not None:
            raise self.outside.fails
        self.outside.calls.append(f"publish {' '.join(map(str, tokens))}")

    def discard(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        self.outside.calls.append(f"discard {' '.join(map(str, tokens))}")


class Query:
    """A run of a query, without Spark."""

    def __init__(
        self,
        store: MemoryStore,
        outside: Outside,
        query: str = "q",
        run: str = "run-1",
        letters: Letters | None = None,
        **keys: str,
    ) -> None:
        task = type("Bound", (Task,), {"__init__": partialmethod(Task.__init__, outside)})
        self.letters = letters
        self.sink = type("Sink", (SinkConnector,), {"config_class": ConnectorConfig, "task_class": task})
        self.batches = FrameBatches(store, Terms("c", "t", CONFIG | keys), ManualClock())
        self.ids = query, run

    def task(self, number: int | None, rows: Sequence[str], part: int = 0) -> Share | None:
        taken = self.batches.join(Writing(*self.ids, number), part)
        if taken is None:
            return None
        task = FrameTask(
            self.sink, TaskName("c", part), taken, clock=ManualClock(), dead_letters=self.letters
        )
        return task.write([pa.RecordBatch.from_pydict({"value": rows})])

    def commit(self, number: int | None, *shares: Share | None) -> None:
        found = [share for share in shares if share is not None]
        self.batches.commit(Writing(*self.ids, number), found, self._settle)

    def abort(self, number: int) -> None:
        self.batches.abort(Writing(*self.ids, number), self._settle)

    def _settle(self, taken: TakenOver, number: int) -> Any:
        return FrameTask(self.sink, TaskName("c", number), taken, clock=ManualClock()).settle()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def committed(store: MemoryStore) -> dict[int, int]:
    return {p.partition: at.offset for p, at in committed_offsets(store, "c").items()}


def test_a_micro_batch_is_published_after_its_commit(store: MemoryStore) -> None:
    outside = Outside()
    query = Query(store, outside)
    shares = [query.task(0, ["a", "b"]), query.task(0, ["c"], part=2)]
    assert committed(store) == {}
    assert outside.calls == ["DUE 0@2#2", "DUE 2@1#3"]
    query.commit(0, *shares)
    assert outside.calls[2:] == ["publish 0@2#2", "publish 2@1#3"]
    query.commit(1, query.task(1, ["d"]))

    assert committed(store) == {0: 3, 2: 1}
    assert outside.values == ["0:a", "1:b", "0:c", "2:d"]


def test_a_committed_micro_batch_is_skipped_and_published(store: MemoryStore) -> None:
    # The driver died before publishing. After its restart, tasks write nothing more, and the commit
    # publishes.
    outside = Outside(fails=ConnectException("no"))
    query = Query(store, outside)
    with pytest.raises(ConnectException, match=r"is committed, but not completely published: t-0: no. Start"):
        query.commit(7, query.task(7, ["a"]))
    outside.fails = None
    again = Query(store, outside, run="run-2")
    assert again.task(7, ["a"]) is None
    again.commit(7)

    assert committed(store) == {0: 1}
    assert outside.calls == ["DUE 0@1#1", "publish 0@1#1"]


def eleven_written(store: MemoryStore) -> Outside:
    """Let the first run commit micro-batches 0 to 10, of one row each."""
    outside = Outside()
    query = Query(store, outside)
    for number in range(11):
        query.commit(number, query.task(number, [f"row {number}"]))
    return outside


@pytest.mark.parametrize("number", [0, 4, 9])
@pytest.mark.parametrize("rows", [["new"], []], ids=["rows", "no rows"])
def test_a_restored_checkpoint_is_refused(store: MemoryStore, number: int, rows: list[str]) -> None:
    # From a restored checkpoint, Spark plans old batch numbers again with new rows, which would be skipped.
    outside = eleven_written(store)
    outside.values.clear()
    run = Query(store, outside, run="run-2")
    for _ in range(2):
        for call in (lambda: run.task(number, rows), lambda: run.commit(number)):
            with pytest.raises(
                ConnectException,
                match=rf"micro-batch {number} of query q would be skipped .* micro-batch 10 already: the "
                rf"checkpoint .* newest checkpoint; or with a new 'checkpointLocation'",
            ):
                call()
        run.abort(number)

    assert outside.values == []
    assert committed(store) == {0: 11}
    again = Query(store, outside, run="run-3")
    assert again.task(10, ["row 10"]) is None
    again.commit(10)
    again.commit(11, again.task(11, ["row 11"]))
    assert outside.values == ["11:row 11"]


def test_skipping_the_last_micro_batch_is_logged_once(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    outside = eleven_written(store)
    assert "skipped" not in caplog.text
    run = Query(store, outside, run="run-2")
    run.commit(10, run.task(10, ["row 10"]))
    run.commit(11, run.task(11, ["row 11"]))

    said = [record.getMessage() for record in caplog.records if "skipped" in record.getMessage()]
    assert len(said) == 1
    assert "connector c: micro-batch 10 of query q is already committed and is skipped" in said[0]
    assert outside.values[-1] == "11:row 11"


def test_a_late_attempt_of_a_committed_micro_batch_writes_nothing(store: MemoryStore) -> None:
    outside = eleven_written(store)
    assert Query(store, outside).task(3, ["row 3"]) is None


def test_micro_batch_numbers_of_empty_batches_may_be_written_by_a_later_run(
    store: MemoryStore,
) -> None:
    # Empty micro-batches commit nothing.
    outside = eleven_written(store)
    first = Query(store, outside)
    first.commit(11)
    first.commit(12)
    second = Query(store, outside, run="run-2")
    second.commit(11, second.task(11, ["new"]))

    assert outside.values[-1] == "11:new"


def test_the_next_batch_write_publishes_an_earlier_commit(store: MemoryStore) -> None:
    # Spark does not repeat a batch write; an empty one publishes, too.
    outside = Outside(fails=ConnectException("no"))
    write = Query(store, outside, "w1", "w1")
    with pytest.raises(
        ConnectException, match=r"Do not write it again: the next write .* DataFrame is empty"
    ):
        write.commit(None, write.task(None, ["a"]))
    outside.fails = None
    Query(store, outside, "w2", "w2").commit(None)

    assert outside.calls == ["DUE 0@1#1", "publish 0@1#1"]
    assert committed(store) == {0: 1}


def test_an_empty_write_does_not_fence_a_running_query(store: MemoryStore) -> None:
    query = Query(store, Outside())
    query.commit(0, query.task(0, ["a"]))
    share = query.task(1, ["b"])
    Query(store, Outside(), "w", "w").commit(None)
    query.commit(1, share)

    assert committed(store) == {0: 2}


def test_many_partitions_are_published_by_eight_tasks(store: MemoryStore) -> None:
    outside = Outside()
    query = Query(store, outside)
    widths = list[int]()

    def at_once(run: Callable[[int], Outcomes], numbers: Sequence[int]) -> Sequence[Outcomes]:
        widths.append(len(numbers))
        return one_by_one(run, numbers)

    query.batches = FrameBatches(store, Terms("c", "t", CONFIG), ManualClock(), at_once)
    query.commit(0, *(query.task(0, ["a"], part) for part in range(20)))
    query.commit(1, *(query.task(1, ["b"], part) for part in range(2)))

    assert widths == [8, 2]
    assert len([call for call in outside.calls if call.startswith("publish")]) == 22
    assert committed(store) == {part: 2 if part < 2 else 1 for part in range(20)}


def test_commit_unpublished_after_a_crash_is_published_by_the_next_task(store: MemoryStore) -> None:
    # The next task may be one of another query.
    outside = Outside(fails=ConnectException("no"))
    query = Query(store, outside)
    with pytest.raises(ConnectException):
        query.commit(0, query.task(0, ["a"]))
    outside.fails = None
    other = Query(store, outside, "other", "run-2")
    other.commit(0, other.task(0, ["b"]))

    assert outside.calls == ["DUE 0@1#1", "publish 0@1#1", "DUE 0@2#2", "publish 0@2#2"]


def test_abort_discards_prepared_tokens(store: MemoryStore) -> None:
    outside = Outside()
    query = Query(store, outside)
    query.commit(0, query.task(0, ["a"]))
    query.task(1, ["b"])
    query.abort(1)
    query.abort(0)

    assert outside.calls[-1] == "discard 0@2#2"
    assert committed(store) == {0: 1}


def test_only_the_attempt_that_spark_used_is_published(store: MemoryStore) -> None:
    outside = Outside()
    query = Query(store, outside)
    first, _ = query.task(0, ["a"]), query.task(0, ["a"])
    query.commit(0, first)

    assert set(outside.calls[2:]) == {"publish 0@1#1", "discard 0@1#2"}


def test_a_second_query_fences_the_first(store: MemoryStore) -> None:
    outside = Outside()
    first, second = Query(store, outside), Query(store, outside, "other", "run-2")
    share = first.task(0, ["a"])
    second.commit(0, second.task(0, ["b"]))
    for call in (lambda: first.commit(0, share), lambda: first.task(1, ["c"])):
        with pytest.raises(FencedException, match="is fenced, because another query"):
            call()

    assert outside.values == ["0:a", "0:b"]
    assert [call for call in outside.calls if "publish" in call] == ["publish 0@1#2"]


def test_sink_that_keeps_rows_back_on_close_fails_its_task(store: MemoryStore) -> None:
    # Rows of a DataFrame cannot be read again later.
    query = Query(store, Outside(keeps=True))
    with pytest.raises(ConnectException, match="returned offset 0 of t-0 while closing, but 2 was delivered"):
        query.task(0, ["a", "b"])


def test_a_bad_row_fails_its_task_or_is_a_dead_letter(store: MemoryStore) -> None:
    # The dead letter comes twice, because the retried task reports it again.
    letters, outside = Letters(), Outside()
    json = {"value.converter": "json"}
    with pytest.raises(ConnectException, match="t-0 at offset 1 failed in VALUE_CONVERTER"):
        Query(store, outside, **json).task(0, ["1", "{", "2"])
    tolerant = {**json, "errors.tolerance": "all", "errors.deadletterqueue.topic.name": "letters"}
    query = Query(store, outside, run="run-2", letters=letters, **tolerant)
    shares = [query.task(0, ["1", "{", "2"]) for _ in range(2)]
    query.commit(0, shares[1])

    assert outside.values[-2:] == ["0:1", "2:2"]
    assert committed(store) == {0: 3}
    assert [(str(letter.topic_partition), letter.offset, letter.value) for letter in letters.records] == [
        ("t-0", 1, b"{")
    ] * 2


def test_a_commit_is_never_withdrawn(store: MemoryStore) -> None:
    outside = Outside(fails=UnpublishableException("it has expired", offset=0))
    query = Query(store, outside)
    share = query.task(0, ["a"])
    for run in (query, Query(store, outside, run="run-2")):
        with pytest.raises(ConnectException, match=r"rewinds from offset 1 to 0.* delete --force") as refused:
            run.commit(0, share)
        assert "t-0: in micro-batch 0 of query q, the task rewinds" in str(refused.value)

    assert committed(store) == {0: 1}


@pytest.mark.parametrize(
    ("query", "number", "expected"),
    [("q", 0, ["1:b"]), ("q", 1, ["1:a", "2:b"]), ("other", 0, ["1:a", "2:b"])],
    ids=["the same micro-batch", "the next one", "another query's"],
)
def test_sink_ahead_of_its_commit_skips_rows_of_the_same_micro_batch_only(
    store: MemoryStore, query: str, number: int, expected: list[str]
) -> None:
    # The row with the next number was written by a micro-batch that was never committed.
    outside = Outside(keeps=True)
    with pytest.raises(ConnectException):
        Query(store, outside).task(0, ["a", "b"])
    outside.keeps, outside.is_ahead_at = False, 1
    Query(store, outside, query, "run-2").task(number, ["a", "b"])

    assert outside.values == expected


def test_an_older_sinksdk_refuses_the_plan(store: MemoryStore) -> None:
    # An older version would drop the list of committed micro-batches, so the list has format version 4.
    query = Query(store, Outside())
    query.commit(0, query.task(0, ["a"]))
    _, plan = newest_plan(store, "c")
    assert plan is not None
    row = store._read(plan_key("c", plan.generation))

    assert row is not None
    assert '"format": 4' in row.body


def test_a_process_reads_the_plan_of_many_partitions_once(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = list[str]()

    def read(given: Store, key: str, model: type[Any]) -> Any:
        if model is GenerationPlan:
            reads.append(key)
        return before(given, key, model)

    before = table.read
    query = Query(store, Outside())
    shares = [query.task(0, ["a"], 15)]
    monkeypatch.setattr(table, "read", read)
    shares += [query.task(0, ["a"], part) for part in range(15)]
    assert reads == []
    shares.append(query.task(0, ["a"], 16))
    assert len(reads) == 1
    query.commit(0, *shares)
    reads.clear()
    shares = [query.task(1, ["b"], part) for part in range(17)]
    assert len(reads) == 1
    query.commit(1, *shares)

    assert committed(store) == dict.fromkeys(range(17), 2)
