"""Drive one ``SourceTask`` from ``initialize`` to ``stopped`` (KIP-419, KIP-618).

Records and their source offsets are written in one transaction. A stopped task has committed all polled
records; the successor of a failed one reads from the last commit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sinksdk.engine.clock import Clock, OneThread, Threads
from sinksdk.engine.hooks import attributed, call_author, run_hook
from sinksdk.engine.measures import Measures
from sinksdk.engine.options import SourceOptions, TaskName
from sinksdk.engine.retry import Attempts, Persistence
from sinksdk.engine.source_context import (
    KnownPositions,
    PersistentOffsets,
    WorkerSourceTaskContext,
    WorkerTransactionContext,
)
from sinksdk.engine.transactions import Boundaries, SourceTransactions
from sinksdk.engine.writer import CommittedOffsets, TransactionalWriter
from sinksdk.errors import FencedException, RetriableException
from sinksdk.model.measures import Phase, TaskMeasures
from sinksdk.model.outcome import End, Failure, SourceTaskOutcome, SourceTaskState
from sinksdk.source.records import SourceRecord
from sinksdk.source.task import SourceTask

log = logging.getLogger(__name__)

_CHECKS = 10  # checks per interval, during a poll, whether a transaction is due
_LONGEST_INTERVAL = 1.0  # longest time in seconds between two such checks


class WorkerSourceTask:
    """The worker does no I/O, and starts no thread of its own.

    Any thread may call :meth:`stop` and :meth:`cancel`. :meth:`run` returns errors in its outcome.
    """

    # Ten parameters: every dependency of a task is injected, so that a simulation can replace all of them.
    def __init__(
        self,
        task: SourceTask,
        name: TaskName,
        config: Any,
        *,
        writer: TransactionalWriter,
        offsets: CommittedOffsets,
        clock: Clock,
        threads: Threads | None = None,
        raw_config: Mapping[str, str] | None = None,
        options: SourceOptions | None = None,
        may_run: Callable[[], bool] = lambda: True,
    ) -> None:
        # More than ten attributes: three threads share this state under two locks.
        self._task = task
        self._label = str(name)
        self._config = config
        self._writer = writer
        self._offsets = offsets
        self._clock = clock
        self._threads = threads or OneThread(clock)
        self._options = options or SourceOptions()
        self._may_run = may_run
        self._state = SourceTaskState.UNINITIALIZED
        self._stop_requested = self._threads.signal()
        self._cancelled = self._threads.signal()
        self._stop_called = False
        self._calling_stop = self._threads.lock()
        # Held while the writer is used, and during ``commit_record`` and ``commit``.
        self._writing = self._threads.lock()
        self._is_released = False
        self._failure: Exception | None = None
        self._poll_attempts = Attempts(self._options.poll_retry)
        self._measures = Measures(clock)
        self._known = KnownPositions()
        self._transactions = SourceTransactions(
            task,
            writer,
            label=self._label,
            persist=Persistence(self._label, clock, self._options.retry, self._cancelled, self._measures),
            measures=self._measures,
            known=self._known,
        )
        asked = None
        if self._options.boundary == "connector":
            asked = WorkerTransactionContext(self._label, self._threads.lock)
        self._boundaries = Boundaries(self._options, clock.now(), asked)
        reading = Persistence(self._label, clock, self._options.retry, self._cancelled)
        self._context = WorkerSourceTaskContext(
            raw_config or {}, PersistentOffsets(offsets, reading, self._known), asked
        )

    @property
    def state(self) -> SourceTaskState:
        return self._state

    @property
    def records(self) -> int:
        return self._measures.source.transactions.total

    @property
    def transactions(self) -> int:
        return self._measures.source.transactions.count

    @property
    def known(self) -> KnownPositions:
        return self._known

    def measures(self, time: float) -> TaskMeasures:
        return self._measures.taken(time)

    # -- what the runtime calls ------------------------------------------------------------------

    def run(self) -> SourceTaskOutcome:
        end = End.STOPPED
        try:
            if self._prepare():
                self._work()
            else:
                end = End.ABANDONED
        except FencedException as error:
            end, self._failure = End.FENCED, error
            self._count_failure()
        except Exception as error:  # noqa: BLE001 - the author's code and the writer may raise anything
            end, self._failure = End.FAILED, error
            self._count_failure()
        finally:
            self._finish()
        if self._cancelled.is_set():
            end = End.CANCELLED
        return SourceTaskOutcome(
            end,
            self.records,
            self.transactions,
            Failure.of(self._failure) if self._failure else None,
        )

    def stop(self) -> None:
        """Stop the task as soon as ``poll`` returns; the author's ``stop`` may run in this thread."""
        self._stop_requested.set()
        # The task's thread sets RUNNING before it checks for the request. So either this thread finds
        # RUNNING, or the task's thread finds the request.
        if self._state is SourceTaskState.RUNNING:
            self._call_stop()

    def cancel(self) -> None:
        """Write nothing from now on: the driver no longer waits."""
        self._cancelled.set()
        self._stop_requested.set()
        # The task's thread finishes its current call; if ``poll`` never returns, ``stopped`` is never called.
        self._threads.once(self._release)
        self._threads.once(self.stop)

    def tick(self) -> None:
        # This method runs in another thread while the task polls.
        try:
            with self._writing:
                if self._is_idle():
                    self._transactions.end(self._boundaries.while_polling(self._clock.now()))
        except Exception as error:  # noqa: BLE001 - the task's thread raises it
            self._failure = error
            self.stop()

    # -- from start to stop ----------------------------------------------------------------------

    def _prepare(self) -> bool:
        """Fence all other writers of this task; return False if the task must not run."""
        # The first check keeps an old task from fencing a newer one; the second closes the gap (KIP-618).
        if self._stop_requested.is_set() or not self._may_run():
            return False
        with self._writing:
            if self._cancelled.is_set():
                return False
            self._transactions.init()
        return not self._stop_requested.is_set() and self._may_run()

    def _work(self) -> None:
        self._state = SourceTaskState.INITIALIZED  # set before the call, which may fail halfway
        with self._measures.phase(Phase.START):
            call_author(self._label, self._task, "initialize", self._context)
            call_author(self._label, self._task, "start", self._config)
        self._state = SourceTaskState.RUNNING
        end_ticking = self._start_ticking()
        try:
            while not self._stop_requested.is_set():
                self._turn()
        finally:
            end_ticking()
        with self._writing:
            if self._may_write():
                self._transactions.end(self._boundaries.at_the_end())

    def _start_ticking(self) -> Callable[[], None]:
        if self._options.boundary != "interval":
            return lambda: None
        return self._threads.every(min(self._options.interval / _CHECKS, _LONGEST_INTERVAL), self.tick)

    def _turn(self) -> None:
        began = self._clock.now()
        records = self._poll()
        seconds = self._clock.now() - began
        with self._writing:
            if self._may_write():
                self._measures.polled(len(records), seconds)
                for record in records:
                    self._transactions.send(record)
                    self._transactions.end(self._boundaries.after_record(record))
                self._transactions.end(self._boundaries.after_batch(self._clock.now()))

    def _poll(self) -> Sequence[SourceRecord]:
        refusal: RetriableException | None = None
        with self._measures.phase(Phase.POLL), attributed(self._label, "poll"):
            try:
                records = list(run_hook(self._label, self._task, "poll") or ())
            except RetriableException as error:
                refusal = error
        if refusal is not None:
            with self._writing:  # another thread may be counting a commit
                self._measures.failed()
                self._measures.retried()
            delay = self._poll_attempts.failed(self._clock.now(), refusal.retry_after)
            log.warning("%s: poll failed, retrying: %s", self._label, refusal)
            self._stop_requested.wait(delay or 0.0)
            return ()
        self._poll_attempts = Attempts(self._options.poll_retry)
        return records

    def _may_write(self) -> bool:
        if self._failure is not None:  # a failure in another thread
            raise self._failure
        return not self._cancelled.is_set()

    def _is_idle(self) -> bool:
        is_running = self._state is SourceTaskState.RUNNING
        return is_running and self._failure is None and not self._cancelled.is_set()

    # -- the end ---------------------------------------------------------------------------------

    def _finish(self) -> None:
        is_due = self._state is not SourceTaskState.UNINITIALIZED
        if is_due:
            self._call_stop()
        self._release()
        if is_due:
            try:
                run_hook(self._label, self._task, "stopped")
            except Exception:
                log.warning("%s: stopped raised; ignored", self._label, exc_info=True)
        self._state = SourceTaskState.STOPPED

    def _call_stop(self) -> None:
        with self._calling_stop:  # a second caller waits until ``stop`` has returned
            if self._stop_called:
                return
            self._stop_called = True
            self._state = SourceTaskState.STOPPING
            try:
                with self._measures.phase(Phase.STOP):
                    run_hook(self._label, self._task, "stop")
            except Exception:
                log.warning("%s: stop raised; ignored", self._label, exc_info=True)

    def _count_failure(self) -> None:
        with self._writing:  # the thread that calls ``cancel`` may be measuring
            self._measures.given_up()

    def _release(self) -> None:
        with self._writing:
            if self._is_released:
                return
            self._is_released = True
            self._transactions.give_up()
            self._measures.still_active(0)
            for close in (self._writer.close, self._offsets.close):
                try:
                    close()
                except Exception:
                    log.warning("%s: %s raised; ignored", self._label, close.__qualname__, exc_info=True)
