"""Invalid results of pre_commit are ignored, with a warning that gives the reason."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
import pytest

from sinksdk import (
    OffsetAndMetadata,
    Token,
    TopicPartition,
)
from sinksdk.testing import SinkTaskHarness
from tests.engine.sinks import P0, P1, Offsets, Sink, rows


class Answering(Sink):
    answer: object = MappingProxyType({})

    def pre_commit(self, offsets: Offsets) -> Offsets:
        self.fault("pre_commit")
        return self.answer


def answering(answer: object, **options: object) -> SinkTaskHarness:
    """Return a harness with three accepted records in P0, whose next pre_commit returns this result."""
    harness = SinkTaskHarness(Answering, **options)
    harness.start()
    harness.assign(P0)
    first = harness.position(P0)
    harness.deliver(P0, rows(P0, first, first + 1, first + 2))
    harness.task.answer = answer
    return harness


def test_a_partition_that_is_not_part_of_the_commit_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    harness = answering({P0: OffsetAndMetadata(2), P1: OffsetAndMetadata(1)})
    harness.commit()
    assert harness.committed == {P0: OffsetAndMetadata(2)}
    assert (
        "connector harness, task 0, generation 1: pre_commit returned 1 for flights-1, "
        "which is not part of this commit" in caplog.text
    )


def test_a_partition_that_stays_open_is_not_part_of_a_closing_commit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    harness = SinkTaskHarness(Answering)
    harness.start()
    harness.assign(P0, P1)
    harness.deliver(P0, ["a"])
    harness.deliver(P1, ["x"])
    harness.task.answer = {P0: OffsetAndMetadata(1), P1: OffsetAndMetadata(1)}
    harness.revoke(P0)
    assert harness.committed == {P0: OffsetAndMetadata(1)}
    assert "for flights-1, which is not part of this commit" in caplog.text


def test_an_offset_beyond_the_delivered_records_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    harness = answering({P0: OffsetAndMetadata(4)})
    harness.commit()
    assert harness.committed == {}
    assert (
        "pre_commit returned 4 for flights-0, beyond the last delivered record (next offset 3)" in caplog.text
    )


def test_an_offset_below_the_commit_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    harness = answering({P0: OffsetAndMetadata(9)}, committed={P0: 10})
    harness.commit()
    assert harness.committed == {P0: OffsetAndMetadata(10)}
    assert (
        "pre_commit returned 9 for flights-0, below the committed offset: a commit never moves back; "
        "ignored: the commit stays at 10" in caplog.text
    )


def test_a_token_that_was_not_prepared_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    harness = answering({P0: OffsetAndMetadata(3, publish=["upload-9"])})
    harness.commit()
    assert harness.committed == {}
    assert "with tokens that were not passed to context.prepared: upload-9" in caplog.text
    assert harness.called("publish") == []


def test_a_pre_commit_result_of_none_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    harness = answering(None)
    harness.commit()
    assert harness.committed == {}
    assert (
        "pre_commit returned None, not a mapping of offsets; nothing is committed for flights-0"
        in caplog.text
    )
    harness.task.answer = {P0: OffsetAndMetadata(3)}
    harness.commit()
    assert harness.committed == {P0: OffsetAndMetadata(3)}


@pytest.mark.parametrize(
    "flawed",
    [
        7,
        None,
        OffsetAndMetadata(None),
        OffsetAndMetadata("3"),
        OffsetAndMetadata(2.0),
        OffsetAndMetadata(3, metadata=None),
        OffsetAndMetadata(3, metadata=b"text"),
        OffsetAndMetadata(3, publish=None),
        OffsetAndMetadata(3, publish=7),
        OffsetAndMetadata(3, publish="upload-0"),
        OffsetAndMetadata(3, publish=[7]),
        OffsetAndMetadata(3, publish=[Token(7)]),
        OffsetAndMetadata(3, publish=[Token("upload-0", {"checksum": b"bytes are no JSON"})]),
    ],
    ids=repr,
)
def test_an_invalid_offset_of_one_partition_does_not_affect_others(
    flawed: object, caplog: pytest.LogCaptureFixture
) -> None:
    class Noting(Answering):
        def open(self, partitions: object) -> None:
            self.context.prepared({P0: ["upload-0"]})

    harness = SinkTaskHarness(Noting)
    harness.start()
    harness.assign(P0, P1)
    harness.deliver(P0, ["a", "b", "c"])
    harness.deliver(P1, ["x"])
    harness.task.answer = {P0: flawed, P1: OffsetAndMetadata(1)}
    harness.commit()
    assert harness.committed == {P1: OffsetAndMetadata(1)}
    assert "for flights-0," in caplog.text
    assert harness.task.context.assignment() == {P0, P1}


def test_numpy_integers_and_plain_tuples_are_accepted() -> None:
    harness = answering({("flights", 0): OffsetAndMetadata(np.int64(2))})
    harness.commit()
    assert harness.committed == {P0: OffsetAndMetadata(2)}
    (partition,) = harness.committed
    assert isinstance(partition, TopicPartition)
    assert type(harness.committed[P0].offset) is int


def test_an_empty_mapping_commits_nothing_without_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    harness = answering({})
    harness.commit()
    assert harness.committed == {}
    assert caplog.records == []
    assert harness.task.context.assignment() == {P0}


def test_pre_commit_gets_a_copy() -> None:
    class Greedy(Sink):
        def pre_commit(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> Offsets:
            offsets[P0] = OffsetAndMetadata(99)
            return {}

    harness = SinkTaskHarness(Greedy)
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    harness.commit()
    assert harness.outcome(P0).position == 1
    assert harness.committed == {}


def test_pre_commit_may_return_part_of_the_accepted_offsets() -> None:
    harness = answering({P0: OffsetAndMetadata(2, "half")})
    harness.commit()
    assert harness.committed == {P0: OffsetAndMetadata(2, "half")}
    assert harness.outcome(P0).tail == 1


def test_changed_metadata_alone_is_committed() -> None:
    # The same offset with other metadata is committed, as in Connect; the same offset and metadata are not.
    harness = answering({P0: OffsetAndMetadata(10, "new")}, committed={P0: OffsetAndMetadata(10, "old")})
    harness.commit()
    assert harness.committed == {P0: OffsetAndMetadata(10, "new")}
    before = harness.log.saved
    harness.commit()
    assert harness.log.saved is before


def test_context_committed_returns_the_commit() -> None:
    harness = answering({P0: OffsetAndMetadata(2, "m")})
    assert harness.task.context.committed(P0) is None
    harness.commit()
    assert harness.task.context.committed(P0) == OffsetAndMetadata(2, "m")


def test_string_keys_of_a_pre_commit_result_are_ignored(caplog: pytest.LogCaptureFixture) -> None:
    harness = answering({"flights-0": OffsetAndMetadata(3)})
    harness.commit()
    assert harness.committed == {}
    assert (
        "pre_commit returned 3 for 'flights-0', but the keys of its result must be "
        "TopicPartition, as in the argument of pre_commit; ignored: this entry commits nothing for "
        "flights-0" in caplog.text
    )
