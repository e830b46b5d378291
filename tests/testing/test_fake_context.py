from __future__ import annotations

import pytest

from sinksdk import ClosingReason, ConnectException, OffsetAndMetadata, SinkRecord, Token, TopicPartition
from sinksdk.testing import FakeContext, MemoryDestination
from tests.engine.sinks import rows
from tests.testing.zoo import TwoPhaseSink

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


def test_task_runs_with_a_fake_context() -> None:
    task, context = TwoPhaseSink(MemoryDestination()), FakeContext([TP])
    task.initialize(context)
    task.put(rows(TP, 0, 1))
    assert context.tokens == {TP: [Token("staged-0")]}
    assert task.pre_commit({TP: OffsetAndMetadata(2)}) == {}

    context.closing = ClosingReason.REBALANCE
    assert task.pre_commit({TP: OffsetAndMetadata(2)}) == {
        TP: OffsetAndMetadata(2, publish=[Token("staged-0")])
    }


def test_fake_context_returns_the_values_that_a_test_sets() -> None:
    context = FakeContext([TP], committed={TP: OffsetAndMetadata(7)}, configs={"a": "b"}, generation=3)
    assert context.assignment() == {TP}
    assert (context.committed(TP), context.committed(OTHER)) == (OffsetAndMetadata(7), None)
    assert (context.configs(), context.generation()) == ({"a": "b"}, 3)
    context.seconds_left = 5.0
    assert (context.is_closing(), context.closing_reason(), context.deadline()) == (False, None, None)
    context.closing = ClosingReason.PAUSE
    assert (context.is_closing(), context.closing_reason(), context.deadline()) == (
        True,
        ClosingReason.PAUSE,
        5.0,
    )


def test_fake_context_records_requests() -> None:
    context, error = FakeContext([TP]), ConnectException("no")
    context.offset({TP: 9})
    context.timeout(1.5)
    context.request_commit()
    context.fail(TP, error)
    context.count(TP, files=1)
    context.count(TP, files=2, bytes=3)
    assert (context.moves, context.timeouts, context.requested_commits) == ({TP: 9}, [1.5], 1)
    assert context.failures == {TP: error}
    assert context.counts == {TP: {"files": 3, "bytes": 3}}


def test_tokens_can_be_prepared_for_open_partitions_only() -> None:
    with pytest.raises(ConnectException, match="partitions that are not open: t-1"):
        FakeContext([TP]).prepared({OTHER: ["a"]})


def test_fake_context_keeps_errant_records() -> None:
    record, error = SinkRecord("t", 0, 4), ValueError("bad")
    context = FakeContext([TP])
    assert context.errant_record_reporter().report(record, error).done()
    assert context.reported == [(record, error)]

    strict = FakeContext([TP], tolerates_errors=False)
    with pytest.raises(ConnectException, match="t-0 at offset 4: bad records are not tolerated"):
        strict.errant_record_reporter().report(record, error)
