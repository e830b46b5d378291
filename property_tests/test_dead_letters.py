"""Random good and bad records, crashes, slow and lost dead letters: no record is dropped."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Literal

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from property_tests.exercised import EXERCISED
from sinksdk import DataException, RetriableException, SinkRecord, SinkRecords, SinkTask, TopicPartition
from sinksdk.engine import EngineOptions
from sinksdk.engine.options import ErrorLimit
from sinksdk.engine.retry import RetryPolicy
from sinksdk.testing import MemoryCommitLog, SinkTaskHarness
from tests.helpers.depth import SEED

PARTITIONS = [TopicPartition("flights", number) for number in range(2)]
Kind = Literal["good", "unreadable", "refused", "swallowed"]
"""A record may be unreadable for the converter, or rejected by the task, which may swallow the rejection."""

kinds = st.sampled_from(["good", "good", "good", "unreadable", "refused", "swallowed"])
steps = st.one_of(
    st.tuples(st.just("deliver"), st.integers(0, 1), st.integers(1, 12)),
    st.tuples(
        st.sampled_from(["commit", "crash", "revoke", "lose letters", "write letters", "outage", "busy"]),
        st.just(0),
        st.just(0),
    ),
)


class World:
    def __init__(self, source: dict[TopicPartition, list[SinkRecord]], happened: Counter[str]) -> None:
        self.source = source
        self.happened = happened
        self.delivered: set[tuple[TopicPartition, int]] = set()
        self.durable: dict[tuple[TopicPartition, int], SinkRecord] = {}
        self.on_their_way: list[tuple[SinkRecord, Future[None]]] = []
        self.outages = 0
        self.busy = 0

    # -- the place of the dead letters ---------------------------------------------------------------

    def send(self, record: SinkRecord) -> Future[None]:
        letter: Letter = Letter(self, record)
        self.on_their_way.append((record, letter))
        return letter

    def write(self, record: SinkRecord, letter: Future[None]) -> None:
        if not letter.done():
            self.durable[record.topic_partition, record.offset] = record
            letter.set_result(None)
            self.happened["a dead letter was written"] += 1

    # -- the converter -------------------------------------------------------------------------------

    def convert(self, topic: str, data: bytes | None) -> object:
        if self.outages:
            self.outages -= 1
            self.happened["a converter asked for another attempt"] += 1
            raise RetriableException("registry unavailable")
        if data == b"unreadable":
            raise DataException("unreadable")
        return {"kind": data.decode() if data else ""}

    def check(self, log: MemoryCommitLog) -> None:
        for partition, committed in log.offsets.items():
            for record in self.source[partition][: committed.offset]:
                place = (partition, record.offset)
                if record.value == b"good":
                    assert place in self.delivered, f"{place} is committed and was never delivered"
                else:
                    assert place in self.durable, f"{place} is committed and no durable dead letter"
                    assert self.durable[place] == record, "not the bytes that were read"


class Letter(Future[None]):
    """A dead letter that is written at the latest when the engine waits for it, as by a producer's flush."""

    def __init__(self, world: World, record: SinkRecord) -> None:
        super().__init__()
        self._world = world
        self._record = record

    def result(self, timeout: float | None = None) -> None:
        self._world.write(self._record, self)
        return super().result(timeout)


class Picky(SinkTask):
    world: World

    def put(self, records: SinkRecords) -> None:
        if self.world.busy:
            self.world.busy -= 1
            self.world.happened["put asked for another attempt"] += 1
            raise RetriableException("busy")
        for record in records:
            kind = record.value["kind"]
            if kind == "good":
                self.world.delivered.add((records.partition, record.offset))
                continue
            reporter = self.context.errant_record_reporter()
            assert reporter is not None
            try:
                reporter.report(record, ValueError(kind))
            except Exception:
                if kind != "swallowed":
                    raise


class Run:
    def __init__(self, world: World, ceiling: ErrorLimit, log: MemoryCommitLog | None = None) -> None:
        self.world = world
        options = EngineOptions(
            tolerate_errors=True,
            value_converter=world.convert,
            error_limit=ceiling,
            retry=RetryPolicy(timeout=2.0, max_delay=1.0),
        )
        self.harness = SinkTaskHarness(self._task, options=options, dead_letters=world, log=log)
        self._open()

    def _task(self) -> SinkTask:
        task = Picky()
        task.world = self.world
        return task

    def _open(self) -> None:
        self.harness.start()
        self.harness.assign(*PARTITIONS)
        self.position = {
            p: self.harness.committed[p].offset if p in self.harness.committed else 0 for p in PARTITIONS
        }

    def deliver(self, partition: TopicPartition, count: int) -> None:
        rows = self.world.source[partition][self.position[partition] :][:count]
        if not rows:
            return
        self.position[partition] += len(rows)
        self.harness.deliver(partition, rows)
        while self.harness.worker.pending:
            self.harness.advance(self.harness.worker.wait())
        failure = self.harness.outcome(partition).failure
        if failure is not None:
            self.world.happened[f"failed: {failure.kind}"] += 1

    def step(self, name: str, which: int, count: int) -> None:
        world = self.world
        if name == "deliver":
            self.deliver(PARTITIONS[which], count)
        elif name == "commit":
            self.harness.commit()
        elif name in ("crash", "revoke"):
            if name == "revoke":
                self.harness.revoke()
            world.happened[name] += 1
            world.on_their_way.clear()  # letters that are not durable yet are lost with the process
            self.harness.crash()
            self._open()
        elif name == "outage":
            world.outages += 4
        elif name == "busy":
            world.busy += 1
        else:
            letters, world.on_their_way = world.on_their_way, []
            for record, letter in letters:
                if name == "write letters":
                    world.write(record, letter)
                elif not letter.done():
                    letter.set_exception(OSError("no broker"))
                    world.happened["a dead letter was lost"] += 1


def source_of(plan: Sequence[Sequence[Kind]]) -> dict[TopicPartition, list[SinkRecord]]:
    return {
        partition: [
            SinkRecord(*partition, offset=offset, key=b"k%d" % offset, value=kind.encode(), timestamp=offset)
            for offset, kind in enumerate(row)
        ]
        for partition, row in zip(PARTITIONS, plan, strict=True)
    }


HAPPENS = {
    *("crash", "revoke", "a dead letter was written", "a dead letter was lost"),
    *("a converter asked for another attempt", "put asked for another attempt"),
    *("failed: ConnectException", "failed: TooManyErrorsException"),
}
CASES = 400
_ROUND = 50
happened: Counter[str] = Counter()


@settings(max_examples=_ROUND, suppress_health_check=list(HealthCheck))
@given(
    plan=st.tuples(*[st.lists(kinds, min_size=10, max_size=60)] * 2),
    story=st.lists(steps, min_size=5, max_size=40),
    max_consecutive=st.none() | st.integers(1, 6),
)
def check(
    plan: Sequence[Sequence[Kind]], story: Sequence[tuple[str, int, int]], max_consecutive: int | None
) -> None:
    world = World(source_of(plan), happened)
    run = Run(world, ErrorLimit(max_consecutive, 1.0))
    for step in story:
        run.step(*step)
        world.check(run.harness.log)
    world.outages = world.busy = 0
    run = Run(world, ErrorLimit(None, 1.0), run.harness.log.succeed())
    for partition, records in world.source.items():
        run.deliver(partition, len(records))
    run.harness.revoke()
    world.check(run.harness.log)
    assert {p: offset.offset for p, offset in run.harness.committed.items()} == {
        partition: len(records) for partition, records in world.source.items()
    }, "recovered without faults, everything is there"


@pytest.mark.extended
def test_no_record_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    happened.clear()
    rounds = -(-max(CASES, settings.default.max_examples) // _ROUND)
    # Hypothesis varies the first cases of a seed, so some events may be missing from a whole run: further
    # rounds with other seeds follow.
    for number in range(4 * rounds):
        if number >= rounds and all(happened[name] for name in HAPPENS):
            break
        seed(SEED + number)(check)()
    EXERCISED["dead letters"].update(happened)
    assert {name for name in HAPPENS if not happened[name]} == set(), "never happened"
