"""Kafka Connect clients of other projects, against a server on a port: all of their operations.

Two maintained ones with different requests: ``kafka-connect-py`` (1.0.0, with a command line, ``kc``), and
``kafka-connect-api`` (0.5.10), which sends ``Content-Type`` with every request and a trailing slash in some paths,
and reads loggers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from kafka_connect import KafkaConnect
from kafka_connect.cli import cli
from kafka_connect_api.errors import (
    ConnectApiException,
    GenericConflict,
    GenericNotFound,
    GenericUnauthorized,
)
from kafka_connect_api.kafka_connect_api import Api, Cluster
from requests import HTTPError

from sinksdk.control.herder import Herder
from tests.helpers.memory_store import MemoryStore
from tests.server.serving import CONFIG, run_a_little, serving

CREATE = {"name": "archive", "config": CONFIG}


@pytest.fixture
def address(store: MemoryStore) -> Iterator[str]:
    with serving(store) as found:
        yield found


def refused(code: int) -> Any:
    return pytest.raises(HTTPError, match=rf"^{code} |\"error_code\":{code}")


# -- kafka-connect-py ------------------------------------------------------------------------------


@pytest.fixture
def client(address: str) -> KafkaConnect:
    return KafkaConnect(address)


def test_kafka_connect_py_creates_and_reads(client: KafkaConnect, store: MemoryStore) -> None:
    assert client.get_cluster_info().keys() == {"version", "commit", "kafka_cluster_id"}
    made = client.create_connector(CREATE)
    run_a_little(store)

    assert (made["name"], made["type"], made["tasks"]) == ("archive", "sink", [])
    assert client.list_connectors() == ["archive"]
    assert client.list_connectors(pattern="x") == []
    assert client.list_connectors(state="running") == ["archive"]
    assert client.list_connectors(expand="info")["archive"]["info"] == client.get_connector("archive")
    assert client.get_connector("archive")["tasks"] == [{"connector": "archive", "task": 0}]
    assert client.get_connector_config("archive")["aws.secret.access.key"] == "********"
    assert client.get_connector_status("archive")["connector"]["state"] == "RUNNING"
    assert [task["id"]["task"] for task in client.list_connector_tasks("archive")] == [0]
    assert client.get_connector_task_status("archive", 0)["state"] == "RUNNING"
    assert client.list_connector_topics("archive") == {"archive": {"topics": ["orders"]}}


def test_kafka_connect_py_changes_and_controls(
    client: KafkaConnect, store: MemoryStore, herder: Herder
) -> None:
    client.create_connector(CREATE)
    run_a_little(store)
    shown = client.get_connector_config("archive")
    client.update_connector("archive", {**shown, "flush.size": "2000"})
    assert herder.connector("archive").config == {**CONFIG, "name": "archive", "flush.size": "2000"}

    targets = []
    for control in (client.pause_connector, client.stop_connector, client.resume_connector):
        control("archive")
        targets.append(herder.connector("archive").target_state)
    client.pause_all_connectors()
    client.resume_all_connectors(pattern="arch")
    assert targets == ["PAUSED", "STOPPED", "RUNNING"]
    assert client.restart_connector("archive") is None
    assert client.restart_connector("archive", include_tasks=True)["connector"]["state"] == "RUNNING"
    assert client.restart_connector("archive", only_failed=True)["tasks"][0]["id"] == 0
    client.restart_all_connectors(include_tasks=True, only_failed=True)
    client.restart_connector_task("archive", 0)
    client.reset_connector_topics("archive")
    orders = herder.connector("archive").orders
    assert (orders.restart, orders.restart_failed) == (2, 3)
    client.delete_all_connectors()
    assert herder.connector("archive").deleted


def test_kafka_connect_py_lists_and_validates_plugins(client: KafkaConnect) -> None:
    assert "s3-archiver" in [plugin["class"] for plugin in client.list_connector_plugins()]
    found = client.validate_connector_config("s3-archiver", {**CONFIG, "name": "archive", "flush.size": "0"})
    wrong = [row["value"] for row in found["configs"] if row["value"]["errors"]]

    assert (found["error_count"], [value["name"] for value in wrong]) == (1, ["flush.size"])


def test_kafka_connect_py_understands_404_409_and_400(client: KafkaConnect) -> None:
    for ask in (
        client.get_connector,
        client.pause_connector,
        client.restart_connector,
        client.delete_connector,
    ):
        with refused(404):
            ask("absent")
    client.create_connector(CREATE)
    with refused(409):
        client.create_connector(CREATE)
    with refused(400):
        client.update_connector("archive", {**CONFIG, "flush.size": "none"})
    with refused(404):
        client.get_connector_task_status("archive", 7)
    with refused(404):
        client.validate_connector_config("absent", {})
    client.delete_connector("archive")
    with refused(409):
        client.restart_connector("archive")


def test_kafka_connect_pys_command_line_works(address: str, tmp_path: Path, store: MemoryStore) -> None:
    file = tmp_path / "archive.json"
    file.write_text(json.dumps(CREATE))

    def kc(*arguments: str) -> Any:
        result = CliRunner().invoke(cli, ["--url", address, "--log-level", "CRITICAL", *arguments])
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout) if result.stdout else None

    assert kc("create", "--config-file", str(file))["name"] == "archive"
    run_a_little(store)
    assert kc("info")["version"]
    assert kc("list", "--expand", "status")["archive"]["status"]["connector"]["state"] == "RUNNING"
    assert kc("list", "--state", "PAUSED") == []
    assert kc("config", "archive")["topics"] == "orders"
    assert kc("update", "archive", "--config-data", json.dumps(CONFIG))["name"] == "archive"
    assert kc("restart", "archive", "--include-tasks", "--only-failed")["name"] == "archive"
    assert kc("task-status", "archive", "0")["id"] == 0
    assert kc("pause", "archive") is None
    assert kc("delete", "archive") is None


def test_kafka_connect_py_authenticates_with_a_password(store: MemoryStore, tmp_path: Path) -> None:
    credentials = tmp_path / "credentials"
    credentials.write_text("anna:opensesame\n")
    with serving(store, credentials=credentials) as address:
        assert KafkaConnect(address, auth="anna:opensesame").list_connectors() == []
        with refused(401):
            KafkaConnect(address, auth="anna:wrong").list_connectors()


# -- kafka-connect-api -----------------------------------------------------------------------------


@pytest.fixture
def cluster(address: str) -> Cluster:
    return Cluster(Api(url=address))


def test_kafka_connect_api_reads_and_controls(cluster: Cluster, store: MemoryStore, herder: Herder) -> None:
    herder.create("archive", {**CONFIG, "name": "archive"})
    run_a_little(store, failures=1)
    archive = cluster.connectors["archive"]

    assert cluster.version
    assert cluster.kafka_cluster
    assert archive.exists()
    assert archive.connector_class == "s3-archiver"
    assert archive.state == "RUNNING"
    (task,) = archive.tasks
    assert (task.id, task.state, task.config["topics"]) == (0, "RESTARTING", "orders")
    archive.config = {**archive.config, "flush.size": "2000"}
    assert herder.connector("archive").config == {**CONFIG, "name": "archive", "flush.size": "2000"}
    archive.pause()
    assert herder.connector("archive").target_state == "PAUSED"
    archive.cycle_connector()
    archive.restart()
    assert herder.connector("archive").target_state == "RUNNING"
    assert herder.connector("archive").orders.model_dump() == {
        "restart": 1, "restart_failed": 1, "rebalance": 0, "flush": 0,
    }  # fmt: skip
    archive.delete()
    assert herder.connector("archive").deleted


def test_kafka_connect_api_reads_and_sets_loggers(cluster: Cluster) -> None:
    cluster.root_logger = "DEBUG"
    try:
        assert cluster.root_logger["level"] == "DEBUG"
        assert cluster.set_logger_log_level("sinksdk", "ERROR") == ["sinksdk"]
        assert cluster.loggers["sinksdk"]["level"] == "ERROR"
    finally:
        cluster.root_logger = "WARN"


def test_kafka_connect_api_understands_404_409_400_and_401(
    cluster: Cluster, store: MemoryStore, tmp_path: Path
) -> None:
    with pytest.raises(GenericNotFound):
        cluster.api.get("/connectors/absent")
    cluster.api.post("/connectors", json=CREATE)
    with pytest.raises(GenericConflict):
        cluster.api.post("/connectors", json=CREATE)
    with pytest.raises(ConnectApiException) as caught:
        cluster.connectors["archive"].config = {**CONFIG, "flush.size": "none"}
    assert caught.value.code == 400
    assert "'flush.size'" in caught.value.details["message"]
    credentials = tmp_path / "credentials"
    credentials.write_text("anna:opensesame\n")
    with serving(store, credentials=credentials) as address:
        assert Cluster(Api(url=address, username="anna", password="opensesame")).version
        with pytest.raises(GenericUnauthorized):
            Cluster(Api(url=address)).get()
