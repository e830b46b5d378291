"""Kafka Connect's REST interface on a store in memory: paths, codes and bodies."""

from __future__ import annotations

import json
import time
from typing import Any
from unittest.mock import patch
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient

from sinksdk import ConnectException, TopicPartition
from sinksdk.connectors.s3_archiver.connector import S3ArchiverConnector
from sinksdk.control.herder import Herder
from sinksdk.control.liveness import ConnectorClosingException
from sinksdk.control.offsets import OpenedSink
from sinksdk.control.status import StatusKeeper
from sinksdk.engine.clock import SystemWallClock
from sinksdk.model.outcome import Failure
from sinksdk.model.status import Waiting
from sinksdk.server.app import create_app
from sinksdk.store.base import Lost, Stored
from tests.helpers.memory_store import MemoryStore
from tests.runtime.running_sinks import Source
from tests.s3_archiver.fake_s3 import FakeS3
from tests.server.serving import CONFIG, has_stopped, run_a_little


class Flaky(MemoryStore):
    """A store that responds until it is switched off."""

    is_down = False

    def _read(self, key: str) -> Any:
        if self.is_down:
            raise Lost("down")
        return super()._read(key)

    def _keys(self, prefix: str) -> list[str]:
        if self.is_down:
            raise Lost("down")
        return super()._keys(prefix)


@pytest.fixture
def store() -> Flaky:
    return Flaky(patience=0.05)


def create(client: TestClient, name: str = "archive", **config: Any) -> Any:
    return client.post("/connectors", json={"name": name, "config": {**CONFIG, **config}})


def test_a_connector_is_created(client: TestClient) -> None:
    response = create(client)

    assert response.status_code == 201
    assert response.headers["Location"] == "/connectors/archive"
    body = response.json()
    assert (body["name"], body["type"], body["tasks"]) == ("archive", "sink", [])
    assert body["config"] == {**CONFIG, "name": "archive", "aws.secret.access.key": "********"}
    assert client.get("/connectors").json() == ["archive"]
    assert client.get("/connectors/archive").json() == body
    assert client.get("/connectors/archive/config").json() == body["config"]


def test_creating_an_existing_connector_is_409(client: TestClient) -> None:
    create(client)
    response = create(client)

    assert response.status_code == 409
    assert response.json() == {"error_code": 409, "message": "connector 'archive' already exists"}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"name": "archive", "config": {**CONFIG, "flush.size": "none"}}, "'flush.size'"),
        ({"name": "archive", "config": {"topics": "t"}}, "'connector.class' is required"),
        ({"config": CONFIG}, "'name' is required"),
        ({"name": "a", "config": {**CONFIG, "name": "b"}}, "'name' is a in the request"),
        ({"name": "archive"}, "config"),
        ([], "body"),
    ],
)
def test_a_configuration_with_problems_is_400(client: TestClient, body: object, message: str) -> None:
    response = client.post("/connectors", json=body)

    assert (response.status_code, response.json()["error_code"]) == (400, 400)
    assert message in response.json()["message"]
    assert client.get("/connectors").json() == []


def test_a_connector_is_created_with_an_initial_state(client: TestClient, store: Flaky) -> None:
    body = {"name": "archive", "config": CONFIG, "initial_state": "STOPPED"}

    assert client.post("/connectors", json=body).status_code == 201
    assert client.get("/connectors/archive/status").json()["connector"]["state"] == "STOPPED"
    assert Herder(store).connector("archive").target_state == "STOPPED"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("GET", "/config"),
        ("GET", "/status"),
        ("GET", "/tasks"),
        ("GET", "/tasks/0/status"),
        ("GET", "/offsets"),
        ("GET", "/topics"),
        ("PUT", "/pause"),
        ("PUT", "/resume"),
        ("PUT", "/stop"),
        ("POST", "/restart"),
        ("POST", "/tasks/0/restart"),
        ("DELETE", ""),
        ("DELETE", "/offsets"),
    ],
)
def test_a_missing_connector_is_404(client: TestClient, method: str, path: str) -> None:
    response = client.request(method, f"/connectors/absent{path}")

    assert response.status_code == 404
    assert response.json()["error_code"] == 404
    assert "no connector 'absent'" in response.json()["message"]


def test_status_has_states_driver_and_trace(client: TestClient, store: Flaky) -> None:
    create(client)
    run_a_little(store, failures=1)

    assert client.get("/connectors/archive/status").json() == {
        "name": "archive",
        "connector": {"state": "RUNNING", "worker_id": "elsewhere:7#1"},
        "tasks": [{"id": 0, "state": "RESTARTING", "worker_id": "elsewhere:7#1", "trace": "S3 says no"}],
        "type": "sink",
    }
    assert client.get("/connectors/archive/tasks/0/status").json()["state"] == "RESTARTING"
    assert client.get("/connectors/archive/tasks").json()[0]["id"] == {"connector": "archive", "task": 0}
    assert client.get("/connectors/archive/tasks/1/status").status_code == 404
    assert client.get("/connectors/archive/topics").json() == {"archive": {"topics": ["orders"]}}


def test_a_trace_that_is_not_unicode_does_not_break_the_list(client: TestClient, store: Flaky) -> None:
    # Half a surrogate pair, as in a file name that is not UTF-8.
    create(client)
    keeper = StatusKeeper(store, "archive", "elsewhere:7#1", SystemWallClock())
    keeper.become("FAILED", "cannot open report-\udce4.csv")

    status = client.get("/connectors?expand=status").json()["archive"]["status"]["connector"]
    assert status["trace"] == "cannot open report-\\udce4.csv"
    assert Failure.of(OSError("report-\udce4.csv")).message == "OSError: report-\\udce4.csv"


def test_the_list_expands_info_and_status(client: TestClient) -> None:
    create(client)

    status = client.get("/connectors?expand=status").json()
    both = client.get("/connectors?expand=status&expand=info").json()

    assert status["archive"]["status"]["connector"]["state"] == "UNASSIGNED"
    assert status["archive"].keys() == {"status"}
    assert both["archive"]["info"]["name"] == "archive"


def test_a_configuration_is_replaced_or_created(client: TestClient, store: Flaky) -> None:
    assert client.put("/connectors/archive/config", json=CONFIG).status_code == 201
    shown = client.get("/connectors/archive/config").json()
    response = client.put("/connectors/archive/config", json={**shown, "flush.size": 2000})

    assert response.status_code == 200
    kept = Herder(store).connector("archive")
    assert (kept.config["flush.size"], kept.config["aws.secret.access.key"]) == ("2000", "do not tell")
    assert kept.version == 2
    assert client.put("/connectors/archive/config", json={"topics": "t"}).status_code == 400


def test_a_configuration_is_patched(client: TestClient, store: Flaky) -> None:
    create(client, **{"tasks.max": "4"})
    response = client.patch("/connectors/archive/config", json={"flush.size": 5000, "tasks.max": None})

    assert response.status_code == 200
    config = Herder(store).connector("archive").config
    assert config["flush.size"] == "5000"
    assert "tasks.max" not in config
    assert config["aws.secret.access.key"] == "do not tell"


def test_pause_stop_and_resume_set_the_target_state(client: TestClient, store: Flaky) -> None:
    create(client)
    codes = {}
    for request in ("pause", "stop", "resume"):
        codes[request] = client.put(f"/connectors/archive/{request}").status_code

    assert codes == {"pause": 202, "stop": 204, "resume": 202}
    assert Herder(store).connector("archive").target_state == "RUNNING"


def test_restart_requests_are_counted(client: TestClient, store: Flaky) -> None:
    create(client)
    run_a_little(store)
    plain = client.post("/connectors/archive/restart")
    with_tasks = client.post("/connectors/archive/restart?includeTasks=true&onlyFailed=true")
    task = client.post("/connectors/archive/tasks/0/restart")

    assert (plain.status_code, with_tasks.status_code, task.status_code) == (204, 202, 204)
    assert with_tasks.json()["connector"]["state"] == "RUNNING"
    orders = Herder(store).connector("archive").orders
    assert (orders.restart, orders.restart_failed) == (1, 2)


def test_requests_during_a_deletion_are_409(client: TestClient, store: Flaky) -> None:
    create(client)

    assert client.delete("/connectors/archive").status_code == 204
    assert Herder(store).connector("archive").deleted
    assert create(client).status_code == 409
    assert client.put("/connectors/archive/pause").status_code == 409


def test_offsets_are_altered_only_while_stopped(
    client: TestClient, store: Flaky, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3 = FakeS3()  # the archive is empty: the archiver reads it before offsets are altered
    monkeypatch.setattr("sinksdk.connectors.s3_archiver.s3.boto_client.connect", lambda *_: s3)
    create(client)
    run_a_little(store)
    wanted = {
        "offsets": [
            {"partition": {"kafka_topic": "orders", "kafka_partition": 0}, "offset": {"kafka_offset": 7}}
        ]
    }

    assert client.patch("/connectors/archive/offsets", json=wanted).status_code == 400
    assert client.delete("/connectors/archive/offsets").status_code == 400
    client.put("/connectors/archive/stop")
    has_stopped(store)
    altered = client.patch("/connectors/archive/offsets", json=wanted)
    assert "altered successfully" in altered.json()["message"]
    assert client.get("/connectors/archive/offsets").json() == wanted
    as_text = {
        "partition": {"kafka_topic": "orders", "kafka_partition": "0"},
        "offset": {"kafka_offset": "8"},
    }
    assert client.patch("/connectors/archive/offsets", json={"offsets": [as_text]}).status_code == 200
    now = client.get("/connectors/archive/offsets").json()["offsets"]
    assert [row["offset"] for row in now] == [{"kafka_offset": 8}]
    assert "reset successfully" in client.delete("/connectors/archive/offsets").json()["message"]
    assert client.get("/connectors/archive/offsets").json() == {"offsets": []}


def test_refused_offsets_are_400_and_alter_nothing(store: Flaky) -> None:
    connector, responses = S3ArchiverConnector(connect=lambda *_: FakeS3()), dict[str, Any]()
    config = connector.config_class.parse({**CONFIG, "name": "archive"})
    opened = OpenedSink(connector, config, lambda: Source({TopicPartition("orders", 0): 100}))
    with TestClient(create_app(store, sinks=lambda raw: opened), raise_server_exceptions=False) as client:
        create(client)
        run_a_little(store)
        client.put("/connectors/archive/stop")
        has_stopped(store)

        def alter(offset: int) -> Any:
            partition = {"kafka_topic": "orders", "kafka_partition": 0}
            body = {"offsets": [{"partition": partition, "offset": {"kafka_offset": offset}}]}
            return client.patch("/connectors/archive/offsets", json=body)

        responses["outside"] = alter(101)
        with patch.object(connector, "alter_offsets", side_effect=ConnectException("files are there")):
            responses["refused"] = alter(7)
            responses["not reset"] = client.delete("/connectors/archive/offsets")
        with patch("sinksdk.control.offsets.await_end", side_effect=ConnectorClosingException("closing")):
            closing = alter(7)
        assert {name: response.status_code for name, response in responses.items()} == dict.fromkeys(
            responses, 400
        )
        assert "orders-0: offset 101 is not in the source" in responses["outside"].json()["message"]
        assert "files are there" in responses["refused"].json()["message"]
        assert closing.status_code == 409
        assert Herder(store).offsets("archive") == {TopicPartition("orders", 0): 60}
        assert alter(7).status_code == 200


def test_plugins_are_listed_with_their_keys(client: TestClient) -> None:
    found = {plugin["class"]: plugin for plugin in client.get("/connector-plugins").json()}
    keys = {key["name"]: key for key in client.get("/connector-plugins/s3-archiver/config").json()}

    assert found["s3-archiver"]["type"] == "sink"
    assert keys["flush.size"]["type"] == "INT"
    assert keys["s3.bucket.name"]["required"]
    assert client.get("/connector-plugins/absent/config").status_code == 404


def test_a_configuration_is_validated(client: TestClient) -> None:
    given = {**CONFIG, "name": "archive", "flush.size": "none", "format.class": "x.JsonFormat"}
    found = client.put("/connector-plugins/s3-archiver/config/validate", json=given).json()
    rows = {row["value"]["name"]: row["value"] for row in found["configs"]}

    assert found["error_count"] == sum(len(row["errors"]) for row in rows.values()) == 2
    assert "'flush.size'" in rows["flush.size"]["errors"][0]
    assert "unsupported" in rows["format.class"]["errors"][0]
    assert rows["aws.secret.access.key"]["value"] == "********"
    good = client.put("/connector-plugins/s3-archiver/config/validate", json={**CONFIG, "name": "archive"})
    assert good.json()["error_count"] == 0


@pytest.mark.parametrize("kind", ["AvroFormat", "ParquetFormat"])
def test_a_format_without_its_converter_is_400(client: TestClient, kind: str) -> None:
    bare = {"format.class": kind}
    validated = client.put(
        "/connector-plugins/s3-archiver/config/validate", json={**CONFIG, **bare, "name": "archive"}
    ).json()
    rows = {row["value"]["name"]: row["value"] for row in validated["configs"]}
    assert ["'value.converter' is not set" in each for each in rows["value.converter"]["errors"]] == [True]

    refused = create(client, **bare)
    assert refused.status_code == 400
    assert "'value.converter' is not set" in refused.json()["message"]
    assert client.get("/connectors").json() == []

    assert create(client).status_code == 201
    path = "/connectors/archive/config"
    for changed in (client.put(path, json={**CONFIG, **bare}), client.patch(path, json=bare)):
        assert changed.status_code == 400
        assert "'value.converter' is not set" in changed.json()["message"]
    assert "format.class" not in client.get(path).json()
    typed = {**bare, "value.converter": "json", "value.converter.schemas.enable": "true"}
    assert client.patch(path, json=typed).status_code == 200


def test_keys_of_transforms_are_validated(client: TestClient) -> None:
    chain = {
        "transforms": "drop-it,mask",
        "transforms.drop-it.type": "org.apache.kafka.connect.transforms.Filter",
        "transforms.drop-it.predicate": "none",
        "transforms.mask.type": "org.apache.kafka.connect.transforms.MaskField$Value",
        "value.converter": "json",
    }
    given = {**CONFIG, "name": "archive", **chain}
    found = client.put("/connector-plugins/s3-archiver/config/validate", json=given).json()
    rows = {row["value"]["name"]: row for row in found["configs"]}

    assert found["error_count"] == 2
    assert rows["transforms.mask.fields"]["definition"]["required"]
    assert rows["transforms.mask.fields"]["value"]["errors"] == [
        "'transforms.mask.fields' is required and not set"
    ]
    assert rows["transforms.mask.negate"]["definition"]["default_value"] == "false"
    assert "not declared in 'predicates'" in rows["transforms.drop-it.predicate"]["value"]["errors"][0]


def test_a_misspelt_key_is_a_warning_with_the_nearest_key(
    client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    config = {**CONFIG, "name": "archive", "flush.sice": "5"}
    found = client.put("/connector-plugins/s3-archiver/config/validate", json=config).json()
    rows = {row["value"]["name"]: row["value"] for row in found["configs"]}

    assert found["error_count"] == 0
    assert "did you mean 'flush.size'?" in rows["flush.sice"]["warnings"][0]
    assert rows["flush.size"]["warnings"] == []
    assert client.post("/connectors", json={"name": "archive", "config": config}).status_code == 201
    assert "connector archive: 'flush.sice' is not known" in caplog.text


def test_health_names_connectors_that_have_not_been_able_to_plan(client: TestClient, store: Flaky) -> None:
    # Regression: the server was healthy while a connector could never plan. /ready stays ready: it is for
    # probes.
    create(client)
    keeper = StatusKeeper(store, "archive", "elsewhere:7#1", SystemWallClock(), plan_timeout=60.0)
    keeper.become("RUNNING")
    since = time.time() - 50
    waiting = Waiting(reason="broker 1 has not responded", since=since, next_attempt=since + 60, attempts=4)
    keeper.wait_for(waiting)
    assert client.get("/health").json()["status"] == "healthy"
    keeper.wait_for(waiting.model_copy(update={"since": since - 20}))

    deadline = time.monotonic() + 10  # a busy machine may need several requests of 0.4 s
    while (sick := client.get("/health")).status_code == 200 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert (sick.status_code, sick.json()["status"]) == (503, "unhealthy")
    assert "archive: no generation could be planned for 7" in sick.json()["message"]
    assert "broker 1 has not responded" in sick.json()["message"]
    assert client.get("/ready").status_code == 200


def test_root_and_health_describe_the_server(client: TestClient, store: Flaky) -> None:
    assert client.get("/").json()["version"]
    assert client.get("/health").json()["status"] == "healthy"
    store.is_down = True
    sick = client.get("/health")
    assert (sick.status_code, sick.json()["status"]) == (503, "unhealthy")
    assert client.get("/connectors").status_code == 503


def test_log_levels_are_read_and_changed(client: TestClient) -> None:
    name = "sinksdk.runtime.driver"
    assert client.put(f"/admin/loggers/{name}", json={"level": "DEBUG"}).json() == [name]
    assert client.get(f"/admin/loggers/{name}").json()["level"] == "DEBUG"
    assert client.put(f"/admin/loggers/{name}", json={"level": "LOUD"}).status_code == 404
    assert client.put("/admin/loggers/urllib3", json={"level": "DEBUG"}).status_code == 400
    client.put(f"/admin/loggers/{name}", json={"level": "WARN"})


def test_no_response_has_a_secret(client: TestClient, store: Flaky) -> None:
    create(client)
    run_a_little(store)
    paths = ["", "/config", "/status", "/tasks", "/offsets", "/topics"]
    bodies = [client.get(f"/connectors/archive{path}").text for path in paths]
    bodies += [client.get("/connectors?expand=info&expand=status").text, create(client).text]

    assert "do not tell" not in json.dumps(bodies)


@pytest.mark.parametrize("path", ["/nothing", "/connectors/a/b/c"])
def test_an_unknown_path_is_404(client: TestClient, path: str) -> None:
    response = client.get(path)

    assert (response.status_code, response.json()["error_code"]) == (404, 404)
    assert client.post("/health").json()["error_code"] == 405


@pytest.mark.parametrize("name", [" x", "x ", "\tx"])
def test_a_name_with_blanks_around_it_is_400(client: TestClient, name: str) -> None:
    # Regression: PUT created " x" next to "x"; POST removes blanks, as Connect does.
    response = client.put(f"/connectors/{quote(name)}/config", json=CONFIG)
    assert response.status_code == 400
    assert client.get("/connectors").json() == []


def test_the_list_leaves_out_a_damaged_connector(client: TestClient, store: Flaky) -> None:
    create(client, "broken")
    create(client, "whole")
    kept = store._records["connectors/broken/config"]
    store._records["connectors/broken/config"] = Stored(kept.body.replace('"format": 1', '"format": 99'), "v")

    assert client.get("/connectors?expand=status").json().keys() == {"whole"}
    assert client.get("/connectors").json() == ["broken", "whole"]
