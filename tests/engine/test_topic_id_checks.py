"""A topic that was replaced while it was read: none of its new records is committed as an old one."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from sinksdk import ClosingReason, ConnectException, MissingSourceTopicException, RetriableException
from sinksdk.offsets import OffsetRange
from sinksdk.testing import SinkTaskHarness
from tests.engine.sinks import P0, P1, Sink, opened

REPLACED = MissingSourceTopicException([P0.topic], "it was deleted and created again")
UNKNOWN = RetriableException("no broker answers")


@pytest.fixture
def harness() -> SinkTaskHarness:
    """Return a task that has committed two records, and has received a third one."""
    made = SinkTaskHarness(Sink)
    made.start()
    made.assign(P0)
    made.deliver(P0, ["a", "b"])
    made.commit()
    made.deliver(P0, ["c"])
    return made


def doubting(harness: SinkTaskHarness, error: ConnectException | None) -> list[set[str]]:
    """Let the checks of topic ids return this error from now on; return the topics that are checked."""
    asked: list[set[str]] = []

    def doubt(topics: Collection[str]) -> dict[str, ConnectException]:
        asked.append(set(topics))
        return {} if error is None else dict.fromkeys(asked[-1], error)

    harness.worker._committer._check_topics = doubt
    return asked


def committed(harness: SinkTaskHarness) -> int | None:
    return harness.worker.committed(P0)


def test_topic_ids_are_checked_at_commits_after_a_delivery(harness: SinkTaskHarness) -> None:
    asked = doubting(harness, None)
    harness.commit()
    harness.commit()
    harness.worker.close(ClosingReason.REBALANCE)

    assert asked == [{P0.topic}]
    assert committed(harness) == 3


@pytest.mark.parametrize("how", ["periodically", "closing", "range read", "put fails"])
def test_records_of_a_replaced_topic_are_not_committed(harness: SinkTaskHarness, how: str) -> None:
    # At any kind of commit the partition fails, without pre_commit but with close.
    doubting(harness, REPLACED)
    before = len(harness.called("pre_commit"))
    match how:
        case "periodically":
            harness.commit()
        case "closing":
            harness.worker.close(ClosingReason.SHUTDOWN)
        case "range read":
            harness.worker.finish(P0, None)
        case "put fails":
            harness.task.faults["put"].append(ConnectException("no"))
            harness.deliver(P0, ["d"])

    (outcome,) = harness.worker.outcomes()
    assert (committed(harness), outcome.tail) == (2, 1)
    assert outcome.failure is not None
    assert len(harness.called("pre_commit")) == before
    assert len(harness.called("close")) == 1
    if how != "put fails":  # the first failure stays the cause
        assert "deleted and created again" in outcome.failure.message


def test_an_unknown_topic_id_is_checked_again_at_the_next_commit(harness: SinkTaskHarness) -> None:
    doubting(harness, UNKNOWN)
    harness.commit()
    assert committed(harness) == 2
    assert harness.worker.outcomes()[0].failure is None
    harness.deliver(P0, ["d"])

    doubting(harness, None)
    harness.commit()
    assert committed(harness) == 4


def test_records_are_read_again_if_the_topic_id_is_unknown_at_the_end(harness: SinkTaskHarness) -> None:
    doubting(harness, UNKNOWN)
    harness.worker.close(ClosingReason.SHUTDOWN)

    (outcome,) = harness.worker.outcomes()
    assert (committed(harness), outcome.tail) == (2, 1)
    assert outcome.failure is not None
    assert "no broker answers" in outcome.failure.message


def test_the_end_of_a_range_of_a_replaced_topic_is_not_committed(harness: SinkTaskHarness) -> None:
    harness.assign(P1, limits=OffsetRange(0, 10))
    doubting(harness, REPLACED)
    harness.worker.finish(P1, None)

    assert harness.worker.committed(P1) is None


def test_tokens_prepared_for_a_replaced_topic_are_discarded() -> None:
    harness, world = opened()
    harness.deliver(P0, ["a", "b"])
    doubting(harness, REPLACED)
    harness.commit()

    assert harness.worker.committed(P0) is None
    assert (len(world.begun), world.visible, world.undone) == (1, [], list(world.begun))
    assert not harness.worker.assignment()
