"""A commit moves back only by an UnpublishableException, when it can never be published."""

from __future__ import annotations

import pickle

import pytest

from sinksdk import (
    FencedException,
    OffsetAndMetadata,
    OffsetRange,
    Token,
    UnpublishableException,
)
from sinksdk.testing import SinkTaskHarness
from tests.engine.sinks import P0, P1, Sink, ids, opened


def test_an_unpublishable_commit_is_withdrawn() -> None:
    harness, _ = opened()
    harness.deliver(P0, ["a", "b"])
    harness.commit()
    harness.deliver(P0, ["c", "d"])

    def gone(partition: object, tokens: list[Token]) -> None:
        raise UnpublishableException("gone", offset=2, metadata="as before", discard=tokens)

    harness.task.publish = gone
    harness.commit()

    assert harness.committed == {P0: OffsetAndMetadata(2, "as before")}
    (entry,) = harness.log.saved.entries
    assert entry.withdrawn_from == 4
    assert [ids(call.arguments[1]) for call in harness.called("discard")] == [["upload-1"]]
    failure = harness.outcome(P0).failure
    assert failure is not None
    assert failure.at_once
    assert harness.names()[-1] == "close"


def test_an_unpublishable_commit_of_a_predecessor_is_withdrawn_before_open() -> None:
    harness, _ = opened()
    harness.deliver(P0, ["a", "b"])
    harness.task.publish = failing_once(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        harness.commit()
    harness.crash()

    def gone(partition: object, tokens: list[Token]) -> None:
        raise UnpublishableException("gone", offset=0, discard=tokens)

    harness.task.publish = gone
    harness.start()
    harness.assign(P0)

    assert "open" not in harness.names()[harness.names().index("discard") :]
    assert harness.committed == {P0: OffsetAndMetadata(0)}
    assert [ids(call.arguments[1]) for call in harness.called("discard")] == [["upload-0"]]


def failing_once(error: BaseException) -> object:
    def publish(partition: object, tokens: list[Token]) -> None:
        raise error

    return publish


@pytest.mark.parametrize(
    ("offset", "discard"), [(2, []), (5, []), (-1, []), (0, ["a token of somebody else"])]
)
def test_a_withdrawal_must_match_the_commit(offset: int, discard: list[str]) -> None:
    harness, _ = opened()
    harness.deliver(P0, ["a", "b"])

    def wrong(partition: object, tokens: list[Token]) -> None:
        raise UnpublishableException("gone", offset=offset, discard=discard)

    harness.task.publish = wrong
    harness.commit()

    assert harness.committed[P0].offset == 2
    assert ids(harness.committed[P0].tokens) == ["upload-0"]
    assert harness.outcome(P0).failure is not None


def test_a_fenced_task_withdraws_nothing() -> None:
    # If the upload of a zombie is gone, the zombie withdraws nothing: the successor has published the upload,
    # or will find it missing itself.
    harness, _ = opened()
    harness.deliver(P0, ["a"])
    log = harness.log

    def gone(partition: object, tokens: list[Token]) -> None:
        harness.fence()
        raise UnpublishableException("gone", offset=0, discard=tokens)

    harness.task.publish = gone
    with pytest.raises(FencedException):
        harness.commit()

    assert log.offsets[P0].offset == 1


def test_an_unpublishable_exception_keeps_its_fields_when_pickled() -> None:
    error = UnpublishableException("gone", offset=3, metadata="m", discard=["t"], partly_visible_to=7)
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes

    assert (str(copy), copy.offset, copy.metadata, copy.discard) == ("gone", 3, "m", ("t",))
    assert copy.partly_visible_to == 7


def test_a_further_attempt_does_not_read_past_a_withdrawn_commit() -> None:
    # Regression: the generation's range begins at the commit before the withdrawal, so reading on lost the
    # records in between.
    harness, _ = opened()
    harness.deliver(P0, ["a", "b"])
    harness.task.publish = failing_once(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        harness.commit()
    harness.crash()

    def gone(partition: object, tokens: list[Token]) -> None:
        raise UnpublishableException("gone", offset=0, discard=tokens)

    harness.task.publish = gone
    harness.start()
    harness.assign(P0, limits=OffsetRange(2, 10))
    harness.crash()
    harness.start()
    harness.assign(P0, P1, limits=OffsetRange(2, 10))
    harness.deliver(P1, ["c"])

    assert harness.called("open")[-1].arguments == ([P1],)
    failure = harness.outcome(P0).failure
    assert failure is not None
    assert failure.at_once
    assert "withdrawn to offset 0" in failure.message
    assert harness.outcome(P1).failure is None


def test_a_gap_lost_by_the_source_is_not_treated_as_a_withdrawal() -> None:
    harness = SinkTaskHarness(Sink, committed={P0: 5})
    harness.start()
    harness.assign(P0, limits=OffsetRange(8, 20))
    harness.deliver(P0, ["a"])
    harness.commit()

    assert harness.committed[P0].offset == 9
