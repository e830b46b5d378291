"""Requests that are not what anybody should send: a clear refusal in Connect's form, and nothing is kept."""

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
def test_a_body_that_says_nothing(client: TestClient, body: bytes) -> None:
    """400: no JSON, no UTF-8, half a character, a number nobody can hold, nesting without an end."""
    answer = client.post("/connectors", content=body, headers=JSON)

    assert (answer.status_code, answer.json()["error_code"]) == (400, 400)
    assert answer.json()["message"]
    assert client.get("/connectors").json() == []


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""]
)
def test_a_body_must_say_that_it_is_json(client: TestClient, kind: str) -> None:
    """415: a page of another site may send only those kinds without being asked first."""
    body = json.dumps({"name": "archive", "config": CONFIG}).encode()
    answer = client.post("/connectors", content=body, headers={"Content-Type": kind} if kind else {})

    assert (answer.status_code, answer.json()["error_code"]) == (415, 415)
    assert client.get("/connectors").json() == []


@pytest.mark.parametrize(
    "name", ["a/b", "a%2Fb", "a b", "ünï/😀", "...", "?x=1", "#", "100%", "a:b;c", "é" * 40]
)
def test_a_name_may_hold_anything(client: TestClient, name: str, store: MemoryStore) -> None:
    """Percent-encoded in paths, as in Connect; %2F is a part of the name."""
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
    ("name", "said"),
    [("", "'name' is required"), ("  ", "'name' is required"), ("a\nb", "no control characters"),
     ("..", "must not be '..'"),
     ("a\x00", "no control characters"), ("x" * 451, "too long"), ("é" * 100, "too long")],
)  # fmt: skip
def test_a_name_that_nothing_can_have(client: TestClient, name: str, said: str) -> None:
    """400 where it would be created; 404 where it is asked for."""
    answer = create(client, name)

    assert answer.status_code == 400
    assert said in answer.json()["message"]
    if name.strip("."):  # clients do not send those: a path that goes up
        assert client.get(f"/connectors/{quote(name, safe='')}").status_code == 404


def test_blanks_around_a_new_name_do_not_count(client: TestClient) -> None:
    """As in Connect."""
    assert create(client, " archive ").json()["name"] == "archive"


@pytest.mark.parametrize("task", ["x", "-1", "1.5", "9" * 5_000])
def test_a_task_that_is_no_number(client: TestClient, store: MemoryStore, task: str) -> None:
    """400 or 404."""
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
def test_offsets_that_nothing_can_have(client: TestClient, offsets: Any) -> None:
    """400, also of a stopped connector; an alteration of nothing is one, as in Connect."""
    create(client, "archive")
    client.put("/connectors/archive/stop")

    assert client.patch("/connectors/archive/offsets", json={"offsets": offsets}).status_code == 400


def test_offsets_that_wait_to_be_published(client: TestClient, store: MemoryStore) -> None:
    """409: it is not the server's fault, and passes."""
    create(client, "archive")
    generations = Generations(store, "archive")
    ranges = (RangePlan(topic="orders", partition=0, start=0, end=100),)
    generations.plan(generations.claim(), [TaskPlan(ranges=ranges)], 1)
    taken = take_over(store, "archive", 1, 0)
    assert taken is not None
    taken.ledger.prepare({T0: [Token("upload")]})
    taken.ledger.commit({T0: OffsetAndMetadata(60, publish=[Token("upload")])})
    client.put("/connectors/archive/stop")
    answer = client.delete("/connectors/archive/offsets")

    assert answer.status_code == 409
    assert "not published yet" in answer.json()["message"]


def test_a_method_that_a_path_does_not_have(client: TestClient) -> None:
    """405, with all it has: also those of routes that come later."""
    answer = client.post("/connectors/archive/config")

    assert (answer.status_code, answer.headers["Allow"]) == (405, "GET, HEAD, PATCH, PUT")


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
def test_a_class_that_is_no_connector(client: TestClient, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """400: also where importing it would end the process; what a name leads to is not shown."""
    monkeypatch.setenv("SOME_PASSWORD", "hunter2hunter2")
    monkeypatch.setattr("sys.argv", ["sinksdk", "--help"])
    answer = client.post(
        "/connectors", json={"name": "archive", "config": {"topics": "t", "connector.class": name}}
    )

    assert answer.status_code == 400
    assert "'connector.class'" in answer.json()["message"]
    assert "hunter2hunter2" not in answer.text


def test_a_plugin_is_validated_as_itself(client: TestClient) -> None:
    """400 where the configuration names another class than the path; as in Connect."""
    answer = client.put("/connector-plugins/s3-archiver/config/validate", json={"connector.class": "other"})

    assert answer.status_code == 400
    assert "s3-archiver in the path" in answer.json()["message"]


def test_a_connector_that_goes_while_all_are_listed_is_left_out(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are told."""
    create(client, "archive")
    monkeypatch.setattr("sinksdk.control.registry.names", lambda _: ["archive", "gone"])

    assert list(client.get("/connectors?expand=status&expand=info").json()) == ["archive"]


def test_pausing_answers_without_a_body(client: TestClient) -> None:
    """As in Connect: 202, and not a byte."""
    create(client, "archive")
    for path in ("pause", "resume", "topics/reset"):
        answer = client.put(f"/connectors/archive/{path}")
        assert (answer.status_code, answer.content) == (202, b"")


def test_the_description_has_connects_codes(client: TestClient) -> None:
    """400 where FastAPI would say 422; each path says what it may answer, errors in one form."""
    described = client.get("/openapi.json").json()
    answers = [operation["responses"] for path in described["paths"].values() for operation in path.values()]

    assert all({"401", "403", "500", "503"} <= codes.keys() for codes in answers)
    assert not [codes for codes in answers if "422" in codes]
    assert "HTTPValidationError" not in described["components"]["schemas"]
    assert client.get("/docs").status_code == 404
