"""``PUT …/config/validate`` of chains, compared with a Connect worker."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from fastapi.testclient import TestClient

from sinksdk.server.app import create_app
from tests.helpers.memory_store import MemoryStore
from tests.helpers.needs import missing
from tests.kafka.maven import MavenError
from tests.transforms.connect_validate import CHAINS, of_chain, run_worker, stored_results

SINK = "examples.folder_sink:FolderSink"
CONFIG = {
    "connector.class": SINK,
    "name": "c",
    "topics": "t",
    "folder": "f",
    "key.converter": "json",
    "value.converter": "json",
}

PLUGIN_VERSION = ".plugin.version"
"""This key is accepted without effect, because only one version exists; it is listed only if it is given."""
EVERY_STEP_HAS = (".predicate", ".negate")
"""Connect lists these keys only if it finds the class; sinksdk knows them for any class."""

MORE_ERRORS: Mapping[str, Mapping[str, str]] = {
    # Connect's validate finds no error, but the connector fails when it starts.
    "what only the class itself finds": {"transforms.a.type": "No field insertion configured"},
    "unknown predicate": {"transforms.a.predicate": "is p, which is not declared in 'predicates'"},
    "another predicate": {"transforms.a.predicate": "is q, which is not declared in 'predicates'"},
    "several": {"transforms.b.predicate": "is q, which is not declared in 'predicates'"},
    # Connect ignores a misspelt option silently.
    "an option that is not there": {"transforms.a.filds": "did you mean 'fields'?"},
}
"""Errors by key that sinksdk reports and Connect does not."""

ELSEWHERE: Mapping[str, Mapping[str, str]] = {
    "negate without predicate": {"transforms.a.type": "transforms.a.negate"},
}
"""Keys for which Connect reports an error, with the wrong keys for which sinksdk reports it."""

GIST: Mapping[str, str] = {
    "no class": "required",
    "unknown class": "org.example.Nothing",
    "class for both parts": "abstract and cannot be created. Did you mean ",
    "a predicate as a transform": "predicates.RecordIsTombstone",
    "no required option": "required",
    "an option that is wrong": "Invalid type found in casting spec: int",
    "predicate without option": "required",
    "predicate of no class": "required",
    "predicate of unknown class": "org.example.Nothing",
    "negate is no boolean": "true or false",
    "negate without predicate": (
        "Config 'transforms.a.negate' was provided but there is no config 'transforms.a.predicate' defining a "
        "predicate to be negated"
    ),
    "an alias twice": "Duplicate alias provided",
    "a predicate's alias twice": "Duplicate alias provided",
}
"""Texts that the messages of both contain."""


@pytest.fixture(scope="module")
def client() -> TestClient:
    return TestClient(create_app(MemoryStore()))


def validated(client: TestClient, config: Mapping[str, str]) -> dict[str, Any]:
    response = client.put(f"/connector-plugins/{SINK}/config/validate", json={**CONFIG, **config})
    assert response.status_code == 200
    found: dict[str, Any] = response.json()
    return found


def with_errors(response: Mapping[str, Any]) -> dict[str, list[str]]:
    return {key: said["errors"] for key, said in response["keys"].items() if said["errors"]}


@pytest.mark.parametrize("name", CHAINS)
def test_keys_and_groups_equal_connects(client: TestClient, name: str) -> None:
    theirs, ours = stored_results()[name], of_chain(validated(client, CHAINS[name]))
    assert ours["groups"] == theirs["groups"]
    listed = {key: said for key, said in ours["keys"].items() if said["type"] is not None}
    expected = {key: said for key, said in theirs["keys"].items() if not key.endswith(PLUGIN_VERSION)}
    assert expected.keys() <= listed.keys()
    assert all(key.endswith(EVERY_STEP_HAS) for key in listed.keys() - expected.keys())
    for key, said in expected.items():
        for what in ("type", "required", "group"):
            assert listed[key][what] == said[what], (key, what)
        if not said["errors"]:  # otherwise Connect shows no value, or not the written one
            assert listed[key]["value"] == said["value"], key


@pytest.mark.parametrize("name", CHAINS)
def test_refused_keys_equal_connects(client: TestClient, name: str) -> None:
    # sinksdk reports errors of more keys, where Connect fails only later, or never. sinksdk counts each
    # mistake once; Connect reports a missing required option twice.
    theirs, infos = stored_results()[name], validated(client, CHAINS[name])
    ours = of_chain(infos)
    moved, more = ELSEWHERE.get(name, {}), MORE_ERRORS.get(name, {})
    expected = {moved.get(key, key) for key in with_errors(theirs)} | more.keys()
    found = with_errors(ours)

    assert found.keys() == expected
    assert infos["error_count"] == len(expected) == sum(map(len, found.values()))
    for key, words in more.items():
        assert words in found[key][0]
    if name in GIST:
        for response in (theirs, ours):
            assert any(GIST[name] in said for errors in with_errors(response).values() for said in errors)


def test_refusal_messages_equal_connects() -> None:
    refused = {name for name, response in stored_results().items() if response["error_count"]}
    assert refused - GIST.keys() == {"an option of a wrong type", "several"}


def test_plugin_version_is_accepted_and_ignored(client: TestClient) -> None:
    # KIP-891. Regression: the key was refused as an unknown key of the transform.
    good = CHAINS["good"]
    versions = {f"transforms.a{PLUGIN_VERSION}": "4.1.0", f"predicates.p{PLUGIN_VERSION}": "4.1.0"}
    infos = validated(client, {**good, **versions})
    assert infos["error_count"] == 0
    warned = {info["value"]["name"]: info["value"]["warnings"] for info in infos["configs"]}
    for key in versions:
        assert "have the installed version" in warned[key][0]


@pytest.mark.slow
@pytest.mark.nightly
def test_stored_validations_equal_those_of_a_connect_worker() -> None:
    try:
        current = run_worker()
    except MavenError as error:
        missing("Kafka Connect", f"its jars come from Maven Central: {error}")
    assert json.loads(current) == stored_results()
