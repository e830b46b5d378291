"""The class a connector author writes: one task of a sink connector."""

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
    """Delivers records of the topic partitions assigned to it.

    Only :meth:`put` must be written. The runtime calls, always from one thread::

        initialize → start → open → { put … pre_commit … publish } … → close → stop

    Kafka Connect's ``SinkTask`` with two differences: while closing, the commit comes before
    ``close``, so a failing ``close`` costs no progress; and data *prepared* outside can be published after
    the commit, which makes any sink that can prepare, publish and discard exactly-once.
    """

    context: SinkTaskContext

    max_poll_records: ClassVar[int | None] = 500
    """Default of ``max.poll.records``: maximum number of records of one :meth:`put`.

    None: batches as they are read, of up to 10,000 records or more, for a task that works on Arrow columns
    and never on one record.
    """

    takes_bytes: bool = False
    """Whether the task knows only the bytes in :attr:`SinkRecords.arrow`; ``start`` may set it.

    Then it is given bytes also where Connect's ``transforms`` are configured: those that were read where
    nothing has changed, else text as UTF-8, and JSON. A task whose configuration decides sets it in
    ``start``; the columns of a DataFrame are checked by the class's own value, before there is a task.
    """

    takes_json: bool = False
    """Whether the task takes JSON texts: values of JSON without a schema are a column of Arrow's JSON type
    then (``pa.json_()``), which was checked and not parsed, and else objects in :attr:`SinkRecords.values`.

    What a transform has made objects of becomes such a column again. It means nothing with
    :attr:`takes_bytes`.
    """

    json_of: Callable[[pa.Array], pa.Array] | None = None
    """How a task that :attr:`takes_json` writes a column of any type as JSON texts; ``start`` may set it.

    Then values of several types in one batch are one column of JSON texts, which this makes of each type.
    Otherwise each run of records of one type is a batch of its own: costly where the type changes with
    each record.
    """

    def initialize(self, context: SinkTaskContext) -> None:
        """Take the context; called once, first of all. The default keeps it as ``self.context``."""
        self.context = context

    def start(self, config: Any) -> None:  # noqa: B027 - a hook: doing nothing is a right answer
        """Set up clients. ``config`` is the connector's ``config_class``, validated and resolved."""

    def open(self, partitions: Collection[TopicPartition]) -> None:  # noqa: B027 - a hook
        """Prepare for records of newly assigned partitions; if it raises, they are not closed."""

    @abstractmethod
    def put(self, records: SinkRecords) -> None:
        """Process a batch of one topic partition, offsets ascending, of at most ``max.poll.records``.

        Returning accepts the batch: its offsets may be committed from now on, as soon as
        :meth:`pre_commit` returns them.

        Raises:
            RetriableException: the same batch is put again, after a growing delay or after
                ``context.timeout``, until ``errors.retry.timeout`` is used up. With ``accepted=n`` its first
                n records are accepted, and only the others are put again.
            Exception: anything else ends the partition for this generation.
        """

    def flush(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:  # noqa: B027 - a hook
        """Make everything put so far durable. Called by the default :meth:`pre_commit`."""

    def pre_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Return the offsets that are safe to commit.

        Called periodically (``offset.flush.interval.ms``) and once when partitions are revoked, then with
        ``context.is_closing()`` true: flush partial batches and return what they cover.

        Args:
            offsets: per partition the offset after the last accepted record. While closing, exactly
                the partitions being closed.

        Returns:
            Offsets that are durable, at most those given; a partition left out keeps its last
            commit, so an empty mapping means "nothing to commit now". The default calls
            :meth:`flush` and returns ``offsets``.

        Raises:
            Exception: nothing is committed, and the partitions of this call are closed. The next generation
                starts them from their commits; after a RetriableException when its ``retry_after`` or the
                engine's growing delay is over, without counting a failure.
        """
        # A flush that is set on the instance, or decorated, may return a coroutine; nothing is durable then.
        finished("flush", self.flush(offsets))  # type: ignore[func-returns-value]
        return offsets

    def publish(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        """Make prepared data visible, after the commit with its tokens is durable.

        Must be idempotent: after a crash the partition's next owner calls it again, before it opens
        the partition.

        Raises:
            RetriableException: tried again until ``errors.retry.timeout`` is used up.
            Exception: the partition ends for this generation and is opened again at once by the next.
        """
        if tokens:
            raise NotImplementedError(_hint(self, "publish", partition, tokens))

    def discard(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        """Undo prepared data that no commit covered: a predecessor's, or this task's own at the end.

        Must be idempotent. If it raises, the tokens stay in the store, so that a later generation tries
        again.
        """
        if tokens:
            raise NotImplementedError(_hint(self, "discard", partition, tokens))

    def close(self, partitions: Collection[TopicPartition]) -> None:  # noqa: B027 - a hook
        """Release what belongs to these partitions, and only to these.

        After their closing commit; or without one when the partitions were lost, failed, or had
        nothing to commit. Data written here cannot be committed any more.
        """

    def stop(self) -> None:  # noqa: B027 - a hook
        """Release everything; once, last of all, also after a failed ``initialize`` or ``start``."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Refuse hooks that could never take effect: coroutines, generators, misspelt names (TypeError)."""
        super().__init_subclass__(**options)
        check_hooks(cls, SinkTask)


def _hint(task: SinkTask, method: str, partition: TopicPartition, tokens: Sequence[Token]) -> str:
    return (
        f"{type(task).__name__} noted tokens with context.prepared but has no {method}(): "
        f"{partition} has {', '.join(map(str, tokens))} to {method}"
    )
