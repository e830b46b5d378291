"""Sink connectors in Python, on Spark, that commit on close.

What a connector author imports is here; everything below (``engine``, ``store``, ``runtime``,
``sources``, ``spark``) is the machinery that runs it::

    connector  task  context  records  config  errors      what authors see
    source     the same for authors of sources
    engine     drives one task: pure, no Spark, no I/O
    store      compare-and-set stores and the typed views on them
    sources    where records come from
    writers    where source tasks write to
    spark      the session and the job of one generation
    runtime    plans generations, runs them, fences their predecessors
    testing    doubles and a harness for connector authors
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sinksdk.compatibility import Meaning, Option, Verdict
from sinksdk.config import ConnectorConfig
from sinksdk.config_file import read_config_file
from sinksdk.connector import BatchPolicy, Connector, SinkConnector
from sinksdk.context import ClosingReason, ErrantRecordReporter, SinkTaskContext
from sinksdk.errors import (
    ConfigException,
    ConnectException,
    DataException,
    FencedException,
    MissingSourceTopicException,
    OffsetOutOfRangeException,
    RetriableException,
    UnpublishableException,
)
from sinksdk.records import (
    Header,
    OffsetAndMetadata,
    OffsetRange,
    SinkRecord,
    SinkRecords,
    Token,
    TopicPartition,
)
from sinksdk.task import SinkTask

if TYPE_CHECKING:
    from sinksdk.store import committed_offsets

__version__ = "0.1.0"

__all__ = [
    "BatchPolicy",
    "ClosingReason",
    "ConfigException",
    "ConnectException",
    "Connector",
    "ConnectorConfig",
    "DataException",
    "ErrantRecordReporter",
    "FencedException",
    "Header",
    "Meaning",
    "MissingSourceTopicException",
    "OffsetAndMetadata",
    "OffsetOutOfRangeException",
    "OffsetRange",
    "Option",
    "RetriableException",
    "SinkConnector",
    "SinkRecord",
    "SinkRecords",
    "SinkTask",
    "SinkTaskContext",
    "Token",
    "TopicPartition",
    "UnpublishableException",
    "Verdict",
    "committed_offsets",
    "read_config_file",
]


def __getattr__(name: str) -> Any:
    """Load ``committed_offsets`` when it is asked for: a task need not pay for a database library."""
    if name == "committed_offsets":
        from sinksdk.store import committed_offsets  # noqa: PLC0415 - the point of this function

        return committed_offsets
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)
