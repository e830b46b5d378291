"""Records that cannot be delivered: the reporter, tolerance, dead letters."""

from __future__ import annotations

import sys
from concurrent.futures import Future

import pytest

from sinksdk import (
    ConnectException,
    DataException,
    Header,
    OffsetAndMetadata,
    RetriableException,
    SinkRecord,
    SinkRecords,
)
from sinksdk.engine import EngineOptions, TaskName
from sinksdk.engine.errant import dead_letter
from sinksdk.testing import SinkTaskHarness
from tests.engine.sinks import P0, P1, Letters, Offsets, Sink, TwoPhaseSink

ALL = EngineOptions(tolerate_errors=True)
NONE = EngineOptions(tolerate_errors=False)


class Reporting(Sink):
    """Reports records with the value ``bad``; if ``swallow`` is set, suppresses the reporter's exception."""

    swallow = False

    def put(self, records: SinkRecords) -> None:
        for record in records:
            if record.value == b"bad":
                self.report(record)
        super().put(records)

    def report(self, record: SinkRecord) -> None:
        try:
            self.context.errant_record_reporter().report(record, ValueError("no number"))
        except ConnectException:
            if not self.swallow:
                raise


class Swallowing(Reporting):
    swallow = True


def reporting(
    options: EngineOptions, letters: Letters | None, sink: type[Sink] = Reporting
) -> SinkTaskHarness:
    harness = SinkTaskHarness(sink, options=options, dead_letters=letters)
    harness.start()
    harness.assign(P0, P1)
    return harness


# -- the reporter ------------------------------------------------------------------------------------


def test_errors_tolerance_applies_without_dead_letters_and_logging() -> None:
    tolerant = reporting(EngineOptions(tolerate_errors=True), None)
    tolerant.deliver(P0, ["1", "bad", "3"])
    tolerant.commit()
    assert tolerant.committed == {P0: OffsetAndMetadata(3)}
    assert tolerant.worker.measures(0.0).errors.records_skipped == 1

    strict = reporting(EngineOptions(), None)
    strict.deliver(P0, ["1", "bad", "3"])
    assert strict.committed == {}
    assert "flights-0 at offset 1 failed in TASK_PUT" in strict.outcome(P0).failure.message


def test_tolerated_bad_records_are_skipped_and_dead_lettered() -> None:
    letters = Letters()
    harness = reporting(ALL, letters)
    harness.deliver(P0, ["good", "bad", "good"])
    harness.commit()
    assert harness.committed == {P0: OffsetAndMetadata(3)}
    assert [record.offset for record in letters.records] == [1]
    assert harness.outcome(P0).failure is None


def test_an_untolerated_bad_record_fails_the_partition() -> None:
    letters = Letters()
    harness = reporting(NONE, letters)
    harness.deliver(P0, ["good"])
    harness.deliver(P0, ["good", "bad"])
    harness.deliver(P1, ["good"])
    failure = harness.outcome(P0).failure
    assert "connector harness, task 0: flights-0 at offset 2 failed in TASK_PUT" in failure.message
    assert "errors.tolerance is none: ValueError: no number" in failure.message
    assert [record.offset for record in letters.records] == [2]
    assert harness.committed == {P0: OffsetAndMetadata(1)}
    assert harness.task.context.assignment() == {P1}


def test_a_refusal_swallowed_by_the_task_fails_the_partition() -> None:
    # With errors.tolerance=none, a task that suppresses the refusal fails nevertheless (KAFKA-10115), and
    # nothing is committed.
    harness = reporting(NONE, Letters(), Swallowing)
    harness.deliver(P0, ["good"])
    harness.deliver(P0, ["bad", "good"])
    assert "errors.tolerance is none" in harness.outcome(P0).failure.message
    assert harness.committed == {P0: OffsetAndMetadata(1)}, "the batch with the bad record was not accepted"
    assert harness.outcome(P0).position == 1
    assert harness.task.context.assignment() == {P1}


def test_a_refusal_swallowed_before_a_retry_fails_the_partition() -> None:
    harness = reporting(NONE, Letters(), Swallowing)
    harness.task.faults["put"].append(RetriableException("busy"))
    harness.deliver(P0, ["bad"])
    harness.advance(0.3)
    assert "errors.tolerance is none" in harness.outcome(P0).failure.message
    assert harness.committed == {}


def test_a_refused_record_fails_its_own_partition() -> None:
    class Late(Swallowing):
        late: SinkRecord | None = None

        def put(self, records: SinkRecords) -> None:
            if self.late is not None:
                self.report(self.late)
            self.late = records[0]
            self.taken[records.partition].append(records.first_offset)

    harness = reporting(NONE, Letters(), Late)
    harness.deliver(P0, ["a"])
    harness.deliver(P1, ["x"])
    assert "flights-0 at offset 0" in harness.outcome(P0).failure.message
    assert harness.outcome(P1).failure is None
    assert harness.committed == {}
    harness.commit()
    assert harness.committed == {P1: OffsetAndMetadata(1)}


def test_a_record_refused_in_pre_commit_is_not_committed() -> None:
    class AtCommit(Swallowing):
        def put(self, records: SinkRecords) -> None:
            self.bad = records[0]

        def pre_commit(self, offsets: Offsets) -> Offsets:
            self.report(self.bad)
            return offsets

    harness = reporting(NONE, Letters(), AtCommit)
    harness.deliver(P0, ["a"])
    harness.revoke()
    assert harness.committed == {}
    assert "errors.tolerance is none" in harness.outcome(P0).failure.message


def test_reports_for_closed_partitions_are_still_sent() -> None:
    letters = Letters()
    harness = reporting(ALL, letters)
    harness.revoke(P0)
    future = harness.task.context.errant_record_reporter().report(SinkRecord(*P0, offset=4), ValueError("x"))
    assert future.done()
    assert [record.offset for record in letters.records] == [4]


def test_errors_are_logged_if_configured(caplog: pytest.LogCaptureFixture) -> None:
    harness = reporting(EngineOptions(tolerate_errors=True, log_errors=True), None)
    harness.deliver(P0, ["good", "bad"])
    (record,) = caplog.records
    assert record.getMessage() == (
        "connector harness, task 0: flights-0 at offset 1 failed in TASK_PUT: ValueError: no number"
    )
    assert isinstance(record.exc_info[1], ValueError)


# -- dead letters and commits ------------------------------------------------------------------------


def test_dead_letters_are_durable_before_the_commit_that_covers_them() -> None:
    order = []

    class Slow(Letters):
        def send(self, record: SinkRecord) -> Future[None]:
            future = super().send(record)
            future.result = lambda: order.append("letter")
            return future

    class Ordered(Reporting):
        def pre_commit(self, offsets: Offsets) -> Offsets:
            order.append("pre_commit")
            return offsets

    harness = reporting(ALL, Slow(automatic=False), Ordered)
    harness.deliver(P0, ["bad"])
    harness.commit()
    assert order == ["letter", "pre_commit"]


def test_dead_letters_sent_by_pre_commit_are_durable_before_its_commit() -> None:
    order = []

    class Slow(Letters):
        def send(self, record: SinkRecord) -> Future[None]:
            future = super().send(record)
            future.result = lambda: order.append("letter")
            return future

    class AtCommit(Reporting):
        def put(self, records: SinkRecords) -> None:
            self.bad = records[0]

        def pre_commit(self, offsets: Offsets) -> Offsets:
            self.report(self.bad)
            return offsets

    harness = reporting(ALL, Slow(automatic=False), AtCommit)
    harness.deliver(P0, ["a"])
    save = harness.log._save
    harness.log._save = lambda record: (order.append("commit"), save(record))
    harness.commit()
    assert order == ["letter", "commit"]


@pytest.mark.parametrize("closing", [False, True])
def test_an_unwritten_dead_letter_fails_its_partition(closing: bool) -> None:
    letters = Letters(automatic=False)
    harness = reporting(ALL, letters)
    harness.deliver(P0, ["bad"])
    harness.deliver(P1, ["good"])
    letters.futures[0].set_exception(OSError("disk full"))
    if closing:
        harness.revoke()
    else:
        harness.commit()
    assert harness.committed == {P1: OffsetAndMetadata(1)}
    assert (
        "a dead letter of flights-0 was not written: OSError: disk full"
        in harness.outcome(P0).failure.message
    )
    assert harness.called("pre_commit")[0].arguments == ({P1: OffsetAndMetadata(1)},)


def test_an_unwritten_dead_letter_of_pre_commit_fails_its_partition() -> None:
    class AtCommit(TwoPhaseSink):
        def pre_commit(self, offsets: Offsets) -> Offsets:
            self.context.errant_record_reporter().report(SinkRecord(*P0, offset=0), ValueError("bad"))
            letters.futures[0].set_exception(OSError("disk full"))
            return super().pre_commit(offsets)

    letters = Letters(automatic=False)
    harness = reporting(ALL, letters, AtCommit)
    harness.deliver(P0, ["a"])
    harness.deliver(P1, ["x"])
    harness.commit()
    assert harness.committed.keys() == {P1}
    assert harness.task.world.undone == ["upload-0"]
    assert harness.task.world.visible == ["upload-1"]


def test_a_cancelled_dead_letter_fails_its_partition() -> None:
    letters = Letters(automatic=False)
    harness = reporting(ALL, letters)
    harness.deliver(P0, ["bad"])
    letters.futures[0].cancel()
    harness.commit()
    assert harness.committed == {}
    assert harness.outcome(P0).failure is not None


def test_lost_partitions_do_not_wait_for_dead_letters() -> None:
    letters = Letters(automatic=False)
    harness = reporting(ALL, letters)
    harness.deliver(P0, ["bad"])
    harness.lose(P0)
    harness.commit()
    assert harness.committed == {}


def test_dead_letters_that_cannot_be_sent_fail_the_partition() -> None:
    class Broken(Letters):
        def send(self, record: SinkRecord) -> Future[None]:
            raise OSError("no route")

    harness = reporting(ALL, Broken())
    harness.deliver(P0, ["bad"])
    assert "no route" in harness.outcome(P0).failure.message
    assert harness.committed == {}


def test_a_dead_letter_carries_connects_headers() -> None:
    # Connect's headers follow the record's own headers; everything else is unchanged.
    record = SinkRecord(
        "flights", 3, 17, key=b"k", value=b"v", timestamp=5, headers=(Header("a", b"1"), Header("a", None))
    )
    letter = dead_letter(
        record, DataException("too long"), "TASK_PUT", TaskName("archive", 2), "ArchiverTask"
    )
    assert (letter.topic, letter.partition, letter.offset) == ("flights", 3, 17)
    assert (letter.key, letter.value, letter.timestamp) == (b"k", b"v", 5)
    assert letter.headers[:2] == record.headers
    context = dict(letter.headers[2:])
    assert context.pop("__connect.errors.exception.stacktrace").endswith(b"DataException: too long\n")
    assert context == {
        "__connect.errors.topic": b"flights",
        "__connect.errors.partition": b"3",
        "__connect.errors.offset": b"17",
        "__connect.errors.connector.name": b"archive",
        "__connect.errors.task.id": b"2",
        "__connect.errors.stage": b"TASK_PUT",
        "__connect.errors.class.name": b"ArchiverTask",
        "__connect.errors.exception.class.name": b"sinksdk.errors.DataException",
        "__connect.errors.exception.message": b"too long",
    }


def test_an_error_without_a_message_has_no_message_header() -> None:
    # For an exception without a message the message header is null, as in Connect.
    letter = dead_letter(SinkRecord("t", 0, 0), ValueError(), "KEY_CONVERTER", TaskName("c", 0), "K")
    assert dict(letter.headers)["__connect.errors.exception.message"] is None


# -- sys.exit ----------------------------------------------------------------------------------------


class Exiting(Sink):
    def put(self, records: SinkRecords) -> None:
        sys.exit("enough")


def test_a_system_exit_fails_the_partition_not_the_process() -> None:
    # Regression: Spark ran the task four more times, and the error of the failed job did not name the cause.
    harness = SinkTaskHarness(Exiting)
    harness.start()
    harness.assign(P0, P1)
    harness.deliver(P0, ["x"])
    failure = harness.outcome(P0).failure
    assert failure is not None
    assert "put raised SystemExit: enough" in failure.message
    assert harness.outcome(P1).failure is None


def test_the_class_of_a_task_error_is_always_shown(caplog: pytest.LogCaptureFixture) -> None:
    class Task(Sink):
        def put(self, records: SinkRecords) -> None:
            raise KeyError("celsius")

    harness = SinkTaskHarness(Task)
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    failure = harness.outcome(P0).failure
    assert failure is not None
    assert failure.message == "KeyError: 'celsius'"
    assert "flights-0 failed at offset 0: KeyError: 'celsius'" in caplog.text


def test_the_class_of_a_report_error_is_shown() -> None:
    class Task(Sink):
        def put(self, records: SinkRecords) -> None:
            self.context.errant_record_reporter().report(records[1], KeyError("celsius"))

    harness = SinkTaskHarness(Task)
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, ["a", "b", "c"])
    failure = harness.outcome(P0).failure
    assert failure is not None
    assert failure.message.endswith(
        "flights-0 at offset 1 failed in TASK_PUT and errors.tolerance is none: KeyError: 'celsius'"
    )
