"""Sink connectors in Python, on Spark, that commit on close.

This module contains what connector authors import. The packages, from the ground up::

    connector  task  context  records  config  errors      the interface for authors of sinks
    source     the same for authors of sources
    transforms Connect's single message transforms
    values     typed keys and values, as Python objects and as JSON
    testing    doubles, a harness and contract tests for connector authors
    engine     runs one task: pure, no Spark, no I/O
    store      compare-and-set stores and the typed views on them
    topics     Kafka and topic directories: records in and out
    worker     one attempt of a task on an executor, without pyspark
    spark      the session and the job of one generation
    control    operators' requests, and the status they see
    runtime    the driver: plans generations, runs them, fences their predecessors
    launch     from a configuration to a running connector
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from sinksdk.compatibility import Converted, Meaning, Option, Verdict
from sinksdk.config import ConnectorConfig
from sinksdk.connector import BatchPolicy, Connector, ConnectorContext, ConnectorIdentity, SinkConnector
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
from sinksdk.offsets import OffsetAndMetadata, OffsetRange, Token, TopicPartition
from sinksdk.records import Header, SinkRecord, SinkRecords
from sinksdk.settings.file import read_config_file
from sinksdk.task import SinkTask
from sinksdk.values.json_text import bad_json, read_json
from sinksdk.values.text import json_texts

if TYPE_CHECKING:
    from sinksdk.launch.run import run, start
    from sinksdk.launch.running import RunningConnector
    from sinksdk.launch.summary import Summary
    from sinksdk.launch.topics import KafkaTopics, TopicDirectory
    from sinksdk.store import committed_offsets

__version__ = "0.1.0"

__all__ = [
    "BatchPolicy",
    "ClosingReason",
    "ConfigException",
    "ConnectException",
    "Connector",
    "ConnectorConfig",
    "ConnectorContext",
    "ConnectorIdentity",
    "Converted",
    "DataException",
    "ErrantRecordReporter",
    "FencedException",
    "Header",
    "KafkaTopics",
    "Meaning",
    "MissingSourceTopicException",
    "OffsetAndMetadata",
    "OffsetOutOfRangeException",
    "OffsetRange",
    "Option",
    "RetriableException",
    "RunningConnector",
    "SinkConnector",
    "SinkRecord",
    "SinkRecords",
    "SinkTask",
    "SinkTaskContext",
    "Summary",
    "Token",
    "TopicDirectory",
    "TopicPartition",
    "UnpublishableException",
    "Verdict",
    "bad_json",
    "committed_offsets",
    "json_texts",
    "read_config_file",
    "read_json",
    "run",
    "start",
]

_LOADED_ON_FIRST_USE = {
    "KafkaTopics": "sinksdk.launch.topics",
    "RunningConnector": "sinksdk.launch.running",
    "Summary": "sinksdk.launch.summary",
    "TopicDirectory": "sinksdk.launch.topics",
    "committed_offsets": "sinksdk.store",
    "run": "sinksdk.launch.run",
    "start": "sinksdk.launch.run",
}
"""Tasks on executors do not need these names, nor the database library that their modules import."""


def __getattr__(name: str) -> Any:
    if name in _LOADED_ON_FIRST_USE:
        return getattr(importlib.import_module(_LOADED_ON_FIRST_USE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
