"""Attempts at a task whose configuration names external systems: a schema registry, dead letters."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from sinksdk import ConnectorConfig, SinkConnector, SinkRecords, SinkTask
from sinksdk.engine.commits import always_valid
from sinksdk.topics.kafka import KafkaClient, cluster
from sinksdk.topics.kafka.cluster import replaced_topics
from sinksdk.worker.generation_spec import GenerationSpec
from sinksdk.worker.outside import topic_id_check
from sinksdk.worker.sink_task import run_attempt
from sinksdk.worker.task_result import TaskResult
from tests.helpers.memory_store import MemoryStore
from tests.helpers.registry_server import RegistryServer
from tests.store.protocol import P0, plan

SPEC = GenerationSpec("memory:", "id", "c", 1)
FLIGHT = {"type": "record", "name": "Flight", "fields": [{"name": "carrier", "type": "string"}]}


class Config(ConnectorConfig):
    folder: Path


class Task(SinkTask):
    def start(self, config: Config) -> None:
        self._file = config.folder / "values"

    def put(self, records: SinkRecords) -> None:
        with self._file.open("a") as file:
            file.write("".join(f"{json.dumps(record.value)}\n" for record in records))


class Sink(SinkConnector):
    config_class = Config
    task_class = Task


def attempt(folder: Path, values: list[bytes], **config: str) -> TaskResult:
    store = MemoryStore()
    keys = {"name": "c", "connector.class": f"{__name__}:Sink", "topics": "flights", "folder": str(folder)}
    plan(store, 1, [P0], config={**keys, **config})
    rows = {"offset": range(len(values)), "value": values}
    batch = pa.RecordBatch.from_pydict(rows, pa.schema({"offset": "int64", "value": "binary"}))
    return run_attempt(SPEC, store, 0, lambda *_: nullcontext([SinkRecords(P0, batch)]))


def test_a_task_decodes_avro_with_the_schema_registry(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(FLIGHT), {"carrier": "UA"})
    with RegistryServer().running() as registry:
        schema_id = registry.register("flights-value", json.dumps(FLIGHT))
        data = struct.pack(">bI", 0, schema_id) + buffer.getvalue()
        url = {"value.converter.schema.registry.url": registry.url}
        result = attempt(tmp_path, [data, data], **{"value.converter": "avro"}, **url)
    assert [outcome.failure for outcome in result.outcomes] == [None]
    assert (tmp_path / "values").read_text() == '{"carrier": "UA"}\n' * 2
    assert registry.requests == [f"/schemas/ids/{schema_id}"]


def test_unreachable_dead_letters_fail_the_task(tmp_path: Path) -> None:
    keys = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "bad", "value.converter": "json"}
    (outcome,) = attempt(tmp_path, [b"no JSON"], **keys).outcomes
    assert outcome.failure is not None
    assert (
        "set the cluster of this topic with 'producer.override.bootstrap.servers'" in outcome.failure.message
    )
    assert outcome.committed is None


def test_an_executor_that_cannot_read_topic_ids_logs_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # Spark's reader has its properties from the driver: the executor may lack their file.
    config = Config.parse({"name": "c", "connector.class": "x", "topics": "a", "folder": str(tmp_path)})
    nowhere = KafkaClient("127.0.0.1:1", str(tmp_path / "absent.properties"))

    assert topic_id_check(config, nowhere, {"a": "id"}) is always_valid
    (said,) = caplog.records
    assert "this executor cannot read topic ids, so a topic" in said.getMessage()
    assert "absent.properties" in said.getMessage()


@pytest.fixture
def ends_with_its_clients() -> Iterator[None]:
    # A client keeps threads and connections for the next task.
    yield
    cluster._cluster_of.cache_clear()


@pytest.mark.usefixtures("ends_with_its_clients")
def test_only_topics_with_ids_are_checked(tmp_path: Path) -> None:
    config = Config.parse({"name": "c", "connector.class": "x", "topics": "a", "folder": str(tmp_path)})

    assert topic_id_check(config, None, {"a": "id"}) is always_valid
    assert topic_id_check(config, KafkaClient("127.0.0.1:1"), {}) is always_valid
    check: Any = topic_id_check(config, KafkaClient("127.0.0.1:1"), {"a": "id"})
    assert (check.func, check.args[0]) == (replaced_topics, {"a": "id"})
