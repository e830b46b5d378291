"""The classes that configure tasks and manage resources outside them."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from sinksdk.config import ConnectorConfig
from sinksdk.errors import ConnectException
from sinksdk.records import RECORD_COLUMNS
from sinksdk.settings.model import ConfigModel
from sinksdk.support.hooks import check_hooks
from sinksdk.support.zones import next_multiple, time_zone
from sinksdk.task import SinkTask

if TYPE_CHECKING:
    from sinksdk.offsets import OffsetAndMetadata, TopicPartition


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """Conditions for starting a generation that reads a partition.

    The default, no ``max_records`` and no ``max_wait``, reads all available records at once, and closes at
    their end with reason ``DUE``.

    Args:
        max_records: number of records of a whole batch. A partition is read once it has one; the remaining
            records wait in the source.
        max_wait: seconds after which a partition is read even without a whole batch, counted from the time
            at which its oldest unread record was first seen. None: only whole batches (and closings).
        align_to: name of a time zone, or an offset like ``+05:30``: ``max_wait`` then ends at the next
            multiple of itself since that zone's midnight or at the next midnight, whichever is first
            (Confluent's ``rotate.schedule.interval.ms``), so never later than without it.
    """

    max_records: int | None = None
    max_wait: float | None = 0.0
    align_to: str | None = None

    def __post_init__(self) -> None:
        if self.max_records is not None and self.max_records < 1:
            raise ValueError(f"max_records must be at least 1, got {self.max_records}")
        if self.max_records is None and self.max_wait is None:
            raise ValueError("a policy without max_records and without max_wait would never read anything")
        if self.align_to:
            time_zone(self.align_to)

    def due_at(self, first_seen: float) -> float:
        """Return when a batch is due whose oldest record was first seen at the given time (epoch seconds)."""
        if self.max_wait is None:
            return math.inf
        if not self.align_to or not self.max_wait:
            return first_seen + self.max_wait
        return next_multiple(first_seen, self.max_wait, time_zone(self.align_to))


@dataclass(frozen=True, slots=True)
class ConnectorIdentity:
    """Identifies a connector, for marking its resources outside.

    Args:
        store_id: id of the store that contains its commits, unique to that store.
        connector: its name.
        incarnation: a random id, new each time a connector of this name is created.
    """

    store_id: str
    connector: str
    incarnation: str


class ConnectorContext:
    """Requests of a connector to the driver that runs it. Usable from any thread, at any time.

    In this base class they have no effect: it serves instances that no driver runs, as in a test, or to
    delete the connector or alter its offsets.
    """

    def committed(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Read a sink's commits from the store: the next offset to read of each partition.

        Committed tokens that are not published yet are in ``publish``. In ``start`` tasks of a predecessor
        may still commit; once ``subscribed`` is called, no older generation can.
        """
        return {}

    def request_task_reconfiguration(self) -> None:
        """Request new task configurations, for example because there is something else to read.

        All running tasks are asked to stop and commit; then ``task_configs`` is called again and the next
        generation of tasks starts, even if the configurations are the same as before. Several requests
        before that call count as one; a request during the call leads to another one. Before the tasks first
        run, and after ``stop``, it has no effect.
        """

    def raise_error(self, error: Exception) -> None:
        """Fail the connector because of an error in a thread of its own from which it cannot recover.

        The running tasks are asked to stop and commit; then the connector is FAILED with this error, or
        started again after a delay if it is a RetriableException, as when ``start`` raises it. The first
        error counts. After ``stop`` it is only logged.

        Raises:
            TypeError: it is no exception.
        """


class Connector:
    """Base of sink and source connectors: their life cycle in the driver, outside the tasks."""

    config_class: ClassVar[type[ConfigModel]]
    """Model of the configuration; dotted names are aliases of its fields."""

    identity: ConnectorIdentity
    """Set by the runtime before ``start``."""

    context: ConnectorContext = ConnectorContext()
    """Set by the runtime before ``start``; until then its methods do nothing."""

    def start(self, config: Any) -> None:
        """Check external systems and set up what the tasks share. Called in the driver, before any task.

        Raises:
            ConfigException: the configuration cannot work (bucket missing, access denied).
        """

    def validate(self, config: Any) -> Sequence[str]:  # noqa: ARG002 - for overriding
        """Return problems between fields, as sentences that say what to do. Must do no I/O."""
        return ()

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """Return the configuration of each task: only entries that differ from the connector's own.

        Called before each generation of tasks, with ``tasks.max``, on the same instance, without another
        ``start``: at the beginning, and again after a rebalance, a restart of failed tasks, a task's
        failure, or ``context.request_task_reconfiguration()``. A changed configuration creates a new
        instance.

        It must return at most ``max_tasks``. A source may return an empty list: then no task runs until one
        of these happens. A sink must return at least one.
        """
        return [{} for _ in range(max_tasks)]

    def stop(self, is_deleted: bool = False) -> None:  # noqa: FBT001, FBT002 - KIP-883's signature
        """Release what ``start`` set up; with ``is_deleted``, clean up outside resources too (KIP-883).

        To delete a connector that does not run (paused, stopped, failed), the driver creates an instance and
        calls ``start``, which may fail, then ``stop(True)``, without any task in between. It may be called
        again after a crash: clean-up must be idempotent. After ``connector.shutdown.graceful.timeout.ms``
        (5,000) its thread is abandoned and reported.
        """


def check_classes(cls: type[Connector], config: type[ConfigModel], task: type) -> None:
    """Raise TypeError if ``config_class`` or ``task_class`` is not a subclass of the given base."""
    for name, base in (("config_class", config), ("task_class", task)):
        found = getattr(cls, name, base)
        if isinstance(found, type) and issubclass(found, base):
            continue
        what = found.__qualname__ if isinstance(found, type) else f"of type {type(found).__name__}"
        wanted = f"a subclass of {base.__name__}"
        if isinstance(found, base):
            what, wanted = f"an instance {what}", f"the class: {name} = {type(found).__qualname__}"
        raise TypeError(f"{cls.__qualname__}.{name} is {what}: it must be {wanted}")


class SinkConnector(Connector):
    """A named, configured job that writes topics to a destination."""

    config_class: ClassVar[type[ConnectorConfig]] = ConnectorConfig
    """Model of the configuration; dotted names are aliases of its fields."""

    task_class: ClassVar[type[SinkTask]]
    """The class of the tasks, which run on the executors."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Raise TypeError for hooks that cannot take effect: coroutines, generators, misspelt names."""
        super().__init_subclass__(**options)
        check_hooks(cls, SinkConnector)
        check_classes(cls, ConnectorConfig, SinkTask)

    def unmet(self, config: Any) -> Sequence[str]:  # noqa: ARG002 - for overriding
        """Return why no record of Kafka or of a topic directory (keys and values are bytes) can be delivered.

        Must do no I/O. ``sinksdk run`` and the server refuse to start a connector that returns reasons;
        ``sinksdk validate`` shows them. A DataFrame's records, whose values are typed, may be deliverable
        nevertheless.
        """
        return ()

    def batch_policy(self, config: Any) -> BatchPolicy:  # noqa: ARG002 - for overriding
        """Return the conditions for reading a partition. The default reads all available records at once."""
        return BatchPolicy()

    def subscribed(self, topics: Collection[str]) -> None:
        """Receive the subscribed topics; called in the driver before any task opens one of them.

        Called again whenever ``topics.regex`` matches a new one. Claim the destination of a topic here.

        Raises:
            ConfigException: a topic must not be read (its destination has another owner).
        """

    def columns(self, config: Any) -> Collection[str]:  # noqa: ARG002 - for overriding
        """Return the columns of :data:`~sinksdk.records.RECORD_COLUMNS` that the task uses.

        The others are not read, which saves time and memory. ``offset`` is always read.
        """
        return tuple(RECORD_COLUMNS)

    def alter_offsets(
        self,
        config: Any,  # noqa: ARG002 - for overriding
        offsets: Mapping[TopicPartition, int | None],  # noqa: ARG002 - the same
    ) -> bool:
        """Accept altered offsets of an operator (None: reset) (KIP-875).

        Move the offsets that the sink keeps at its destination; otherwise it would skip records that are
        read again. Called while no task runs, before the offsets are written, without ``start``. It may be
        called again with the same offsets, or with none: it must be idempotent. It may take
        ``connector.start.timeout.ms``. If it raises, nothing changes.

        Args:
            config: the same as for ``start``.
            offsets: next offset to read of each partition; for a reset, all partitions with a commit.

        Returns:
            True if the connector moved its own outside offsets, False if it keeps none.

        Raises:
            ConnectException: these offsets are impossible.
        """
        return False

    def recover_offsets(
        self,
        config: Any,  # noqa: ARG002 - for overriding
        given: Mapping[TopicPartition, int],  # noqa: ARG002 - the same
    ) -> Mapping[TopicPartition, int]:
        """Return up to which offset the destination contains the records of each partition.

        Called by ``sinksdk offsets recover``: an operator has lost commits (the store is new, or restored
        from an older copy) or records at the destination, and confirms that no other process writes there.
        Called under the same conditions as ``alter_offsets``, which is called next with the result.

        Commits of partitions that are not returned stay; ``context.committed()`` returns them. A commit that
        could not be published still has its tokens there. If an offset is returned for its partition, the
        commit is given up and its tokens are discarded: return one only if none of the tokens can become
        visible any more.

        Args:
            config: the same as for ``start``.
            given: offsets given by the operator; they take precedence.

        Raises:
            ConnectException: the destination does not have the offsets; the message names partitions and
                what to do.
        """
        raise ConnectException(
            "this connector cannot recover its offsets from its destination: set them with 'sinksdk offsets "
            "alter'"
        )
