"""Source connectors over REST."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from fastapi.testclient import TestClient

from sinksdk.control.herder import Herder
from sinksdk.control.offsets import OpenedTarget
from sinksdk.server.app import create_app
from sinksdk.topics.memory import MemoryTopics
from tests.helpers.memory_store import MemoryStore
from tests.helpers.memory_target import MemoryTarget
from tests.runtime.running_sources import Counting, CountingConfig, CountingTask, Running, eventually

CONFIG = {"connector.class": "tests.runtime.running_sources:Counting", "tasks.max": "2"}


@pytest.fixture
def topics() -> MemoryTopics:
    return MemoryTopics()


@pytest.fixture
def client(store: MemoryStore, topics: MemoryTopics) -> Iterator[TestClient]:
    def target(raw: Mapping[str, str]) -> OpenedTarget:
        return OpenedTarget(Counting(), CountingConfig.parse(raw), MemoryTarget(topics))

    with TestClient(create_app(store, targets=target), raise_server_exceptions=False) as made:
        yield made


def offsets(*numbers: tuple[str, int | None]) -> dict[str, object]:
    """Return a body with the next number of each share."""
    return {
        "offsets": [
            {"partition": {"share": share}, "offset": None if number is None else {"next": number}}
            for share, number in numbers
        ]
    }


def test_a_created_source_has_type_source(client: TestClient) -> None:
    response = client.post("/connectors", json={"name": "c", "config": CONFIG})

    assert response.status_code == 201, response.text
    assert (response.json()["type"], response.json()["tasks"]) == ("source", [])
    assert client.get("/connectors/c/status").json()["type"] == "source"
    assert 'connector_type="source"' in client.get("/metrics").text


def test_required_exactly_once_support_is_checked(client: TestClient) -> None:
    config = {**CONFIG, "exactly.once.support": "required"}
    response = client.post("/connectors", json={"name": "c", "config": config})

    assert response.status_code == 400
    assert "set it to 'requested'" in response.json()["message"]


def test_a_configuration_of_a_source_is_validated(client: TestClient) -> None:
    plugin = CONFIG["connector.class"]
    config = {**CONFIG, "name": "c", "transaction.boundary": "never"}
    response = client.put(f"/connector-plugins/{plugin}/config/validate", json=config)

    wrong = {row["value"]["name"]: row["value"]["errors"] for row in response.json()["configs"]}
    assert response.json()["error_count"] == 1
    assert "transaction.boundary" in wrong["transaction.boundary"][0]


def test_tasks_are_running_once_they_have_started(
    client: TestClient, store: MemoryStore, topics: MemoryTopics
) -> None:
    with Running(store, topics):
        eventually(lambda: len(CountingTask.started) == 2)
        eventually(
            lambda: (
                [row["state"] for row in client.get("/connectors/c/status").json()["tasks"]]
                == ["RUNNING", "RUNNING"]
            )
        )
        progress = client.get("/progress/c").json()

    assert progress["task_states"] == {"RUNNING": 2}
    assert [row["source_state"] for row in progress["tasks"]] == ["RUNNING", "RUNNING"]
    assert client.get("/connectors/c/tasks").json()[1]["id"] == {"connector": "c", "task": 1}


def test_a_task_that_has_failed_is_restarting_with_its_trace(
    client: TestClient, store: MemoryStore, topics: MemoryTopics
) -> None:
    running = Running(store, topics, **{"restart.backoff.ms": 60_000})
    running.connector.shares = [{"share": "a"}, {"share": "b", "fails": "true"}]

    def states() -> list[str]:
        return [row["state"] for row in client.get("/connectors/c/status").json()["tasks"]]

    with running:
        eventually(lambda: len(CountingTask.started) == 2)
        eventually(lambda: states() == ["RUNNING", "RESTARTING"])
        trace = client.get("/connectors/c/tasks/1/status").json()["trace"]

    assert "the source is gone" in trace


def test_offsets_are_listed_by_source_partition(
    client: TestClient, store: MemoryStore, topics: MemoryTopics
) -> None:
    with Running(store, topics):
        eventually(lambda: len(topics.positions["c"]) == 2)

    found = client.get("/connectors/c/offsets").json()
    assert found == offsets(
        *((share, topics.positions["c"][f'{{"share":"{share}"}}'].offset["next"]) for share in "ab")
    )


def test_a_stopped_sources_offsets_are_altered(
    client: TestClient, store: MemoryStore, topics: MemoryTopics
) -> None:
    # Altering offsets fences tasks that may still write.
    with Running(store, topics):
        eventually(lambda: len(topics.positions["c"]) == 2)
    assert client.patch("/connectors/c/offsets", json=offsets(("a", 7))).status_code == 400
    Herder(store).stop("c")
    epochs = dict(topics.epochs)

    response = client.patch("/connectors/c/offsets", json=offsets(("a", 1_000_000), ("b", None)))
    assert (response.status_code, response.json()["message"]) == (
        200,
        "The offsets for connector 'c' have been altered successfully",
    )
    assert client.get("/connectors/c/offsets").json() == offsets(("a", 1_000_000))
    assert all(topics.epochs[owner] > epoch for owner, epoch in epochs.items())

    assert client.delete("/connectors/c/offsets").status_code == 200
    assert client.get("/connectors/c/offsets").json() == {"offsets": []}


def test_a_sinks_offsets_in_a_sources_form_are_400(client: TestClient) -> None:
    sink = {
        "connector.class": "s3-archiver",
        "topics": "orders",
        "s3.bucket.name": "bucket",
        "flush.size": "1000",
    }
    assert client.post("/connectors", json={"name": "s", "config": sink}).status_code == 201
    client.put("/connectors/s/stop")
    response = client.patch("/connectors/s/offsets", json=offsets(("a", 7)))

    assert response.status_code == 400
    assert "kafka_topic" in response.json()["message"]


def test_source_offsets_need_a_server_with_access_to_the_topics(store: MemoryStore) -> None:
    Herder(store).create("c", CONFIG)
    with TestClient(create_app(store)) as client:
        response = client.get("/connectors/c/offsets")

    assert response.status_code == 400
    assert "--topic-directory" in response.json()["message"]
