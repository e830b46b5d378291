"""Source connectors: what their authors import, with Kafka Connect's names.

A source connector reads records from an external system; the runtime writes them to topics of Kafka or of a
topic directory, in transactions that include the source offsets.
"""

from __future__ import annotations

from sinksdk.connector import ConnectorContext
from sinksdk.source.config import SourceConnectorConfig
from sinksdk.source.connector import ConnectorTransactionBoundaries, ExactlyOnceSupport, SourceConnector
from sinksdk.source.context import OffsetStorageReader, SourceTaskContext, TransactionContext
from sinksdk.source.records import RecordMetadata, Scalar, SourceOffset, SourcePartition, SourceRecord
from sinksdk.source.task import SourceTask

__all__ = [
    "ConnectorContext",
    "ConnectorTransactionBoundaries",
    "ExactlyOnceSupport",
    "OffsetStorageReader",
    "RecordMetadata",
    "Scalar",
    "SourceConnector",
    "SourceConnectorConfig",
    "SourceOffset",
    "SourcePartition",
    "SourceRecord",
    "SourceTask",
    "SourceTaskContext",
    "TransactionContext",
]
