"""The forms of configuration files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import Field

from sinksdk import ConfigException, ConnectorConfig
from sinksdk.settings.file import ConfigFile, read_config_file

Read = Callable[..., ConfigFile]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def from_text(text: str, name: str = "config.json") -> ConfigFile:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return read_config_file(path)

    return from_text


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "a", "config": {"tasks.max": "2"}}',
        '{"name": "a", "config": {"name": "a", "tasks.max": 2}}',
        '{"config": {"name": "a", "tasks.max": 2}}',
        '{"name": "a", "config": {"tasks.max": 2}, "tasks": [], "type": "sink"}',
        '{"name": "a", "tasks.max": 2}',
        '\ufeff{"name": "a", "tasks.max": 2, "gone": null}',
    ],
)
def test_json_forms_of_connect_are_equivalent(read: Read, text: str) -> None:
    file = read(text)

    assert file.config == {"name": "a", "tasks.max": "2"}
    assert not file.problems
    assert not file.warnings


def test_strimzi_resource_is_read(read: Read) -> None:
    file = read(
        '{"apiVersion": "kafka.strimzi.io/v1beta2", "kind": "KafkaConnector", "metadata": {"name": "a"}, '
        '"spec": {"class": "x.Sink", "tasksMax": 2, "autoRestart": {"enabled": true}, "config": {"topics": "t"}}}'
    )

    assert file.config == {"name": "a", "connector.class": "x.Sink", "tasks.max": "2", "topics": "t"}
    assert file.problems == []
    assert file.warnings == ["'spec.autoRestart' has no effect"]


def test_strimzi_resource_without_config_is_a_problem(read: Read) -> None:
    file = read('{"kind": "KafkaConnector", "metadata": {"name": "a"}}')

    assert file.problems == ["a KafkaConnector needs 'metadata' and 'spec' with a 'config' in it"]


def test_only_comment_keys_may_be_repeated(read: Read) -> None:
    file = read('{"name": "a", "_comment": "one", "_comment": "two", "tasks.max": 1, "tasks.max": 2}')

    assert file.problems == ["'tasks.max' is set more than once"]


def test_properties_file_is_read_as_in_standalone_mode(read: Read) -> None:
    text = "# a sink\n! too\nname=a\n\n topics : x, \\\n   y\ntransforms\nempty=\npath=/a=b:c  \n"

    assert read(text, "a.properties").config == {
        "name": "a",
        "topics": "x, y",
        "transforms": "",
        "empty": "",
        "path": "/a=b:c",
    }


def test_json_numbers_keep_their_text(read: Read) -> None:
    assert read('{"a": 1e5, "b": 1.50, "c": true, "d": 12345678901234567890}').config == {
        "a": "1e5",
        "b": "1.50",
        "c": "true",
        "d": "12345678901234567890",
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"name": "a", "config": {"name": "b"}}', "the name is 'a' next to 'config' and 'b' in it"),
        ('{"name": "a", "config": {"x": 1, "x": 2}}', "'x' is set more than once"),
        ('{"name": "a", "config": ["x"]}', "'config' must be an object of keys and values"),
    ],
)
def test_problems_of_the_files_form_do_not_hide_other_problems(read: Read, text: str, problem: str) -> None:
    assert problem in " ".join(read(text).problems)


def test_lists_and_objects_become_text_and_are_marked(read: Read) -> None:
    file = read('{"name": "a", "config": {"x": {"y": 1}, "z": ["1,2", true], "v": "w"}}')

    assert file.config == {"x": "y:1", "z": '["1,2", "true"]', "v": "w", "name": "a"}
    assert file.nested == {"x": "map", "z": "list"}


def test_keys_next_to_config_are_warnings(read: Read) -> None:
    file = read('{"name": "a", "config": {}, "initial_state": "PAUSED"}')

    assert file.warnings == ["'initial_state' next to 'config' has no effect"]


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "is not a JSON document: "), ("[]", "must be a JSON object"), ("", "is not a JSON document: ")],
)
def test_file_that_is_not_a_configuration_is_refused(read: Read, text: str, message: str) -> None:
    with pytest.raises(ConfigException, match=message):
        read(text)


def test_unreadable_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\xff")

    for name, message in [("absent", "No such file"), ("", "Is a directory"), ("binary", "is not UTF-8")]:
        with pytest.raises(ConfigException, match=message):
            read_config_file(tmp_path / name)


def test_properties_line_may_be_continued(read: Read) -> None:
    text = "sasl.jaas.config=Plain \\\n   username=x \\\n   password=y;\n! no \\\na:b\\:c\n"

    assert read(text, "a.properties").config == {
        "sasl.jaas.config": "Plain username=x password=y;",
        "a": "b:c",
    }


def test_properties_value_without_key_is_a_problem(read: Read) -> None:
    file = read("name=a\n=b\n", "a.properties")

    assert (file.config, file.problems) == ({"name": "a"}, ["line 2 has no key in front of '='"])


def test_path_may_be_a_string(tmp_path: Path) -> None:
    path = tmp_path / "connector.json"
    path.write_text('{"name": "c", "topics": "t"}')
    assert read_config_file(str(path)) == read_config_file(path)


def test_reference_in_a_json_list_stays_one_item(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WITH_A_COMMA", "open,X-Evil:sesame")

    class Several(ConnectorConfig):
        names: list[str] = Field(default=[])
        headers: dict[str, str] = Field(default={})

    file = read(
        '{"name": "c", "topics": "t", "headers": {"X": "${env:WITH_A_COMMA}"}, '
        '"names": ["${env:WITH_A_COMMA}", "z"]}'
    )
    config = Several.parse(file.config)
    assert config.headers == {"X": "open,X-Evil:sesame"}
    assert config.names == ["open,X-Evil:sesame", "z"]
