"""Lists and maps in a connector's configuration: as text, as JSON, and key by key."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, SecretStr

from sinksdk import ConfigException, ConnectorConfig, SinkConnector, SinkTask
from sinksdk.compatibility import Meaning
from sinksdk.control.herder import Herder
from sinksdk.plugins.checks import check_file, redacted
from sinksdk.server.app import create_app
from sinksdk.settings.texts import as_text, read
from sinksdk.support.confidential import HIDDEN
from tests.helpers.memory_store import MemoryStore


class Several(ConnectorConfig):
    columns: list[str] = Field(default=[], description="Names.")
    ports: Sequence[int] | None = Field(default=None, alias="the.ports", description="Numbers.")
    headers: Mapping[str, str] = Field(default={}, alias="http.headers", description="Texts by name.")
    limits: dict[str, int] = Field(default={}, description="Numbers by name.")
    own: str = Field(default="", alias="http.headers.own", description="A key that looks like an entry.")
    pins: list[SecretStr] = Field(default=[], description="Secrets.")
    auth: dict[str, SecretStr] = Field(default={}, description="Secrets by name.")


class Task(SinkTask):
    def put(self, records: Any) -> None:
        pass


class Sink(SinkConnector):
    config_class, task_class = Several, Task


RAW = {"name": "c", "connector.class": f"{__name__}:Sink", "topics": "t"}


def parsed(**settings: object) -> Several:
    return Several.parse({**RAW, **settings})


def problems(**settings: object) -> list[str]:
    return Several.check({**RAW, **settings})[1]


# -- how they are written ------------------------------------------------------------------------------


@pytest.mark.parametrize("written", ["a, b", '["a", "b"]', ["a", "b"], ("a", "b")])
def test_list_may_be_text_or_json(written: object) -> None:
    assert parsed(columns=written).columns == ["a", "b"]


@pytest.mark.parametrize("written", ["a:1, b:2", '{"a": 1, "b": "2"}', {"a": 1, "b": 2}])
def test_map_may_be_text_or_json(written: object) -> None:
    assert parsed(limits=written).limits == {"a": 1, "b": 2}


def test_map_may_have_a_key_per_entry() -> None:
    config = parsed(
        **{
            "http.headers.X-Id": "a,b",
            "http.headers": "Accept:*/*",
            "http.headers.own": "me",
            "limits.a.b": "1",
        }
    )
    assert config.headers == {"X-Id": "a,b", "Accept": "*/*"}
    assert (config.own, config.limits) == ("me", {"a.b": 1})
    assert pickle.loads(pickle.dumps(config)) == config  # noqa: S301 - our own bytes


def test_item_with_a_separator_is_written_as_json() -> None:
    # Text in brackets is JSON only if it parses: it may also be a regular expression.
    assert parsed(columns='["a,b"]').columns == ["a,b"]
    assert parsed(columns="[a-z]+,b").columns == ["[a-z]+", "b"]
    assert parsed(**{"http.headers": "Location:http://x:80"}).headers == {"Location": "http://x:80"}


def test_references_in_lists_are_resolved_like_in_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    # In text, references are resolved before the text is split, as in Connect; in JSON, after it is parsed,
    # because quotes would break the JSON.
    monkeypatch.setenv("SEVERAL", 'a,"b')
    assert parsed(columns="${env:SEVERAL},c").columns == ["a", '"b', "c"]
    assert parsed(columns='["${env:SEVERAL}", "c"]').columns == ['a,"b', "c"]
    assert parsed(**{"http.headers.X": "${env:SEVERAL}"}).headers == {"X": 'a,"b'}
    assert parsed(limits={"a": 1}, columns=["${env:SEVERAL}"]).columns == ['a,"b']
    assert problems(**{"http.headers.X": "${env:SEVERAL_NOT}"}) == [
        "'http.headers.X': ${env:SEVERAL_NOT}: the environment variable SEVERAL_NOT is not set here"
    ]


texts = st.text(max_size=5) | st.sampled_from(["a", "b,c", "d:e", "[1]", "{}", " x", "", "1"])


@given(st.lists(texts, max_size=4) | st.dictionaries(texts, texts, max_size=4))
def test_python_lists_and_maps_survive_as_text(value: list[str] | dict[str, str]) -> None:
    assert read(as_text(value), "map" if isinstance(value, dict) else "list") == value


# -- what is said of them ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"the.ports": "1,x"}, "'the.ports': input should be a valid integer"),
        ({"the.ports": "[1, null]"}, "'the.ports': item 2: input should be a valid integer"),
        ({"limits": "a:1,b:x"}, "'limits': 'b': input should be a valid integer"),
        ({"limits.b": "x"}, "'limits': 'b': input should be a valid integer"),
        ({"limits": "a"}, "'limits': must be pairs of key:value, separated by commas, each key once"),
        ({"limits": "a:1,a:2"}, "'limits': must be pairs of key:value, separated by commas, each key once"),
        ({"limits": '{"a": 1'}, "or a JSON object"),
        ({"limits": "a:1", "limits.a": "2"}, "'limits.a' is also in 'limits': keep one of them"),
        ({"limits": ["a"]}, "'limits': must be pairs of key:value"),
    ],
)
def test_problem_names_key_and_item_but_not_the_value(settings: dict[str, object], problem: str) -> None:
    found = problems(**settings)
    if "1,x" in settings.values():
        problem = problem.replace(": input", ": item 2: input")
    assert len(found) == 1
    assert problem in found[0]


def test_map_entries_are_known_keys() -> None:
    raw = {**RAW, "http.headers.Anything": "1", "http.header.X": "1", "http.headers.": "1", "columns.x": "1"}
    unknown = [option.key for option in Several.judge(raw) if option.verdict.meaning is Meaning.UNKNOWN]
    assert unknown == ["http.header.X", "http.headers.", "columns.x"]


def test_unexpected_list_is_a_problem() -> None:
    good = check_file({**RAW, "columns": ["a,b"], "limits": {"a": 1}, "http.headers": {}})
    assert (good.problems, good.raw["columns"], good.raw["limits"]) == ([], '["a,b"]', "a:1")
    bad = check_file({**RAW, "tasks.max": [2], "columns": {"a": 1}, "limits": [1], "columns.x": []})
    assert list(bad.problems[:4]) == [
        "'tasks.max' must be a string, a number or a boolean",
        "'columns' must be a list or a string",
        "'limits' must be an object or a string",
        "'columns.x' must be a string, a number or a boolean",
    ]
    assert bad.config is None


def test_unknown_connector_class_is_the_only_problem_of_lists() -> None:
    found = check_file({**RAW, "connector.class": "no.such:Sink", "columns": ["a"], "limits": {"a": 1}})
    assert [problem.split(":")[0] for problem in found.problems] == ["'connector.class'"]


def test_secrets_in_lists_and_maps_are_hidden() -> None:
    raw = {
        **RAW,
        "pins": "first-secret,second-secret",
        "auth": '{"a": "third,secret"}',
        "auth.b": "fourth-secret",
        "auth.c": "${env:SECRET}",
        "http.headers": "Accept:*/*,X-Api-Key:fifth-secret",
        "http.headers.X-Token": "sixth-secret",
        "limits": "a:1",
    }
    shown = redacted(raw)
    for key in ("pins", "auth", "auth.b", "http.headers", "http.headers.X-Token"):
        assert shown[key] == HIDDEN
    assert (shown["auth.c"], shown["limits"]) == ("${env:SECRET}", "a:1")
    assert redacted({**RAW, "http.headers": "Authorization:seventh-secret,oops"})["http.headers"] == HIDDEN
    secrets = Several.secrets(raw)
    for secret in (
        "first-secret",
        "second-secret",
        "third,secret",
        "fourth-secret",
        "fifth-secret",
        "sixth-secret",
    ):
        assert secrets[secret] == HIDDEN


# -- over REST -----------------------------------------------------------------------------------------


@pytest.fixture
def client() -> TestClient:
    return TestClient(create_app(MemoryStore()))


def test_definitions_of_list_and_map_keys_have_their_type(client: TestClient) -> None:
    # KIP-769: Connect has a type for lists, but none for maps.
    found = client.get(f"/connector-plugins/{RAW['connector.class']}/config").json()
    types = {row["name"]: row["type"] for row in found}
    assert (types["columns"], types["the.ports"], types["topics"]) == ("LIST", "LIST", "LIST")
    assert (types["limits"], types["http.headers"]) == ("STRING", "STRING")


def test_server_stores_json_lists_as_text(client: TestClient) -> None:
    config = {**RAW, "columns": ["a", "b,c"], "limits": {"a": 1}, "http.headers.X": "1", "topics": ["t", "u"]}
    response = client.post("/connectors", json={"name": "c", "config": config})
    assert response.status_code == 201, response.text
    kept = client.get("/connectors/c/config").json()
    assert (kept["columns"], kept["limits"], kept["topics"]) == ('["a", "b,c"]', "a:1", "t,u")
    found = Several.parse(kept)
    assert (found.columns, found.limits, found.headers) == (["a", "b,c"], {"a": 1}, {"X": "1"})
    assert found.topics == ("t", "u")
    assert client.put("/connectors/c/config", json=kept).json()["config"] == kept
    changed = client.patch("/connectors/c/config", json={"limits": {"b": 2}, "http.headers.X": None}).json()
    assert (changed["config"]["limits"], "http.headers.X" in changed["config"]) == ("b:2", False)


def test_server_refuses_an_unexpected_list(client: TestClient) -> None:
    response = client.post("/connectors", json={"name": "c", "config": {**RAW, "tasks.max": [2]}})
    assert (response.status_code, client.get("/connectors").json()) == (400, [])
    assert "'tasks.max' must be a string, a number or a boolean" in response.json()["message"]


def test_server_validates_lists_and_maps(client: TestClient) -> None:
    path = f"/connector-plugins/{RAW['connector.class']}/config/validate"
    given = {**RAW, "limits.a": "x", "http.headers.X": "1", "http.header.X": "1", "columns": ["a"]}
    found = client.put(path, json=given).json()
    rows = {row["value"]["name"]: row["value"] for row in found["configs"]}
    assert (found["error_count"], "'a'" in rows["limits"]["errors"][0]) == (1, True)
    assert rows["columns"]["value"] == "a"
    assert "http.headers.X" not in rows
    assert rows["http.header.X"]["warnings"]


def test_driver_stores_lists_as_text() -> None:
    record = Herder(MemoryStore()).create(
        "c", {**RAW, "columns": ["a", "b"], "limits": {"x,y": 1}}, "STOPPED"
    )
    assert record.config["columns"] == "a,b"
    assert json.loads(record.config["limits"]) == {"x,y": "1"}
    with pytest.raises(ConfigException, match="'limits': 'x,y'"):
        Several.parse({**record.config, "limits": {"x,y": "no number"}})
