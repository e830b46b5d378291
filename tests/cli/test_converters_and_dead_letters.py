"""Problems of converters and dead letters, which are reported before Spark starts."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sinksdk import ConnectorConfig
from sinksdk.launch.deployment import PreparedSink
from sinksdk.launch.spark import columns_read
from sinksdk.records import RECORD_COLUMNS
from tests.cli.support import Here

DEAD_LETTERS = {"errors_deadletterqueue_topic_name": "bad"}


def test_an_unwritable_dead_letter_directory_exits_2_without_a_store(here: Here) -> None:
    nowhere = here.folder / "not there" / "bad"
    config = here.config(**DEAD_LETTERS, errors_deadletterqueue_topic_directory=str(nowhere))
    result = here.sinksdk("run", config, "--topic-directory", here.topic())
    assert result.exit_code == 2
    assert f"dead letters cannot be written to {nowhere}" in " ".join(result.stderr.split())
    assert not list(here.folder.glob("*sqlite*"))


def test_avro_without_its_packages_exits_2(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec

    def without_client(name: str) -> ModuleSpec | None:
        return None if name == "confluent_kafka" else find(name)

    monkeypatch.setattr(importlib.util, "find_spec", without_client)
    config = here.config(value_converter="avro", value_converter_schema_registry_url="http://registry:8081")
    result = here.sinksdk("run", config, "--topic-directory", here.topic())
    assert result.exit_code == 2
    assert "Avro needs packages that are not installed: pip install 'sinksdk[kafka]'" in result.stderr


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"value_converter": "protobuf"}, "'value.converter': unknown converter 'protobuf'"),
        ({"key_converter": "avro"}, "'key.converter.schema.registry.url' is required by the Avro converter"),
        (
            {"value_converter": "avro", "value_converter_schema_registry_url": "registry:8081"},
            "'value.converter.schema.registry.url': 'registry:8081' does not begin with http:// or https://: write",
        ),
        *(
            ({"value_converter": "avro", "value_converter_schema_registry_url": url}, problem)
            for url, problem in (
                (
                    "http://[x",
                    "'value.converter.schema.registry.url': 'http://[x' is not a URL: write it like",
                ),
                (
                    "http://a:1,http://r:port",
                    "'http://r:port' has a port that is not a number from 1 to 65535",
                ),
                ("http://a:1,", "'value.converter.schema.registry.url': '' does not begin with http:// or"),
            )
        ),
        *(
            (
                {
                    "value_converter": "avro",
                    "value_converter_schema_registry_url": "http://r",
                    "value_converter_bearer_auth_credentials_source": "OAUTHBEARER",
                    "value_converter_bearer_auth_client_id": "c",
                    "value_converter_bearer_auth_client_secret": "s",
                    "value_converter_bearer_auth_issuer_endpoint_url": "https://login.example/token",
                    **keys,
                },
                problem,
            )
            for keys, problem in (
                (
                    {"value_converter_bearer_auth_issuer_endpoint_url": "login"},
                    "'value.converter.bearer.auth.issuer.endpoint.url': 'login' does not begin with http://",
                ),
                (
                    {"value_converter_proxy_host": "proxy", "value_converter_proxy_port": "x"},
                    "'value.converter.proxy.host' and 'value.converter.proxy.port' must be a host name and",
                ),
            )
        ),
        (
            {
                "value_converter": "avro",
                "value_converter_schema_registry_url": "http://r",
                "value_converter_basic_auth_credentials_source": "USER_INFO",
            },
            "'value.converter.basic.auth.user.info' is required with",
        ),
        (
            {
                "value_converter": "avro",
                "value_converter_schema_registry_url": "http://r",
                "value_converter_basic_auth_user_info": "u:p",
            },
            "applies only with 'value.converter.basic.auth.credentials.source' USER_INFO",
        ),
        (
            {"key_converter": "string", "key_converter_converter_encoding": "rot13"},
            "'key.converter.converter.encoding': unknown text encoding 'rot13'",
        ),
        ({"errors_deadletterqueue_topic_name": "flights"}, "the connector reads 'flights' itself"),
        ({"errors_deadletterqueue_topic_name": "a b"}, "'a b' is not a valid topic name"),
        (
            {**DEAD_LETTERS, "errors_deadletterqueue_topic_replication_factor": 0},
            "'errors.deadletterqueue.topic.replication.factor' must be 1 or more, or -1",
        ),
        (
            {"errors_deadletterqueue_max_share": 1.5},
            "'errors.deadletterqueue.max.share': input should be less",
        ),
    ],
)
def test_validate_names_the_key_of_impossible_converters_and_dead_letters(
    here: Here, keys: Mapping[str, Any], problem: str
) -> None:
    result = here.sinksdk("validate", here.config(**keys))
    assert result.exit_code == 2
    assert problem in result.stdout + result.stderr


def test_a_topics_regex_that_matches_the_dead_letter_topic_is_refused() -> None:
    raw = {"name": "c", "topics.regex": "flights.*", "errors.deadletterqueue.topic.name": "flights-bad"}
    assert ConnectorConfig.check(raw)[1] == [
        "'errors.deadletterqueue.topic.name': the connector reads 'flights-bad' itself; name another topic"
    ]


def test_dead_letters_need_all_columns_read() -> None:
    connector = SimpleNamespace(columns=lambda config: ("value",))
    for topic, columns in (("", ("value",)), ("bad", tuple(RECORD_COLUMNS))):
        config = ConnectorConfig.parse(
            {"name": "c", "topics": "t", "errors.deadletterqueue.topic.name": topic}
        )
        ready = cast("PreparedSink", SimpleNamespace(connector=connector, config=config))
        assert columns_read(ready) == columns


def test_registry_passwords_are_not_shown() -> None:
    config = ConnectorConfig.parse(
        {
            "name": "c",
            "topics": "t",
            "value.converter": "avro",
            "value.converter.schema.registry.url": "http://u:s3cret@r",
            "key.converter": "avro",
            "key.converter.schema.registry.url": "http://r",
            "key.converter.basic.auth.credentials.source": "USER_INFO",
            "key.converter.basic.auth.user.info": "u:s3cret",
        }
    )
    assert "s3cret" not in repr(config)
    assert "s3cret" not in repr(config.converter_spec(is_key=True))
    assert "s3cret" not in repr(config.converter_spec(is_key=False))
