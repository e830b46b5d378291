"""The kit's operator: who alters offsets, what is required of a sink then, and what is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sinksdk import ConnectException, OffsetAndMetadata, TopicPartition
from sinksdk.testing import (
    Capabilities,
    Guarantee,
    MemoryDestination,
    SinkContractError,
    SinkTaskHarness,
    Trial,
)
from sinksdk.testing.contract import PARTITIONS, Subject
from tests.testing import zoo

P0 = PARTITIONS[0]
Alter = Callable[[MemoryDestination, TopicPartition, int | None], object]


def trial_of(
    make_task: Any, guarantee: Guarantee = Guarantee.AT_LEAST_ONCE, alter: Alter | None = None
) -> Trial[Any]:
    capabilities = Capabilities(guarantee)
    return Trial(Subject(make_task, MemoryDestination.read_back, capabilities=capabilities, alter=alter))


def visible(trial: Trial[Any]) -> list[int]:
    return [offset for _, _, offset, _ in trial.destination.read_back()]


def test_what_is_read_again_may_be_seen_again() -> None:
    """An operator has had it archived twice, whatever the sink promises."""
    trial = trial_of(zoo.TwoPhaseSink, Guarantee.EXACTLY_ONCE)
    for step in (("deliver", 0, 3), ("alter", 0, 1), ("deliver", 0, 2), ("rebalance",)):
        trial.step(*step)
    trial.finish()
    assert visible(trial) == [0, 1, 2, 1, 2]


def test_once_more_is_not_twice_more() -> None:
    """A record that was read again once may be seen twice, and no third time."""
    trial = trial_of(zoo.AppendsAgain, Guarantee.EFFECTIVELY_ONCE)
    for step in (("deliver", 0, 1), ("commit",), ("reset", 0), ("fault", "destination", 0, "lost response")):
        trial.step(*step)
    trial.step("deliver", 0, 1)
    with pytest.raises(SinkContractError, match="seen twice: offset 0 of records-0 can be read back 3 times"):
        trial.step("tick", 1)


def test_what_is_passed_over_need_not_be_there() -> None:
    """An operator goes on at a later offset; what comes from there on must be there."""
    trial = trial_of(zoo.BufferingSink)
    for step in (("deliver", 0, 1), ("alter", 0, 3), ("deliver", 0, 1), ("rebalance",)):
        trial.step(*step)
    trial.finish()
    assert visible(trial) == [0, 3]


def test_offsets_are_not_altered_while_something_is_unpublished() -> None:
    """The operator is refused, as by sinksdk: the tokens would be lost."""
    trial = trial_of(zoo.TwoPhaseSink, Guarantee.EXACTLY_ONCE)
    trial.step("deliver", 0, 3)
    trial.step("fault", "destination", 1, "permanent error")  # after the upload is filled: it is published
    trial.step("alter", 0, 1)
    assert trial.story[-1].endswith("refused: the commit is not published yet")
    assert trial.live.log.offsets[P0].offset == 3
    trial.finish()
    assert visible(trial) == [0, 1, 2]


def test_a_mark_is_moved_again_after_a_fault() -> None:
    """The command fails, and the operator gives it once more."""
    trial = trial_of(zoo.WatermarkSink, Guarantee.EFFECTIVELY_ONCE, zoo.move_mark)
    for step in (("deliver", 0, 2), ("fault", "destination", 0, "permanent error"), ("alter", 0, 1)):
        trial.step(*step)
    assert trial.live.log.offsets[P0].offset == 1
    assert trial.destination.marks[str(P0)] == 1


def test_a_zombie_does_not_append_behind_a_mark_that_was_moved_back() -> None:
    """Regression: it was the next one that the log wanted, before the operator moved the mark below."""
    trial = trial_of(zoo.WatermarkSink, Guarantee.EFFECTIVELY_ONCE, zoo.move_mark)
    for step in (("deliver", 0, 1), ("fence",), ("alter", 0, 0), ("zombie_deliver", 0, 1)):
        trial.step(*step)
    trial.finish()
    assert visible(trial) == [0, 0, 1]  # read again, as the operator wanted


def test_a_connector_may_refuse_other_offsets() -> None:
    """Nothing is altered then."""

    def refuse(*_: object) -> None:
        raise ConnectException("it would be archived twice")

    trial = trial_of(zoo.RangeSink, Guarantee.EFFECTIVELY_ONCE, refuse)
    for step in (("deliver", 0, 2), ("alter", 0, 1)):
        trial.step(*step)
    assert trial.story[-1].endswith("alter_offsets refuses: it would be archived twice")
    assert trial.live.log.offsets[P0].offset == 2


def test_a_harness_goes_on_at_an_altered_offset() -> None:
    """Step by step: what was open is closed with a commit, and the next task begins elsewhere, without metadata."""
    destination = MemoryDestination()
    harness = SinkTaskHarness(lambda: zoo.CountsInItsMetadata(destination))
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, [b"a", b"b"])
    harness.alter(P0, 1)
    assert harness.committed == {P0: OffsetAndMetadata(1)}
    harness.start()
    harness.assign(P0)
    assert harness.outcome(P0).failure is not None
    harness.alter(P0, None)
    assert harness.committed == {}
    harness.start()
    harness.assign(P0)
    assert harness.position(P0) == 0
