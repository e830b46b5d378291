"""Topics of Kafka, of a topic directory, and in the memory of a test.

Each kind has a ``Source``, a writer of transactions (:class:`~sinksdk.engine.writer.TransactionalWriter`),
and a reader of the source offsets in them (:class:`~sinksdk.engine.writer.CommittedOffsets`). A topic
directory is Parquet files in folders per topic and partition, and needs only a file system.
"""

from __future__ import annotations

from sinksdk.topics.base import Source, Subscription
from sinksdk.topics.directory import TopicDirectorySource, write_records, write_transaction

__all__ = ["Source", "Subscription", "TopicDirectorySource", "write_records", "write_transaction"]
