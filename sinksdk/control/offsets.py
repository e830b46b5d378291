"""Altering offsets of sinks and sources (KIP-875): expect STOPPED, claim, call alter_offsets.

A sink's offsets are in the store. Those of a source are on the cluster of its records, and change in a
transaction, as with tasks.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import closing, suppress
from typing import Final, Generic, NamedTuple, TypeVar

from sinksdk.config import ConnectorConfig
from sinksdk.connector import ConnectorContext, ConnectorIdentity, SinkConnector
from sinksdk.control import registry
from sinksdk.control.connector_calls import ConnectorCalls, ThreadExecutor
from sinksdk.control.deletion import settle
from sinksdk.control.liveness import await_end
from sinksdk.engine import TaskName
from sinksdk.engine.clock import SystemWallClock, WallClock
from sinksdk.engine.writer import Target, fence
from sinksdk.errors import ConfigException, ConnectException
from sinksdk.offsets import OffsetAndMetadata, TopicPartition
from sinksdk.plugins.checks import check_config
from sinksdk.settings.references import ALL_PROVIDERS, ConfigProviders
from sinksdk.source import SourceConnector, SourceConnectorConfig, SourceOffset, SourcePartition
from sinksdk.source.positions import SourcePosition, partition_key
from sinksdk.store import Conflict, Store, identify, table
from sinksdk.store.generations import Claim, Generations, UnpublishedException
from sinksdk.store.keys import progress_prefix
from sinksdk.store.records import ConnectorRecord
from sinksdk.store.reports import TaskProgress
from sinksdk.topics import Source, Subscription
from sinksdk.topics.base import take_snapshot

log = logging.getLogger(__name__)

T = TypeVar("T")
S = TypeVar("S", bound="OpenedSink | OpenedTarget")

Executors = Callable[[], ThreadExecutor]

IN_THREADS: Final[Executors] = ThreadExecutor


class ConnectorRunsException(ConnectException):
    """The request requires a stopped connector (Connect's 400 for offsets)."""


class OffsetsRefusedException(ConnectException):
    """The connector refuses the offsets that an operator has requested."""


class ClaimedContext(ConnectorContext):
    """The context of a connector that no driver runs, with the claimed commits."""

    def __init__(self, claim: Claim) -> None:
        self._claim = claim

    def committed(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        return {partition: entry.as_offset() for partition, entry in self._claim.committed.items()}


class StoppedConnector(Generic[S]):
    """A connector whose offsets are altered; raises ConnectorRunsException if it is not STOPPED."""

    def __init__(
        self,
        store: Store,
        name: str,
        clock: WallClock,
        opened: Callable[[Mapping[str, str]], S],
        executors: Executors = IN_THREADS,
    ) -> None:
        self._store = store
        self._name = name
        self._clock = clock
        self._executors = executors
        self.generations = Generations(store, name)
        self.record = self._stopped()
        self.opened = opened(self.record.config)

    def claim(self, patience: float) -> Claim:
        """Wait at most ``patience`` seconds until the tasks have closed, and fence zombies."""
        graceful = self.opened.config.graceful_timeout_ms / 1000
        await_end(self._store, self._name, clock=self._clock, graceful=graceful, patience=patience)
        claim = self.generations.claim()
        # Read again: if an operator resumes the connector from here on, its driver claims later and fences
        # this process.
        self.record = self._stopped()
        return claim

    def call(self, what: str, method: Callable[[], T]) -> T:
        """Call a method of the connector, which is not started. Raises OffsetsRefusedException."""
        connector = self.opened.connector
        connector.identity = ConnectorIdentity(identify(self._store), self._name, self.record.incarnation)
        calls = ConnectorCalls(connector, self._name, self._clock, self._executors)
        timeout = self.opened.config.connector_start_timeout_ms / 1000
        try:
            return calls.call(what, method, timeout=timeout)
        except Exception as error:
            why = str(error) if isinstance(error, ConnectException) else f"{type(error).__name__}: {error}"
            raise OffsetsRefusedException(
                f"connector {self._name}: {what} failed, and no offsets were altered: {why}"
            ) from error
        finally:
            calls.end()

    def _stopped(self) -> ConnectorRecord:
        record = registry.find(self._store, self._name)
        registry.expect_connector(self._store, self._name, record)
        if record.target_state != "STOPPED" or record.deleted:
            raise ConnectorRunsException(
                f"connector '{self._name}' has the target state {record.target_state}: its offsets can be "
                f"altered only while it is stopped ('sinksdk stop {self._name}')"
            )
        return record


# -- of sinks ----------------------------------------------------------------------------------------


class OpenedSink(NamedTuple):
    """A sink, not started, with its validated configuration.

    Args:
        source: opens the source; None: offsets are not checked against it.
    """

    connector: SinkConnector
    config: ConnectorConfig
    source: Callable[[], Source] | None = None


Sinks = Callable[[Mapping[str, str]], OpenedSink]


def opened_sink(
    raw: Mapping[str, str],
    source: Callable[[ConnectorConfig], Source] | None = None,
    providers: ConfigProviders = ALL_PROVIDERS,
) -> OpenedSink:
    """Open a sink, given its configuration as written. Raises ConfigException."""
    checked = check_config(raw, providers)
    connector, config = checked.connector, checked.config
    if not isinstance(connector, SinkConnector) or not isinstance(config, ConnectorConfig):
        raise ConfigException(
            f"connector '{raw.get('name', '')}': alter_offsets cannot be called, and no offsets were "
            f"altered: {'; '.join(checked.problems) or 'it is not a sink'}"
        )
    config.keep_secrets()
    return OpenedSink(connector, config, None if source is None else lambda: source(config))


def expect_there(sink: OpenedSink, offsets: Mapping[TopicPartition, int | None]) -> None:
    """Refuse offsets that no record can have; None, which removes a commit, is always accepted."""
    wanted = {partition: offset for partition, offset in sorted(offsets.items()) if offset is not None}
    problems = [f"{p}: offset {offset} is below 0" for p, offset in wanted.items() if offset < 0]
    if wanted and not problems and sink.source is not None:
        topics = tuple(sorted({partition.topic for partition in wanted}))
        there = take_snapshot(sink.source(), Subscription(topics), 0.0).partitions
        for partition, offset in wanted.items():
            if partition not in there:
                problems.append(f"{partition}: the source has no such partition")
            elif not there[partition].start <= offset <= there[partition].end:
                begin, end = there[partition]
                problems.append(
                    f"{partition}: offset {offset} is not in the source, which has offsets {begin} to {end}"
                )
    if problems:
        raise ConfigException(f"connector {sink.config.name}: no offsets were altered: {'; '.join(problems)}")


class StoppedSink(StoppedConnector[OpenedSink]):
    def publish(self, claim: Claim) -> tuple[Claim, str]:
        """Publish commits as far as possible; return the next claim, and the problem or ""."""
        problem = settle(
            self._store,
            self._name,
            self.record,
            generations=self.generations,
            claim=claim,
            connector=self.opened.connector,
            own=dict,
            call=self.call,
            clock=self._clock,
        )
        if problem:
            log.warning("connector %s: not all commits could be published: %s", self._name, problem)
        return self.generations.claim(), problem

    def recovered(
        self, claim: Claim, given: Mapping[TopicPartition, int], problem: str
    ) -> Mapping[TopicPartition, int]:
        """Return the offsets of which the destination holds the records.

        Raises:
            UnpublishedException: a commit is unpublished (``problem``) and not recovered.
        """
        connector, config, _ = self.opened
        connector.context = ClaimedContext(claim)
        offsets = self.call("recover_offsets", lambda: connector.recover_offsets(config, given))
        left = ", ".join(str(p) for p in sorted(claim.unpublished().keys() - set(offsets)))
        if left:
            raise UnpublishedException(
                f"connector {self._name}: the commits of {left} cannot be published"
                f"{f': {problem}' if problem else ''}. No offsets were recovered; fix the cause, then run "
                f"'sinksdk offsets recover CONFIG' again"
            )
        return offsets

    def alter(self, claim: Claim, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Let the connector alter offsets of its own; called only after a claim, so no task commits."""
        self.generations.expect_published(claim, offsets)
        connector, config, _ = self.opened
        connector.context = ClaimedContext(claim)
        self.call("alter_offsets", lambda: connector.alter_offsets(config, dict(offsets)))


# -- of sources --------------------------------------------------------------------------------------


Changes = Sequence[tuple[SourcePartition, SourceOffset | None]]


class OpenedTarget(NamedTuple):
    """A source connector, not started, with its validated configuration and target."""

    connector: SourceConnector
    config: SourceConnectorConfig
    target: Target


Targets = Callable[[Mapping[str, str]], OpenedTarget]


class SourceOffsets:
    def __init__(self, store: Store, targets: Targets) -> None:
        self._store = store
        self._opened = targets

    def read(self, name: str) -> list[SourcePosition]:
        opened = self._opened(registry.find(self._store, name).config)
        with closing(opened.target.offsets(opened.config)) as offsets:
            return sorted(offsets.positions(), key=lambda position: partition_key(position.partition))

    def alter(self, name: str, changes: Changes, *, patience: float = math.inf) -> bool:
        """Commit other offsets while the connector is STOPPED; None: as if no record was ever read.

        Returns:
            Whether the connector has moved offsets of its own (``alter_offsets``).
        """
        stopped = StoppedConnector(self._store, name, SystemWallClock(), self._opened)
        connector, config, target = stopped.opened
        written = [SourcePosition.of(at, offset) for at, offset in changes if offset is not None]
        removed = [SourcePosition.of(at, {}).partition for at, offset in changes if offset is None]
        claim = stopped.claim(patience)
        # Tasks may still run and write, as zombies.
        for task in range(claim.transactional_tasks or 0):
            fence(target, config, task)
        # The connector is called after the claim, so that no task commits meanwhile.
        has_moved = stopped.call("alter_offsets", lambda: connector.alter_offsets(config, list(changes)))
        with closing(target.writer(config, TaskName(name, 0))) as writer:
            writer.init()
            writer.begin()
            writer.commit(written, removed)
        self._forget_reported(name, {partition_key(partition) for partition, _ in changes})
        return bool(has_moved)

    def reset(self, name: str, *, patience: float = math.inf) -> bool:
        changes = [(position.partition, None) for position in self.read(name)]
        return self.alter(name, changes, patience=patience)

    def _forget_reported(self, name: str, altered: Container[str]) -> None:
        # The tasks' reports of altered partitions are outdated.
        for key in self._store.list(progress_prefix(name)):
            row = table.read(self._store, key, TaskProgress)
            if row is None or row.value.source is None:
                continue
            offsets = [at for at in row.value.source.offsets if partition_key(at.partition) not in altered]
            source = row.value.source.model_copy(update={"offsets": tuple(offsets)})
            with suppress(Conflict):  # a zombie has just written this report; the next task overwrites it
                table.write(self._store, key, row.value.model_copy(update={"source": source}), row.version)
