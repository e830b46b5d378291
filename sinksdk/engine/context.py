"""The context of a running sink task, and the requests that the task made through it."""

from __future__ import annotations

import logging
import operator
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from sinksdk.context import ClosingReason, ErrantRecordReporter, SinkTaskContext
from sinksdk.engine.commits import TaskScope
from sinksdk.engine.validation import token_flaw
from sinksdk.errors import ConnectException
from sinksdk.records import OffsetAndMetadata, Token, TopicPartition, as_token

log = logging.getLogger(__name__)


class WorkerSinkTaskContext(SinkTaskContext):
    """Answers from the engine's state; keeps the task's requests until the engine has handled them."""

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
        """Inside the block ``is_closing()`` is true, if ``reason`` is set."""
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
                f"{self._scope.label}: tokens were noted for {', '.join(map(str, strangers))}, which "
                f"{'is' if len(strangers) == 1 else 'are'} not open here; note tokens only between open "
                f"and close"
            )
        for partition, given in tokens.items():
            flaw = token_flaw(given) or self._committed_already(partition, given)
            if flaw:
                raise ConnectException(
                    f"{self._scope.label}: what was noted for {partition} cannot be kept: {flaw}"
                )
        named = {TopicPartition(*p): tuple(map(as_token, given)) for p, given in tokens.items() if given}
        if named:
            self._scope.write(self._scope.commits.prepare, named)

    def _committed_already(self, partition: TopicPartition, given: Sequence[Token | str]) -> str | None:
        committed = self._scope.commits.committed(partition)
        waiting = {token.id for token in committed.tokens} if committed else set()
        again = [token.id for token in map(as_token, given) if token.id in waiting]
        return f"token {again[0]} is committed, and not published yet" if again else None

    def offset(self, offsets: Mapping[TopicPartition, int]) -> None:
        for partition, offset in offsets.items():
            if partition in self._scope.assignment():
                self.moves[partition] = offset
            else:
                log.warning(
                    "%s: context.offset asked for %s at %d, which is not open here; ignored",
                    self._scope.label,
                    partition,
                    offset,
                )

    def timeout(self, seconds: float) -> None:
        self._timeout = seconds

    def take_timeout(self) -> float | None:
        """The wait that the task requested, once."""
        timeout, self._timeout = self._timeout, None
        return timeout

    def request_commit(self) -> None:
        self.commit_requested = True

    def fail(self, partition: TopicPartition, error: BaseException) -> None:
        if partition in self._scope.assignment():
            state = self._scope.states[partition]
            if state.requested is None:
                state.requested = error
        else:
            log.warning(
                "%s: context.fail named %s, which is not open here; ignored", self._scope.label, partition
            )

    def count(self, partition: TopicPartition, **amounts: int) -> None:
        counts = self.counts.setdefault(partition, {})
        for name, amount in amounts.items():
            counts[name] = counts.get(name, 0) + operator.index(amount)  # numpy's integers are no JSON

    def errant_record_reporter(self) -> ErrantRecordReporter:
        return self._reporter
