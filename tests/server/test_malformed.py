"""Malformed requests are refused in Connect's form and change nothing."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient

from sinksdk import OffsetAndMetadata, Token
from sinksdk.control.herder import Herder
from sinksdk.model.plan import RangePlan
from sinksdk.store import take_over
from sinksdk.store.generations import Generations
from sinksdk.store.records import TaskPlan
from tests.helpers.memory_store import MemoryStore
from tests.server.serving import T0, run_a_little

CONFIG = {
    "connector.class": "s3-archiver",
    "topics": "orders",
    "s3.bucket.name": "bucket",
    "flush.size": "1000",
}
JSON = {"Content-Type": "application/json"}


def create(client: TestClient, name: str, **more: Any) -> Any:
    return client.post("/connectors", json={"name": name, "config": {**CONFIG, **more}})


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b'{"name": "a", "config": {"a": ["b"]}}',
        b'{"name": "a", "config": {"a": "\xff"}}',
        b'{"name": "a", "config": {"a": "\\ud800"}}',
        b'{"name": "\\udfff", "config": {}}',
        b'{"name": "a", "config": {"\\ud800": "b"}}',
        b'{"name": "a", "config": {"flush.size": 1' + b"0" * 5_000 + b"}}",
        b'{"name": "a", "config": {"flush.size": NaN}}',
        b"[" * 100_000,
    ],
    ids=lambda body: str(body[:40]),
)
def test_an_unparseable_body_is_400(client: TestClient, body: bytes) -> None:
    response = client.post("/connectors", content=body, headers=JSON)

    assert (response.status_code, response.json()["error_code"]) == (400, 400)
    assert response.json()["message"]
    assert client.get("/connectors").json() == []


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""]
)
def test_a_body_without_a_json_content_type_is_415(client: TestClient, kind: str) -> None:
    # Browsers let pages of other sites send the other types without a preflight request.
    body = json.dumps({"name": "archive", "config": CONFIG}).encode()
    response = client.post("/connectors", content=body, headers={"Content-Type": kind} if kind else {})

    assert (response.status_code, response.json()["error_code"]) == (415, 415)
    assert client.get("/connectors").json() == []


@pytest.mark.parametrize(
    "name", ["a/b", "a%2Fb", "a b", "ünï/😀", "...", "?x=1", "#", "100%", "a:b;c", "é" * 40]
)
def test_names_are_percent_encoded_in_paths(client: TestClient, name: str, store: MemoryStore) -> None:
    made = create(client, name)
    path = f"/connectors/{quote(name, safe='')}"

    assert (made.status_code, made.headers["Location"]) == (201, path)
    assert client.get(path).json()["name"] == name
    assert client.get(f"{path}/").json()["name"] == name
    assert client.get(f"{path}/config").json()["name"] == name
    assert client.put(f"{path}/pause").status_code == 202
    assert client.delete(path).status_code == 204
    assert Herder(store).connector(name).deleted


@pytest.mark.parametrize(
    ("name", "message"),
    [("", "'name' is required"), ("  ", "'name' is required"), ("a\nb", "no control characters"),
     ("..", "must not be '..'"),
     ("a\x00", "no control characters"), ("x" * 451, "too long"), ("é" * 100, "too long")],
)  # fmt: skip
def test_an_impossible_name_is_400_or_404(client: TestClient, name: str, message: str) -> None:
    response = create(client, name)

    assert response.status_code == 400
    assert message in response.json()["message"]
    if name.strip("."):  # clients resolve '.' and '..' before they send a path
        assert client.get(f"/connectors/{quote(name, safe='')}").status_code == 404


def test_blanks_around_a_new_name_are_removed(client: TestClient) -> None:
    assert create(client, " archive ").json()["name"] == "archive"


@pytest.mark.parametrize("task", ["x", "-1", "1.5", "9" * 5_000])
def test_an_invalid_task_number_is_400_or_404(client: TestClient, store: MemoryStore, task: str) -> None:
    create(client, "archive")
    run_a_little(store)

    assert client.get(f"/connectors/archive/tasks/{task}/status").status_code in (400, 404)
    assert client.post(f"/connectors/archive/tasks/{task}/restart").status_code in (400, 404)


@pytest.mark.parametrize(
    "offsets",
    [
        [],
        [{"partition": {"kafka_topic": "orders", "kafka_partition": -1}}],
        [{"partition": {"kafka_topic": "orders", "kafka_partition": 2**31}}],
        [{"partition": {"kafka_topic": "", "kafka_partition": 0}}],
        [{"partition": {"kafka_topic": "orders", "kafka_partition": 0}, "offset": {"kafka_offset": 2**63}}],
        [{"partition": {"kafka_topic": "orders", "kafka_partition": 0}, "offset": {"kafka_offset": True}}],
        [{"partition": {"kafka_topic": "orders", "kafka_partition": False}, "offset": {"kafka_offset": 1}}],
        [{"partition": {"kafka_topic": "orders", "kafka_partition": 0}, "offset": {"kafka_offset": 1.0}}],
        [{"partition": {"kafka_topic": "orders", "kafka_partition": 0}, "offset": {"kafka_offset": "1_000"}}],
        [{"partition": {"topic": "orders", "partition": 0}, "offset": {"offset": 1}}],
    ],
)
def test_impossible_offsets_are_400(client: TestClient, offsets: Any) -> None:
    create(client, "archive")
    client.put("/connectors/archive/stop")

    assert client.patch("/connectors/archive/offsets", json={"offsets": offsets}).status_code == 400


def test_altering_unpublished_offsets_is_409(client: TestClient, store: MemoryStore) -> None:
    create(client, "archive")
    generations = Generations(store, "archive")
    ranges = (RangePlan(topic="orders", partition=0, start=0, end=100),)
    generations.plan(generations.claim(), [TaskPlan(ranges=ranges)], 1)
    taken = take_over(store, "archive", 1, 0)
    assert taken is not None
    taken.ledger.prepare({T0: [Token("upload")]})
    taken.ledger.commit({T0: OffsetAndMetadata(60, publish=[Token("upload")])})
    client.put("/connectors/archive/stop")
    response = client.delete("/connectors/archive/offsets")

    assert response.status_code == 409
    assert "not published yet" in response.json()["message"]


def test_405_names_all_methods_of_the_path(client: TestClient) -> None:
    response = client.post("/connectors/archive/config")

    assert (response.status_code, response.headers["Allow"]) == (405, "GET, HEAD, PATCH, PUT")


@pytest.mark.parametrize(
    "name",
    [
        "sinksdk.__main__:x",
        "this_is_not_there:X",
        "..x:Y",
        "os.environ",
        "os:environ",
        "a\x00b:c",
        ":",
        "x" * 9_000,
    ],
)
def test_a_class_that_is_not_a_connector_is_400(
    client: TestClient, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Importing the module may even end the process.
    monkeypatch.setenv("SOME_PASSWORD", "hunter2hunter2")
    monkeypatch.setattr("sys.argv", ["sinksdk", "--help"])
    response = client.post(
        "/connectors", json={"name": "archive", "config": {"topics": "t", "connector.class": name}}
    )

    assert response.status_code == 400
    assert "'connector.class'" in response.json()["message"]
    assert "hunter2hunter2" not in response.text


def test_validating_a_class_that_differs_from_the_path_is_400(client: TestClient) -> None:
    response = client.put("/connector-plugins/s3-archiver/config/validate", json={"connector.class": "other"})

    assert response.status_code == 400
    assert "s3-archiver in the path" in response.json()["message"]


def test_a_connector_deleted_during_the_listing_is_left_out(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(client, "archive")
    monkeypatch.setattr("sinksdk.control.registry.names", lambda _: ["archive", "gone"])

    assert list(client.get("/connectors?expand=status&expand=info").json()) == ["archive"]


def test_pause_responds_without_a_body(client: TestClient) -> None:
    create(client, "archive")
    for path in ("pause", "resume", "topics/reset"):
        response = client.put(f"/connectors/archive/{path}")
        assert (response.status_code, response.content) == (202, b"")


def test_openapi_has_connects_codes(client: TestClient) -> None:
    described = client.get("/openapi.json").json()
    responses = [
        operation["responses"] for path in described["paths"].values() for operation in path.values()
    ]

    assert all({"401", "403", "500", "503"} <= codes.keys() for codes in responses)
    assert not [codes for codes in responses if "422" in codes]
    assert "HTTPValidationError" not in described["components"]["schemas"]
    assert client.get("/docs").status_code == 404
