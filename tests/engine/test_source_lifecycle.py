"""Calls of a source task: initialize, start, poll, stop, stopped, whichever of them raises (KIP-419)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from sinksdk import ConnectException, FencedException, RetriableException
from sinksdk.model.outcome import End, SourceTaskState
from sinksdk.topics.memory import MemoryTopics, MemoryWriter
from tests.engine.sources import ID, NAME, Script, lines, scene

S = SourceTaskState


def test_the_states_of_a_task_that_runs_and_is_stopped() -> None:
    task = Script(lines(0))
    its = scene(task)
    assert its.worker.state is S.UNINITIALIZED

    outcome = its.worker.run()

    assert task.states == [
        ("initialize", S.INITIALIZED),
        ("start", S.INITIALIZED),
        ("poll", S.RUNNING),
        ("commit_record", S.RUNNING),
        ("commit", S.RUNNING),
        ("poll", S.RUNNING),
        ("stop", S.STOPPING),
        ("stopped", S.STOPPING),
    ]
    assert its.worker.state is S.STOPPED
    assert (outcome.end, outcome.records, outcome.transactions, outcome.failure) == (End.STOPPED, 1, 1, None)


def test_start_gets_the_configuration_and_the_context() -> None:
    task = Script()
    its = scene(task)
    its.worker.run()

    assert task.config == {"some": "config"}
    assert task.context.configs() == {"name": "files"}
    assert task.context.offset_storage_reader().offset({"file": "a"}) is None
    assert task.context.transaction_context() is None


def test_the_next_task_gets_the_committed_source_offsets() -> None:
    topics = MemoryTopics()
    scene(Script(lines(0, 1), lines(7, file="b")), topics=topics).worker.run()
    task = Script()
    scene(task, topics=topics).worker.run()

    reader = task.context.offset_storage_reader()
    found = reader.offsets([{"file": "b"}, {"file": "c"}, {"file": "a"}])
    assert found == [{"line": 8}, None, {"line": 2}]


@pytest.mark.parametrize("method", ["initialize", "start"])
def test_stopped_is_called_after_a_failed_start(method: str) -> None:
    task = Script(lines(0))
    task.faults[method].append(OSError("no such file"))
    outcome = scene(task).worker.run()

    assert task.calls == [*(["initialize"] if method == "start" else []), method, "stop", "stopped"]
    assert outcome.end is End.FAILED
    assert outcome.failure is not None
    assert f"connector files, task 0: {method} raised OSError: no such file" in outcome.failure.message
    assert "OSError" in outcome.failure.trace


def test_a_task_stopped_before_its_start_gets_no_call() -> None:
    task = Script(lines(0))
    its = scene(task)
    its.worker.stop()

    assert its.worker.run().end is End.ABANDONED
    assert (task.calls, its.topics.epochs, its.writer.is_closed) == ([], {}, True)
    assert its.worker.state is S.STOPPED


def test_a_stop_request_during_start_is_passed_on_after_start() -> None:
    task = Script(lines(0))
    its = scene(task)

    class StopsItself(Script):
        def start(self, config: object) -> None:
            super().start(config)
            its.worker.stop()
            assert self.calls == ["initialize", "start"]

    task = StopsItself(lines(0))
    its = scene(task)
    assert its.worker.run().end is End.STOPPED
    assert task.calls == ["initialize", "start", "stop", "stopped"]


def test_records_returned_by_an_interrupted_poll_are_committed() -> None:
    task = Script()
    its = scene(task)

    def interrupted() -> object:
        its.worker.stop()
        return lines(0)

    task.steps.append(interrupted)
    its.worker.run()
    assert its.values == [b"a0"]
    assert task.calls[-5:] == ["poll", "stop", "commit_record", "commit", "stopped"]


def test_stop_is_called_once_despite_several_requests() -> None:
    task = Script()
    its = scene(task)
    task.steps.append(lambda: [its.worker.stop() for _ in range(3)] and None)
    its.worker.run()
    its.worker.stop()
    assert task.calls == ["initialize", "start", "poll", "stop", "stopped"]


def test_a_failed_poll_fails_the_task_and_stopped_is_called_last() -> None:
    task = Script(lines(0), ValueError("line 1 is no line"))
    its = scene(task)
    outcome = its.worker.run()

    assert task.calls[-3:] == ["poll", "stop", "stopped"]
    assert its.values == [b"a0"]
    assert outcome.end is End.FAILED
    assert outcome.failure is not None
    assert outcome.failure.message == "connector files, task 0: poll raised ValueError: line 1 is no line"


@pytest.mark.parametrize("method", ["commit", "commit_record"])
def test_a_failed_commit_callback_fails_the_task(method: str) -> None:
    # The commit is kept and the task fails, where Connect only logs the error.
    task = Script(lines(0), lines(1))
    task.faults[method].append(ConnectException("the queue is gone"))
    its = scene(task)
    outcome = its.worker.run()

    assert (its.values, its.offset()) == ([b"a0"], {"line": 1})
    assert outcome.failure is not None
    assert f"{method} raised ConnectException: the queue is gone" in outcome.failure.message
    assert task.calls[-2:] == ["stop", "stopped"]


def test_a_system_exit_fails_the_task_not_the_process() -> None:
    # SystemExit would end Spark's worker, and Spark would run the task again.
    task = Script(lines(0), SystemExit("enough"))
    its = scene(task)
    outcome = its.worker.run()

    assert outcome.failure is not None
    assert outcome.failure.message == "connector files, task 0: poll raised SystemExit: enough"
    assert task.calls[-2:] == ["stop", "stopped"]


@pytest.mark.parametrize("error", [ConnectException("socket gone"), SystemExit("enough")])
@pytest.mark.parametrize("method", ["stop", "stopped"])
def test_exceptions_of_stop_and_stopped_are_ignored(
    method: str, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    task = Script(lines(0))
    task.faults[method].append(error)
    its = scene(task)

    assert its.worker.run().end is End.STOPPED
    assert f"connector files, task 0: {method} raised; ignored" in caplog.text
    assert task.calls[-2:] == ["stop", "stopped"]
    assert its.writer.is_closed


def test_the_writer_is_closed_between_stop_and_stopped() -> None:
    seen = {}

    class Watching(Script):
        def stop(self) -> None:
            seen["stop"] = its.writer.is_closed

        def stopped(self) -> None:
            seen["stopped"] = its.writer.is_closed

    its = scene(Watching(lines(0)))
    its.worker.run()
    assert seen == {"stop": False, "stopped": True}


def test_stopped_is_called_although_closing_the_writer_fails(caplog: pytest.LogCaptureFixture) -> None:
    class Stuck(MemoryWriter):
        def close(self) -> None:
            raise OSError("no")

    topics = MemoryTopics()
    task = Script()
    scene(task, topics=topics, writer=Stuck(topics, ID, NAME.connector)).worker.run()
    assert task.calls[-1] == "stopped"
    assert "close raised; ignored" in caplog.text


# -- errors that pass --------------------------------------------------------------------------------


def test_reading_source_offsets_is_retried_until_it_succeeds() -> None:
    answers = iter([False, False, True])

    class Starting(Script):
        def start(self, config: object) -> None:
            super().start(config)
            self.found = self.context.offset_storage_reader().offset({"file": "a"})

    class Away(MemoryTopics):
        def operate(self, what: str, effect: Callable[[], Any]) -> Any:
            if "offsets" in what and not next(answers, False):
                raise RetriableException("no broker answers")
            return super().operate(what, effect)

    topics = Away()
    task = Starting()
    assert scene(task, topics=topics).worker.run().end is End.STOPPED
    assert task.found is None
    outcome = scene(Starting(), topics=topics).worker.run()
    assert outcome.failure is not None
    assert (
        "start raised ConnectException: connector files, task 0: reading source offsets failed"
        in outcome.failure.message
    )


def test_poll_is_retried_without_limit() -> None:
    task = Script(*[RetriableException("not now") for _ in range(20)], lines(0))
    its = scene(task)
    before = its.clock.now()

    assert its.worker.run().end is End.STOPPED
    assert its.values == [b"a0"]
    assert its.clock.now() - before > 600


def test_poll_is_retried_after_its_retry_after() -> None:
    task = Script(RetriableException("not now", retry_after=7), None)
    its = scene(task)
    before = its.clock.now()
    its.worker.run()
    assert its.clock.now() - before == 7


def test_a_retriable_error_of_a_commit_is_retried() -> None:
    class Lossy(MemoryWriter):
        lost = 2

        def commit(self, positions: object) -> object:
            written = super().commit(positions)
            if self.lost:
                self.lost -= 1
                raise RetriableException("the answer was lost")
            return written

    topics = MemoryTopics()
    its = scene(Script(lines(0, 1)), topics=topics, writer=Lossy(topics, ID, NAME.connector))
    assert its.worker.run().end is End.STOPPED
    assert its.values == [b"a0", b"a1"]


def test_a_commit_that_never_succeeds_fails_the_task() -> None:
    class Down(MemoryWriter):
        def commit(self, positions: object) -> object:
            raise RetriableException("no broker answers")

    topics = MemoryTopics()
    its = scene(Script(lines(0)), topics=topics, writer=Down(topics, ID, NAME.connector))
    outcome = its.worker.run()
    assert outcome.end is End.FAILED
    assert outcome.failure is not None
    assert (
        "committing a transaction failed 13 times, the last time with: no broker answers"
        in outcome.failure.message
    )
    assert (its.values, its.task.calls[-2:]) == ([], ["stop", "stopped"])


def test_an_invalid_poll_result_fails_the_task() -> None:
    task = Script([*lines(0), "text"])
    its = scene(task)
    outcome = its.worker.run()
    assert outcome.failure is not None
    assert "poll returned a sequence with a str" in outcome.failure.message
    assert its.values == []


# -- whose turn it is (KIP-618) ----------------------------------------------------------------------


@pytest.mark.parametrize("answers", [[False], [True, False]], ids=["before", "after"])
def test_a_superseded_task_gets_no_call(answers: list[bool]) -> None:
    asked = iter(answers)
    task = Script(lines(0))
    its = scene(task, may_run=lambda: next(asked))
    outcome = its.worker.run()

    assert (outcome.end, outcome.failure, task.calls) == (End.ABANDONED, None, [])
    assert its.topics.epochs == ({} if len(answers) == 1 else {ID: 1})
    assert its.writer.is_closed
    assert its.worker.state is S.STOPPED


def test_a_writer_that_cannot_fence_fails_the_task_before_initialize() -> None:
    class Refused(MemoryWriter):
        def init(self) -> None:
            raise ConnectException("not authorised")

    topics = MemoryTopics()
    its = scene(Script(), topics=topics, writer=Refused(topics, ID, NAME.connector))
    outcome = its.worker.run()
    assert outcome.end is End.FAILED
    assert its.task.calls == []


def test_a_fenced_source_task_writes_nothing_and_stops() -> None:
    task = Script(lines(0))
    its = scene(task)
    successor = MemoryWriter(its.topics, ID, NAME.connector)

    def frozen() -> object:
        successor.init()
        return lines(1)

    task.steps.append(frozen)
    outcome = its.worker.run()
    assert outcome.end is End.FENCED
    assert outcome.failure is not None
    assert outcome.failure.kind == FencedException.__name__
    assert its.values == [b"a0"]
    assert task.calls[-2:] == ["stop", "stopped"]


def test_a_cancelled_task_writes_no_records_polled_later() -> None:
    task = Script(lines(0))
    its = scene(task)

    def late() -> object:
        its.worker.cancel()
        assert its.writer.is_closed
        assert "stopped" not in task.calls
        return lines(1)

    task.steps.append(late)
    assert its.worker.run().end is End.CANCELLED
    assert (its.values, its.offset()) == ([b"a0"], {"line": 1})
    assert task.calls[-2:] == ["stop", "stopped"]


def test_a_task_cancelled_before_its_start_gets_no_call() -> None:
    its = scene(Script())
    its.worker.cancel()
    assert its.worker.run().end is End.CANCELLED
    assert (its.task.calls, its.topics.epochs) == ([], {})


def test_the_successor_aborts_a_transaction_whose_abort_failed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Gone(MemoryWriter):
        def abort(self) -> None:
            raise RetriableException("no broker answers")

    topics = MemoryTopics()
    task = Script([*lines(0), "text"])
    with caplog.at_level(logging.WARNING):
        scene(task, topics=topics, writer=Gone(topics, ID, NAME.connector)).worker.run()
    assert (
        "cannot abort the open transaction, which the next attempt aborts: no broker answers" in caplog.text
    )
    assert task.calls[-2:] == ["stop", "stopped"]
