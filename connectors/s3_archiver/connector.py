"""The connector: checks the bucket before anything starts, and owns the topics' archives."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from sinksdk import BatchPolicy, ConfigException, SinkConnector, SinkTask
from sinksdk.connectors.s3_archiver.client import Connect
from sinksdk.connectors.s3_archiver.config import S3ArchiverConfig
from sinksdk.connectors.s3_archiver.connecting import connect
from sinksdk.connectors.s3_archiver.errors import NO_ANSWER, S3Error, S3Trouble
from sinksdk.connectors.s3_archiver.owner import Owners
from sinksdk.connectors.s3_archiver.task import S3ArchiverTask


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

    def start(self, config: S3ArchiverConfig) -> None:
        """Check that the bucket is there and may be used, and claim the topics that are named.

        Raises:
            ConfigException: bucket missing, access denied, or a topic's archive belongs to another connector.
            S3Trouble: the endpoint does not answer, or not now.
        """
        s3 = self._connect(config)
        try:
            s3.head_bucket(config.s3_bucket_name)
        except S3Error as error:
            raise ConfigException(_bucket_problem(config, error)) from error
        except S3Trouble as error:
            raise S3Trouble(_bucket_problem(config, error), error.code) from error
        self._owners = Owners(s3, config.s3_bucket_name, config.layout(), self.identity)
        self.subscribed(config.topics)

    def subscribed(self, topics: Collection[str]) -> None:
        """Take the topics' places in the archive: those of ``topics.regex`` are known only now.

        Raises:
            ConfigException: a topic's archive belongs to another connector, or the bucket refuses.
            S3Trouble: the endpoint does not answer, or not now.
        """
        if self._owners is None:
            message = "subscribed() comes after start()"
            raise ValueError(message)
        try:
            self._owners.claim(topics)
        except S3Error as error:
            message = f"the owner markers cannot be checked: {error}"
            raise ConfigException(message) from error

    def stop(self, is_deleted: bool = False) -> None:  # noqa: FBT001, FBT002 - KIP-883's signature
        """When the connector is deleted: release the owner markers. What is archived stays where it is.

        Raises:
            S3Error, S3Trouble: the bucket refuses, or does not answer; who writes there next is told which
                markers are left.
        """
        if is_deleted and self._owners is not None:
            self._owners.release()

    def batch_policy(self, config: S3ArchiverConfig) -> BatchPolicy:
        """Whole files of ``flush.size`` records, or whatever is there when the schedule is due."""
        return config.policy()


def _bucket_problem(config: S3ArchiverConfig, error: S3Error | S3Trouble) -> str:
    """One sentence that says what is wrong with the bucket and what to do."""
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
