"""Topics as programs name them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from sinksdk import ConfigException, KafkaTopics, TopicDirectory
from sinksdk.launch.topics import topics_at
from sinksdk.topics.kafka import KafkaClient


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("kafka://broker.example:9092", KafkaTopics("broker.example:9092")),
        ("kafka://a:1,b:2", KafkaTopics("a:1,b:2")),
        ("/data/topics", TopicDirectory("/data/topics")),
        (Path("/data/topics"), TopicDirectory("/data/topics")),
        ("file:///data/some%20topics", TopicDirectory("/data/some topics")),
        (KafkaTopics("a:1"), KafkaTopics("a:1")),
    ],
)
def test_urls_and_paths_name_kafka_or_a_topic_directory(source: Any, expected: Any) -> None:
    assert topics_at(source) == expected


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("broker:9092", "write kafka://broker:9092 for a Kafka cluster"),
        ("kafka://broker", "bootstrap_servers: 'broker' is not HOST:PORT"),
        ("kafka://", "bootstrap_servers is empty: give HOST:PORT"),
        ("s3://bucket/topics", "a topic directory must be a path in a file system"),
        ("file://elsewhere/topics", "the topic directory must be on this host"),
        ("", "the source is empty"),
        (7, "the source is a int: give KafkaTopics, TopicDirectory, or a URL"),
    ],
)
def test_a_source_that_names_no_topics_is_refused(source: Any, problem: str) -> None:
    with pytest.raises(ConfigException, match=problem):
        topics_at(source)


def test_a_relative_topic_directory_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    named = TopicDirectory("topics")
    monkeypatch.chdir("/")

    assert named.path == os.fspath(tmp_path / "topics")


def test_client_properties_may_be_a_mapping(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKER_CA", "/etc/ca.pem")
    given = (("security.protocol", "SSL"), ("ssl.truststore.location", "${env:BROKER_CA}"))
    properties = (*given, ("ssl.truststore.type", "PEM"))
    client = KafkaClient("a:1", properties=properties)

    assert client.librdkafka()["security.protocol"] == "SSL"
    assert client.librdkafka()["ssl.ca.location"] == "/etc/ca.pem"
    with pytest.raises(ConfigException, match=r"did you mean 'security\.protocol'"):
        KafkaClient("a:1", properties=(("security.protokol", "SSL"),)).librdkafka()


def test_repr_hides_client_properties() -> None:
    topics = KafkaTopics("a:1", {"sasl.jaas.config": "hunter2"})

    assert "hunter2" not in repr(topics)
    assert "hunter2" not in repr(KafkaClient("a:1", properties=(("sasl.jaas.config", "hunter2"),)))
