"""The protocol with one piece left out, each in turn: what the simulation must notice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from property_tests.simulation import sink_cluster
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

# -- the store forgets, or answers what it should not ----------------------------------------------------


def no_fence(patch: Patch) -> None:
    """The records of the generation before are read, not moved."""
    drops(patch, TASKS, lambda _, value: not value["attempt"])


def no_merge(patch: Patch) -> None:
    """The next plan is made from the plan before, without what its tasks have committed."""
    reads_as(patch, TASKS, fields(entries=[], segments=[]), driver)


def segments_forgotten(patch: Patch) -> None:
    """The next plan is made without the commits that tasks have set apart."""
    reads_as(patch, TASKS, fields(segments=[]), driver)


def segments_forget_tokens(patch: Patch) -> None:
    """A second attempt finds the commits that the first one has set apart, and not what they publish."""
    reads_as(patch, SEGMENTS, no_tokens, task)


def no_attempt(patch: Patch) -> None:
    """A second attempt takes the record as it is, without moving it."""
    taking = TakingOver()
    drops(patch, TASKS, lambda store, value: taking.is_on(store) and value["attempt"] > 1)
    taking.watch(patch)


def take_over_looks_once(patch: Patch) -> None:
    """An attempt looks whether its generation is the newest before it takes its record over, and never again."""
    seen = WeakKeyDictionary[SimulatedStore, Versioned | None]()

    def old(store: SimulatedStore, key: str, read: Callable[[], Versioned | None]) -> Versioned | None:
        if not COUNT.search(key) or not task(store):
            return read()
        if store not in seen:
            seen[store] = read()
        return seen[store]

    on_get(patch, old)


def withdrawn_commit_is_read_past(patch: Patch) -> None:
    """Another attempt at the task reads on where its range begins, above a commit that was withdrawn."""
    reads_as(patch, COMMITS, of_commits(withdrawn_from=None), task)


def stale_tokens_not_carried(patch: Patch) -> None:
    """What no commit covers is known to the next generation only by luck."""
    writes_as(patch, PLANS, fields(stale=[]))


def tokens_not_noted(patch: Patch) -> None:
    """An upload is fed though no successor could know of it."""
    writes_as(patch, TASKS, fields(prepared=[]))


def crashed_and_unknown_commits_stay_unpublished(patch: Patch) -> None:
    """Tokens of a commit are published by the task that made it, by nobody else."""
    others_read_as(patch, COMMITS, no_tokens)


def writes_without_condition(patch: Patch) -> None:
    """The store takes every write."""
    ignores_compare(patch, ANY)


def driver_reads_its_claim_afresh(patch: Patch) -> None:
    """A driver claims over what stands in the store, not over what it wrote last."""
    ignores_compare(patch, COUNT)


def older_driver_configures(patch: Patch) -> None:
    """A driver's configuration becomes the connector's, though a newer one has brought its own."""
    reads_as(patch, CONFIG, fields(claimed=0), driver)


def deletion_without_publishing(patch: Patch) -> None:
    """A connector is deleted as soon as its tasks have ended, whatever waits to be published."""

    def nothing_waits(value: Value) -> Value:
        return {**no_tokens(value), **{name: [] for name in ("prepared", "stale") if name in value}}

    reads_as(
        patch, COMMITS, nothing_waits, lambda store: driver(store) and Archive.current.cluster.is_deleting
    )


# -- the sink's task, and what it is given ---------------------------------------------------------------


def publish_before_commit(patch: Patch) -> None:
    """What pre_commit returned is made visible, then committed."""
    publishes_in_pre_commit(patch, SimulatedTask, S3ArchiverTask.publish)


def discard_when_fenced(patch: Patch) -> None:
    """A task that lost its partitions cleans up what it had begun."""
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
    """A commit follows though the one before could not be published."""
    publish = SimulatedTask.publish

    def careless(self: SimulatedTask, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        with suppress(ConnectException):
            publish(self, partition, tokens)

    patch.setattr(SimulatedTask, "publish", careless)


def clean_up_by_listing(patch: Patch) -> None:
    """Whoever opens or closes a partition aborts the uploads it finds there and does not know."""

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


def closing_is_not_told(patch: Patch) -> None:
    """The last pre_commit of a partition looks like any other."""
    patch.setattr(WorkerSinkTaskContext, "is_closing", lambda self: False)


def group_ahead_of_what_is_visible(patch: Patch) -> None:
    """The group shows what is committed, published or not."""
    write = SimulatedGroup.write

    def ahead(self: SimulatedGroup, offsets: Mapping[TopicPartition, int]) -> None:
        commits = Archive.current.commits()
        write(self, {p: commits[p].offset if p in commits else offset for p, offset in offsets.items()})

    patch.setattr(SimulatedGroup, "write", ahead)


def cut_stream_is_taken_for_its_end(patch: Patch) -> None:
    """Ranges are finished when no more rows come, also where the transform has failed."""

    def anyhow(rows: Any, said: Any, has_ended: object) -> Any:
        return arranged(rows, said, lambda: True)

    patch.setattr(sink_cluster, "arranged", anyhow)


# -- groups of files -------------------------------------------------------------------------------------


def groups_are_published_without_looking(patch: Patch) -> None:
    """Files of a group are completed one by one, until one is met that has expired."""
    patch.setattr(SimulatedS3, "part_sizes", lambda self, location, upload_id: [1])


def later_group_is_published_first(patch: Patch) -> None:
    """A group is completed though one before it is not."""
    publish = Publisher.publish

    def backwards(self: Publisher, tokens: Sequence[Token]) -> None:
        publish(self, [token for group in reversed(groups_of(tokens)) for token in group])

    patch.setattr(Publisher, "publish", backwards)


def siblings_are_not_aborted_first(patch: Patch) -> None:
    """Whoever withdraws a group only looks which of its files are visible: others may be completing them."""
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
    """The process is one of these while the block runs."""
    process = Archive.current.world.current
    processes.add(process)
    try:
        yield
    finally:
        processes.discard(process)


def visible_siblings_are_not_counted(patch: Patch) -> None:
    """What is visible of a group that is withdrawn counts as gone: the chain goes on without it."""
    publish = Publisher.publish

    def forgetful(self: Publisher, tokens: Sequence[Token]) -> None:
        try:
            publish(self, tokens)
        except UploadExpired as error:
            raise UploadExpired(str(error), error.token) from error

    patch.setattr(Publisher, "publish", forgetful)


def ranges_of_visible_siblings_are_forgotten(patch: Patch) -> None:
    """A withdrawn commit does not say which rows above it are visible."""
    _withdraws_as(patch, lambda _: Skip())


def visible_keys_and_headers_are_forgotten(patch: Patch) -> None:
    """A withdrawn commit says which values above it are visible, and not which keys and headers."""
    _withdraws_as(patch, lambda skip: Skip({view: rows for view, rows in skip.of.items() if not view}))


def _withdraws_as(patch: Patch, change: Callable[[Skip], Skip]) -> None:
    """A withdrawal names other rows as visible above it."""
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
    """A commit that names other rows, or none, as visible above it."""
    return replace(commit, metadata=replace(Archived.of(commit), skip=skip.to_text()).to_text())


def skip_is_forgotten_above_a_commit(patch: Patch) -> None:
    """A commit within a withdrawn group forgets what of it is visible above."""
    commits_as(patch, SimulatedTask, _with_skip)


def skip_is_lost_when_a_generation_begins(patch: Patch) -> None:
    """Whoever goes on from a withdrawn commit writes all rows above it."""
    committed = WorkerSinkTaskContext.committed

    def forgetful(self: WorkerSinkTaskContext, partition: TopicPartition) -> OffsetAndMetadata | None:
        found = committed(self, partition)
        return found and _with_skip(found)

    patch.setattr(WorkerSinkTaskContext, "committed", forgetful)


def skip_is_lost_by_a_second_withdrawal(patch: Patch) -> None:
    """A group that was begun above visible rows does not say so in its tokens."""
    commits_as(patch, SimulatedTask, tokens_as(lambda data: {k: v for k, v in data.items() if k != "skip"}))


def rows_of_one_offset_are_one(patch: Patch) -> None:
    """What is visible is told by offsets, also where a transform has made several records of one."""
    patch.setattr(writer, "numbers_of", lambda offsets: np.zeros(len(offsets), np.int64))


# -- what the topic is, and what of it is bad ------------------------------------------------------------


def topics_are_not_vouched_for(patch: Patch) -> None:
    """Whether a topic is still the planned one is not asked before its records are committed."""
    patch.setattr(ChangingLog, "topic_id_check", lambda self, config, source, ids: always_valid)


def offsets_are_not_of_the_planned_topic(patch: Patch) -> None:
    """Topic ids are asked only after offsets: what a topic of the same name had is read of another one."""

    def as_after(self: ChangingLog, topics: Collection[str]) -> Mapping[str, str]:
        return dict.fromkeys(topics, self.id) if self.id is not None else {}

    patch.setattr(ChangingLog, "topic_ids", as_after)


def lost_tails_are_not_seen(patch: Patch) -> None:
    """A log that has lost its newest records is read on at the commit, whatever it has there now."""
    patch.setattr(ChangingLog, "truncated", lambda self, positions: {})


def letters_are_not_awaited(patch: Patch) -> None:
    """An offset is committed before the dead letters of the records below it are durable."""
    send = DeadLetters.send

    def at_once(self: DeadLetters, record: SinkRecord) -> Future[None]:
        send(self, record)
        done = Future[None]()
        done.set_result(None)
        return done

    patch.setattr(DeadLetters, "send", at_once)


def records_without_value_vanish(patch: Patch) -> None:
    """Records that are left out for lack of a value are not reported."""
    patch.setattr(S3ArchiverConfig, "reports_nulls", False)


def hook_that_does_nothing_is_committed(patch: Patch) -> None:
    """A put that only makes a generator counts as one that has taken the records."""

    def lazy(self: SimulatedTask, records: SinkRecords) -> Iterator[SinkRecords]:
        yield records

    patch.setattr(hooks, "finished", lambda hook, result: result)
    patch.setattr(SimulatedTask, "put", lazy)


def forgotten_upload_is_taken_for_expired(patch: Patch) -> None:
    """The publisher takes an upload that S3 no longer knows for expired, without a look at its object."""
    patch.setattr(publisher, "is_visible", lambda s3, token: False)


# -- what operators do -----------------------------------------------------------------------------------


def altered_offsets_are_not_compared(patch: Patch) -> None:
    """Offsets are altered to those from which records would be archived twice."""
    patch.setattr(connector, "problems_of", lambda s3, config, offsets: [])


def old_store_is_not_compared(patch: Patch) -> None:
    """A start goes on from commits that are older than the archive: an old copy of the store was restored."""
    patch.setattr(connector, "above", lambda s3, config, topics, committed: [])


# -- within the engine and the driver --------------------------------------------------------------------


def what_came_before_a_late_offset_is_committed(patch: Patch) -> None:
    """A source that breaks its order ends a partition as a failing put does."""
    patch.setattr(TaskScope, "casts_doubt", lambda self, error: False)


def deletion_above_visible_rows(patch: Patch) -> None:
    """A connector is deleted while rows above its commit are visible, which only it passes over."""
    patch.setattr(Claim, "partly_visible", lambda self: {})


def offsets_are_divided(patch: Patch) -> None:
    """Files, portions and record limits end between any two records, also of the same offset."""
    patch.setattr(SinkRecords, "whole_offsets", lambda self, rows: min(rows, len(self)))


def dropped_tail_is_not_committed(patch: Patch) -> None:
    """A range is committed to its last record, as if there were a next one."""
    patch.setattr(PartitionState, "range_end", lambda self, committed: None)


def newcomer_never_asks(patch: Patch) -> None:
    """A second driver fences the first one at once."""
    patch.setattr(Handover, "await_turn", lambda self: True)


def older_driver_never_gives_way(patch: Patch) -> None:
    """The first driver ends its generation, and begins the next one."""
    patch.setattr(Generations, "yield_to_successor", lambda self: None)


def closing_commits_nothing(patch: Patch) -> None:
    """What is taken away is closed, without a commit before."""

    def release(self: WorkerSinkTask, reason: object, partitions: object = None, **rest: object) -> None:
        self.lose()

    patch.setattr(WorkerSinkTask, "close", release)


ROLLING: Mapping[str, Plant] = plants(
    newcomer_never_asks,
    older_driver_never_gives_way,
    closing_commits_nothing,
    closing_is_not_told,
)
"""What only costs progress, never a record: a rolling deploy must notice."""

RACES: Mapping[str, Plant] = plants(
    segments_forget_tokens,
    siblings_are_not_aborted_first,
    take_over_looks_once,
    withdrawn_commit_is_read_past,
)
"""What breaks the promise in races: schedules of these must notice."""

TOPIC_CHANGES: Mapping[str, Plant] = plants(
    topics_are_not_vouched_for, offsets_are_not_of_the_planned_topic, lost_tails_are_not_seen
)
"""What breaks the promise where a topic changes: schedules of one that does must notice."""

MUTATIONS: Mapping[str, Plant] = plants(
    no_fence,
    no_merge,
    segments_forgotten,
    no_attempt,
    stale_tokens_not_carried,
    publish_before_commit,
    discard_when_fenced,
    unpublished_tokens_overwritten,
    clean_up_by_listing,
    writes_without_condition,
    driver_reads_its_claim_afresh,
    older_driver_configures,
    tokens_not_noted,
    crashed_and_unknown_commits_stay_unpublished,
    deletion_without_publishing,
    deletion_above_visible_rows,
    group_ahead_of_what_is_visible,
    letters_are_not_awaited,
    records_without_value_vanish,
    hook_that_does_nothing_is_committed,
    forgotten_upload_is_taken_for_expired,
    altered_offsets_are_not_compared,
    old_store_is_not_compared,
    what_came_before_a_late_offset_is_committed,
    offsets_are_divided,
    cut_stream_is_taken_for_its_end,
    dropped_tail_is_not_committed,
    groups_are_published_without_looking,
    later_group_is_published_first,
    ranges_of_visible_siblings_are_forgotten,
    visible_keys_and_headers_are_forgotten,
    visible_siblings_are_not_counted,
    skip_is_forgotten_above_a_commit,
    skip_is_lost_when_a_generation_begins,
    skip_is_lost_by_a_second_withdrawal,
    rows_of_one_offset_are_one,
)
"""What breaks the promise: random schedules must notice."""
