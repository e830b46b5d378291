"""State that the parts of a sink task's engine share, and the context of the author's code."""

from __future__ import annotations

import json
import logging
import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from sinksdk.context import ClosingReason, ErrantRecordReporter, SinkTaskContext
from sinksdk.engine.clock import Clock
from sinksdk.engine.commits import CommitLog
from sinksdk.engine.hooks import run_hook
from sinksdk.engine.measures import Measures
from sinksdk.engine.options import EngineOptions
from sinksdk.engine.partition import AcceptedRecords, InDoubt, OrderViolation, PartitionState
from sinksdk.engine.retry import Attempts
from sinksdk.errors import ConnectException, FencedException, RetriableException, describe, seconds_of
from sinksdk.model.outcome import Failure, Retry
from sinksdk.model.plan import RangePlan
from sinksdk.offsets import OffsetAndMetadata, Token, TopicPartition, as_token
from sinksdk.task import SinkTask

log = logging.getLogger(__name__)

T = TypeVar("T")


class Ending(NamedTuple):
    error: BaseException
    retry: Retry | None = None


class TaskScope:
    """A partition fails once, with the first of these errors.

    1. raised by the task or on its behalf (:meth:`note`)
    2. passed to ``context.fail``
    3. for the first of its records that was refused (:meth:`reported`)
    4. for a requested position that is not possible (:meth:`misplace`)

    The last three take effect when the author's code has returned (:meth:`note_requested`).
    """

    def __init__(
        self, task: SinkTask, label: str, commits: CommitLog, clock: Clock, options: EngineOptions
    ) -> None:
        self.task = task
        self.label = label
        self.commits = commits
        self.clock = clock
        self.options = options
        self.states: dict[TopicPartition, PartitionState] = {}
        self.measures = Measures(clock)
        self._write_failure: BaseException | None = None

    def begin(self, partition: TopicPartition, plan: RangePlan) -> None:
        committed = self.commits.committed(partition)
        # The commit may be below the plan: the source may have lost records.
        start = max(committed.offset if committed else 0, plan.start)
        due = self.commits.due(partition) if committed else 0
        self.states[partition] = PartitionState(
            plan,
            start,
            start,
            AcceptedRecords(self.commits.records(partition), due),
            is_transformed=self.options.is_transformed,
            retry=plan.retry,
        )

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(p for p, state in self.states.items() if state.is_open)

    def floor(self, partition: TopicPartition) -> int:
        """Return the offset up to which a partition is committed, or at which its range begins."""
        committed, start = self.commits.committed(partition), self.states[partition].start
        return max(committed.offset, start) if committed else start

    # -- calls of the author's code --------------------------------------------------------------

    def call(self, hook: str, *arguments: object) -> Any:
        """Run a hook; if it raises, the caller first calls :meth:`raise_failure`."""
        result = run_hook(self.label, self.task, hook, *arguments)
        self.raise_failure()  # the author's code may have suppressed the exception
        return result

    def release(self, hook: str, *arguments: object) -> None:
        # ``close`` and ``stop`` are called even after a failed write.
        run_hook(self.label, self.task, hook, *arguments)

    def write(self, method: Callable[..., None], *arguments: object) -> None:
        self.raise_failure()
        try:
            method(*arguments)
        except BaseException as error:
            self._write_failure = error
            raise

    def raise_failure(self) -> None:
        # After a failed write, the content of the store is unknown.
        if self._write_failure is not None:
            raise self._write_failure

    def misplace(self, partition: TopicPartition, offset: int) -> None:
        state = self.states[partition]
        state.ending.misplaced = ConnectException(
            f"{self.label}: the task requested offset {offset} of {partition} outside open, while at offset "
            f"{state.position}; the next generation starts it at its commit"
        )

    def reported(
        self,
        partition: TopicPartition,
        offset: int | None,
        letter: Future[None],
        refusal: ConnectException | None,
    ) -> None:
        state = self.states.get(partition)
        if state is None or not state.is_open:
            return
        while state.letters and _is_written(state.letters[0]):
            state.letters.popleft()
        state.letters.append(letter)
        if offset is not None:  # the task has reported this record itself
            state.accepted.errant[offset] += 1
        if state.ending.refusal is None:
            state.ending.refusal = refusal

    # -- failures --------------------------------------------------------------------------------

    def note_requested(self, began: float | None = None) -> None:
        for partition, state in self.states.items():
            if state.is_open:
                for error in state.ending.take_requested():
                    self.note(partition, error, began=began)

    def note(
        self,
        partition: TopicPartition,
        error: BaseException,
        *,
        at_once: bool = False,
        began: float | None = None,
        retry: Retry | None = None,
    ) -> None:
        """Record a partition's failure, if it is the first.

        Args:
            at_once: the next generation opens it without a back-off.
            began: start of the failed operation; by default now.
        """
        state = self.states[partition]
        if state.ending.failure is not None:
            return
        if retry is None and not at_once and isinstance(error, RetriableException):
            retry = self._retry_of(state, error, began)
        is_final = isinstance(error, OrderViolation)
        state.ending.failure = Failure.of(error, at_once=at_once, is_final=is_final, retry=retry)
        if isinstance(error, FencedException):
            state.ending.is_fenced = True
            self.measures.given_up()
            log.warning(
                "%s: %s is fenced at offset %d, nothing more is written: %s",
                self.label,
                partition,
                state.position,
                error,
            )
        elif retry is None:
            self.measures.given_up()
            log.error(
                "%s: %s failed at offset %d: %s",
                self.label,
                partition,
                state.position,
                describe(error),
                exc_info=error,
            )
        else:
            self.measures.retried()
            log.info(  # the driver logs the warning
                "%s: %s stops at offset %d; a later generation retries in %.1f s: %s",
                self.label,
                partition,
                state.position,
                retry.next_attempt - self.clock.now(),
                error,
            )

    @staticmethod
    def casts_doubt(error: BaseException) -> bool:
        return isinstance(error, (InDoubt, FencedException))

    def _retry_of(
        self, state: PartitionState, error: RetriableException, began: float | None
    ) -> Retry | None:
        policy, now = self.options.retry, self.clock.now()
        if policy.patience is None:
            return None
        attempts = Attempts(policy, now if began is None else began, state.retry)
        delay = attempts.failed(now, error.retry_after)
        return None if delay is None else attempts.left(now, delay)


class WorkerSinkTaskContext(SinkTaskContext):
    def __init__(
        self,
        scope: TaskScope,
        *,
        configs: Mapping[str, str],
        generation: int,
        reporter: ErrantRecordReporter,
    ) -> None:
        self._scope = scope
        self._configs = configs
        self._generation = generation
        self._reporter = reporter
        self._closing: ClosingReason | None = None
        self._deadline: float | None = None
        self._timeout: float | None = None
        self.commit_requested = False
        self.moves: dict[TopicPartition, int] = {}
        self.counts: dict[TopicPartition, dict[str, int]] = {}

    def is_closing(self) -> bool:
        return self._closing is not None

    def closing_reason(self) -> ClosingReason | None:
        return self._closing

    def deadline(self) -> float | None:
        if self._closing is None or self._deadline is None:
            return None
        return max(self._deadline - self._scope.clock.now(), 0.0)

    @contextmanager
    def closing(self, reason: ClosingReason | None, deadline: float | None) -> Iterator[None]:
        self._closing, self._deadline = reason, deadline
        try:
            yield
        finally:
            self._closing = self._deadline = None

    def assignment(self) -> frozenset[TopicPartition]:
        return self._scope.assignment()

    def committed(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        return self._scope.commits.committed(partition)

    def configs(self) -> Mapping[str, str]:
        return dict(self._configs)

    def generation(self) -> int:
        return self._generation

    def prepared(self, tokens: Mapping[TopicPartition, Sequence[Token | str]]) -> None:
        strangers = sorted(set(tokens) - self._scope.assignment())
        if strangers:
            raise ConnectException(
                f"{self._scope.label}: context.prepared got tokens of {', '.join(map(str, strangers))}, "
                f"which {'is' if len(strangers) == 1 else 'are'} not open in this task; call it only between "
                f"open and close"
            )
        flaws = {p: flaw for p, given in tokens.items() if (flaw := token_flaw(given))}
        named: dict[TopicPartition, tuple[Token, ...]] = {}
        if not flaws:
            named = {TopicPartition(*p): tuple(map(as_token, given)) for p, given in tokens.items() if given}
            flaws = dict(self._scope.commits.unusable(named))
        for partition, flaw in flaws.items():
            raise ConnectException(
                f"{self._scope.label}: context.prepared refuses the tokens of {partition}: {flaw}"
            )
        if named:
            self._scope.write(self._scope.commits.prepare, named)

    def offset(self, offsets: Mapping[TopicPartition, int]) -> None:
        for partition, offset in offsets.items():
            if partition in self._scope.assignment():
                self.moves[partition] = offset
            else:
                log.warning(
                    "%s: context.offset got %s at offset %d, which is not open in this task; ignored",
                    self._scope.label,
                    partition,
                    offset,
                )

    def timeout(self, seconds: float) -> None:
        try:
            self._timeout = seconds_of(seconds)
        except ValueError as error:
            raise ValueError(f"{self._scope.label}: the wait given to context.timeout {error}") from error

    def take_timeout(self) -> float | None:
        timeout, self._timeout = self._timeout, None
        return timeout

    def request_commit(self) -> None:
        self.commit_requested = True

    def fail(self, partition: TopicPartition, error: BaseException) -> None:
        if partition in self._scope.assignment():
            state = self._scope.states[partition]
            if state.ending.requested is None:
                state.ending.requested = error
        else:
            log.warning(
                "%s: context.fail got %s, which is not open in this task; ignored",
                self._scope.label,
                partition,
            )

    def count(self, partition: TopicPartition, **amounts: int) -> None:
        counts = self.counts.setdefault(partition, {})
        for name, amount in amounts.items():
            counts[name] = counts.get(name, 0) + operator.index(amount)  # JSON accepts no integers of numpy

    def errant_record_reporter(self) -> ErrantRecordReporter:
        return self._reporter


def token_flaw(given: Any) -> str | None:
    # The store keeps tokens as JSON. A flaw found here fails one partition; found in the write, it would
    # fail the whole attempt.
    if isinstance(given, str) or not isinstance(given, Collection):
        return f"{given!r} is not a list of tokens"
    for item in given:
        flaw = _item_flaw(item)
        if flaw:
            return flaw
    return None


def _item_flaw(item: Any) -> str | None:
    if not isinstance(item, str | Token):
        return f"{item!r} is not a token"
    token: Any = as_token(item)
    if not isinstance(token.id, str):
        return f"{item!r} has an id that is not a string"
    if not isinstance(token.data, Mapping):
        return f"the data of token {token.id} is a {type(token.data).__name__}, not a mapping"
    try:
        json.dumps(dict(token.data))
    except (TypeError, ValueError) as error:
        return f"the data of token {token.id} cannot be written as JSON: {error}"
    return None


def _is_written(letter: Future[None]) -> bool:
    return letter.done() and not letter.cancelled() and letter.exception() is None
