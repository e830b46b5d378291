"""Connects to S3 with boto3, which only those load that talk to S3."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sinksdk.connectors.s3_archiver.client import S3
    from sinksdk.connectors.s3_archiver.config import S3ArchiverConfig


def connect(config: S3ArchiverConfig, endpoint: str | None = None) -> S3:
    """boto3's client for a configuration; see :class:`~sinksdk.connectors.s3_archiver.client.Connect`."""
    from sinksdk.connectors.s3_archiver import boto_client  # noqa: PLC0415 - loads boto3

    return boto_client.connect(config, endpoint)
