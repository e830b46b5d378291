"""No response, status or log line shows a secret."""

from __future__ import annotations

import io
import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient

from sinksdk import ClosingReason, ConfigException, ConnectorConfig
from sinksdk.control.herder import Herder
from sinksdk.control.progress import Listener
from sinksdk.control.requests import ClosingSignal
from sinksdk.launch.deployment import Deployment, check_and_prepare
from sinksdk.launch.topics import TopicDirectory
from sinksdk.model.outcome import Failure
from sinksdk.server.app import create_app
from sinksdk.settings.references import ConfigProviders
from sinksdk.spark.options import SparkSettings
from sinksdk.store.records import GenerationPlan
from tests.helpers.memory_store import MemoryStore

FROM_ENV, FROM_FILE, WRITTEN, PIN = "env-hunter2", "file-hunter2", "written-hunter2", "pin-hunter2"
ALL = (FROM_ENV, FROM_FILE, WRITTEN, PIN)

SINK = """
from pydantic import Field, SecretStr

from sinksdk import ConfigException, ConnectException, ConnectorConfig, SinkConnector, SinkTask


class Config(ConnectorConfig):
    password: SecretStr = Field(alias="db.password", description="From the environment.")
    other: SecretStr = Field(alias="other.password", description="From a file.")
    pin: SecretStr = Field(default=None, description="A secret by its type, not by its name.")
    url: str = Field(default="", description="Has a password in it.")
    retries: int = Field(default=1, description="A number.")


class Task(SinkTask):
    def put(self, records):
        pass


class Sink(SinkConnector):
    config_class, task_class = Config, Task

    def validate(self, config):
        if config.retries > 5:
            return [f"'retries': {config.password.get_secret_value()}, {config.pin.get_secret_value()} do not like it"]
        return []

    def start(self, config):
        secrets = [config.password, config.other, config.pin]
        values = ", ".join(secret.get_secret_value() for secret in secrets)
        raise ConnectException(f"login failed for {values} at {config.url!r}")
"""


@pytest.fixture(autouse=True)
def _sink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setenv("SINK_PASSWORD", FROM_ENV)
    (tmp_path / "leakysink.py").write_text(SINK)
    (tmp_path / "topics").mkdir()
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "db.properties").write_text(f"password={FROM_FILE}\n")
    yield
    sys.modules.pop("leakysink", None)


@pytest.fixture
def config(tmp_path: Path) -> dict[str, str]:
    return {
        "name": "leaky",
        "connector.class": "leakysink:Sink",
        "topics": "t",
        "db.password": "${env:SINK_PASSWORD}",
        "other.password": f"${{file:{tmp_path}/secrets/db.properties:password}}",
        "pin": PIN,
        "url": f"http://user:{WRITTEN}@127.0.0.1:1/db",
    }


@pytest.fixture
def providers(tmp_path: Path) -> ConfigProviders:
    return ConfigProviders(["SINK_*"], [tmp_path / "secrets"], "ask")


@pytest.fixture
def client(store: MemoryStore, providers: ConfigProviders) -> Iterator[TestClient]:
    with TestClient(create_app(store, providers=providers), raise_server_exceptions=False) as made:
        yield made


def all_responses_about(client: TestClient, config: dict[str, str]) -> str:
    """Return all responses that concern a connector."""
    here = "/connectors/leaky"
    responses = [
        client.post("/connectors", json={"name": "leaky", "config": config}),
        *(
            client.get(f"{here}{path}")
            for path in ("", "/config", "/status", "/tasks", "/topics", "/offsets")
        ),
        client.get("/connectors?expand=info&expand=status"),
        client.put(f"{here}/config", json=config),
        client.patch(f"{here}/config", json={"retries": "2"}),
        client.put(f"{here}/config", json={**config, "retries": "9"}),
        client.put(f"{here}/config", json={**config, "retries": config["pin"]}),
        client.put("/connector-plugins/leakysink:Sink/config/validate", json={**config, "retries": "9"}),
        client.post(f"{here}/restart?includeTasks=true"),
    ]
    return json.dumps([response.text for response in responses])


def test_responses_have_the_reference_instead_of_the_secret(
    client: TestClient, config: dict[str, str], store: MemoryStore
) -> None:
    text = all_responses_about(client, config)

    assert not [secret for secret in ALL if secret in text]
    assert "${env:SINK_PASSWORD}, ******** do not like it" in text
    shown = client.get("/connectors/leaky/config").json()
    assert shown["db.password"] == "${env:SINK_PASSWORD}"
    assert shown["other.password"] == config["other.password"]
    assert (shown["pin"], shown["url"]) == ("********", "http://user:********@127.0.0.1:1/db")
    kept = Herder(store).connector("leaky").config
    assert kept == {**config, "retries": "2"}
    assert not [secret for secret in (FROM_ENV, FROM_FILE) if secret in json.dumps(kept)]


def test_hidden_secrets_that_are_sent_back_are_kept(
    client: TestClient, config: dict[str, str], store: MemoryStore
) -> None:
    client.post("/connectors", json={"name": "leaky", "config": config})
    shown = client.get("/connectors/leaky/config").json()
    assert client.put("/connectors/leaky/config", json={**shown, "retries": "3"}).status_code == 200
    assert Herder(store).connector("leaky").config == {**config, "retries": "3"}
    assert client.patch("/connectors/leaky/config", json={"pin": "********"}).status_code == 200
    assert Herder(store).connector("leaky").config["pin"] == PIN

    copied = client.post("/connectors", json={"name": "copy", "config": {**shown, "name": "copy"}})
    assert copied.status_code == 400
    assert "'pin' is hidden and has no current value to keep" in copied.json()["message"]
    elsewhere = {**shown, "url": shown["url"].replace("127.0.0.1", "elsewhere")}
    assert client.put("/connectors/leaky/config", json=elsewhere).status_code == 400


def test_an_unresolvable_reference_is_400(
    client: TestClient, config: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SINK_PASSWORD")
    response = client.post("/connectors", json={"name": "leaky", "config": config})

    assert response.status_code == 400
    assert response.json()["message"] == (
        "'db.password': ${env:SINK_PASSWORD}: the environment variable SINK_PASSWORD is not set here"
    )


@pytest.mark.parametrize(
    "reference",
    ["${env:HOME}", "${env:OTHER_SINK_PASSWORD}", "${file:/etc/passwd:root}", "${file:/proc/self/environ:PATH}",
     "${file:{folder}/secrets/../outside:password}", "${file:{folder}/secrets/link:password}",
     "${file:{folder}/secretsandmore:password}", "${file:outside:password}", "${file:\x00:x}", "${file:nothing}"],
)  # fmt: skip
def test_references_outside_of_the_allowed_variables_and_folders_are_400(
    client: TestClient, config: dict[str, str], tmp_path: Path, reference: str
) -> None:
    # Symbolic links count as their targets.
    for name in ("outside", "secretsandmore"):
        (tmp_path / name).write_text("password=outside-hunter2\n")
    (tmp_path / "secrets" / "link").symlink_to(tmp_path / "outside")
    reference = reference.replace("{folder}", str(tmp_path))
    responses = [
        client.post("/connectors", json={"name": "leaky", "config": {**config, key: reference}})
        for key in ("db.password", "url", "unknown.key")
    ]
    validated = client.put(
        "/connector-plugins/leakysink:Sink/config/validate", json={**config, "url": reference}
    )

    assert [response.status_code for response in responses] == [400] * 3
    assert responses[0].json()["message"] == f"'db.password': {reference} is not allowed here: ask"
    assert "is not allowed here" in validated.text
    assert "outside-hunter2" not in f"{[response.text for response in responses]}{validated.text}"


def test_no_reference_is_allowed_by_default(config: dict[str, str]) -> None:
    with TestClient(create_app(MemoryStore())) as client:
        response = client.post("/connectors", json={"name": "leaky", "config": config})

    assert response.status_code == 400
    assert "'db.password': ${env:SINK_PASSWORD} is not allowed here" in response.json()["message"]
    assert "'other.password': ${file:" in response.json()["message"]


FILES = (
    "consumer.override.ssl.truststore.location",
    "consumer.override.librdkafka.ssl.ca.location",
    "producer.override.ssl.keystore.location",
    "producer.override.librdkafka.ssl.key.location",
    "admin.override.librdkafka.sasl.kerberos.keytab",
    "consumer.override.librdkafka.sasl.oauthbearer.assertion.private.key.file",
    "value.converter.schema.registry.ssl.key.location",
)


@pytest.mark.parametrize("key", FILES)
def test_files_of_kafka_clients_must_be_in_allowed_folders(
    client: TestClient, config: dict[str, str], tmp_path: Path, key: str
) -> None:
    # A client would authenticate with another client's key on the server's disk.
    inside, outside = tmp_path / "secrets" / "ca.pem", tmp_path / "ca.pem"
    response = client.post("/connectors", json={"name": "leaky", "config": {**config, key: str(outside)}})
    assert response.status_code == 400
    assert response.json()["message"] == f"'{key}': the path {outside} is not allowed here: ask"
    up = client.post(
        "/connectors", json={"name": "leaky", "config": {**config, key: f"{inside}/../../ca.pem"}}
    )
    assert "is not allowed here" in up.json()["message"]
    allowed = client.post("/connectors", json={"name": "leaky", "config": {**config, key: str(inside)}})
    assert allowed.status_code == 201


def test_a_key_table_of_sasl_jaas_config_must_be_in_an_allowed_folder(
    client: TestClient, config: dict[str, str]
) -> None:
    key = "consumer.override.sasl.jaas.config"
    login = (
        'com.sun.security.auth.module.Krb5LoginModule required keyTab = "/etc/krb5.keytab" principal="me";'
    )
    response = client.post("/connectors", json={"name": "leaky", "config": {**config, key: login}})
    assert response.json()["message"] == f"'{key}': the path /etc/krb5.keytab is not allowed here: ask"


def test_a_key_table_is_parsed_as_the_client_parses_it(
    client: TestClient, config: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Quoted options may contain text that looks like further options.
    monkeypatch.chdir(tmp_path / "secrets")  # a relative path in this folder is allowed
    key = "consumer.override.sasl.jaas.config"
    inside = tmp_path / "secrets"
    for login in (
        f"""Krb5LoginModule required username="me\\" keyTab="{inside}/x keyTab='/etc/krb5.keytab' ";""",
        """Krb5LoginModule required keyTab="\\/etc/krb5.keytab";""",
        """Krb5LoginModule required keyTab="FILE:/etc/krb5.keytab";""",
    ):
        response = client.post("/connectors", json={"name": "leaky", "config": {**config, key: login}})
        assert response.json()["message"] == f"'{key}': the path /etc/krb5.keytab is not allowed here: ask"


@pytest.mark.parametrize(
    "path", ["{}/secrets/${{env:SINK_UP}}/ca.pem", "${{env:SINK_UP}}/ca.pem", "${{env:SINK_CERTS}}/../../ca"]
)
def test_a_path_with_references_is_compared_with_their_values(
    config: dict[str, str],
    providers: ConfigProviders,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
) -> None:
    # A variable with a folder's name is one part of a path, and '..' behind it is another.
    monkeypatch.chdir(tmp_path / "secrets")
    monkeypatch.setenv("SINK_UP", "..")
    monkeypatch.setenv("SINK_CERTS", f"{tmp_path}/secrets/certs")
    key, text = "consumer.override.librdkafka.ssl.ca.location", path.format(tmp_path)
    assert providers.problems({key: text}) == [f"'{key}': the path {text} is not allowed here: ask"]
    assert providers.problems({key: "${env:SINK_CERTS}/../ca.pem"}) == []


def test_an_unresolvable_reference_in_a_path_is_one_problem(
    client: TestClient, config: dict[str, str]
) -> None:
    for name, why in (
        ("SINK_GONE", "the environment variable SINK_GONE is not set here"),
        ("GONE", "not allowed"),
    ):
        letters = {"consumer.override.librdkafka.ssl.ca.location": f"${{env:{name}}}/ca.pem"}
        response = client.post("/connectors", json={"name": "leaky", "config": {**config, **letters}})
        assert (response.status_code, why in response.json()["message"]) == (400, True)
        assert "the path" not in response.json()["message"]


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}", "file://localhost{}"])
def test_dead_letter_directories_must_be_in_allowed_folders(
    client: TestClient, config: dict[str, str], tmp_path: Path, form: str
) -> None:
    # Otherwise a client could make the server write anywhere.
    key = "errors.deadletterqueue.topic.directory"
    letters = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "bad"}

    def refusal(path: str) -> str:
        body = {"name": "leaky", "config": {**config, **letters, key: form.format(path)}}
        return client.post("/connectors", json=body).text

    for outside in (tmp_path / "bad", f"{tmp_path}/secrets/../bad", "/etc"):
        assert f"'{key}': the path {outside} is not allowed here: ask" in refusal(str(outside))
    assert "is not allowed" not in refusal(f"{tmp_path}/secrets/bad")


def test_a_dead_letter_url_is_decoded_before_the_check(
    client: TestClient, config: dict[str, str], tmp_path: Path
) -> None:
    url = f"file://{tmp_path}/secrets/%2e%2e/bad"
    body = {"name": "leaky", "config": {**config, "errors.deadletterqueue.topic.directory": url}}
    assert (
        f"the path {tmp_path}/secrets/../bad is not allowed here"
        in client.post("/connectors", json=body).text
    )


def test_a_dead_letter_path_is_checked_with_and_without_links(
    providers: ConfigProviders, tmp_path: Path
) -> None:
    # The writer removes '..' before it follows links, and so would write to another folder than the one
    # checked.
    (tmp_path / "secrets" / "a" / "b").mkdir(parents=True)
    (tmp_path / "secrets" / "link").symlink_to("a/b")
    key = "errors.deadletterqueue.topic.directory"
    outside = f"{tmp_path}/secrets/link/../../bad"
    assert providers.problems({key: outside}) == [f"'{key}': the path {outside} is not allowed here: ask"]
    assert providers.problems({key: f"{tmp_path}/secrets/link/bad"}) == []


@pytest.mark.parametrize("url", ["file://[/bad", "file://elsewhere/bad"])
def test_a_dead_letter_url_of_another_host_is_400(
    client: TestClient, config: dict[str, str], url: str
) -> None:
    letters = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "bad"}
    key = "errors.deadletterqueue.topic.directory"
    response = client.post("/connectors", json={"name": "leaky", "config": {**config, **letters, key: url}})
    assert (response.status_code, f"'{key}' is '{url}': it " in response.json()["message"]) == (400, True)


def deployment(store: MemoryStore, providers: ConfigProviders) -> Deployment:
    return Deployment(TopicDirectory("topics"), store, store.url, SparkSettings("local[1]"), providers)


def test_references_are_resolved_at_each_start(
    client: TestClient,
    config: dict[str, str],
    store: MemoryStore,
    providers: ConfigProviders,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client.post("/connectors", json={"name": "leaky", "config": config})
    record = Herder(store).connector("leaky")

    def password() -> str:
        started: Any = check_and_prepare(TopicDirectory("topics"), record.config, providers).config
        assert started.other.get_secret_value() == FROM_FILE
        found: str = started.password.get_secret_value()
        return found

    assert password() == FROM_ENV
    monkeypatch.setenv("SINK_PASSWORD", "another-hunter2")
    assert password() == "another-hunter2"
    with pytest.raises(ConfigException, match="is not allowed here"):
        check_and_prepare(TopicDirectory("topics"), record.config, ConfigProviders())


def test_traces_of_a_failed_connector_hide_secrets(
    client: TestClient,
    config: dict[str, str],
    store: MemoryStore,
    providers: ConfigProviders,
    tmp_path: Path,
) -> None:
    client.post("/connectors", json={"name": "leaky", "config": config})
    logged = io.StringIO()
    handler = logging.StreamHandler(logged)
    handler.setFormatter(logging.Formatter("%(message)s"))  # a program that embeds sinksdk logs like this
    logging.getLogger("sinksdk").addHandler(handler)
    signal = ClosingSignal()
    worker = deployment(store, providers).worker("leaky", NeverLaunches(), Listener(), signal=signal)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        wait_until(lambda: client.get("/connectors/leaky/status").json()["connector"]["state"] == "FAILED")
    finally:
        signal.request(ClosingReason.SHUTDOWN)
        thread.join(10)
        logging.getLogger("sinksdk").removeHandler(handler)
    status = client.get("/connectors/leaky/status").json()["connector"]

    assert status["state"] == "FAILED"
    assert "login failed for ${env:SINK_PASSWORD}, ${file:" in status["trace"]
    assert "login failed for ${env:SINK_PASSWORD}" in logged.getvalue()
    assert not [secret for secret in ALL if secret in f"{status}{logged.getvalue()}"]


class NeverLaunches:
    def launcher(self, ready: Any) -> NeverLaunches:
        return self

    def source_launcher(self, ready: Any) -> NeverLaunches:
        return self

    def launch(self, plan: GenerationPlan) -> Any:
        raise AssertionError(plan)


def wait_until(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.01)


def test_traces_of_a_failed_partition_hide_secrets(config: dict[str, str]) -> None:
    # The secret is also hidden as Python, JSON and URLs quote it.
    odd = 'pa"ss wörd%hunter2'
    ConnectorConfig.parse({"name": "c", "topics": "t", "consumer.override.sasl.password": odd})
    message = f"{odd} {odd!r} {json.dumps(odd)} {quote(odd, safe='')}"
    failure = Failure.of(ConfigException(message))

    assert failure.message == """******** '********' "********" ********"""
    assert "hunter2" not in failure.trace
