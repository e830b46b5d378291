"""Creates S3 clients of a configuration."""

from __future__ import annotations

from typing import Protocol

from sinksdk.connectors.s3_archiver.s3.client import S3
from sinksdk.connectors.s3_archiver.s3.settings import UploadSettings


class Connect(Protocol):
    """Creates a client for a configuration; ``endpoint`` overrides the configured one."""

    def __call__(self, config: UploadSettings, endpoint: str | None = None) -> S3:
        """A client."""


def connect(config: UploadSettings, endpoint: str | None = None) -> S3:
    """Return boto3's client: a :class:`Connect`."""
    from sinksdk.connectors.s3_archiver.s3 import boto_client  # noqa: PLC0415 - loads boto3

    return boto_client.connect(config, endpoint)
