"""The task: archives the records of its topic partitions as files on S3, in two phases."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar, Final

from sinksdk import (
    ClosingReason,
    FencedException,
    OffsetAndMetadata,
    RetriableException,
    SinkRecords,
    SinkTask,
    Token,
    TopicPartition,
    UnpublishableException,
)
from sinksdk.connectors.s3_archiver.archive.header import Archived
from sinksdk.connectors.s3_archiver.archive.ranges import RowRanges, Skip
from sinksdk.connectors.s3_archiver.config import S3ArchiverConfig
from sinksdk.connectors.s3_archiver.files.file import FileFactory
from sinksdk.connectors.s3_archiver.files.writer import PartitionWriter
from sinksdk.connectors.s3_archiver.s3.publisher import Publisher, UploadExpired, groups_of, view_of
from sinksdk.connectors.s3_archiver.s3.requests import (
    Connect,
    Rounds,
    Together,
    connect,
    together,
)
from sinksdk.connectors.s3_archiver.s3.upload import Upload
from sinksdk.support.delays import S3_COMMIT, S3_GROUP

log = logging.getLogger(__name__)

_CHECKS: Final = 64  # how often memory is checked while ``partitioner.buffer.bytes`` are put


class S3ArchiverTask(SinkTask):
    """Writes the records of each topic partition into a chain of files.

    A file is a multipart upload whose token is stored before its data, and which is completed after its
    commit.
    """

    # None: the task takes whole batches, because it cuts files without an object per record.
    max_poll_records: ClassVar[int | None] = None

    # start() sets this attribute: typed formats need values that a converter has typed.
    takes_bytes: bool = True

    takes_json: bool = True

    def __init__(
        self,
        *,
        connect: Connect = connect,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
        together: Together = together,
        **files: Any,
    ) -> None:
        """Create a task; ``files`` are arguments of the factory of files."""
        self._connect = connect
        self._clock = clock
        self._sleep = sleep
        self._together = together
        self._files = files
        self._writers: dict[TopicPartition, PartitionWriter] = {}
        self._put_since = 0  # bytes put since memory was last checked

    def start(self, config: S3ArchiverConfig) -> None:
        self._config = config
        self.takes_bytes = config.takes_bytes
        self.json_of = config.json_of
        first = config.s3_retry_backoff_ms / 1000
        self._delays = replace(S3_COMMIT, first=first, cap=max(first, S3_COMMIT.cap))
        of_groups = replace(S3_GROUP, first=first)
        self._rounds = Rounds(self._together, self._step_seconds, of_groups, self._clock, self._sleep)
        self._publisher = Publisher(config, self._connect, self._rounds)
        s3, generation = self._connect(config), self.context.generation()
        self._factory = FileFactory(config, s3, generation, together=self._rounds, **self._files)

    def open(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            self._writers[partition] = PartitionWriter(
                partition,
                self._factory,
                self._begin,
                self.context.committed(partition),
                self._clock,
                report=lambda record, error: self.context.errant_record_reporter().report(record, error),
                reports_nulls=self._config.reports_nulls,
            )

    def put(self, records: SinkRecords) -> None:
        self._writers[records.partition].put(records)
        self._put_since += records.arrow.nbytes
        if self._put_since >= self._factory.limits.buffered // _CHECKS:
            self._put_since = 0
            self._free_memory()

    def pre_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        writers = {partition: self._writers[partition] for partition in offsets}
        is_closing = self.context.is_closing()
        # A partition that has just refused a batch is left out: the next put repeats its request.
        due = {p: writer for p, writer in writers.items() if is_closing or not writer.has_refused_batch}
        # Files of a failed partition that S3 already holds are still returned.
        for partition, error in self._send(due, self._budget(writers.values())).items():
            self.context.fail(partition, error)
        ready = {
            partition: writers[partition].committable(accepted) for partition, accepted in offsets.items()
        }
        return {partition: offset for partition, offset in ready.items() if offset is not None}

    def publish(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        try:
            self._publisher.publish(tokens)
        except UploadExpired as error:
            self.context.count(partition, withdrawn=1)
            raise _withdrawal(error, tokens, self.context.committed(partition)) from error
        self.context.count(partition, files=len(tokens), bytes=sum(token.data["size"] for token in tokens))
        writer = self._writers.get(partition)
        if writer is not None:
            writer.published(tokens)

    def discard(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        writer = self._writers.get(partition)
        if writer is not None:
            # Wait for parts in flight, because a part that arrives after the abort would stay at S3.
            writer.wait()
        self._publisher.discard(tokens)

    def close(self, partitions: Collection[TopicPartition]) -> None:
        # Uploads are not aborted: a prepared one may have been committed.
        for partition in partitions:
            writer = self._writers.pop(partition, None)
            if writer is not None:
                writer.abandon()  # do not wait for parts in flight, because no commit covers them

    def stop(self) -> None:
        # The process keeps the S3 client for the next task.
        self._writers.clear()

    def _free_memory(self) -> None:
        writers = dict(self._writers)
        while writers and sum(writer.held for writer in writers.values()) > self._factory.limits.buffered:
            partition, writer = max(writers.items(), key=lambda item: (item[1].sendable, item[1].held))
            problems: dict[TopicPartition, Exception] = {}
            with _collected(partition, problems):
                if writer.sendable:
                    writer.send_largest()
                else:
                    writer.release()
                    del writers[partition]
            for error in problems.values():
                self.context.fail(partition, error)
            if problems or writer.has_failed_request:
                return

    def _begin(self, partition: TopicPartition, uploads: Sequence[Upload]) -> None:
        self._rounds([upload.create for upload in uploads])
        self._prepare({partition: uploads})

    def _prepare(self, created: Mapping[TopicPartition, Sequence[Upload]]) -> None:
        self.context.prepared(
            {partition: [upload.token for upload in uploads] for partition, uploads in created.items()}
        )
        for uploads in created.values():
            for upload in uploads:
                upload.is_prepared = True

    def _budget(self, writers: Collection[PartitionWriter]) -> float:
        if self.context.closing_reason() is ClosingReason.FAILURE and any(
            w.has_failed_request for w in writers
        ):
            return 0  # put has just retried for as long as it may
        config = self._config
        limits = [self._step_seconds(), *([S3_COMMIT.total] if self.context.deadline() is None else [])]
        if config.errors_retry_timeout >= 0:
            limits.append(config.errors_retry_timeout / 1000)
        return min(limits)

    def _step_seconds(self) -> float:
        # Only half of the time may be used: the commit in the store follows, and a step that runs does not
        # notice a close request.
        half, left = self._config.graceful_timeout_ms / 2000, self.context.deadline()
        return half if left is None else min(half, left / 2)

    def _send(
        self, writers: Mapping[TopicPartition, PartitionWriter], budget: float
    ) -> dict[TopicPartition, Exception]:
        """Send sealed files, repeat transient failures for ``budget`` seconds, and return the failures."""
        failures: dict[TopicPartition, Exception] = {}
        waiting = writers
        deadline, attempts = self._clock() + budget, 0
        while True:
            problems, attempts = self._send_once(waiting), attempts + 1
            transient = {p: error for p, error in problems.items() if isinstance(error, RetriableException)}
            delay = self._delays.before(deadline, attempts, self._clock()) if transient else None
            if delay is None:
                return failures | problems
            failures.update((p, error) for p, error in problems.items() if p not in transient)
            for partition, error in transient.items():
                log.info("%s: %s; retrying in %.1f s", partition, error, delay)
            self._sleep(delay)
            waiting = {partition: writers[partition] for partition in transient}

    def _send_once(
        self, writers: Mapping[TopicPartition, PartitionWriter]
    ) -> dict[TopicPartition, Exception]:
        problems: dict[TopicPartition, Exception] = {}
        created: dict[TopicPartition, Sequence[Upload]] = {}
        is_closing = self.context.is_closing()
        for partition, writer in writers.items():
            with _collected(partition, problems):
                created[partition] = writer.prepare(is_closing=is_closing)
        new = {partition: uploads for partition, uploads in created.items() if uploads}
        if new:
            # One write to the store holds the tokens of all partitions.
            self._prepare(new)
        for partition in created:
            with _collected(partition, problems):
                writers[partition].send()
        return problems


@contextmanager
def _collected(partition: TopicPartition, problems: dict[TopicPartition, Exception]) -> Iterator[None]:
    try:
        yield
    except FencedException:
        raise
    except Exception as error:  # noqa: BLE001 - reported for the one partition it concerns
        problems[partition] = error


def _withdrawal(
    error: UploadExpired, tokens: Sequence[Token], committed: OffsetAndMetadata | None
) -> UnpublishableException:
    lost, visible = error.token, error.visible
    groups = groups_of(tokens)
    place = next(i for i, group in enumerate(groups) if any(token.id == lost.id for token in group))
    start = lost.data.get("group", [lost.data["start"]])[0]
    files, records, end = lost.data["before"]
    # All files before the group are visible, and none after it ever will be. The group's own visible files
    # stay, and the next owner skips their records when it reads the group again.
    kept = {token.id for token in visible}
    skip = [
        Skip.of_text(groups[place][0].data.get("skip", "")),
        *(Skip({view_of(token): RowRanges.of_text(token.data["ranges"])}) for token in visible),
    ]
    note = (
        f". {len(visible)} other files of that commit are visible: their records are skipped when they are "
        f"read again"
    )
    ahead = Skip.union(skip).beyond(start)
    before = groups[place][0].data.get("withdrawn_to")
    return UnpublishableException(
        f"{error}{note if visible else ''}",
        offset=start,
        metadata=replace(
            Archived.of(committed),
            files=files + len(visible),
            records=records + sum(token.data["records"] for token in visible if not view_of(token)),
            end=end,
            withdrawn_to=start if before is None else min(start, before),
        )
        .with_skip(ahead.to_text())
        .to_text(),
        discard=[token for group in groups[place:] for token in group if token.id not in kept],
        partly_visible_to=ahead.end,
    )
