from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from sinksdk import ClosingReason, ConnectorConfig, RetriableException, SinkRecords, TopicPartition
from sinksdk.testing import Capabilities, Guarantee, MemoryDestination, SinkContractError, Trial
from sinksdk.testing.contract import PARTITIONS, Subject
from sinksdk.testing.judge import MOVED_BACK
from tests.testing import zoo

P0, P1, _ = PARTITIONS


def trial_of(make_task: Any, guarantee: Guarantee = Guarantee.AT_LEAST_ONCE, **options: Any) -> Trial[Any]:
    return Trial(
        Subject(make_task, MemoryDestination.read_back, capabilities=Capabilities(guarantee), **options)
    )


def offsets(trial: Trial[MemoryDestination], partition: TopicPartition) -> list[int]:
    return [row[2] for row in trial.destination.read_back() if row[:2] == partition]


def test_revoked_partition_is_committed_and_the_others_stay_open() -> None:
    trial = trial_of(zoo.BufferingSink)
    trial.step("deliver", 0, 1)
    trial.step("deliver", 1, 2)
    trial.step("revoke", 0)
    assert (offsets(trial, P0), offsets(trial, P1)) == ([0], [])
    assert trial.live.opened == {P1}
    assert set(trial.live.log.offsets) == {P0}


def test_rebalance_gives_all_partitions_to_a_new_task() -> None:
    trial = trial_of(zoo.BufferingSink)
    trial.step("deliver", 0, 1)
    before = trial.live
    trial.step("rebalance")
    assert trial.live is not before
    assert (before.opened, trial.live.opened) == (set(), {P0})
    assert trial.live.task is not before.task
    trial.step("deliver", 0, 1)
    trial.finish()
    assert offsets(trial, P0) == [0, 1]


def test_lost_partition_is_read_again_from_its_commit() -> None:
    trial = trial_of(zoo.BufferingSink)
    trial.step("deliver", 0, 2)
    trial.step("lose", 0)
    assert trial.live.log.offsets == {}
    trial.step("deliver", 0, 3)
    trial.step("commit")
    assert offsets(trial, P0) == [0, 1, 2]


def test_offset_gaps_are_not_lost_records() -> None:
    trial = trial_of(zoo.BufferingSink)
    trial.step("deliver", 0, 1)
    trial.step("skip", 0, 5)
    trial.step("deliver", 0, 2)
    trial.finish()
    assert offsets(trial, P0) == [0, 6, 7]


def test_next_owner_publishes_committed_tokens_and_discards_others() -> None:
    trial = trial_of(zoo.TwoPhaseSink, Guarantee.EXACTLY_ONCE)
    trial.step("deliver", 0, 3)
    trial.step("fault", "destination", 1, "crash before")  # fill succeeds, publish does not
    trial.step("commit")
    assert (offsets(trial, P0), list(trial.destination.staged)) == ([], ["staged-0"])
    assert "the process dies, another takes over" in trial.story[-1]
    trial.step("deliver", 0, 1)
    assert offsets(trial, P0) == [0, 1, 2]
    trial.step("crash")
    assert list(trial.destination.staged) == ["staged-1"]
    trial.step("deliver", 0, 2)
    assert list(trial.destination.staged) == ["staged-2"]
    trial.finish()
    assert (offsets(trial, P0), trial.destination.staged) == ([0, 1, 2, 3, 4], {})


def test_commit_with_a_lost_response_is_published_by_the_successor() -> None:
    trial = trial_of(zoo.TwoPhaseSink, Guarantee.EXACTLY_ONCE)
    trial.step("deliver", 0, 3)
    trial.step("fault", "commit log", 0, "lost response")
    trial.step("commit")
    assert "the commit log does not respond" in trial.story[-1]
    assert trial.live.log.offsets[P0].offset == 3
    trial.step("deliver", 0, 1)
    assert offsets(trial, P0) == [0, 1, 2]


def test_a_zombie_commits_nothing() -> None:
    trial = trial_of(zoo.BufferingSink)
    trial.step("deliver", 0, 3)
    trial.step("fence")
    [zombie] = trial.zombies
    trial.step("zombie_deliver", 0, 1)
    trial.step("zombie_commit")
    assert (offsets(trial, P0), trial.live.log.offsets) == ([0, 1, 2, 3], {})
    assert (trial.zombies, zombie.opened) == ([], set())


def test_task_that_exceeds_the_closing_deadline_is_killed() -> None:
    deadlines = []

    class Patient(zoo.BufferingSink):
        def pre_commit(self, offsets: zoo.Offsets) -> zoo.Offsets:
            deadlines.append((self.context.closing_reason(), self.context.deadline()))
            return super().pre_commit(offsets)

    trial = trial_of(Patient)
    trial.step("deliver", 0, 1)
    trial.step("fault", "destination", 0, "slow")
    trial.step("rebalance")
    assert deadlines == [(ClosingReason.REBALANCE, 60.0)]
    assert "the process dies" in trial.story[-1]
    assert (offsets(trial, P0), trial.live.log.offsets) == ([0], {})


def test_transient_failures_are_retried() -> None:
    trial = trial_of(zoo.RangeSink, Guarantee.EFFECTIVELY_ONCE)
    trial.step("fault", "destination", 0, "retriable error")
    trial.step("deliver", 0, 2)
    assert offsets(trial, P0) == []
    trial.step("tick", 1)
    assert offsets(trial, P0) == [0, 1]


def test_failed_partition_is_read_again_in_a_new_generation() -> None:
    trial = trial_of(zoo.RangeSink, Guarantee.EFFECTIVELY_ONCE)
    trial.step("fault", "destination", 1, "permanent error")
    trial.step("deliver", 0, 2)
    before = trial.live
    trial.step("deliver", 0, 2)
    assert "records-0 had failed: a new generation starts" in trial.story[-1]
    assert trial.live is not before
    assert offsets(trial, P0) == [0, 1]


def test_watermark_below_dropped_rows_does_not_rewind_the_commit() -> None:
    trial = trial_of(zoo.WatermarkSink, Guarantee.EFFECTIVELY_ONCE)
    trial.step("transform", 3)  # one record of offset 2, five of offset 5, none of the others
    trial.step("fault", "destination", 0, "crash before")
    trial.step("deliver", 2, 2)
    trial.step("read_range", 2, 4)
    assert {commit.offset for commit in trial.live.log.offsets.values()} == {4}
    trial.finish()
    assert trial.exercised[MOVED_BACK] == 0
    assert offsets(trial, PARTITIONS[2]) == [2, 5, 5, 5, 5, 5]


def test_rewinds_in_every_generation_are_a_contract_error() -> None:
    class GoesBack(zoo.BufferingSink):
        def open(self, partitions: Any) -> None:
            commits = {p: commit for p in partitions if (commit := self.context.committed(p))}
            self.context.offset({p: max(commit.offset - 1, 0) for p, commit in commits.items()})

    trial = trial_of(GoesBack)
    trial.step("deliver", 0, 5)
    trial.step("rebalance")
    with pytest.raises(
        SinkContractError,
        match="recovery of records-0 fails although no fault is injected: open of each new task rewinds it",
    ):
        trial.finish()


def test_reported_poison_record_is_committed() -> None:
    trial = Trial(
        Subject(zoo.ReportingSink, MemoryDestination.read_back, capabilities=Capabilities(dead_letters=True))
    )
    trial.step("deliver", 0, 1)
    trial.step("poison", 0)
    trial.step("deliver", 0, 1)
    trial.finish()
    assert offsets(trial, P0) == [0, 2]
    assert trial.live.log.offsets[P0].offset == 3


def close_again(trial: Trial[Any]) -> None:
    trial.live.task.close([P0])


def put_while_closing(trial: Trial[Any]) -> None:
    with trial.live.worker._context.closing(ClosingReason.STOP, None):
        trial.live.task.put(trial.source.read(P0, 1, 1))


@pytest.mark.parametrize(
    ("mistake", "problem"),
    [
        (close_again, "close was called for partitions that are not open"),
        (put_while_closing, r"is_closing\(\) is true in put"),
    ],
)
def test_contract_violations_of_the_engine_are_reported_as_bugs_of_sinksdk(
    mistake: Any, problem: str
) -> None:
    trial = trial_of(zoo.RangeSink, Guarantee.EFFECTIVELY_ONCE, steps={"mistake": mistake})
    trial.step("deliver", 0, 1)
    if mistake is close_again:
        trial.step("lose", 0)
    with pytest.raises(SinkContractError, match=f"{problem}: this is a bug of sinksdk"):
        trial.step("mistake")


def test_generation_rises_with_each_rebalance_and_crash() -> None:
    seen = []

    class Telling(zoo.BufferingSink):
        def open(self, partitions: Any) -> None:
            seen.append(self.context.generation())

    trial = trial_of(Telling)
    for step in (
        ("deliver", 0, 1),
        ("fence",),
        ("deliver", 0, 1),
        ("rebalance",),
        ("crash",),
        ("deliver", 0, 1),
    ):
        trial.step(*step)
    assert seen == [1, 1, 2, 3]


def test_endless_retries_of_put_are_a_contract_error() -> None:
    class Busy(zoo.RangeSink):
        def put(self, records: SinkRecords) -> None:
            if records.next_offset > 2:
                raise RetriableException("busy")
            super().put(records)

    config = ConnectorConfig.parse({"name": "c", "topics": "records", "errors.retry.timeout": "-1"})
    trial = trial_of(Busy, Guarantee.EFFECTIVELY_ONCE, config=config)
    trial.step("deliver", 0, 3)
    with pytest.raises(SinkContractError, match="put of records-0 keeps raising RetriableException"):
        trial.finish()


def test_steps_are_counted_once() -> None:
    counts: Counter[str] = Counter()
    trial = Trial(Subject(zoo.AcknowledgesEarly, MemoryDestination.read_back), counts)
    trial.step("deliver", 0, 1)
    with pytest.raises(SinkContractError):
        trial.step("commit")
    trial.finish()
    trial.end()
    assert (counts["cases"], counts["steps"], counts["deliver"]) == (1, 2, 1)
