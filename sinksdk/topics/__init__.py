"""Topics, read and written: Kafka's, those of a topic directory, and those in the memory of a test.

The runtime asks a ``Source``. Each kind has one, a writer of transactions
(:class:`~sinksdk.engine.writer.TransactionalWriter`), and a reader of the source offsets they carried
(:class:`~sinksdk.engine.writer.CommittedOffsets`). A topic directory is Parquet files in folders per topic
and partition, and needs only a file system.
"""

from __future__ import annotations

from sinksdk.topics.base import Source, Subscription
from sinksdk.topics.directory import TopicDirectorySource, write_records, write_transaction

__all__ = ["Source", "Subscription", "TopicDirectorySource", "write_records", "write_transaction"]
