"""The public test kit on the archiver, with S3 in memory and with a real server."""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import fastavro
import pytest
from hypothesis import settings

from property_tests.exercised import EXERCISED
from sinksdk import ConnectException, OffsetAndMetadata, Token, TopicPartition, UnpublishableException
from sinksdk.connectors.s3_archiver.archive.header import FileHeader
from sinksdk.connectors.s3_archiver.config import S3ArchiverConfig
from sinksdk.connectors.s3_archiver.files.settings import Limits
from sinksdk.connectors.s3_archiver.formats.encoder import RecordAvro
from sinksdk.connectors.s3_archiver.formats.views import FormatOfViews, View
from sinksdk.connectors.s3_archiver.s3.client import S3
from sinksdk.connectors.s3_archiver.s3.requests import connect, one_by_one
from sinksdk.connectors.s3_archiver.task import S3ArchiverTask
from sinksdk.connectors.s3_archiver.verify.extent import problems_of
from sinksdk.testing import (
    Capabilities,
    FaultKind,
    FaultPlan,
    Guarantee,
    Report,
    SinkContractError,
    SinkOptions,
    check_sink,
    replay,
)
from sinksdk.testing.contract import Subject
from sinksdk.testing.faults import COMMIT_LOG, DESTINATION
from sinksdk.testing.judge import WITHDRAWN
from sinksdk.testing.machine import DEFAULTS
from sinksdk.testing.trial import Trial
from tests.helpers.depth import DEPTH
from tests.integration.archive_site import client
from tests.s3_archiver.beside import Late, at_once
from tests.s3_archiver.fake_s3 import FakeS3, Fault, LoggedRequest, denied, no_response, slow_down
from tests.s3_archiver.faulty_s3 import FaultyS3, serving
from tests.s3_archiver.support import FINE, Turns, config

CASES = settings(DEFAULTS, max_examples=DEPTH.cases, derandomize=False)
CASES_ON_A_SERVER = max(DEPTH.cases // 5, 20)

KEYS = {"topics": "records", "flush.size": "3", "s3.retry.backoff.ms": "10", "errors.retry.timeout": "2000"}
PROMISE = Capabilities(Guarantee.EXACTLY_ONCE, ordered=True)
UNORDERED = Capabilities(Guarantee.EXACTLY_ONCE)
Row = tuple[str, int, int, object]


def rows_of(objects: dict[str, bytes]) -> Iterator[Row]:
    for _, data in sorted(objects.items()):
        for row in fastavro.reader(io.BytesIO(data)):
            assert isinstance(row, dict)
            yield row["topic"], row["partition"], row["offset"], row["value"]


def count(title: str, report: Report) -> None:
    EXERCISED[title].update(report.exercised)


# -- S3 in memory --------------------------------------------------------------------------------------


class PlannedS3(FakeS3):
    """S3 in memory whose requests fail as the kit plans."""

    def __init__(self, faults: FaultPlan) -> None:
        super().__init__(plan=self.fault_of)
        self.faults = faults

    def fault_of(self, _: LoggedRequest) -> Fault | None:
        kind = self.faults.take(DESTINATION)
        if kind is None:
            return None
        if kind is FaultKind.SLOW:
            self.faults.delay()
            return None
        if kind in (FaultKind.CRASH_BEFORE, FaultKind.CRASH_AFTER):
            return Fault(self.faults.crash(), after_effect=kind is FaultKind.CRASH_AFTER)
        errors = {
            FaultKind.RETRIABLE: slow_down,
            FaultKind.PERMANENT: denied,
            FaultKind.LOST_RESPONSE: no_response,
        }
        return Fault(errors[kind](), after_effect=kind is FaultKind.LOST_RESPONSE)


def make_archiver(
    task: type[S3ArchiverTask], s3: PlannedS3, *, is_late: bool = False, **grouping: Any
) -> S3ArchiverTask:
    clock = s3.faults.clock
    return task(
        connect=lambda *_: s3,
        clock=clock.now,
        sleep=clock.sleep,
        grain=FINE,
        beside=Late() if is_late else at_once,
        together=one_by_one,
        **grouping,
    )


def archived(s3: PlannedS3) -> Iterator[Row]:
    data = {where.key: found.data for where, found in s3.objects.items() if where.key.endswith(".avro")}
    return rows_of(data)


def refuse(s3: S3, settings: S3ArchiverConfig, partition: TopicPartition, offset: int | None) -> None:
    """Refuse offsets at which records would be archived twice, as the connector's alter_offsets does."""
    if problems := problems_of(s3, settings, {partition: offset}, {}, {}):
        raise ConnectException("; ".join(problems))


IN_MEMORY: SinkOptions = {
    "destination": PlannedS3,
    "alter": lambda s3, *altered: refuse(s3, config(KEYS, part_size=400), *altered),
    "config": lambda _: config(KEYS, part_size=400),
    "capabilities": PROMISE,
    "leftovers": lambda s3: [str(upload.location) for upload in s3.uploads_with_data()],
}


@pytest.mark.extended
@pytest.mark.slow
@pytest.mark.parametrize("is_late", [True, False], ids=["parts that travel", "parts sent at once"])
def test_the_archiver_is_exactly_once(*, is_late: bool) -> None:
    make = functools.partial(make_archiver, S3ArchiverTask, is_late=is_late)
    report = check_sink(make, read_back=archived, settings=CASES, **IN_MEMORY)
    count("the kit on the archiver, S3 in memory", report)
    assert report.guarantee is Guarantee.EXACTLY_ONCE
    assert report.exercised[f"{DESTINATION}: {FaultKind.LOST_RESPONSE}"] >= report.cases // 50


@pytest.mark.extended
@pytest.mark.slow
@pytest.mark.parametrize(
    "limits", [Limits(records=5), Limits(interval=4_000, files=2)], ids=["count", "time"]
)
def test_groups_of_files_are_exactly_once(limits: Limits) -> None:
    make = functools.partial(make_archiver, S3ArchiverTask, is_late=True, folders=Turns(3), limits=limits)
    report = check_sink(make, read_back=archived, settings=CASES, **{**IN_MEMORY, "capabilities": UNORDERED})
    count("the kit on the archiver, groups of files", report)
    assert report.guarantee is Guarantee.EXACTLY_ONCE


VIEWS = ("", "keys", "headers")


def beside(**more: Any) -> dict[str, Any]:
    views = FormatOfViews([View(name, RecordAvro("null", None, 64)) for name in VIEWS])
    return {"file_format": views, "folders": Turns(2), "limits": Limits(records=5), **more}


def archived_in_all_views(s3: PlannedS3) -> Iterator[Row]:
    """Return the archived records, each as often as in the view (values, keys, headers) that repeats it most."""
    layout = config(KEYS).layout()
    counted = {view: Counter[Row]() for view in VIEWS}
    for where, found in s3.objects.items():
        name = layout.parse(where.key)
        if name is not None:
            counted[name.view].update(rows_of({where.key: found.data}))
    for row in sorted({row for counts in counted.values() for row in counts}, key=str):
        times = [counts[row] for counts in counted.values()]
        yield from [row] * (max(times) if min(times) or max(times) > 1 else 0)


BESIDE: SinkOptions = {**IN_MEMORY, "capabilities": UNORDERED}


@pytest.mark.nightly
def test_files_of_keys_and_headers_are_exactly_once() -> None:
    make = functools.partial(make_archiver, S3ArchiverTask, is_late=True, **beside())
    report = check_sink(make, read_back=archived_in_all_views, settings=CASES, **BESIDE)
    count("the kit on the archiver, keys and headers beside values", report)
    assert report.guarantee is Guarantee.EXACTLY_ONCE


def archived_values(s3: PlannedS3) -> Iterator[Row]:
    """Return records of files of values; the files of keys are left out."""
    data = {where.key: found.data for where, found in s3.objects.items() if where.key.endswith(".avro")}
    return rows_of({key: found for key, found in data.items() if not key.endswith(".keys.avro")})


class NoContent:
    buffered = 0

    def header(self) -> Iterator[bytes]:
        yield from ()

    def append(self, _: object) -> Iterator[bytes]:
        yield from ()

    def finish(self) -> Iterator[bytes]:
        yield from ()


class NoBytes(RecordAvro):
    def begin(self, header: FileHeader, key: str, kind: object) -> Any:
        return NoContent()


@pytest.mark.extended
@pytest.mark.slow
def test_files_without_bytes_are_exactly_once() -> None:
    views = [View("", RecordAvro("null", None, 64)), View("keys", NoBytes("null", None, 64))]
    make = functools.partial(
        make_archiver,
        S3ArchiverTask,
        is_late=True,
        file_format=FormatOfViews(views),
        folders=Turns(2),
        limits=Limits(records=5),
    )
    report = check_sink(
        make, read_back=archived_values, settings=CASES, **{**IN_MEMORY, "capabilities": UNORDERED}
    )
    count("the kit on the archiver, files without bytes", report)
    assert report.guarantee is Guarantee.EXACTLY_ONCE


@pytest.mark.extended
@pytest.mark.slow
def test_keys_are_written_alone_if_their_values_are_visible() -> None:
    make = functools.partial(make_archiver, Aborting, **beside())
    assert withdrawn(make, BESIDE, notes=2, read_back=archived_in_all_views) == 1
    steps = (("deliver", 1, 3), ("deliver", 0, 3), ("revoke", 0), ("deliver", 0, 1))
    for refused in range(40, 56):  # the range includes the requests that complete uploads
        fault = ("fault", DESTINATION, refused, "permanent error")
        replay([fault, *steps], make, read_back=archived_in_all_views, **BESIDE)


@pytest.mark.extended
def test_aborted_groups_withdraw_their_commit() -> None:
    grouping = {"folders": Turns(3), "limits": Limits(records=5)}
    make = functools.partial(make_archiver, Aborting, **grouping)
    options: SinkOptions = {**IN_MEMORY, "capabilities": UNORDERED}
    assert withdrawn(make, options, notes=2) == 1
    check_sink(make, read_back=archived, settings=CASES, **options)


def test_kit_does_not_count_early_visible_files_as_published() -> None:
    make = functools.partial(make_archiver, Aborting, folders=Turns(3), limits=Limits(records=5))
    steps = (("deliver", 1, 3), ("deliver", 0, 3), ("revoke", 0), ("deliver", 0, 1))
    options: SinkOptions = {**IN_MEMORY, "capabilities": UNORDERED}
    replay([("fault", "destination", 25, "permanent error"), *steps], make, read_back=archived, **options)


def withdrawn(
    make: Callable[[PlannedS3], S3ArchiverTask],
    options: SinkOptions,
    *,
    notes: int,
    read_back: Callable[[PlannedS3], Iterator[Row]] = archived,
) -> int:
    """Count the withdrawals in a case of the kit in which the response to a closing commit is lost."""
    counted = Counter[str]()
    trial = Trial(Subject(make, read_back, **options), counted)
    try:
        for step in (("fault", COMMIT_LOG, notes, "lost response"), ("deliver", 0, 2), ("rebalance",)):
            trial.step(*step)
        trial.finish()
    finally:
        trial.end()
    return counted[WITHDRAWN]


class Aborting(S3ArchiverTask):
    """An archiver that aborts its uploads when its partitions are taken away."""

    def publish(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        super().publish(partition, tokens)
        self.committed = ()

    def pre_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> dict[TopicPartition, Any]:
        ready = super().pre_commit(offsets)
        self.committed = [token for offset in ready.values() for token in offset.tokens]
        return ready

    def close(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            self.discard(partition, getattr(self, "committed", ()))
        super().close(partitions)


@pytest.mark.extended
def test_fenced_archiver_that_aborts_causes_a_withdrawal() -> None:
    make = functools.partial(make_archiver, Aborting)
    assert withdrawn(make, IN_MEMORY, notes=1) == 1
    check_sink(make, read_back=archived, settings=CASES, **IN_MEMORY)


def test_kit_does_not_freeze_a_task_that_discards_in_close() -> None:
    make = functools.partial(make_archiver, Aborting)
    commit_is_lost = (("fault", COMMIT_LOG, 2, "lost response"), ("deliver", 2, 3), ("commit",))
    steps = (("transform", 4), ("deliver", 2, 1), ("freeze", 0), *commit_is_lost)
    replay(steps, make, read_back=archived, **IN_MEMORY)


class AbortingInSilence(Aborting):
    """An ``Aborting`` archiver that treats a missing committed upload as published."""

    def publish(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        with contextlib.suppress(UnpublishableException):
            super().publish(partition, tokens)


@pytest.mark.extended
def test_kit_catches_an_archiver_that_hides_missing_uploads() -> None:
    make = functools.partial(make_archiver, AbortingInSilence)
    with pytest.raises(
        SinkContractError, match=r"lost: offsets? .* of (records|others)-\d (is|are) not at the destination"
    ):
        check_sink(make, read_back=archived, **IN_MEMORY)


# -- a real server -------------------------------------------------------------------------------------

OPERATIONS = {
    "create_upload": "CreateMultipartUpload",
    "upload_part": "UploadPart",
    "complete_upload": "CompleteMultipartUpload",
    "abort_upload": "AbortMultipartUpload",
    "head": "HeadObject",
}
SPOILED: Mapping[FaultKind, Mapping[str, Any]] = {
    FaultKind.RETRIABLE: {"status": 503, "code": "SlowDown"},
    FaultKind.PERMANENT: {"status": 403, "code": "AccessDenied"},
    FaultKind.LOST_RESPONSE: {"takes_effect": True},
}


@dataclass
class ServedS3:
    """One case's folder in the bucket of a real server, behind a layer that injects faults."""

    endpoint: str
    layer: FaultyS3
    faults: FaultPlan
    folder: str

    def __call__(self, settings: S3ArchiverConfig, endpoint: str | None = None) -> S3:
        return cast("S3", SpoiledClient(connect(settings, endpoint), self))


class SpoiledClient:
    """The archiver's own client, before a server that answers planned requests with faults."""

    def __init__(self, client: S3, site: ServedS3) -> None:
        self._client = client
        self._site = site

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)
        if name not in OPERATIONS:
            return method

        def request(*arguments: Any, **options: Any) -> Any:
            site = self._site
            kind = site.faults.take(DESTINATION)
            if kind is FaultKind.CRASH_BEFORE:
                raise site.faults.crash()
            if kind in SPOILED:
                site.layer.spoil(OPERATIONS[name], **SPOILED[kind])
            result = method(*arguments, **options)
            if kind is FaultKind.SLOW:
                site.faults.delay()
            if kind is FaultKind.CRASH_AFTER:
                raise site.faults.crash()
            return result

        return request


@pytest.mark.extended
@pytest.mark.slow
def test_the_archiver_is_exactly_once_on_a_real_server() -> None:
    with serving() as (endpoint, layer):
        outsider = client(endpoint)
        outsider.create_bucket(Bucket="bucket")
        folders = itertools.count()
        decoded: dict[str, bytes] = {}

        def read_back(site: ServedS3) -> Iterator[Row]:
            listed = outsider.list_objects_v2(Bucket="bucket", Prefix=f"{site.folder}/").get("Contents", [])
            for found in listed:
                name = f"{found['Key']} {found['ETag']}"
                if name not in decoded:
                    decoded[name] = outsider.get_object(Bucket="bucket", Key=found["Key"])["Body"].read()
            return rows_of({name: decoded[name] for name in (f"{f['Key']} {f['ETag']}" for f in listed)})

        def leftovers(site: ServedS3) -> list[str]:
            uploads = outsider.list_multipart_uploads(Bucket="bucket", Prefix=f"{site.folder}/")
            return [
                upload["Key"]
                for upload in uploads.get("Uploads", [])
                if upload["Key"].startswith(f"{site.folder}/")
                and outsider.list_parts(Bucket="bucket", Key=upload["Key"], UploadId=upload["UploadId"]).get(
                    "Parts"
                )
            ]

        def settings_of(site: ServedS3) -> S3ArchiverConfig:
            return config(
                {
                    **KEYS,
                    "topics.dir": site.folder,
                    "store.url": endpoint,
                    "aws.access.key.id": "key",
                    "aws.secret.access.key": "secret",
                    "s3.part.retries": "0",
                }
            )

        report = check_sink(
            lambda site: S3ArchiverTask(
                connect=site,
                clock=site.faults.clock.now,
                sleep=site.faults.clock.sleep,
                grain=FINE,
                beside=at_once,
            ),
            read_back=read_back,
            destination=lambda faults: ServedS3(endpoint, layer, faults, f"case-{next(folders)}"),
            config=settings_of,
            alter=lambda site, *altered: refuse(site(settings_of(site)), settings_of(site), *altered),
            capabilities=PROMISE,
            leftovers=leftovers,
            clean_up=lambda _: layer.spoiled.clear(),
            settings=settings(DEFAULTS, max_examples=CASES_ON_A_SERVER, stateful_step_count=10),
        )
    count("the kit on the archiver, a real server", report)
    assert report.cases >= CASES_ON_A_SERVER
    assert sum(report.exercised[f"{DESTINATION}: {kind}"] for kind in SPOILED) >= CASES_ON_A_SERVER // 10
