"""The forms a configuration can be written in."""

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
def test_all_of_connects_json_forms_mean_the_same(read: Read, text: str) -> None:
    """The name stands outside or inside, values are texts or scalars, null means not set."""
    file = read(text)

    assert file.config == {"name": "a", "tasks.max": "2"}
    assert not file.problems
    assert not file.warnings


def test_strimzis_resource_is_read_as_json(read: Read) -> None:
    """Name, class and tasks stand beside the configuration; what Strimzi alone heeds is named."""
    file = read(
        '{"apiVersion": "kafka.strimzi.io/v1beta2", "kind": "KafkaConnector", "metadata": {"name": "a"}, '
        '"spec": {"class": "x.Sink", "tasksMax": 2, "autoRestart": {"enabled": true}, "config": {"topics": "t"}}}'
    )

    assert file.config == {"name": "a", "connector.class": "x.Sink", "tasks.max": "2", "topics": "t"}
    assert file.problems == []
    assert file.warnings == ["'spec.autoRestart' has no effect"]


def test_a_resource_without_a_configuration_is_a_problem(read: Read) -> None:
    """It says what it lacks."""
    file = read('{"kind": "KafkaConnector", "metadata": {"name": "a"}}')

    assert file.problems == ["a KafkaConnector needs 'metadata' and 'spec' with a 'config' in it"]


def test_comments_may_be_repeated(read: Read) -> None:
    """Connect's users write them as ``_comment``, one for each key; other keys must not be there twice."""
    file = read('{"name": "a", "_comment": "one", "_comment": "two", "tasks.max": 1, "tasks.max": 2}')

    assert file.problems == ["'tasks.max' is set more than once"]


def test_properties_are_read_as_connects_standalone_mode_reads_them(read: Read) -> None:
    """``=``, ``:`` and blanks separate; ``#`` and ``!`` begin comments; a backslash continues a line."""
    text = "# a sink\n! too\nname=a\n\n topics : x, \\\n   y\ntransforms\nempty=\npath=/a=b:c  \n"

    assert read(text, "a.properties").config == {
        "name": "a",
        "topics": "x, y",
        "transforms": "",
        "empty": "",
        "path": "/a=b:c",
    }


def test_numbers_and_booleans_keep_the_way_they_were_written(read: Read) -> None:
    """``1e5`` is no integer for a model that wants one, and must not silently become one."""
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
def test_what_is_wrong_with_the_form_is_a_problem_like_any_other(read: Read, text: str, problem: str) -> None:
    """It does not keep the rest from being checked."""
    assert problem in " ".join(read(text).problems)


def test_lists_and_objects_are_text_and_are_told_apart(read: Read) -> None:
    """Whether the connector wants them its class knows, not the file."""
    file = read('{"name": "a", "config": {"x": {"y": 1}, "z": ["1,2", true], "v": "w"}}')

    assert file.config == {"x": "y:1", "z": '["1,2", "true"]', "v": "w", "name": "a"}
    assert file.nested == {"x": "map", "z": "list"}


def test_keys_beside_config_are_named(read: Read) -> None:
    """``initial_state`` and the like are Connect's; here they do nothing, and that is said."""
    file = read('{"name": "a", "config": {}, "initial_state": "PAUSED"}')

    assert file.warnings == ["'initial_state' next to 'config' has no effect"]


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "is no JSON document: "), ("[]", "must be a JSON object"), ("", "is no JSON document: ")],
)
def test_a_file_that_is_no_configuration_raises(read: Read, text: str, message: str) -> None:
    """One sentence that names the file."""
    with pytest.raises(ConfigException, match=message):
        read(text)


def test_a_file_that_cannot_be_read_raises(tmp_path: Path) -> None:
    """Missing, a folder, or no text: each is said as it is."""
    (tmp_path / "binary").write_bytes(b"\xff\xfe\xff")

    for name, message in [("absent", "No such file"), ("", "Is a directory"), ("binary", "is no UTF-8 text")]:
        with pytest.raises(ConfigException, match=message):
            read_config_file(tmp_path / name)


def test_a_line_may_go_on_in_the_next_one(read: Read) -> None:
    """As in the JAAS settings of Kafka's documentation."""
    text = "sasl.jaas.config=Plain \\\n   username=x \\\n   password=y;\n! no \\\na:b\\:c\n"

    assert read(text, "a.properties").config == {
        "sasl.jaas.config": "Plain username=x password=y;",
        "a": "b:c",
    }


def test_a_value_without_a_key_is_a_problem(read: Read) -> None:
    """Regression: such a line of a properties file was left out without a word."""
    file = read("name=a\n=b\n", "a.properties")

    assert (file.config, file.problems) == ({"name": "a"}, ["line 2 has no key in front of '='"])


def test_a_path_may_be_a_text(tmp_path: Path) -> None:
    """read_config_file takes what open takes."""
    path = tmp_path / "connector.json"
    path.write_text('{"name": "c", "topics": "t"}')
    assert read_config_file(str(path)) == read_config_file(path)


def test_references_in_lists_and_objects_are_items_whatever_they_stand_for(
    read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A value with a comma stays one item: the text is divided before the reference is looked up."""
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
