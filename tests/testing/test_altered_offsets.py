"""The kit's operator alters offsets: what a sink must do then."""

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


def test_rewound_offset_allows_one_duplicate() -> None:
    trial = trial_of(zoo.TwoPhaseSink, Guarantee.EXACTLY_ONCE)
    for step in (("deliver", 0, 3), ("alter", 0, 1), ("deliver", 0, 2), ("rebalance",)):
        trial.step(*step)
    trial.finish()
    assert visible(trial) == [0, 1, 2, 1, 2]


def test_rewound_offset_allows_no_third_copy() -> None:
    trial = trial_of(zoo.AppendsAgain, Guarantee.EFFECTIVELY_ONCE)
    for step in (("deliver", 0, 1), ("commit",), ("reset", 0), ("fault", "destination", 0, "lost response")):
        trial.step(*step)
    trial.step("deliver", 0, 1)
    with pytest.raises(
        SinkContractError, match="seen twice: read_back returned offset 0 of records-0 3 times"
    ):
        trial.step("tick", 1)


def test_skipped_offsets_may_be_missing() -> None:
    trial = trial_of(zoo.BufferingSink)
    for step in (("deliver", 0, 1), ("alter", 0, 3), ("deliver", 0, 1), ("rebalance",)):
        trial.step(*step)
    trial.finish()
    assert visible(trial) == [0, 3]


def test_offsets_cannot_be_altered_while_a_commit_is_unpublished() -> None:
    """The tokens would be lost, so sinksdk refuses, too."""
    trial = trial_of(zoo.TwoPhaseSink, Guarantee.EXACTLY_ONCE)
    trial.step("deliver", 0, 3)
    trial.step("fault", "destination", 1, "permanent error")  # after the upload is filled: it is published
    trial.step("alter", 0, 1)
    assert trial.story[-1].endswith("refused: the commit is not published yet")
    assert trial.live.log.offsets[P0].offset == 3
    trial.finish()
    assert visible(trial) == [0, 1, 2]


def test_alter_is_retried_after_a_fault() -> None:
    trial = trial_of(zoo.WatermarkSink, Guarantee.EFFECTIVELY_ONCE, zoo.move_mark)
    for step in (("deliver", 0, 2), ("fault", "destination", 0, "permanent error"), ("alter", 0, 1)):
        trial.step(*step)
    assert trial.live.log.offsets[P0].offset == 1
    assert trial.destination.marks[str(P0)] == 1


def test_zombie_does_not_append_after_a_rewound_watermark() -> None:
    """Regression: the zombie's offset was the log's next one before the operator moved the watermark."""
    trial = trial_of(zoo.WatermarkSink, Guarantee.EFFECTIVELY_ONCE, zoo.move_mark)
    for step in (("deliver", 0, 1), ("fence",), ("alter", 0, 0), ("zombie_deliver", 0, 1)):
        trial.step(*step)
    trial.finish()
    assert visible(trial) == [0, 0, 1]  # read again, as the operator wanted


def test_connector_may_refuse_an_altered_offset() -> None:
    def refuse(*_: object) -> None:
        raise ConnectException("it would be archived twice")

    trial = trial_of(zoo.RangeSink, Guarantee.EFFECTIVELY_ONCE, refuse)
    for step in (("deliver", 0, 2), ("alter", 0, 1)):
        trial.step(*step)
    assert trial.story[-1].endswith("alter_offsets refuses: it would be archived twice")
    assert trial.live.log.offsets[P0].offset == 2


def test_harness_resumes_at_an_altered_offset() -> None:
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
