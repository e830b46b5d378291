"""The connector: checks the bucket before anything starts, and marks the topics' archives as its own.

Commits live in a store, the archive in a bucket. A connector that has lost its store, or a second one with
the same prefix, would archive a topic a second time beside the first: an owner marker, one small object per
topic, stops that before any data is written.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, ClassVar, Final

from sinksdk import BatchPolicy, ConfigException, SinkConnector, SinkTask
from sinksdk.connector import ConnectorIdentity
from sinksdk.connectors.s3_archiver.advice import hidden_warning, topic_problem
from sinksdk.connectors.s3_archiver.client import S3, Connect, Location, PendingUpload, connect
from sinksdk.connectors.s3_archiver.config import S3ArchiverConfig
from sinksdk.connectors.s3_archiver.errors import (
    DENIED,
    NO_ANSWER,
    NO_SUCH_KEY,
    NO_SUCH_UPLOAD,
    NOT_IMPLEMENTED,
    S3Error,
    S3Trouble,
)
from sinksdk.connectors.s3_archiver.layout import Layout
from sinksdk.connectors.s3_archiver.task import S3ArchiverTask

log = logging.getLogger(__name__)

_FORMAT: Final = 1
_UPLOAD_KEYS: Final = {
    "s3_sse_algorithm": "s3.ssea.name",
    "s3_sse_kms_key_id": "s3.sse.kms.key.id",
    "s3_acl_canned": "s3.acl.canned",
    "s3_storage_class": "s3.storage.class",
}


@dataclass(frozen=True, slots=True)
class Owners:
    """The owner markers of one connector."""

    s3: S3
    bucket: str
    layout: Layout
    identity: ConnectorIdentity

    def claim(self, topics: Iterable[str]) -> None:
        """Mark topics as this connector's, or find them so.

        Raises:
            ConfigException: others own some of them; all are named.
            S3Trouble: try again later.
            S3Error: refused.
        """
        problems = [problem for topic in topics if (problem := self._claim(topic))]
        if problems:
            raise ConfigException(problems)

    def release(self) -> None:
        """Delete this connector's markers, because it is deleted itself: archived files stay.

        Uploads are not looked for: the runtime has had the connector's published or discarded, by their
        tokens. A listing would also show uploads of the topics' next owner, if this process is late.

        Raises:
            S3Trouble: try again later.
            S3Error: refused.
        """
        for marker in list(self.s3.list(self.bucket, self.layout.markers())):
            topic = self.layout.marked(marker.key)
            location = Location(self.bucket, marker.key)
            if topic is not None and self._read(location) == self._own():
                self.s3.delete(location)

    def _claim(self, topic: str) -> str | None:
        """The problem, if any."""
        location = Location(self.bucket, self.layout.marker(topic))
        marker = self._read(location)
        if marker is None:
            self._write(location)
            # Read it back, whatever the answer was: it may have been lost, another connector may have
            # been first, and some stores ignore the condition.
            marker = self._read(location)
        if marker is None:
            return f"{location}, the owner marker of topic {topic}, is gone after it was written: start again"
        return None if marker == self._own() else self._refusal(topic, location, marker)

    def _own(self) -> dict[str, Any]:
        return {"format": _FORMAT, **asdict(self.identity)}

    def _read(self, location: Location) -> dict[str, Any] | None:
        try:
            with self.s3.read(location) as content:
                found = json.loads(content.read())
        except S3Error as error:
            if error.code == NO_SUCH_KEY:
                return None
            raise
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    def _write(self, location: Location) -> None:
        body = json.dumps(self._own(), indent=2).encode()
        try:
            self.s3.put_if_absent(location, body)
        except S3Error as error:
            if error.code != NOT_IMPLEMENTED:
                raise
            self.s3.put(location, body)  # no conditions here; we have just seen that it is absent

    def _refusal(self, topic: str, location: Location, marker: dict[str, Any]) -> str:
        mine = self.identity
        where = f"{self.layout.folder(topic)} in bucket {self.bucket}"
        if marker.get("format") != _FORMAT:
            return (
                f"{location}, the owner marker of topic {topic}, cannot be read: it is damaged, or was "
                f"written by a newer version"
            )
        if marker["connector"] != mine.connector:
            whose = f"connector '{marker['connector']}'"
        elif marker["store_id"] != mine.store_id:
            whose = (
                f"a connector of the same name whose commits are in another store (id {marker['store_id']}, "
                f"this one is {mine.store_id})"
            )
        else:
            whose = "an earlier connector of the same name, which was deleted"
        return (
            f"the archive of topic {topic} under {where} belongs to {whose}: writing there would archive its "
            f"records twice. Start with that connector's store, or choose another 'topics.dir'; if nobody "
            f"writes there any more and you want to go on in this place, delete the marker {location} (and "
            f"set the offsets to where the archive ends)"
        )


class S3ArchiverConnector(SinkConnector):
    """Archives Kafka topics as Avro container files on S3, exactly once, and commits on close.

    Args:
        connect: makes S3 clients; boto3's by default.
    """

    config_class: ClassVar[type[S3ArchiverConfig]] = S3ArchiverConfig
    task_class: ClassVar[type[SinkTask]] = S3ArchiverTask

    def __init__(self, *, connect: Connect = connect) -> None:
        self._connect = connect
        self._owners: Owners | None = None
        self._longest = ""
        self._warned: set[str] = set()

    def start(self, config: S3ArchiverConfig) -> None:
        """Check that the bucket is there and may be used, and claim the topics that are named.

        Raises:
            ConfigException: bucket missing, access denied, something refused that uploads need, or a topic's
                archive belongs to another connector.
            S3Trouble: the endpoint does not answer, or not now.
        """
        s3 = self._connect(config)
        try:
            s3.head_bucket(config.s3_bucket_name)
        except S3Error as error:
            raise ConfigException(_bucket_problem(config, error)) from error
        except S3Trouble as error:
            raise S3Trouble(_bucket_problem(config, error), error.code) from error
        self._config = config
        self._owners = Owners(s3, config.s3_bucket_name, config.layout(), self.identity)
        self.subscribed(config.topics)

    def subscribed(self, topics: Collection[str]) -> None:
        """Take the topics' places in the archive: those of ``topics.regex`` are known only now.

        The topic of the longest name stands for all others when it is tried what uploads need.

        Raises:
            ConfigException: a topic's archive belongs to another connector, or the bucket refuses an upload.
            S3Trouble: the endpoint does not answer, or not now.
        """
        if self._owners is None:
            message = "subscribed() comes after start()"
            raise ValueError(message)
        if wrong := [why for topic in topics if (why := topic_problem(topic))]:
            raise ConfigException(wrong)
        if self._config.topics_regex:  # those that are named are in the configuration's warnings
            for warning in hidden_warning(set(topics) - self._warned):
                log.warning("connector %s: %s", self._config.name, warning)
            self._warned |= set(topics)
        try:
            self._owners.claim(topics)
        except S3Error as error:
            raise ConfigException(f"the owner markers cannot be checked: {error}") from error
        longest = max(topics, key=len, default="")
        if len(longest) > len(self._longest):
            _probe(self._owners.s3, self._config, longest)
            self._longest = longest

    def stop(self, is_deleted: bool = False) -> None:  # noqa: FBT001, FBT002 - KIP-883's signature
        """When the connector is deleted: release the owner markers. The archive stays.

        Raises:
            S3Error, S3Trouble: the bucket refuses, or does not answer: markers may be left.
        """
        if is_deleted and self._owners is not None:
            self._owners.release()

    def unmet(self, config: S3ArchiverConfig) -> Sequence[str]:
        """A format that needs types, and values without a converter to give them."""
        return config.untyped()

    def batch_policy(self, config: S3ArchiverConfig) -> BatchPolicy:
        """Whole files of ``flush.size`` records, or whatever is there when the schedule is due."""
        return config.policy()


def _probe(s3: S3, config: S3ArchiverConfig, topic: str) -> None:
    """Try what uploads need, before any record is taken, with a key that no file has.

    Nothing stays behind: where nothing may be aborted, nothing is created, and what an answer that was lost
    has left is found by the next start.

    Raises:
        ConfigException: refused for good.
        S3Trouble: try again later.
    """
    where = Location(config.s3_bucket_name, config.layout().probe(topic))
    try:
        _expect(
            NO_SUCH_KEY, lambda: s3.read(where).close()
        )  # MinIO begins uploads of names that it cannot have
        _expect_permission(lambda: s3.abort_upload(where, "probe"))
        if config.s3_object_tagging:
            _probe_tags(s3, where, config)
        _expect(NO_SUCH_UPLOAD, partial(s3.abort_upload, where, s3.create_upload(where, {})))
        for left in _uploads_left(s3, where):
            _expect(NO_SUCH_UPLOAD, partial(s3.abort_upload, where, left.upload_id))
    except S3Error as error:
        asked = {key: getattr(config, field) for field, key in _UPLOAD_KEYS.items()}
        wanted = " and ".join(f"'{key}' = {value}" for key, value in asked.items() if value)
        raise ConfigException(
            f"files of topic {topic} cannot be written{f' with {wanted}' if wanted else ''}: {error}"
        ) from error


def _expect(code: str, request: Callable[[], object]) -> None:
    """Make a request that need not succeed. Raises S3Error if it is refused for another reason."""
    try:
        request()
    except S3Error as error:
        if error.code != code:
            raise


def _expect_permission(request: Callable[[], object]) -> None:
    """Make a request for something that is not there: only a denial counts, whatever stores say else."""
    try:
        request()
    except (S3Error, S3Trouble) as error:
        if error.code in DENIED:
            raise


def _probe_tags(s3: S3, where: Location, config: S3ArchiverConfig) -> None:
    try:
        _expect(NO_SUCH_KEY, lambda: s3.tag(where, config.tags()))
    except S3Error as error:
        if config.s3_tagging_error == "fail":
            raise
        log.warning("files will be archived but not tagged: %s", error)


def _uploads_left(s3: S3, where: Location) -> list[PendingUpload]:
    """Uploads of that key; none for those who may not list them."""
    try:
        return [pending for pending in s3.list_uploads(*where) if pending.key == where.key]
    except S3Error:
        return []


def _bucket_problem(config: S3ArchiverConfig, error: S3Error | S3Trouble) -> str:
    """One sentence with the bucket's problem and what to do."""
    bucket, endpoint = config.s3_bucket_name, config.store_url or f"AWS S3, region {config.s3_region}"
    if error.code in ("404", "NoSuchBucket"):
        return (
            f"bucket '{bucket}' does not exist at {endpoint}: create it, or correct 's3.bucket.name' or "
            f"'store.url'"
        )
    if error.code in ("403", "AccessDenied"):
        return (
            f"access to bucket '{bucket}' at {endpoint} is denied: check the credentials, and grant them "
            f"s3:ListBucket, s3:GetObject, s3:PutObject and s3:AbortMultipartUpload"
        )
    if error.code == NO_ANSWER:
        return (
            f"no S3 endpoint answers at {endpoint}: check 'store.url', 's3.region' and the network ({error})"
        )
    return str(error)
