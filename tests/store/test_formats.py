"""The store's values, byte by byte: the next version must read a store of this one.

A change of format needs a new format version and an upgrade path from this one, not another golden text.
"""

from __future__ import annotations

import gc
import json
import weakref

import pytest
from pydantic import ValidationError

from sinksdk import ClosingReason, ConnectException, OffsetAndMetadata, Token
from sinksdk.model.base import Lasting, NamedPartition, OfPartition, Value
from sinksdk.model.measures import ErrorCounts, Level, Sizes, SourceMeasures, TaskMeasures, Timing
from sinksdk.model.outcome import Failure, PartitionOutcome, Retry
from sinksdk.model.plan import PlannerState, RangePlan, Seen, Tail
from sinksdk.model.status import Waiting
from sinksdk.offsets import OffsetRange, TopicPartition
from sinksdk.store import table, take_over
from sinksdk.store.keys import task_key
from sinksdk.store.records import (
    Begun,
    ClaimedBy,
    Closing,
    ConnectorRecord,
    Dropped,
    FrameState,
    GenerationPlan,
    Orders,
    PartitionCommit,
    PreparedTokens,
    RetiredTokens,
    Segment,
    StoreIdentity,
    TaskCountRecord,
    TaskPlan,
    TaskRecord,
    Undecided,
    WrittenBatch,
)
from sinksdk.store.reports import (
    Bucket,
    ConnectorEnds,
    ConnectorHistory,
    ConnectorStatus,
    ConnectorTotals,
    PartitionTotals,
    PastFailure,
    Remembered,
    SourcePartitionOffset,
    SourceProgress,
    TaskProgress,
    TaskStatus,
    TaskTotals,
    Unavailable,
)
from tests.helpers.memory_store import MemoryStore
from tests.store.protocol import P0, plan

TOKEN = Token("upload-1", {"bucket": "b", "parts": [{"etag": "e", "size": 5}]})
TOKEN_JSON = {"id": "upload-1", "data": {"bucket": "b", "parts": [{"etag": "e", "size": 5}]}}
ENTRY = PartitionCommit(
    topic="flights",
    partition=3,
    offset=100,
    metadata="m",
    publish=(TOKEN,),
    generation=6,
    withdrawn_from=150,
    published_to=90,
    records=40,
    partly_visible_to=145,
    leader_epoch=4,
    due=98,
)
ENTRY_JSON = {
    "topic": "flights",
    "partition": 3,
    "offset": 100,
    "metadata": "m",
    "publish": [TOKEN_JSON],
    "generation": 6,
    "withdrawn_from": 150,
    "published_to": 90,
    "records": 40,
    "partly_visible_to": 145,
    "leader_epoch": 4,
    "due": 98,
}
NOTED = PreparedTokens(topic="flights", partition=3, tokens=(Token("upload-2"),))
NOTED_JSON = {"topic": "flights", "partition": 3, "tokens": [{"id": "upload-2", "data": {}}]}
MEASURES = TaskMeasures(
    puts=Timing(count=3, seconds=1.5, longest=1.0),
    largest_batch=20,
    records_read=50,
    records_sent=45,
    active=Level(now=5, largest=30, total=90, looks=3),
    commits=Timing(count=2, seconds=0.5, longest=0.25),
    commit_failures=1,
    commit_writes=2,
    errors=ErrorCounts(
        record_failures=6,
        record_errors=1,
        records_skipped=5,
        retries=2,
        errors_logged=5,
        dead_letters=5,
        dead_letter_failures=1,
        last=1_700_000_000.5,
    ),
    seconds={"put": 2.5, "pre_commit": 0.25},
    closings=1,
    closing_seconds={"notice": 0.5},
    source=SourceMeasures(
        polls=Timing(count=3, seconds=0.75, longest=0.5),
        records=90,
        transactions=Sizes(count=2, total=80, largest=60, smallest=20),
        aborts=1,
    ),
)
MEASURES_JSON = {
    "puts": {"count": 3, "seconds": 1.5, "longest": 1.0},
    "largest_batch": 20,
    "records_read": 50,
    "records_sent": 45,
    "active": {"now": 5, "largest": 30, "total": 90, "looks": 3},
    "commits": {"count": 2, "seconds": 0.5, "longest": 0.25},
    "commit_failures": 1,
    "commit_writes": 2,
    "errors": {
        "record_failures": 6,
        "record_errors": 1,
        "records_skipped": 5,
        "retries": 2,
        "errors_logged": 5,
        "dead_letters": 5,
        "dead_letter_failures": 1,
        "last": 1_700_000_000.5,
    },
    "seconds": {"put": 2.5, "pre_commit": 0.25},
    "closings": 1,
    "closing_seconds": {"notice": 0.5},
    "source": {
        "polls": {"count": 3, "seconds": 0.75, "longest": 0.5},
        "records": 90,
        "transactions": {"count": 2, "total": 80, "largest": 60, "smallest": 20},
        "aborts": 1,
    },
}

NOTHING_JSON = TaskProgress(generation=1, attempt=1, partitions=()).as_json()["measures"]

RETRY = Retry(since=1_700_000_000.0, attempts=3, next_attempt=1_700_000_009.5, refused=70)
RETRY_JSON = {"since": 1_700_000_000.0, "attempts": 3, "next_attempt": 1_700_000_009.5, "refused": 70}

GOLDEN: list[tuple[Value, dict[str, object]]] = [
    (StoreIdentity(id="5d2f"), {"id": "5d2f"}),
    (
        ConnectorRecord(
            config={"name": "archive", "aws.secret.access.key": "${env:SECRET}"},
            version=4,
            incarnation="9a1c",
            target_state="PAUSED",
            orders=Orders(restart=1, flush=2),
            claimed=8,
            deleted=True,
            forced=True,
            kind="sink",
        ),
        {
            "config": {"name": "archive", "aws.secret.access.key": "${env:SECRET}"},
            "version": 4,
            "incarnation": "9a1c",
            "target_state": "PAUSED",
            "orders": {"restart": 1, "restart_failed": 0, "rebalance": 0, "flush": 2},
            "claimed": 8,
            "deleted": True,
            "forced": True,
            "kind": "sink",
        },
    ),
    (
        TaskCountRecord(
            claimed=8,
            planned=7,
            tasks=4,
            config_version=2,
            transactional_tasks=3,
            claimed_by=ClaimedBy(generation=8, driver="host:7#1"),
        ),
        {
            "claimed": 8,
            "planned": 7,
            "tasks": 4,
            "config_version": 2,
            "transactional_tasks": 3,
            "claimed_by": {"generation": 8, "driver": "host:7#1"},
        },
    ),
    (
        GenerationPlan(
            generation=7,
            config_version=2,
            tasks=(
                TaskPlan(
                    ranges=(
                        RangePlan(
                            topic="flights",
                            partition=3,
                            start=100,
                            end=200,
                            due=True,
                            retry=RETRY,
                            log=OffsetRange(90, 250),
                            leader_epoch=5,
                        ),
                    ),
                    config={"task.id": "0"},
                ),
                TaskPlan(ranges=()),
            ),
            committed=(ENTRY,),
            stale=(NOTED,),
            config={"name": "archive"},
            topic_ids={"flights": "lZt2kQTtTjSgGrmZ0Ns6Yw"},
            undecided=Undecided(reset=True, partitions=(NamedPartition(topic="flights", partition=3),)),
            closing=Closing(
                reason=ClosingReason.REBALANCE, timeout=60.0, successor="host:1#2", asked=1_700_000_000.5
            ),
            dropped=5,
            frames=FrameState(
                writer="0f3e",
                is_open=True,
                written=(WrittenBatch(query="77aa", batch=12), WrittenBatch(query="5d1c")),
                superseded=("9b2d",),
            ),
            retired=(RetiredTokens(topic="flights", partition=3, ids=("ypeBEsobvcr6",)),),
        ),
        {
            "generation": 7,
            "config_version": 2,
            "tasks": [
                {
                    "ranges": [
                        {
                            "topic": "flights",
                            "partition": 3,
                            "start": 100,
                            "end": 200,
                            "due": True,
                            "records": None,
                            "retry": RETRY_JSON,
                            "log": [90, 250],
                            "leader_epoch": 5,
                        }
                    ],
                    "config": {"task.id": "0"},
                },
                {"ranges": [], "config": {}},
            ],
            "committed": [ENTRY_JSON],
            "stale": [NOTED_JSON],
            "config": {"name": "archive"},
            "topic_ids": {"flights": "lZt2kQTtTjSgGrmZ0Ns6Yw"},
            "undecided": {
                "first": False,
                "reset": True,
                "partitions": [{"topic": "flights", "partition": 3}],
            },
            "closing": {
                "reason": "REBALANCE",
                "timeout": 60.0,
                "successor": "host:1#2",
                "answered": False,
                "asked": 1_700_000_000.5,
            },
            "dropped": 5,
            "frames": {
                "writer": "0f3e",
                "is_open": True,
                "written": [{"query": "77aa", "batch": 12}, {"query": "5d1c", "batch": None}],
                "superseded": ["9b2d"],
            },
            "retired": [{"topic": "flights", "partition": 3, "ids": ["ypeBEsobvcr6"]}],
        },
    ),
    (
        TaskRecord(
            generation=7,
            attempt=2,
            entries=(ENTRY,),
            prepared=(NOTED,),
            discarded=("upload-0", "upload-9"),
            segments=("1-1", "2-1"),
            begun=Begun(topic="flights", at=100, batch=WrittenBatch(query="77aa", batch=12), base=104),
            retired=(RetiredTokens(topic="flights", partition=3, ids=("ypeBEsobvcr6",)),),
        ),
        {
            "generation": 7,
            "attempt": 2,
            "written": None,
            "entries": [ENTRY_JSON],
            "prepared": [NOTED_JSON],
            "discarded": ["upload-0", "upload-9"],
            "segments": ["1-1", "2-1"],
            "begun": {
                "topic": "flights",
                "at": 100,
                "batch": {"query": "77aa", "batch": 12},
                "base": 104,
            },
            "retired": [{"topic": "flights", "partition": 3, "ids": ["ypeBEsobvcr6"]}],
        },
    ),
    (
        Dropped(committed=(ENTRY,), topic_ids={"flights": "lZt2kQTtTjSgGrmZ0Ns6Yw"}),
        {"committed": [ENTRY_JSON], "topic_ids": {"flights": "lZt2kQTtTjSgGrmZ0Ns6Yw"}},
    ),
    (Segment(entries=(ENTRY,)), {"entries": [ENTRY_JSON]}),
    (
        ConnectorStatus(
            state="FAILED",
            driver="host:4711",
            heartbeat=1_700_000_000.5,
            partitions=(
                PlannerState(
                    topic="flights",
                    partition=3,
                    seen=(Seen(end=170, at=1_700_000_000.0),),
                    tail=Tail(committed=100, end=170, records=65),
                    failures=2,
                    error="bucket gone",
                    end=180,
                    failed_at=(1_700_000_000.0,),
                    trace="Traceback",
                    density=0.5,
                    in_vain=1,
                    moved_at=(1_700_000_000.0,),
                    undiscarded="upload-1",
                    retry=RETRY,
                ),
            ),
            trace="Traceback",
            missing_topics=("flights",),
            tasks=(
                TaskStatus(
                    task=2, failures=1, failed_at=(1_700_000_000.0,), error="no such file", trace="Traceback"
                ),
            ),
            waiting=Waiting(reason="no answer", since=1.5, next_attempt=9.5, attempts=3),
            unavailable=(Unavailable(topic="flights", partition=7, since=1.5),),
            unavailable_count=1,
            plan_timeout=120.0,
        ),
        {
            "state": "FAILED",
            "driver": "host:4711",
            "heartbeat": 1_700_000_000.5,
            "partitions": [
                {
                    "topic": "flights",
                    "partition": 3,
                    "seen": [{"end": 170, "at": 1_700_000_000.0}],
                    "tail": {"committed": 100, "end": 170, "records": 65},
                    "failures": 2,
                    "error": "bucket gone",
                    "end": 180,
                    "failed_at": [1_700_000_000.0],
                    "trace": "Traceback",
                    "density": 0.5,
                    "in_vain": 1,
                    "moved_at": [1_700_000_000.0],
                    "undiscarded": "upload-1",
                    "retry": RETRY_JSON,
                }
            ],
            "trace": "Traceback",
            "missing_topics": ["flights"],
            "tasks": [
                {
                    "task": 2,
                    "failures": 1,
                    "failed_at": [1_700_000_000.0],
                    "error": "no such file",
                    "trace": "Traceback",
                }
            ],
            "waiting": {"reason": "no answer", "since": 1.5, "next_attempt": 9.5, "attempts": 3},
            "unavailable": [{"topic": "flights", "partition": 7, "since": 1.5}],
            "unavailable_count": 1,
            "plan_timeout": 120.0,
        },
    ),
    (
        ConnectorEnds(
            ends={"flights": {3: 180}},
            committed_at={"flights": {3: 1_700_000_000.5}},
            unknown_since=1_700_000_000.0,
        ),
        {
            "ends": {"flights": {"3": 180}},
            "committed_at": {"flights": {"3": 1_700_000_000.5}},
            "unknown_since": 1_700_000_000.0,
        },
    ),
    (
        Remembered(
            partitions=(PlannerState(topic="flights", partition=3, end=180),),
            tasks=(TaskStatus(task=2, failures=1),),
        ),
        {
            "partitions": [
                {
                    "topic": "flights",
                    "partition": 3,
                    "seen": [],
                    "tail": None,
                    "failures": 0,
                    "error": None,
                    "end": 180,
                    "failed_at": [],
                    "trace": None,
                    "density": None,
                    "in_vain": 0,
                    "moved_at": [],
                    "undiscarded": None,
                    "retry": None,
                }
            ],
            "tasks": [{"task": 2, "failures": 1, "failed_at": [], "error": None, "trace": None}],
        },
    ),
    (
        TaskProgress(
            generation=7,
            attempt=2,
            partitions=(
                PartitionOutcome(
                    TopicPartition("flights", 3),
                    committed=100,
                    position=150,
                    records=50,
                    tail=20,
                    read_to=150,
                    failure=Failure("ConnectException", "no", "no", is_final=True, retry=RETRY),
                    counts={"files": 1},
                    visible=90,
                    rate=2.5,
                ),
            ),
            hangs="put",
            measures=MEASURES,
            source=SourceProgress(
                state="RUNNING",
                records=9,
                transactions=3,
                rate=4.5,
                failure="no",
                trace="Traceback",
                offsets=(
                    SourcePartitionOffset(
                        partition={"file": "a", "n": 1}, offset={"byte": None}, committed=False
                    ),
                ),
                has_more_offsets=True,
            ),
        ),
        {
            "generation": 7,
            "attempt": 2,
            "partitions": [
                {
                    "topic": "flights",
                    "partition": 3,
                    "position": 150,
                    "committed": 100,
                    "records": 50,
                    "counts": {"files": 1},
                    "failure": "no",
                    "rate": 2.5,
                    "tail": 20,
                    "visible": 90,
                    "is_final": True,
                    "retry": RETRY_JSON,
                }
            ],
            "hangs": "put",
            "measures": MEASURES_JSON,
            "source": {
                "state": "RUNNING",
                "records": 9,
                "transactions": 3,
                "rate": 4.5,
                "failure": "no",
                "trace": "Traceback",
                "offsets": [
                    {"partition": {"file": "a", "n": 1}, "offset": {"byte": None}, "committed": False}
                ],
                "has_more_offsets": True,
            },
        },
    ),
    (
        ConnectorTotals(
            generation=7,
            tasks=(TaskTotals(task=0, total=MEASURES, last=TaskMeasures(records_read=1)),),
            partitions=(PartitionTotals(topic="flights", partition=3, counts={"files": 4}),),
            vanished={"files": 5},
        ),
        {
            "generation": 7,
            "tasks": [
                {"task": 0, "total": MEASURES_JSON, "last": {**NOTHING_JSON, "records_read": 1}},
            ],
            "partitions": [{"topic": "flights", "partition": 3, "counts": {"files": 4}}],
            "vanished": {"files": 5},
        },
    ),
    (
        ConnectorHistory(
            buckets=(Bucket(start=1_700_000_040, records=50, files=1, bytes=4096, transactions=2),),
            failures=(
                PastFailure(
                    topic="flights",
                    partition=3,
                    at=1_700_000_050.5,
                    times=2,
                    message="no",
                    trace="Traceback",
                    task=1,
                ),
            ),
        ),
        {
            "buckets": [
                {"start": 1_700_000_040, "records": 50, "files": 1, "bytes": 4096, "transactions": 2}
            ],
            "failures": [
                {
                    "topic": "flights",
                    "partition": 3,
                    "at": 1_700_000_050.5,
                    "times": 2,
                    "message": "no",
                    "trace": "Traceback",
                    "task": 1,
                }
            ],
        },
    ),
]


def named(case: object) -> str | None:
    return type(case).__name__ if isinstance(case, Value) else None


@pytest.mark.parametrize(("value", "written"), GOLDEN, ids=named)
def test_values_are_written_in_their_documented_format(value: Value, written: dict[str, object]) -> None:
    assert json.dumps(value.as_json()) == json.dumps(written)


@pytest.mark.parametrize(("value", "written"), GOLDEN, ids=named)
def test_values_are_read_from_their_documented_format(value: Value, written: dict[str, object]) -> None:
    assert type(value).model_validate(written) == value


@pytest.mark.parametrize(("value", "written"), GOLDEN, ids=named)
def test_values_of_a_later_version_are_read(value: Value, written: dict[str, object]) -> None:
    read = type(value).model_validate({**written, "added_later": 1})
    assert type(value).model_validate(read.model_dump(exclude={"added_later"})) == value


@pytest.mark.parametrize(
    ("model", "newer"),
    [
        (TaskRecord, {"generation": 7, "added_later": {"x": 1}, "entries": [{**ENTRY_JSON, "added": [1]}]}),
        (TaskRecord, {"generation": 7, "prepared": [{**NOTED_JSON, "added_later": 1}]}),
        (TaskCountRecord, {"claimed": 8, "added_later": 1}),
        (ConnectorRecord, {"config": {}, "incarnation": "a", "orders": {"flush": 1, "added_later": 2}}),
        (
            GenerationPlan,
            {
                "generation": 7,
                "config_version": 2,
                "committed": [{**ENTRY_JSON, "added_later": 1}],
                "tasks": [{"ranges": [], "config": {}, "added_later": 1}],
                "closing": {"reason": "STOP", "timeout": 1.0, "added_later": 1},
            },
        ),
    ],
)
def test_rewriting_a_newer_record_keeps_its_unknown_fields(
    model: type[Value], newer: dict[str, object]
) -> None:
    # Regression: a driver of an older version that fenced a newer one's task dropped fields of it.

    def contains(whole: object, part: object) -> bool:
        if isinstance(part, dict):
            return isinstance(whole, dict) and all(contains(whole.get(k), v) for k, v in part.items())
        if isinstance(part, list):
            same = isinstance(whole, list) and len(whole) == len(part)
            return same and all(map(contains, whole, part))
        return whole == part

    store = MemoryStore()
    row = table.read(store, "k", model) if store.put("k", newer, None) else None
    assert row is not None
    table.write(store, "k", row.value.model_copy(update={}), row.version)
    kept = store.get("k")
    assert kept is not None
    assert contains(kept.value, newer)


def test_an_older_task_keeps_unknown_fields_of_a_newer_attempt() -> None:
    store = MemoryStore()
    plan(store, 5, [P0])
    newer = TaskRecord.model_validate({"generation": 5, "attempt": 1, "added_later": 1})
    table.write(store, task_key("c", 0), newer, None)
    taken = take_over(store, "c", 5, 0)
    assert taken is not None
    taken.ledger.commit({P0: OffsetAndMetadata(3)})
    kept = store.get(task_key("c", 0))
    assert kept is not None
    assert (kept.value["attempt"], kept.value["added_later"]) == (2, 1)


def test_unknown_fields_of_a_token_are_ignored() -> None:
    newer = {**ENTRY_JSON, "publish": [{"id": "u", "data": {"n": 1}, "added_later": 1}]}
    assert PartitionCommit.model_validate(newer).publish == (Token("u", {"n": 1}),)


def test_unknown_fields_of_a_retry_are_ignored() -> None:
    newer = {"topic": "t", "partition": 0, "start": 0, "end": 9, "retry": {**RETRY_JSON, "added_later": 1}}
    range_ = RangePlan.model_validate({**newer, "added_later": 2})
    assert range_.retry == RETRY
    assert range_.as_json() == {
        "topic": "t",
        "partition": 0,
        "start": 0,
        "end": 9,
        "due": False,
        "records": None,
        "retry": RETRY_JSON,
        "log": None,
        "leader_epoch": None,
        "added_later": 2,
    }


def test_an_enum_value_of_a_newer_version_is_not_reported_as_damage() -> None:
    # Regression: the message told the operator to restore the store from a backup, and to lose commits.
    store = MemoryStore()
    body = {"generation": 1, "config_version": 1, "tasks": [], "committed": []}
    store.put("plan", {**body, "closing": {"reason": "DRAIN", "timeout": 60.0}}, None)
    with pytest.raises(ConnectException) as raised:
        table.read(store, "plan", GenerationPlan)

    assert "plan has 'DRAIN' as 'closing.reason', which this version of sinksdk does not know" in str(
        raised.value
    )
    assert "a newer version has written it: upgrade sinksdk" in str(raised.value)
    assert "backup" not in str(raised.value)


def test_values_without_orders_are_read() -> None:
    before = {"config": {}, "version": 1, "incarnation": "9a1c", "target_state": "RUNNING", "deleted": False}
    record = ConnectorRecord.model_validate(before)
    assert (record.orders, record.claimed) == (Orders(), 0)


def test_every_model_has_a_golden_value() -> None:
    def kinds(value: object) -> set[type]:
        inner = (
            value.__dict__.values() if isinstance(value, Value) else value if isinstance(value, tuple) else ()
        )
        found = {type(value)} if isinstance(value, Value) else set()
        return found.union(*map(kinds, inner))

    def below(kind: type[Value]) -> set[type]:
        return {kind}.union(*(below(sub) for sub in kind.__subclasses__()))

    kept = below(Value) - {Value, Lasting, OfPartition}
    assert set().union(*(kinds(value) for value, _ in GOLDEN)) == kept


@pytest.mark.parametrize(
    ("model", "least", "value"),
    [
        (ConnectorRecord, {"config": {}, "incarnation": "i"}, ConnectorRecord(config={}, incarnation="i")),
        (
            TaskCountRecord,
            {"claimed": 1},
            TaskCountRecord(
                claimed=1, planned=0, tasks=0, config_version=0, transactional_tasks=None, claimed_by=None
            ),
        ),
        (TaskRecord, {"generation": 1}, TaskRecord(generation=1, attempt=0)),
        (
            Closing,
            {"reason": "PAUSE", "timeout": 1.0},
            Closing(reason=ClosingReason.PAUSE, timeout=1.0, successor=None, answered=False),
        ),
        (
            PartitionCommit,
            {"topic": "t", "partition": 0, "offset": 1, "generation": 1},
            PartitionCommit(
                topic="t",
                partition=0,
                offset=1,
                generation=1,
                withdrawn_from=None,
                published_to=None,
                records=0,
                partly_visible_to=None,
                leader_epoch=None,
            ),
        ),
        (
            TaskProgress,
            {
                "generation": 1,
                "attempt": 1,
                "partitions": [
                    {"topic": "t", "partition": 0, "position": 1, "committed": None, "records": 1}
                ],
            },
            TaskProgress(
                generation=1,
                attempt=1,
                partitions=(PartitionOutcome(TopicPartition("t", 0), None, 1, 1, tail=0, read_to=1),),
            ),
        ),
        (Bucket, {"start": 60, "records": 1}, Bucket(start=60, records=1, files=0, bytes=0, transactions=0)),
        (
            PastFailure,
            {"topic": "t", "partition": 3, "at": 1.0, "times": 1, "message": "no", "trace": ""},
            PastFailure(topic="t", partition=3, at=1.0, times=1, message="no", trace="", task=None),
        ),
        (
            SourcePartitionOffset,
            {"partition": {}, "offset": {}},
            SourcePartitionOffset(partition={}, offset={}, committed=True),
        ),
        (
            SourceProgress,
            {"state": "RUNNING"},
            SourceProgress(state="RUNNING", records=0, transactions=0, offsets=(), has_more_offsets=False),
        ),
        (ConnectorHistory, {}, ConnectorHistory(buckets=(), failures=())),
        (ConnectorStatus, {}, ConnectorStatus(state="UNASSIGNED", heartbeat=0.0)),
        (
            TaskProgress,
            {"generation": 1, "attempt": 1, "partitions": []},
            TaskProgress(generation=1, attempt=1, partitions=(), measures=TaskMeasures()),
        ),
        (ConnectorTotals, {}, ConnectorTotals(generation=0, tasks=(), partitions=())),
    ],
)
def test_defaults_are_part_of_the_format(model: type[Value], least: dict[str, object], value: Value) -> None:
    assert model.model_validate(least) == value


@pytest.mark.parametrize(
    ("model", "broken"),
    [(TaskRecord, {}), (PartitionCommit, {"topic": "t", "partition": 0}), (StoreIdentity, {})],
)
def test_missing_fields_are_refused(model: type[Value], broken: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        model.model_validate(broken)


def test_measures_of_other_versions_are_read() -> None:
    other = {"generation": 1, "attempt": 1, "partitions": [], "measures": {"puts": {"count": 2, "new": 1}}}
    assert TaskProgress.model_validate(other).measures == TaskMeasures(puts=Timing(count=2))


def test_values_are_stored_with_format_and_nonce() -> None:
    store = MemoryStore()
    row = table.write(store, "store", StoreIdentity(id="5d2f"), None)
    assert json.loads(store._records["store"].body) == {"format": 1, "nonce": row.version, "id": "5d2f"}
    assert table.read(store, "store", StoreIdentity) == row


def test_read_values_are_not_cached() -> None:
    store = MemoryStore()
    table.write(store, "k", ConnectorRecord(config={"name": "c"}, incarnation="i"), None)
    row = table.read(store, "k", ConnectorRecord)
    assert row is not None
    kept = weakref.ref(row.value)
    del row
    gc.collect()
    assert kept() is None


def test_a_value_with_an_unchanged_version_is_not_read_again() -> None:
    store = MemoryStore()
    first = table.write(store, "k", StoreIdentity(id="a"), None)
    assert table.read_again(store, "k", StoreIdentity, first) is first
    second = table.write(store, "k", StoreIdentity(id="b"), first.version)
    assert table.read_again(store, "k", StoreIdentity, first) == second
    store.delete("k", second.version)
    assert table.read_again(store, "k", StoreIdentity, second) is None


def test_values_are_immutable() -> None:
    with pytest.raises(ValidationError):
        TaskRecord(generation=1).generation = 2
