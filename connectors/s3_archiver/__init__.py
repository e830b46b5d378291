"""Archives Kafka topics as files on S3, exactly once.

The rooms, of which each imports only those above it:

- ``archive``: keys of objects, headers of files and metadata of commits.
- ``s3``: requests, uploads in two phases, owner markers, tests of an endpoint;
  ``formats``: the bytes of files.
- ``partitioners``: the folders of records.
- ``files``: open files of a partition, and when they end; ``verify``: reading an archive back;
  ``compatibility``: configurations of other S3 sinks.

The module ``settings`` of a room declares the configuration keys that the room owns, and ``config`` joins
them: no room knows all keys. A record passes through ``task``, ``files.writer``, ``files.group``,
``s3.upload`` and ``s3.publisher``.
"""

from __future__ import annotations

from sinksdk.connectors.s3_archiver.connector import S3ArchiverConnector

__all__ = ["S3ArchiverConnector"]
