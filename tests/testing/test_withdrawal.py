"""Only a withdrawn commit may go back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import rule

from sinksdk import OffsetAndMetadata, SinkRecords, Token, TopicPartition, UnpublishableException
from sinksdk.store.records import PartitionCommit, TaskRecord
from sinksdk.testing import (
    Capabilities,
    Guarantee,
    MemoryDestination,
    SinkContractError,
    Trial,
    check_machine,
    replay,
    sink_machine,
)
from sinksdk.testing.contract import PARTITIONS, json_record
from sinksdk.testing.judge import WITHDRAWN, EndlessSource, Judge
from sinksdk.testing.machine import DEFAULTS
from tests.testing import zoo

pytestmark = pytest.mark.slow

P0 = PARTITIONS[0]


class Withdrawing(zoo.TwoPhaseSink):
    """Withdraws a commit whose upload has expired; the token has the first offset of its records."""

    def put(self, records: SinkRecords) -> None:
        partition = records.partition
        if partition not in self.uploads:
            token = Token(self.destination.begin(), {"begin": records.first_offset})
            self.context.prepared({partition: [token]})
            self.uploads[partition] = token
        self.waiting[partition] += records

    def publish(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        for token in tokens:
            if token.id not in self.destination.staged and token.id not in self.destination.visible:
                message = f"{token.id} has expired"
                raise UnpublishableException(message, offset=self.begin_of(token), discard=[token])
        super().publish(partition, tokens)

    def begin_of(self, token: Token) -> int:
        return int(token.data["begin"])


class WithdrawingTooLittle(Withdrawing):
    """Rewinds by one record only, whatever the upload held."""

    def publish(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        try:
            super().publish(partition, tokens)
        except UnpublishableException as error:
            raise UnpublishableException(
                str(error), offset=error.offset + 1, discard=error.discard
            ) from error


def expire(trial: Trial[MemoryDestination]) -> None:
    trial.destination.staged.clear()


OPTIONS: dict[str, Any] = {
    "read_back": MemoryDestination.read_back,
    "capabilities": Capabilities(Guarantee.EXACTLY_ONCE, ordered=True),
    "steps": {"expire": expire},
}

EXPIRED = [
    ("deliver", 0, 3),
    ("fault", "destination", 1, "crash before"),  # committed, and not published
    ("commit",),
    ("expire",),
    ("deliver", 0, 1),
]


def test_withdrawn_commit_may_go_back() -> None:
    replay(EXPIRED, Withdrawing, **OPTIONS)


def test_withdrawal_must_rewind_to_the_first_lost_record() -> None:
    with pytest.raises(SinkContractError, match="lost: offset 0 of records-0"):
        replay(EXPIRED, WithdrawingTooLittle, **OPTIONS)


def test_withdrawals_are_counted() -> None:
    class Machine(sink_machine(Withdrawing, **OPTIONS)):  # type: ignore[misc]  # made at run time
        @rule()
        def expire(self) -> None:
            self.step("expire")

        @rule()
        def expire_before_it_is_published(self) -> None:
            # Left to chance alone, few cases meet a commit between its two phases.
            for step in EXPIRED:
                self.step(*step)

    report = check_machine(Machine, settings=settings(DEFAULTS, max_examples=30))
    assert report.exercised[WITHDRAWN] > 0
    assert "commit withdrawn" in str(report)


@pytest.mark.parametrize("withdrawn_from", [None, 2])
def test_commit_that_is_not_withdrawn_must_not_go_back(withdrawn_from: int | None) -> None:
    judge = Judge(Capabilities(), EndlessSource(PARTITIONS, json_record))
    before, after = (PartitionCommit.of(P0, OffsetAndMetadata(offset), 1) for offset in (3, 0))
    after = after.model_copy(update={"withdrawn_from": withdrawn_from})
    judge.check({}, {P0: before.as_offset()})
    judge.saved(TaskRecord(generation=1, entries=(before,)), TaskRecord(generation=1, entries=(after,)))
    judge.check({}, {P0: after.as_offset()})
    assert judge.problem == "the committed offset of records-0 went back from 3 to 0"
