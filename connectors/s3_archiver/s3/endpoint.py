"""Finds out what an endpoint supports for uploads as configured, before any record is read."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Collection, Container
from functools import partial
from typing import Final, TypeVar

from sinksdk import ConfigException
from sinksdk.connectors.s3_archiver.archive.layout import Layout
from sinksdk.connectors.s3_archiver.s3 import crc
from sinksdk.connectors.s3_archiver.s3.client import S3, Abilities, Checksum, Location, PendingUpload
from sinksdk.connectors.s3_archiver.s3.errors import (
    BAD_DIGEST,
    CONFLICT,
    DENIED,
    NO_SUCH_KEY,
    NO_SUCH_UPLOAD,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    S3Error,
    S3Trouble,
    may_be_a_checksum,
)
from sinksdk.connectors.s3_archiver.s3.settings import UploadSettings

log = logging.getLogger(__name__)

T = TypeVar("T")

_UPLOAD_KEYS: Final = {
    "s3_sse_algorithm": "s3.ssea.name",
    "s3_sse_kms_key_id": "s3.sse.kms.key.id",
    "s3_acl_canned": "s3.acl.canned",
    "s3_storage_class": "s3.storage.class",
}
_BODY: Final = b"written by sinksdk at a start, to find out what this endpoint can do"
_CRC32: Final = crc.encode(crc.of(_BODY))

_SKEW: Final = 5.0
"""Seconds by which clocks of one endpoint's servers may differ."""

_FIRST_DELAY: Final = 0.3  # seconds; doubles with each attempt


class Patience:
    """Repeats a probe after a transient error, a lost response, or interference by another start.

    Args:
        sleep: waits for so many seconds.
        clock: monotonic seconds.
        timeout: seconds after its first failure until which a probe is repeated: as long as a task retries in
            place. Then the start fails with the S3Trouble; the driver reports it and restarts the connector
            later.
    """

    def __init__(
        self,
        sleep: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        timeout: float = 5.0,
    ) -> None:
        self._sleep = sleep
        self._clock = clock
        self._timeout = timeout

    def __call__(self, attempt: Callable[[], T]) -> T:
        """Repeat an attempt until it succeeds or is refused.

        Raises:
            S3Error: refused.
            S3Trouble: no attempt succeeded in time.
        """
        give_up, delay = None, _FIRST_DELAY
        while True:
            try:
                return attempt()
            except S3Trouble as error:
                now = self._clock()
                give_up = now + self._timeout if give_up is None else give_up
                if now + delay > give_up:
                    raise
                log.info("cannot test the endpoint, retrying in %.1f s: %s", delay, error)
                self._sleep(delay)
                delay *= 2


def find_abilities(
    s3: S3, config: UploadSettings, layout: Layout, incarnation: str, patience: Patience | None = None
) -> Abilities:
    """Complete a small upload with the best checksum that the endpoint accepts, and delete the object.

    Without s3:DeleteObject it stays, and the next start overwrites it. Concurrent starts share the object,
    and abort no upload of each other.

    Args:
        incarnation: of the connector, so that concurrently starting connectors use different keys.

    Raises:
        ConfigException: uploads as configured are refused.
        S3Trouble: try again later.
    """
    patience = patience or Patience()
    where = Location(config.s3_bucket_name, layout.tried(incarnation))
    kinds = list(Checksum) if config.s3_checksum == "auto" else [Checksum(config.s3_checksum)]
    refused: list[S3Error] = []
    for kind in kinds:
        try:
            _expect_permission(lambda: s3.abort_upload(where, "probe"))
            has_conditions = _has_conditions(s3, where, kind, config.s3_conditional_writes, patience)
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
    """Log once per start what this endpoint lacks, and the key that avoids the test."""
    endpoint = s3.endpoint or "S3"
    if refused:
        log.warning(
            "connector %s: %s refuses uploads with a better checksum than '%s' (%s): files are written with "
            "this one. 's3.checksum=%s' says so without a try",
            config.name,
            endpoint,
            kind,
            refused[-1].code,
            kind,
        )
    if not has_conditions and config.s3_conditional_writes == "auto":
        log.warning(
            "connector %s: %s does not honour If-None-Match of CompleteMultipartUpload: the archiver checks "
            "whether an object is there before it completes an upload",
            config.name,
            endpoint,
        )


def _has_conditions(s3: S3, where: Location, kind: Checksum, configured: str, patience: Patience) -> bool:
    """Complete two uploads to one key."""

    def completes(at: Location, *, if_absent: bool) -> bool:
        return patience(lambda: _complete(s3, at, kind, if_absent=if_absent))

    def are_honoured(at: Location) -> bool:
        if completes(at, if_absent=True):
            return not completes(at, if_absent=True)
        # Left by an earlier start that may not delete: is the checksum good, too?
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
            patience(partial(s3.delete, each))
    except (S3Error, S3Trouble) as error:
        log.info("cannot delete the object of the test, %s: %s", where, error)
    return has_conditions or configured == "true"


def _complete(s3: S3, where: Location, kind: Checksum, *, if_absent: bool) -> bool:
    """Upload and complete a few bytes; return False if an object exists and the condition is honoured.

    A missing upload was aborted by the sweep of another start, which took it for left over; or it is
    completed, and the response was lost. Both are repeated with a new upload.
    """
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
    except (S3Error, S3Trouble) as error:
        _give_up(s3, where, upload_id)
        if error.code == PRECONDITION_FAILED and if_absent:
            return False
        if error.code == NO_SUCH_UPLOAD:
            raise S3Trouble(str(error), CONFLICT) from error
        if error.code == BAD_DIGEST:
            # Sent several times: not damaged on its way, but compared with another kind of checksum.
            raise S3Error(str(error), error.code) from error
        raise
    return True


def _give_up(s3: S3, where: Location, upload_id: str) -> None:
    """Abort a failed upload; the sweep of a later start aborts it if this fails."""
    try:
        _expect(NO_SUCH_UPLOAD, partial(s3.abort_upload, where, upload_id))
    except S3Trouble as error:
        log.info("cannot abort an upload to %s, the next start will: %s", where, error)


def _refusal(config: UploadSettings, kinds: list[Checksum], refused: list[S3Error]) -> ConfigException:
    bucket = config.s3_bucket_name
    if config.s3_checksum != "auto" and may_be_a_checksum(refused[-1].code):
        return ConfigException(
            f"files cannot be written to bucket {bucket}{_configured(config, checksum=True)}: {refused[-1]}. "
            f"If this endpoint has no such checksum: set 's3.checksum' to auto, which finds one that works"
        )
    tried = f". No 's3.checksum' helps, tried: {', '.join(kinds[: len(refused)])}" if len(refused) > 1 else ""
    return ConfigException(
        f"files cannot be written to bucket {bucket}{_configured(config)}: {refused[-1]}{tried}"
    )


def _configured(config: UploadSettings, *, checksum: bool = False) -> str:
    """Return the configured properties of uploads, by their keys."""
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
    claimed: float,
    named: Container[str],
) -> None:
    """Abort empty uploads of predecessors that crashed between CreateMultipartUpload and storing the token.

    Called after this driver has claimed a generation. An upload that was created before that claim and is in
    no commit can never be committed: its writer is fenced. A successor's uploads are younger than its own
    claim, which follows this one: so this process aborts none of them, however late it is.

    Args:
        claimed: the endpoint's time before the claim.
        named: ids of uploads that are committed.
    """
    bucket = config.s3_bucket_name
    swept = 0
    try:
        for prefix in (*map(layout.folder, topics), layout.tried("")):
            for found in s3.list_uploads(bucket, prefix):
                where = Location(bucket, found.key)
                if found.initiated >= claimed - _SKEW or found.upload_id in named:
                    continue
                # A start that was killed leaves the upload it tried; one that lives is made again.
                is_probe = prefix == layout.tried("")
                if is_probe or (layout.parse(found.key) and s3.part_sizes(where, found.upload_id) == []):
                    _expect(NO_SUCH_UPLOAD, partial(s3.abort_upload, where, found.upload_id))
                    swept += 1
    except (S3Error, S3Trouble) as error:
        log.info("connector %s: empty uploads of earlier runs may be left: %s", config.name, error)
    if swept:
        log.info("connector %s: aborted %d empty uploads of earlier runs", config.name, swept)


def probe(
    s3: S3,
    config: UploadSettings,
    layout: Layout,
    topic: str,
    *,
    checksum: Checksum,
    patience: Patience | None = None,
) -> None:
    """Test all requests of uploads with a key that no file has, before any record is taken.

    Nothing remains: without permission to abort, nothing is created, and the next start removes the remains
    of lost responses.

    Raises:
        ConfigException: refused for good.
        S3Trouble: try again later.
    """
    where = Location(config.s3_bucket_name, layout.probe(topic))
    patience = patience or Patience()
    try:
        patience(lambda: _probe(s3, where, config, checksum))
    except S3Error as error:
        raise ConfigException(
            f"files of topic {topic} cannot be written{_configured(config)}: {error}"
        ) from error


def _probe(s3: S3, where: Location, config: UploadSettings, checksum: Checksum) -> None:
    # MinIO begins uploads of names that it cannot have.
    _expect(NO_SUCH_KEY, lambda: s3.read(where).close())
    _expect_permission(lambda: s3.abort_upload(where, "probe"))
    if config.s3_object_tagging:
        _probe_tags(s3, where, config)
    _expect(NO_SUCH_UPLOAD, partial(s3.abort_upload, where, s3.create_upload(where, {}, checksum)))
    for left in _uploads_left(s3, where):
        _expect(NO_SUCH_UPLOAD, partial(s3.abort_upload, where, left.upload_id))


def _expect(code: str, request: Callable[[], object]) -> None:
    """Make a request that may fail with this code. Raises S3Error for another reason."""
    try:
        request()
    except S3Error as error:
        if error.code != code:
            raise


def _expect_permission(request: Callable[[], object]) -> None:
    """Make a request for a missing object: only a denial counts, whatever else endpoints respond."""
    try:
        request()
    except (S3Error, S3Trouble) as error:
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
    """Return uploads of that key; none without permission to list them."""
    try:
        return [pending for pending in s3.list_uploads(*where) if pending.key == where.key]
    except S3Error:
        return []
