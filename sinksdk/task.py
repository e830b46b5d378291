"""The class that a connector author writes: one task of a sink connector."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from sinksdk.support.hooks import check_hooks, finished

if TYPE_CHECKING:
    import pyarrow as pa

    from sinksdk.context import SinkTaskContext
    from sinksdk.offsets import OffsetAndMetadata, Token, TopicPartition
    from sinksdk.records import SinkRecords


class SinkTask(ABC):
    """Delivers the records of the topic partitions assigned to it.

    Only :meth:`put` must be implemented. The runtime calls, always from one thread::

        initialize → start → open → { put … pre_commit … publish } … → close → stop

    This is Kafka Connect's ``SinkTask`` with two differences. While closing, the commit comes before
    ``close``, so that a failing ``close`` costs no progress. And data that was *prepared* outside can be
    published after the commit, which makes every sink that can prepare, publish and discard exactly-once.
    """

    context: SinkTaskContext

    max_poll_records: ClassVar[int | None] = 500
    """Default of ``max.poll.records``: maximum number of records of one :meth:`put`.

    None: batches of the size in which they are read, up to 10,000 records or more; for a task that works on
    Arrow columns and not on single records.
    """

    takes_bytes: bool = False
    """Whether the task understands only bytes in :attr:`SinkRecords.arrow`; ``start`` may set it.

    The task then receives bytes also if Connect's ``transforms`` are configured: the bytes that were read if
    nothing changed them, else text in UTF-8, or JSON. A task that decides by its configuration sets it in
    ``start``; the columns of a DataFrame are checked against the class attribute, before a task exists.
    """

    takes_json: bool = False
    """Whether the task accepts JSON texts: then JSON values without a schema are a column of Arrow's JSON
    type (``pa.json_()``), which is checked and not parsed; otherwise they are objects in
    :attr:`SinkRecords.value_objects`.

    Objects that a transform produced become such a column again. Has no effect together with
    :attr:`takes_bytes`.
    """

    json_of: Callable[[pa.Array], pa.Array] | None = None
    """Function by which a task that :attr:`takes_json` writes a column of any type as JSON texts; ``start``
    may set it.

    Then values of several types in one batch become one column of JSON texts, for which this function
    converts each type. Otherwise each run of records of one type is a batch of its own, which is expensive
    if the type changes with every record.
    """

    def initialize(self, context: SinkTaskContext) -> None:
        """Receive the context; called once, before all other methods.

        The default keeps it as ``self.context``.
        """
        self.context = context

    def start(self, config: Any) -> None:  # noqa: B027 - a hook: doing nothing is a right answer
        """Set up clients.

        Args:
            config: an instance of the connector's ``config_class``, validated, references resolved.
        """

    def open(self, partitions: Collection[TopicPartition]) -> None:  # noqa: B027 - a hook
        """Prepare for records of newly assigned partitions. If it raises, they are not closed."""

    @abstractmethod
    def put(self, records: SinkRecords) -> None:
        """Process a batch of one topic partition, offsets ascending, of at most ``max.poll.records``.

        Returning accepts the batch: its offsets may be committed as soon as :meth:`pre_commit` returns them.

        Raises:
            RetriableException: the same batch is put again, after a growing delay or after
                ``context.timeout``, until ``errors.retry.timeout`` is used up. With ``accepted=n`` its first
                n records are accepted, and only the others are put again.
            Exception: any other exception ends the partition for this generation.
        """

    def flush(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:  # noqa: B027 - a hook
        """Make all accepted records durable. Called by the default :meth:`pre_commit`."""

    def pre_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Return the offsets that are safe to commit.

        Called periodically (``offset.flush.interval.ms``) and once when partitions are revoked, then with
        ``context.is_closing()`` true: flush partial batches and return the offsets that they cover.

        Args:
            offsets: for each partition the offset after the last accepted record. While closing, exactly the
                partitions being closed.

        Returns:
            Offsets that are durable, at most those given. A partition that is left out keeps its last
            commit, so an empty mapping commits nothing. The default calls :meth:`flush` and returns
            ``offsets``.

        Raises:
            Exception: nothing is committed, and the partitions of this call are closed. The next generation
                starts them from their commits. After a RetriableException it does so after ``retry_after``
                or the engine's growing delay, and no failure is counted.
        """
        # A flush set on the instance, or decorated, passes check_hooks and may return an unawaited coroutine.
        finished("flush", self.flush(offsets))  # type: ignore[func-returns-value]
        return offsets

    def publish(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        """Make prepared data visible, after the commit that contains its tokens is durable.

        Must be idempotent: after a crash the partition's next owner calls it again, before it opens the
        partition.

        Raises:
            RetriableException: the call is repeated until ``errors.retry.timeout`` is used up.
            Exception: the partition ends for this generation, and the next one opens it again at once.
        """
        if tokens:
            raise NotImplementedError(_hint(self, "publish", partition, tokens))

    def discard(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        """Undo prepared data that no commit covers: a predecessor's, or this task's own when it stops.

        Must be idempotent. If it raises, the tokens stay in the store, and a later generation calls it again.
        """
        if tokens:
            raise NotImplementedError(_hint(self, "discard", partition, tokens))

    def close(self, partitions: Collection[TopicPartition]) -> None:  # noqa: B027 - a hook
        """Release the resources of these partitions, and only of these.

        Called after their closing commit, or without one if the partitions were lost, failed, or had nothing
        to commit. Data written here can no longer be committed.
        """

    def stop(self) -> None:  # noqa: B027 - a hook
        """Release all resources. Called once, last, also after a failed ``initialize`` or ``start``."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Raise TypeError for hooks that cannot take effect: coroutines, generators, misspelt names."""
        super().__init_subclass__(**options)
        check_hooks(cls, SinkTask)


def _hint(task: SinkTask, method: str, partition: TopicPartition, tokens: Sequence[Token]) -> str:
    return (
        f"{type(task).__name__} passed tokens to context.prepared but does not implement {method}(): "
        f"{partition} has {', '.join(map(str, tokens))} to {method}"
    )
