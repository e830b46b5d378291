"""Creates S3 clients."""

from __future__ import annotations

from typing import Protocol

from sinksdk.connectors.s3_archiver.s3.client import S3
from sinksdk.connectors.s3_archiver.s3.settings import UploadSettings


class Connect(Protocol):
    """Creates a client; ``endpoint`` overrides ``store.url`` and is empty for AWS's own."""

    def __call__(self, config: UploadSettings, endpoint: str | None = None) -> S3: ...


def connect(config: UploadSettings, endpoint: str | None = None) -> S3:
    from sinksdk.connectors.s3_archiver.s3 import boto_client  # noqa: PLC0415 - loads boto3

    return boto_client.connect(config, endpoint)
