"""context.prepared stores the token of prepared data before the data exists."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import pytest

from sinksdk import (
    ConnectException,
    OffsetAndMetadata,
    SinkRecords,
    Token,
    TopicPartition,
)
from sinksdk.testing import SinkTaskHarness
from tests.engine.sinks import P0, P1, Sink, TwoPhaseSink, rows


def ids(tokens: object) -> list[str]:
    return [token.id for token in tokens]


def test_prepared_tokens_are_durable_after_one_write() -> None:
    class Opening(Sink):
        def open(self, partitions: object) -> None:
            self.context.prepared({P0: ["a", "b"], P1: ["c"]})

    harness = SinkTaskHarness(Opening)
    harness.start()
    saved = []
    save = harness.log._save
    harness.log._save = lambda record: (saved.append(record), save(record))
    harness.assign(P0, P1)
    assert harness.log.noted == {P0: ["a", "b"], P1: ["c"]}
    harness.task.context.prepared({})
    harness.task.context.prepared({P0: []})
    assert len(saved) == 1


def test_prepared_outside_an_open_partition_is_refused() -> None:
    harness = SinkTaskHarness(Sink)
    harness.start()
    with pytest.raises(
        ConnectException, match=r"context\.prepared got tokens of flights-0, which is not open"
    ):
        harness.task.context.prepared({P0: ["x"]})
    harness.assign(P0, P1)
    harness.revoke(P0)
    with pytest.raises(ConnectException, match="flights-0, which is not open"):
        harness.task.context.prepared({P1: ["y"], P0: ["x"]})
    assert harness.log.noted == {}


@pytest.mark.parametrize(
    "tokens",
    [
        "upload-0",
        Token("upload-0"),
        7,
        [7],
        [None],
        [Token(7)],
        [Token("x", {"etag": b"bytes"})],
        [Token("x", [1])],
    ],
    ids=repr,
)
def test_prepared_refuses_invalid_tokens(tokens: object) -> None:
    class Confused(Sink):
        def put(self, records: SinkRecords) -> None:
            if records.partition == P0:
                self.context.prepared({P0: tokens})
            super().put(records)

    harness = SinkTaskHarness(Confused)
    harness.start()
    harness.assign(P0, P1)
    harness.deliver(P0, ["a"])
    assert "flights-0" in harness.outcome(P0).failure.message
    assert harness.outcome(P0).failure.kind == "ConnectException"
    harness.deliver(P1, ["x"])
    harness.stop()
    assert harness.committed == {P1: OffsetAndMetadata(1)}
    assert harness.log.noted == {}


def test_prepared_accepts_plain_tuples_as_partitions() -> None:
    harness = SinkTaskHarness(Sink)
    harness.start()
    harness.assign(P0)
    harness.task.context.prepared({("flights", 0): ["x"]})
    assert harness.log.noted == {P0: ["x"]}


def test_an_id_that_a_predecessor_prepared_is_refused() -> None:
    # An id made from an offset is used again by the next attempt, and ends the partition. A frozen
    # predecessor may be about to discard the id, and would destroy what its successor has committed.

    class SameId(Sink):
        undone: list[str] = []  # noqa: RUF012 - the outside world, shared by the task and its successors

        def put(self, records: SinkRecords) -> None:
            self.context.prepared({P0: [f"file-{records.first_offset}"]})

        def discard(self, partition: object, tokens: object) -> None:
            self.undone.extend(ids(tokens))

    harness = SinkTaskHarness(SameId)
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, rows(P0, 0))
    assert harness.log.noted == {P0: ["file-0"]}
    for _ in range(2):
        harness.crash()
        harness.start()
        harness.assign(P0)
        harness.deliver(P0, rows(P0, 0))
        failure = harness.outcome(P0).failure
        assert failure is not None
        assert failure.message == (
            "connector harness, task 0, generation 1: context.prepared refuses the tokens of "
            "flights-0: token file-0 was discarded before, and another process may be about to discard it: use a "
            "new id in each attempt, for example with uuid.uuid4().hex"
        )
    assert SameId.undone == ["file-0"] * 2
    assert harness.committed == {}


def test_a_refused_token_id_fails_only_its_partition() -> None:
    class Twice(Sink):
        def put(self, records: SinkRecords) -> None:
            super().put(records)
            if records.partition == P1:
                self.context.prepared({P1: ["mine"]})

    harness = SinkTaskHarness(Twice)
    harness.start()
    harness.assign(P0, P1)
    harness.task.context.prepared({P0: ["mine"]})
    harness.deliver(P0, ["a"])
    harness.deliver(P1, ["b"])
    harness.revoke()
    assert harness.committed == {P0: OffsetAndMetadata(1)}
    failure = harness.outcome(P1).failure
    assert failure is not None
    assert (
        "token mine was prepared for flights-0: use a different token for each partition" in failure.message
    )


def test_a_committed_token_cannot_be_prepared_again() -> None:
    # Regression: a token that was prepared again while its commit was published was discarded later.

    class NotesAgain(TwoPhaseSink):
        def publish(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
            super().publish(partition, tokens)
            with suppress(ConnectException):
                self.context.prepared({partition: tokens})

    harness = SinkTaskHarness(NotesAgain)
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    harness.stop()
    assert harness.called("publish")
    assert not harness.called("discard"), "it is visible"
