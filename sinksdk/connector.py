"""The class that makes task configurations and owns resources outside the tasks."""

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
        max_records: size of a whole batch, in records. A partition is read once it has one; the remaining
            records wait in the source.
        max_wait: seconds after which a partition is read even without a whole batch, counted from when its
            oldest unread record was first seen. None: only whole batches (and closings).
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
            message = "a policy without max_records and without max_wait would never read anything"
            raise ValueError(message)
        if self.align_to:
            time_zone(self.align_to)

    def due_at(self, first_seen: float) -> float:
        """Due time of a batch whose oldest record was first seen at that time; in seconds since the epoch."""
        if self.max_wait is None:
            return math.inf
        if not self.align_to or not self.max_wait:
            return first_seen + self.max_wait
        return next_multiple(first_seen, self.max_wait, time_zone(self.align_to))


@dataclass(frozen=True, slots=True)
class ConnectorIdentity:
    """Identifies a connector, for marking its resources outside.

    Args:
        store_id: id of the store that holds its commits; another store has others.
        connector: its name.
        incarnation: a random id, new each time the name is created; a re-created name is another
            connector.
    """

    store_id: str
    connector: str
    incarnation: str


class ConnectorContext:
    """A connector's requests to the driver that runs it. From any thread, at any time.

    Here they do nothing, and so they do for an instance that no driver runs: one in a test, or one that is
    only made to delete the connector or to alter its offsets.
    """

    def committed(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Read a sink's commits from the store: the next offset to read of each partition.

        What is committed and not published yet is in ``publish``. In ``start`` a predecessor's tasks may
        still commit; when ``subscribed`` is called, none of an older generation can.
        """
        return {}

    def request_task_reconfiguration(self) -> None:
        """Ask for new configurations of the tasks: what there is to read, say, has changed.

        At once, all running tasks are asked to stop, and commit; then ``task_configs`` is called again, and
        the next generation of tasks starts, also if the configurations are the same as before. Several
        requests before that call are one. A request during the call counts: another one follows. Before the
        tasks first run it has no further effect, and after ``stop`` none.
        """

    def raise_error(self, error: Exception) -> None:
        """Fail the connector: for an error in a thread of its own, from which it cannot recover.

        The running tasks are asked to stop, and commit; then the connector is FAILED with this error, or
        started anew after a while if it is a RetriableException, as when ``start`` raises it. The first error
        counts. After ``stop`` it is only logged.

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
        """Problems between fields, as sentences that say what to do. Must do no I/O."""
        return ()

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """Configuration of each task, at most ``max_tasks``: entries that differ from the connector's own.

        Called before each generation of tasks, on the same instance, without another ``start``: at the
        beginning, and again after a rebalance, a restart of failed tasks, a task's failure, or
        ``context.request_task_reconfiguration()``. A changed configuration makes a new instance.

        A source may return an empty list: then no task runs until one of these happens. A sink must return at
        least one.
        """
        return [{} for _ in range(max_tasks)]

    def stop(self, is_deleted: bool = False) -> None:  # noqa: FBT001, FBT002 - KIP-883's signature
        """Release what ``start`` set up; with ``is_deleted``, clean up outside resources too (KIP-883).

        To delete a connector that does not run (paused, stopped, failed), the driver makes a new instance and
        calls ``start``, which may fail, then ``stop(True)``, without any task in between. It may be called
        again after a crash: clean-up must be idempotent. It has ``connector.shutdown.graceful.timeout.ms``
        (5,000); then its thread is abandoned and reported.
        """


def check_classes(cls: type[Connector], config: type[ConfigModel], task: type) -> None:
    """Refuse a connector whose ``config_class`` or ``task_class`` is not the class that it must be.

    Args:
        config: what its ``config_class`` must be derived from.
        task: what its ``task_class`` must be derived from.

    Raises:
        TypeError: it names the attribute, and says what to write.
    """
    for name, base in (("config_class", config), ("task_class", task)):
        found = getattr(cls, name, base)
        if isinstance(found, type) and issubclass(found, base):
            continue
        is_instance = isinstance(found, base)
        what = found.__qualname__ if isinstance(found, type) else f"of type {type(found).__name__}"
        raise TypeError(
            f"{cls.__qualname__}.{name} is {'an instance ' if is_instance else ''}{what}: it must be "
            + (
                f"the class: {name} = {type(found).__qualname__}"
                if is_instance
                else f"a subclass of {base.__name__}"
            )
        )


class SinkConnector(Connector):
    """A named, configured job that writes topics to a destination."""

    config_class: ClassVar[type[ConnectorConfig]] = ConnectorConfig
    """Model of the configuration; dotted names are aliases of its fields."""

    task_class: ClassVar[type[SinkTask]]
    """The class whose instances do the work, one per task, on the executors."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Refuse hooks that could never take effect: coroutines, generators, misspelt names (TypeError)."""
        super().__init_subclass__(**options)
        check_hooks(cls, SinkConnector)
        check_classes(cls, ConnectorConfig, SinkTask)

    def unmet(self, config: Any) -> Sequence[str]:  # noqa: ARG002 - for overriding
        """Reasons why no record of Kafka or of a topic directory, which are bytes, can be delivered. No I/O.

        ``sinksdk run`` and the server refuse to start a connector that has some; ``sinksdk validate`` shows
        them. A DataFrame's records, whose values are typed, may be delivered all the same.
        """
        return ()

    def batch_policy(self, config: Any) -> BatchPolicy:  # noqa: ARG002 - for overriding
        """Conditions for reading. Default: all available records, at once."""
        return BatchPolicy()

    def subscribed(self, topics: Collection[str]) -> None:
        """Announces the subscribed topics; called in the driver before any task opens one of them.

        Called again whenever ``topics.regex`` matches a new one. Claim here what a topic needs outside.

        Raises:
            ConfigException: a topic must not be read (its destination has another owner).
        """

    def columns(self, config: Any) -> Collection[str]:  # noqa: ARG002 - for overriding
        """Columns of :data:`~sinksdk.records.RECORD_COLUMNS` the task uses; the others are not read.

        Each column costs time and memory. ``offset`` always comes.
        """
        return tuple(RECORD_COLUMNS)

    def alter_offsets(
        self,
        config: Any,  # noqa: ARG002 - for overriding
        offsets: Mapping[TopicPartition, int | None],  # noqa: ARG002 - the same
    ) -> bool:
        """An operator alters offsets (None: resets them) (KIP-875).

        Move offsets here that the sink keeps itself, at its destination: otherwise it would skip records that
        are read again. Called while no task runs, before the offsets are written, without ``start``. It may
        be called again with the same offsets, or with none: it must be idempotent. It has
        ``connector.start.timeout.ms``. If it raises, nothing changes.

        Args:
            config: as ``start`` gets it.
            offsets: next offset to read of each partition; for a reset, all partitions with a commit.

        Returns:
            True when the connector moved its own outside offsets accordingly, False when it keeps none.

        Raises:
            ConnectException: the offsets cannot be altered to these.
        """
        return False

    def recover_offsets(
        self,
        config: Any,  # noqa: ARG002 - for overriding
        given: Mapping[TopicPartition, int],  # noqa: ARG002 - the same
    ) -> Mapping[TopicPartition, int]:
        """Return up to which offset the destination holds the records of each partition.

        Commits of partitions that it does not return stay; ``context.committed()`` says what they are. One
        that could not be published still has its tokens there. An offset returned for its partition gives
        it up, and its tokens are discarded: return one only if none of them can become visible any more.

        An operator has lost commits (the store is new, or restored from an older copy), or records at the
        destination, and says that nobody else writes there: ``sinksdk offsets recover``. Called as
        ``alter_offsets``, which is called next, with what this returns.

        Args:
            config: as ``start`` gets it.
            given: offsets that the operator gives; they take precedence.

        Raises:
            ConnectException: the destination does not say so; the message names partitions and what to do.
        """
        message = "this connector cannot read its offsets back from where it writes: alter them by hand"
        raise ConnectException(message)
