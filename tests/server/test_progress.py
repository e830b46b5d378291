from __future__ import annotations

import time

import pytest
from fastapi.testclient import TestClient

from sinksdk.store.base import Stored
from sinksdk.store.keys import connector_prefix, history_key
from sinksdk.store.reports import Bucket
from tests.helpers.memory_store import MemoryStore
from tests.server.filled_store import TRACE, Scene, failure, fill

MINUTE = 60


def test_a_store_without_connectors_is_shown_as_empty(client: TestClient) -> None:
    found = client.get("/progress").json()
    assert found["connectors"] == []
    assert found["now"] == pytest.approx(time.time(), abs=5)
    assert found["bucket_seconds"] == MINUTE


def test_overview_has_states_lag_rate_and_commits(client: TestClient, store: MemoryStore) -> None:
    # One partition has had no leader for an hour: a failure whose lag is unknown.
    now = time.time()
    this_minute = int(now // MINUTE) * MINUTE
    buckets = [Bucket(start=this_minute - 2 * 3600, records=9), Bucket(start=this_minute, records=5, files=1)]
    fill(
        store,
        Scene(
            "b-archive", lag=10, rate=2.5, buckets=buckets, failing=(3,), missing=("gone",), unavailable=(2,)
        ),
        now,
    )
    fill(store, Scene("a-archive", "FAILED", trace=TRACE), now)

    first, second = client.get("/progress").json()["connectors"]

    assert (first["name"], first["state"], first["trace"]) == ("a-archive", "FAILED", TRACE)
    assert second == {
        "name": "b-archive",
        "type": "sink",
        "state": "RUNNING",
        "target_state": "RUNNING",
        "is_deleted": False,
        "driver": "spark-driver-7:4127#1",
        "last_heartbeat_at": now - 0.5,
        "generation": 1,
        "task_states": {"RESTARTING": 2},
        "partition_count": 4,
        "failing_count": 2,
        "lag": None,
        "committed_at": None,
        "rate": 10.0,
        "missing_topics": ["gone"],
        "trace": None,
        "waiting": None,
        "unavailable": [{"topic": "b", "partition": 2, "since": now - 3600}],
        "unavailable_count": 1,
        "buckets": [{"start": this_minute, "records": 5, "files": 1, "bytes": 0, "transactions": 0}],
    }


def test_progress_has_tasks_partitions_commits_and_failures(client: TestClient, store: MemoryStore) -> None:
    now = time.time()
    this_minute = int(now // MINUTE) * MINUTE
    buckets = [Bucket(start=this_minute - 2 * 3600, records=9), Bucket(start=this_minute, records=5)]
    failures = [failure(now - 100, message="first"), failure(now - 10, message="last")]
    fill(store, Scene("t-archive", lag=10, rate=2.5, buckets=buckets, failures=failures, failing=(3,)), now)

    found = client.get("/progress/t-archive").json()

    assert [bucket["records"] for bucket in found["buckets"]] == [9, 5]
    assert [failure["message"] for failure in found["failures"]] == ["last", "first"]
    assert [(task["id"], task["state"], task["partition_count"]) for task in found["tasks"]] == [
        (0, "RUNNING", 2),
        (1, "RESTARTING", 2),
    ]
    assert [(row["partition"], row["task"], row["lag"]) for row in found["partitions"]] == [
        (0, 0, 10),
        (1, 1, 20),
        (2, 0, 30),
        (3, 1, 40),
    ]
    assert found["partitions"][3] == {
        "topic": "t",
        "partition": 3,
        "task": 1,
        "committed": 1_029_960,
        "position": 1_029_960,
        "end": 1_030_000,
        "lag": 40,
        "committed_at": None,
        "rate": 2.5,
        "error": "bucket 'archive-eu' refuses UploadPart (403 AccessDenied)",
        "failures": 2,
        "lost_offsets": 0,
        "withdrawn_commits": 0,
    }


def test_a_connector_with_any_name_has_a_progress_path(client: TestClient, store: MemoryStore) -> None:
    name = "a/b <i>?#%"
    fill(store, Scene(name), time.time())
    assert client.get("/progress/a%2Fb%20%3Ci%3E%3F%23%25").json()["name"] == name


def test_a_missing_connector_is_404(client: TestClient) -> None:
    response = client.get("/progress/absent")
    assert (response.status_code, response.json()["error_code"]) == (404, 404)


def test_a_connector_that_is_deleted_meanwhile_is_left_out(client: TestClient, store: MemoryStore) -> None:
    now = time.time()
    for name in ("going", "staying"):
        fill(store, Scene(name), now)
    listed = store.list("connectors/")
    store.snapshot = lambda prefix: store  # type: ignore[method-assign]  # what it has at each look
    for key in store.list(connector_prefix("going")):
        found = store._read(key)
        assert found is not None
        store.delete(key, found.version)
    store.list = lambda prefix: listed  # type: ignore[method-assign]  # what there was before

    assert [one["name"] for one in client.get("/progress").json()["connectors"]] == ["staying"]


def test_a_damaged_connector_does_not_hide_the_others(client: TestClient, store: MemoryStore) -> None:
    for name in ("broken", "whole"):
        fill(store, Scene(name), time.time())
    kept = store._records[history_key("broken")]
    store._records[history_key("broken")] = Stored(kept.body.replace('"format": 1', '"format": 99'), "v")

    found = client.get("/progress").json()

    assert [one["name"] for one in found["connectors"]] == ["whole"]
    ((name, message),) = ((one["name"], one["message"]) for one in found["damaged"])
    assert name == "broken"
    assert "has a format that this version of sinksdk does not know" in message


def test_the_paths_are_in_the_open_api_document(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    assert {"/progress", "/progress/{name}"} <= document["paths"].keys()
    assert not [path for path in document["paths"] if path.startswith("/ui")]
    lag = document["components"]["schemas"]["Summary"]["properties"]["lag"]
    assert lag["description"].startswith("Number of offsets not committed yet, as far as known")
