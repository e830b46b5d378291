"""Kafka records into Avro object container files on S3, exactly once."""

from __future__ import annotations

from sinksdk.connectors.s3_archiver.connector import S3ArchiverConnector

__all__ = ["S3ArchiverConnector"]
