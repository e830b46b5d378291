"""Remove one piece of the sink protocol each; schedules of the simulation must fail with every mutation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from property_tests.simulation import seeds, sink_cluster
from property_tests.simulation.archive import Archive, SimulatedGroup, SimulatedS3, SimulatedTask
from property_tests.simulation.changing_log import ChangingLog
from property_tests.simulation.planted import (
    ANY,
    COMMITS,
    CONFIG,
    COUNT,
    PLANS,
    SEGMENTS,
    TASKS,
    Patch,
    Plant,
    TakingOver,
    Value,
    commits_as,
    driver,
    drops,
    fields,
    ignores_compare,
    no_tokens,
    of_commits,
    on_get,
    others_read_as,
    plants,
    publishes_in_pre_commit,
    reads_as,
    task,
    tokens_as,
    writes_as,
)
from property_tests.simulation.sink_cluster import DeadLetters
from property_tests.simulation.store import SimulatedStore
from property_tests.simulation.world import Process
from sinksdk import (
    ConnectException,
    OffsetAndMetadata,
    SinkRecord,
    Token,
    TopicPartition,
    UnpublishableException,
)
from sinksdk.connectors.s3_archiver import connector
from sinksdk.connectors.s3_archiver.archive.header import Archived
from sinksdk.connectors.s3_archiver.archive.ranges import Skip
from sinksdk.connectors.s3_archiver.config import S3ArchiverConfig
from sinksdk.connectors.s3_archiver.files import writer
from sinksdk.connectors.s3_archiver.s3 import publisher
from sinksdk.connectors.s3_archiver.s3.client import Location
from sinksdk.connectors.s3_archiver.s3.publisher import Publisher, UploadExpired, groups_of
from sinksdk.connectors.s3_archiver.task import S3ArchiverTask
from sinksdk.engine import hooks
from sinksdk.engine.commits import always_valid
from sinksdk.engine.context import TaskScope, WorkerSinkTaskContext
from sinksdk.engine.partition import PartitionState
from sinksdk.engine.worker_sink_task import WorkerSinkTask
from sinksdk.records import SinkRecords
from sinksdk.runtime.handover import Handover
from sinksdk.spark.transform_task import arranged
from sinksdk.store.base import Versioned
from sinksdk.store.generations import Claim, Generations

# -- the store forgets, or returns wrong values ----------------------------------------------------


def task_records_not_fenced(patch: Patch) -> None:
    drops(patch, TASKS, lambda _, value: not value["attempt"])


def plan_ignores_task_commits(patch: Patch) -> None:
    reads_as(patch, TASKS, fields(entries=[], segments=[]), driver)


def plan_ignores_segments(patch: Patch) -> None:
    reads_as(patch, TASKS, fields(segments=[]), driver)


def segments_without_tokens(patch: Patch) -> None:
    reads_as(patch, SEGMENTS, no_tokens, task)


def second_attempt_does_not_fence(patch: Patch) -> None:
    taking = TakingOver()
    drops(patch, TASKS, lambda store, value: taking.is_on(store) and value["attempt"] > 1)
    taking.watch(patch)


def generation_checked_only_before_take_over(patch: Patch) -> None:
    seen = WeakKeyDictionary[SimulatedStore, Versioned | None]()

    def old(store: SimulatedStore, key: str, read: Callable[[], Versioned | None]) -> Versioned | None:
        if not COUNT.search(key) or not task(store):
            return read()
        if store not in seen:
            seen[store] = read()
        return seen[store]

    on_get(patch, old)


def attempt_reads_past_withdrawn_commit(patch: Patch) -> None:
    reads_as(patch, COMMITS, of_commits(withdrawn_from=None), task)


def stale_tokens_not_in_plan(patch: Patch) -> None:
    writes_as(patch, PLANS, fields(stale=[]))


def tokens_not_prepared(patch: Patch) -> None:
    writes_as(patch, TASKS, fields(prepared=[]))


def tokens_published_only_by_their_task(patch: Patch) -> None:
    others_read_as(patch, COMMITS, no_tokens)


def store_without_compare_and_set(patch: Patch) -> None:
    ignores_compare(patch, ANY)


def driver_overwrites_newer_claim(patch: Patch) -> None:
    ignores_compare(patch, COUNT)


def older_driver_overwrites_config(patch: Patch) -> None:
    reads_as(patch, CONFIG, fields(claimed=0), driver)


def deletion_ignores_unpublished_tokens(patch: Patch) -> None:
    def nothing_waits(value: Value) -> Value:
        return {**no_tokens(value), **{name: [] for name in ("prepared", "stale") if name in value}}

    reads_as(
        patch, COMMITS, nothing_waits, lambda store: driver(store) and Archive.current.cluster.is_deleting
    )


# -- the sink's task and its input ---------------------------------------------------------------


def publish_before_commit(patch: Patch) -> None:
    publishes_in_pre_commit(patch, SimulatedTask, S3ArchiverTask.publish)


def fenced_task_discards(patch: Patch) -> None:
    # The last commit of the fenced task may have taken effect.
    create, close = SimulatedS3.create_upload, SimulatedTask.close
    begun: dict[Process, dict[str, Location]] = defaultdict(dict)

    def noted(self: SimulatedS3, location: Location, *arguments: Any) -> str:
        upload_id = create(self, location, *arguments)
        begun[Archive.current.world.current][upload_id] = location
        return upload_id

    def tidy(self: SimulatedTask, partitions: Collection[TopicPartition]) -> None:
        process = self.archive.world.current
        for upload_id, location in begun.pop(process, {}).items() if process.is_fenced else ():
            with suppress(ConnectException):
                self.archive.s3.abort_upload(location, upload_id)
        close(self, partitions)

    patch.setattr(SimulatedS3, "create_upload", noted)
    patch.setattr(SimulatedTask, "close", tidy)


def unpublished_tokens_overwritten(patch: Patch) -> None:
    publish = SimulatedTask.publish

    def careless(self: SimulatedTask, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        with suppress(ConnectException):
            publish(self, partition, tokens)

    patch.setattr(SimulatedTask, "publish", careless)


def uploads_aborted_by_listing(patch: Patch) -> None:
    # An upload that the listing shows and the task does not know may be committed by now.
    def tidy(task: SimulatedTask, partitions: Collection[TopicPartition]) -> None:
        s3 = task.archive.s3
        for partition in partitions:
            committed = task.context.committed(partition)
            known = {token.id for token in committed.tokens} if committed else set()
            prefix = f"topics/orders/partition={partition.partition}/"
            for found in list(s3.list_uploads("bucket", prefix)):
                if found.upload_id not in known:
                    with suppress(ConnectException):
                        s3.abort_upload(Location("bucket", found.key), found.upload_id)

    begin, end = SimulatedTask.open, SimulatedTask.close

    def tidy_open(self: SimulatedTask, partitions: Collection[TopicPartition]) -> None:
        tidy(self, partitions)
        begin(self, partitions)

    def tidy_close(self: SimulatedTask, partitions: Collection[TopicPartition]) -> None:
        tidy(self, partitions)
        end(self, partitions)

    patch.setattr(SimulatedTask, "open", tidy_open)
    patch.setattr(SimulatedTask, "close", tidy_close)


def is_closing_always_false(patch: Patch) -> None:
    patch.setattr(WorkerSinkTaskContext, "is_closing", lambda self: False)


def consumer_group_ahead_of_visible_records(patch: Patch) -> None:
    write = SimulatedGroup.write

    def ahead(self: SimulatedGroup, offsets: Mapping[TopicPartition, int]) -> None:
        commits = Archive.current.commits()
        write(self, {p: commits[p].offset if p in commits else offset for p, offset in offsets.items()})

    patch.setattr(SimulatedGroup, "write", ahead)


def failed_transform_ends_range(patch: Patch) -> None:
    def anyhow(rows: Any, said: Any, has_ended: object) -> Any:
        return arranged(rows, said, lambda: True)

    patch.setattr(sink_cluster, "arranged", anyhow)


# -- groups of files -------------------------------------------------------------------------------------


def group_published_without_checking_uploads(patch: Patch) -> None:
    patch.setattr(SimulatedS3, "part_sizes", lambda self, location, upload_id: [1])


def later_group_published_first(patch: Patch) -> None:
    publish = Publisher.publish

    def backwards(self: Publisher, tokens: Sequence[Token]) -> None:
        publish(self, [token for group in reversed(groups_of(tokens)) for token in group])

    patch.setattr(Publisher, "publish", backwards)


def withdrawn_group_not_aborted(patch: Patch) -> None:
    # Uploads that are not aborted can still be completed by another process.
    publish, abort, publishing = SimulatedTask.publish, SimulatedS3.abort_upload, set[Process]()

    def noted(self: SimulatedTask, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        with _among(publishing):
            publish(self, partition, tokens)

    def only_looks(self: SimulatedS3, location: Location, upload_id: str) -> None:
        if Archive.current.world.current not in publishing:
            abort(self, location, upload_id)

    patch.setattr(SimulatedTask, "publish", noted)
    patch.setattr(SimulatedS3, "abort_upload", only_looks)


@contextmanager
def _among(processes: set[Process]) -> Iterator[None]:
    process = Archive.current.world.current
    processes.add(process)
    try:
        yield
    finally:
        processes.discard(process)


def visible_files_of_withdrawn_group_ignored(patch: Patch) -> None:
    publish = Publisher.publish

    def forgetful(self: Publisher, tokens: Sequence[Token]) -> None:
        try:
            publish(self, tokens)
        except UploadExpired as error:
            raise UploadExpired(str(error), error.token) from error

    patch.setattr(Publisher, "publish", forgetful)


def withdrawal_without_skipped_rows(patch: Patch) -> None:
    _withdraws_as(patch, lambda _: Skip())


def withdrawal_without_skipped_keys_and_headers(patch: Patch) -> None:
    _withdraws_as(patch, lambda skip: Skip({view: rows for view, rows in skip.of.items() if not view}))


def _withdraws_as(patch: Patch, change: Callable[[Skip], Skip]) -> None:
    publish = SimulatedTask.publish

    def changed(self: SimulatedTask, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        try:
            publish(self, partition, tokens)
        except UnpublishableException as error:
            skip = change(Skip.of_text(Archived.of(_commit(error)).skip))
            raise UnpublishableException(
                str(error),
                offset=error.offset,
                metadata=_with_skip(_commit(error), skip).metadata,
                discard=error.discard,
                partly_visible_to=skip.end,
            ) from error

    patch.setattr(SimulatedTask, "publish", changed)


def _commit(withdrawal: UnpublishableException) -> OffsetAndMetadata:
    return OffsetAndMetadata(withdrawal.offset, withdrawal.metadata)


def _with_skip(commit: OffsetAndMetadata, skip: Skip = Skip()) -> OffsetAndMetadata:  # noqa: B008 - immutable
    return replace(commit, metadata=replace(Archived.of(commit), skip=skip.to_text()).to_text())


def skip_lost_at_next_commit(patch: Patch) -> None:
    commits_as(patch, SimulatedTask, _with_skip)


def skip_lost_at_next_generation(patch: Patch) -> None:
    committed = WorkerSinkTaskContext.committed

    def forgetful(self: WorkerSinkTaskContext, partition: TopicPartition) -> OffsetAndMetadata | None:
        found = committed(self, partition)
        return found and _with_skip(found)

    patch.setattr(WorkerSinkTaskContext, "committed", forgetful)


def skip_lost_at_second_withdrawal(patch: Patch) -> None:
    commits_as(patch, SimulatedTask, tokens_as(lambda data: {k: v for k, v in data.items() if k != "skip"}))


def skip_ignores_rows_of_one_offset(patch: Patch) -> None:
    patch.setattr(writer, "numbers_of", lambda offsets: np.zeros(len(offsets), np.int64))


# -- topics and bad records ------------------------------------------------------------


def topic_ids_not_checked_before_commit(patch: Patch) -> None:
    patch.setattr(ChangingLog, "topic_id_check", lambda self, config, source, ids: always_valid)


def topic_ids_read_after_offsets(patch: Patch) -> None:
    def as_after(self: ChangingLog, topics: Collection[str]) -> Mapping[str, str]:
        return dict.fromkeys(topics, self.id) if self.id is not None else {}

    patch.setattr(ChangingLog, "topic_ids", as_after)


def truncation_not_detected(patch: Patch) -> None:
    patch.setattr(ChangingLog, "truncated", lambda self, positions: {})


def dead_letters_not_awaited(patch: Patch) -> None:
    send = DeadLetters.send

    def at_once(self: DeadLetters, record: SinkRecord) -> Future[None]:
        send(self, record)
        done = Future[None]()
        done.set_result(None)
        return done

    patch.setattr(DeadLetters, "send", at_once)


def tombstones_not_reported(patch: Patch) -> None:
    patch.setattr(S3ArchiverConfig, "reports_nulls", False)


def generator_put_counts_as_done(patch: Patch) -> None:
    def lazy(self: SimulatedTask, records: SinkRecords) -> Iterator[SinkRecords]:
        yield records

    patch.setattr(hooks, "finished", lambda hook, result: result)
    patch.setattr(SimulatedTask, "put", lazy)


def unknown_upload_counts_as_expired(patch: Patch) -> None:
    patch.setattr(publisher, "is_visible", lambda s3, token: False)


# -- operators -----------------------------------------------------------------------------------


def altered_offsets_not_checked(patch: Patch) -> None:
    patch.setattr(connector, "problems_of", lambda s3, config, offsets: [])


def restored_store_not_detected(patch: Patch) -> None:
    patch.setattr(connector, "above", lambda s3, config, topics, committed: [])


# -- within the engine and the driver --------------------------------------------------------------------


def records_before_late_row_committed(patch: Patch) -> None:
    # The closing commit is right after a failing put, but not after a late row.
    patch.setattr(TaskScope, "casts_doubt", lambda self, error: False)


def deletion_ignores_partly_visible_commits(patch: Patch) -> None:
    patch.setattr(Claim, "partly_visible", lambda self: {})


def offsets_divided(patch: Patch) -> None:
    patch.setattr(SinkRecords, "whole_offsets", lambda self, rows: min(rows, len(self)))


def dropped_tail_not_committed(patch: Patch) -> None:
    patch.setattr(seeds, "ENOUGH", 5_000)  # the driver plans the dropped tail again and again
    patch.setattr(PartitionState, "range_end", lambda self, committed: None)


def new_driver_skips_handover(patch: Patch) -> None:
    patch.setattr(Handover, "await_turn", lambda self: True)


def old_driver_never_yields(patch: Patch) -> None:
    patch.setattr(Generations, "yield_to_successor", lambda self: None)


def close_without_commit(patch: Patch) -> None:
    def release(self: WorkerSinkTask, reason: object, partitions: object = None, **rest: object) -> None:
        self.lose()

    patch.setattr(WorkerSinkTask, "close", release)


# These mutations lose no record, but delay the connector: the check of a rolling deploy must fail.
ROLLING: Mapping[str, Plant] = plants(
    new_driver_skips_handover,
    old_driver_never_yields,
    close_without_commit,
    is_closing_always_false,
)

RACES: Mapping[str, Plant] = plants(
    segments_without_tokens,
    withdrawn_group_not_aborted,
    generation_checked_only_before_take_over,
    attempt_reads_past_withdrawn_commit,
)

TOPIC_CHANGES: Mapping[str, Plant] = plants(
    topic_ids_not_checked_before_commit, topic_ids_read_after_offsets, truncation_not_detected
)

MUTATIONS: Mapping[str, Plant] = plants(
    task_records_not_fenced,
    plan_ignores_task_commits,
    plan_ignores_segments,
    second_attempt_does_not_fence,
    stale_tokens_not_in_plan,
    publish_before_commit,
    fenced_task_discards,
    unpublished_tokens_overwritten,
    uploads_aborted_by_listing,
    store_without_compare_and_set,
    driver_overwrites_newer_claim,
    older_driver_overwrites_config,
    tokens_not_prepared,
    tokens_published_only_by_their_task,
    deletion_ignores_unpublished_tokens,
    deletion_ignores_partly_visible_commits,
    consumer_group_ahead_of_visible_records,
    dead_letters_not_awaited,
    tombstones_not_reported,
    generator_put_counts_as_done,
    unknown_upload_counts_as_expired,
    altered_offsets_not_checked,
    restored_store_not_detected,
    records_before_late_row_committed,
    offsets_divided,
    failed_transform_ends_range,
    dropped_tail_not_committed,
    group_published_without_checking_uploads,
    later_group_published_first,
    withdrawal_without_skipped_rows,
    withdrawal_without_skipped_keys_and_headers,
    visible_files_of_withdrawn_group_ignored,
    skip_lost_at_next_commit,
    skip_lost_at_next_generation,
    skip_lost_at_second_withdrawal,
    skip_ignores_rows_of_one_offset,
)
