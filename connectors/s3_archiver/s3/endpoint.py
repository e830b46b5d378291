"""Tests what an endpoint supports for uploads, before any record is read."""

from __future__ import annotations

import logging
import time
import uuid
import zlib
from collections.abc import Callable, Collection, Container
from functools import partial
from typing import Final, TypeVar

from sinksdk import ConfigException
from sinksdk.connectors.s3_archiver.archive.layout import Layout
from sinksdk.connectors.s3_archiver.s3 import crc
from sinksdk.connectors.s3_archiver.s3.client import S3, Abilities, Checksum, Location, PendingUpload
from sinksdk.connectors.s3_archiver.s3.errors import (
    DENIED,
    NO_SUCH_UPLOAD,
    NOT_IMPLEMENTED,
    S3Error,
    S3TransientError,
    may_be_a_checksum,
)
from sinksdk.connectors.s3_archiver.s3.settings import UploadSettings
from sinksdk.support.delays import S3_PROBE
from sinksdk.support.s3 import BAD_DIGEST, CONFLICT, NO_SUCH_KEY, PRECONDITION_FAILED

log = logging.getLogger(__name__)

T = TypeVar("T")

_UPLOAD_KEYS: Final = {
    "s3_sse_algorithm": "s3.ssea.name",
    "s3_sse_kms_key_id": "s3.sse.kms.key.id",
    "s3_acl_canned": "s3.acl.canned",
    "s3_storage_class": "s3.storage.class",
}
_BODY: Final = b"written by sinksdk at a start, to find out what this endpoint can do"
_CRC32: Final = crc.encode(zlib.crc32(_BODY))

_SKEW: Final = 5.0  # seconds by which clocks of one endpoint's servers may differ


class Retries:
    """Repeats a probe after a transient error, a lost response, or interference by another start."""

    def __init__(
        self,
        sleep: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sleep = sleep
        self._clock = clock

    def __call__(self, attempt: Callable[[], T]) -> T:
        deadline, failures = 0.0, 0
        while True:
            try:
                return attempt()
            except S3TransientError as error:
                now = self._clock()
                deadline, failures = deadline or now + S3_PROBE.total, failures + 1
                delay = S3_PROBE.before(deadline, failures, now)
                if delay is None:
                    raise  # the driver reports the error and starts the connector again later
                log.info("cannot test the endpoint, retrying in %.1f s: %s", delay, error)
                self._sleep(delay)


def find_abilities(
    s3: S3, config: UploadSettings, layout: Layout, incarnation: str, retries: Retries | None = None
) -> Abilities:
    """Complete a small upload with the best checksum that the endpoint accepts, and delete the object."""
    retries = retries or Retries()
    # Each connector has one such object, which its concurrent starts share. Without s3:DeleteObject the
    # object stays, and the next start overwrites it.
    where = Location(config.s3_bucket_name, layout.tried(incarnation))
    kinds = list(Checksum) if config.s3_checksum == "auto" else [Checksum(config.s3_checksum)]
    refused: list[S3Error] = []
    for kind in kinds:
        try:
            _expect_permission(lambda: s3.abort_upload(where, "probe"))
            has_conditions = _has_conditions(s3, where, kind, config.s3_conditional_writes, retries)
        except S3Error as error:
            refused.append(error)
            if not may_be_a_checksum(error.code):
                break
        else:
            _tell(s3, config, kind, refused, has_conditions=has_conditions)
            return Abilities(kind, has_conditions)
    raise _refusal(config, kinds, refused) from refused[-1]


def _tell(
    s3: S3, config: UploadSettings, kind: Checksum, refused: list[S3Error], *, has_conditions: bool
) -> None:
    endpoint = s3.endpoint or "S3"
    if refused:
        log.warning(
            "connector %s: %s refuses uploads with a better checksum than '%s' (%s): files are written with "
            "this one. Set 's3.checksum=%s' to skip this test at each start",
            config.name,
            endpoint,
            kind,
            refused[-1].code,
            kind,
        )
    if not has_conditions and config.s3_conditional_writes == "auto":
        log.warning(
            "connector %s: %s does not honour If-None-Match of CompleteMultipartUpload: the archiver checks "
            "whether the object exists before it completes an upload",
            config.name,
            endpoint,
        )


def _has_conditions(s3: S3, where: Location, kind: Checksum, configured: str, retries: Retries) -> bool:
    def completes(at: Location, *, if_absent: bool) -> bool:
        return retries(lambda: _complete(s3, at, kind, if_absent=if_absent))

    def are_honoured(at: Location) -> bool:
        if completes(at, if_absent=True):
            return not completes(at, if_absent=True)
        # An earlier start that may not delete has left the object, so this start has not tested the checksum
        # yet.
        completes(at, if_absent=False)
        return True

    made = [where]
    if configured == "false":
        completes(where, if_absent=False)
        has_conditions = False
    else:
        try:
            has_conditions = are_honoured(where)
            if not has_conditions:
                # Another start of this connector may have removed the object in between.
                made.append(where._replace(key=f"{where.key}-{uuid.uuid4().hex}"))
                has_conditions = are_honoured(made[-1])
        except S3Error as error:
            if error.code != NOT_IMPLEMENTED:
                raise
            completes(where, if_absent=False)
            has_conditions = False
    try:
        for each in made:
            retries(partial(s3.delete, each))
    except (S3Error, S3TransientError) as error:
        log.info("cannot delete the object of the test, %s: %s", where, error)
    return has_conditions or configured == "true"


def _complete(s3: S3, where: Location, kind: Checksum, *, if_absent: bool) -> bool:
    """Upload a few bytes; return False if the key exists and the condition is honoured."""
    upload_id = s3.create_upload(where, {}, kind)
    try:
        part = s3.upload_part(where, upload_id, 1, _BODY, _CRC32, checksum=kind)
        s3.complete_upload(
            where,
            upload_id,
            [part],
            size=len(_BODY),
            crc32=_CRC32,
            if_absent=if_absent,
            checksum=kind,
        )
    except (S3Error, S3TransientError) as error:
        _give_up(s3, where, upload_id)
        if error.code == PRECONDITION_FAILED and if_absent:
            return False
        if error.code == NO_SUCH_UPLOAD:
            # Either the sweep of another start aborted the upload, or it is complete and the response was
            # lost.
            raise S3TransientError(str(error), CONFLICT) from error
        if error.code == BAD_DIGEST:
            # The part was sent several times, so it was not damaged in transit: S3 expects another kind of
            # checksum.
            raise S3Error(str(error), error.code) from error
        raise
    return True


def _give_up(s3: S3, where: Location, upload_id: str) -> None:
    try:
        _expect(NO_SUCH_UPLOAD, partial(s3.abort_upload, where, upload_id))
    except S3TransientError as error:
        log.info("cannot abort an upload to %s (the next start aborts it): %s", where, error)


def _refusal(config: UploadSettings, kinds: list[Checksum], refused: list[S3Error]) -> ConfigException:
    bucket = config.s3_bucket_name
    if config.s3_checksum != "auto" and may_be_a_checksum(refused[-1].code):
        return ConfigException(
            f"files cannot be written to bucket {bucket}{_configured(config, checksum=True)}: {refused[-1]}. "
            f"If this endpoint does not support that checksum, set 's3.checksum' to auto, which finds one "
            f"that works"
        )
    tried = f". No 's3.checksum' works; tried: {', '.join(kinds[: len(refused)])}" if len(refused) > 1 else ""
    return ConfigException(
        f"files cannot be written to bucket {bucket}{_configured(config)}: {refused[-1]}{tried}"
    )


def _configured(config: UploadSettings, *, checksum: bool = False) -> str:
    configured = {key: getattr(config, field) for field, key in _UPLOAD_KEYS.items()}
    if checksum:
        configured["s3.checksum"] = config.s3_checksum
    wanted = " and ".join(f"'{key}' = {value}" for key, value in configured.items() if value)
    return f" with {wanted}" if wanted else ""


def sweep(
    s3: S3,
    config: UploadSettings,
    layout: Layout,
    topics: Collection[str],
    *,
    claimed: float,  # the endpoint's time before this driver's claim
    named: Container[str],  # ids of committed uploads
) -> None:
    """Abort empty uploads of predecessors that crashed between creating them and storing the token."""
    # The writer of an upload older than the claim is fenced. A successor's uploads are younger than its own,
    # later claim: a late process aborts none of them.
    bucket = config.s3_bucket_name
    swept = 0
    try:
        for prefix in (*map(layout.folder, topics), layout.tried("")):
            for found in s3.list_uploads(bucket, prefix):
                where = Location(bucket, found.key)
                if found.initiated >= claimed - _SKEW or found.upload_id in named:
                    continue
                # A killed start leaves its test upload behind; if a live start loses its upload, it repeats
                # the test.
                is_probe = prefix == layout.tried("")
                if is_probe or (layout.parse(found.key) and s3.part_sizes(where, found.upload_id) == []):
                    _expect(NO_SUCH_UPLOAD, partial(s3.abort_upload, where, found.upload_id))
                    swept += 1
    except (S3Error, S3TransientError) as error:
        log.info("connector %s: cannot abort all empty uploads of earlier runs: %s", config.name, error)
    if swept:
        log.info("connector %s: aborted %d empty uploads of earlier runs", config.name, swept)


def probe(
    s3: S3,
    config: UploadSettings,
    layout: Layout,
    topic: str,
    *,
    checksum: Checksum,
    retries: Retries | None = None,
) -> None:
    where = Location(config.s3_bucket_name, layout.probe(topic))
    retries = retries or Retries()
    try:
        retries(lambda: _probe(s3, where, config, checksum))
    except S3Error as error:
        raise ConfigException(
            f"files of topic {topic} cannot be written{_configured(config)}: {error}"
        ) from error


def _probe(s3: S3, where: Location, config: UploadSettings, checksum: Checksum) -> None:
    # The check leaves nothing behind: without the permission to abort nothing is created, and the next start
    # removes the remains of lost responses. A read comes first: MinIO creates uploads even for names that it
    # refuses.
    _expect(NO_SUCH_KEY, lambda: s3.read(where).close())
    _expect_permission(lambda: s3.abort_upload(where, "probe"))
    if config.s3_object_tagging:
        _probe_tags(s3, where, config)
    _expect(NO_SUCH_UPLOAD, partial(s3.abort_upload, where, s3.create_upload(where, {}, checksum)))
    for left in _uploads_left(s3, where):
        _expect(NO_SUCH_UPLOAD, partial(s3.abort_upload, where, left.upload_id))


def _expect(code: str, request: Callable[[], object]) -> None:
    try:
        request()
    except S3Error as error:
        if error.code != code:
            raise


def _expect_permission(request: Callable[[], object]) -> None:
    # Endpoints respond differently about a missing object: only a denial counts.
    try:
        request()
    except (S3Error, S3TransientError) as error:
        if error.code in DENIED:
            raise


def _probe_tags(s3: S3, where: Location, config: UploadSettings) -> None:
    try:
        _expect(NO_SUCH_KEY, lambda: s3.tag(where, config.tags()))
    except S3Error as error:
        if config.s3_tagging_error == "fail":
            raise
        log.warning("files will be archived but not tagged: %s", error)


def _uploads_left(s3: S3, where: Location) -> list[PendingUpload]:
    try:
        return [pending for pending in s3.list_uploads(*where) if pending.key == where.key]
    except S3Error:  # the user may not list uploads
        return []
