"""Archives Kafka topics as files on S3, exactly once.

A record passes through ``task``, ``files.writer``, ``files.group``, ``s3.upload`` and ``s3.publisher``.
"""

from __future__ import annotations

from sinksdk.connectors.s3_archiver.connector import S3ArchiverConnector

__all__ = ["S3ArchiverConnector"]
