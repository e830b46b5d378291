from __future__ import annotations

import pickle

import pytest

from sinksdk import ConfigException
from sinksdk.compatibility import Meaning
from sinksdk.source import (
    ConnectorTransactionBoundaries,
    ExactlyOnceSupport,
    SourceConnector,
    SourceConnectorConfig,
    SourceTask,
)

BASE = {"name": "files", "connector.class": "x:Y"}


def test_defaults() -> None:
    config = SourceConnectorConfig.parse(BASE)
    assert config.transaction_boundary == "poll"
    assert config.exactly_once_support == "requested"
    assert config.transaction_interval_ms == config.offset_flush_interval_ms == 60_000
    assert (config.group_id, config.offsets_storage_topic) == ("sinksdk", "sinksdk-offsets")


def test_all_problems_are_reported() -> None:
    wrong = {
        **BASE,
        "transaction.boundary": "never",
        "offset.storage.replication.factor": "0",
        "group.id": "",
    }
    with pytest.raises(ConfigException) as caught:
        SourceConnectorConfig.parse(wrong)
    assert [problem.partition(":")[0].partition(" ")[0] for problem in caught.value.problems] == [
        "'transaction.boundary'",
        "'group.id'",
        "'offset.storage.replication.factor'",
    ]


def test_transaction_timeout_must_exceed_the_interval() -> None:
    written = {
        **BASE,
        "transaction.boundary": "interval",
        "transaction.boundary.interval.ms": "30000",
        "producer.override.transaction.timeout.ms": "30000",
    }
    with pytest.raises(ConfigException, match=r"is 30000, .* stay open for 30000 ms: remove"):
        SourceConnectorConfig.parse(written)
    SourceConnectorConfig.parse({**written, "producer.override.transaction.timeout.ms": "30001"})
    SourceConnectorConfig.parse({**written, "transaction.boundary": "poll"})


def test_configuration_is_pickled_as_text() -> None:
    config = SourceConnectorConfig.parse(BASE)
    assert pickle.loads(pickle.dumps(config)) == config  # noqa: S301 - our own


@pytest.mark.parametrize(
    ("key", "value", "meaning"),
    [
        ("topics", "a", Meaning.IGNORED),
        ("exactly.once.support", "required", Meaning.SAME),
        ("transaction.boundary", "interval", Meaning.SAME),
        ("value.converter", "org.apache.kafka.connect.converters.ByteArrayConverter", Meaning.SAME),
        ("value.converter", "org.apache.kafka.connect.json.JsonConverter", Meaning.UNSUPPORTED),
        ("errors.deadletterqueue.topic.name", "dead", Meaning.IGNORED),
        ("producer.override.linger.ms", "5", Meaning.SAME),
        ("producer.override.acks", "1", Meaning.IGNORED),
        ("producer.override.bootstrap.servers", "other:9092", Meaning.UNSUPPORTED),
        ("transforms", "a", Meaning.UNSUPPORTED),
        ("tranaction.boundary", "poll", Meaning.UNKNOWN),
    ],
)
def test_connect_keys_have_verdicts_for_sources(key: str, value: str, meaning: Meaning) -> None:
    assert SourceConnectorConfig.judge({**BASE, key: value})[-1].verdict.meaning is meaning


def test_reference_lists_a_connectors_own_keys_first() -> None:
    keys = [key.name for key in SourceConnectorConfig.reference()]
    assert keys[:4] == ["name", "connector.class", "tasks.max", "exactly.once.support"]
    assert not {"topics", "errors.tolerance", "value.converter"} & set(keys)


# -- what a connector says of itself -----------------------------------------------------------------


class Silent(SourceConnector):
    task_class = SourceTask


class Exact(Silent):
    def exactly_once_support(self, config: object) -> ExactlyOnceSupport:
        return ExactlyOnceSupport.SUPPORTED

    def can_define_transaction_boundaries(self, config: object) -> ConnectorTransactionBoundaries:
        return ConnectorTransactionBoundaries.SUPPORTED


class Inexact(Silent):
    def exactly_once_support(self, config: object) -> ExactlyOnceSupport:
        return ExactlyOnceSupport.UNSUPPORTED


@pytest.mark.parametrize(
    ("connector", "answer"),
    [(Silent(), "does not declare that it supports"), (Inexact(), "does not support"), (Exact(), None)],
)
def test_required_exactly_once_needs_a_connector_that_declares_it(
    connector: SourceConnector, answer: str | None
) -> None:
    # See KIP-618.
    required = SourceConnectorConfig.parse({**BASE, "exactly.once.support": "required"})
    found = connector.unmet(required)
    assert [answer in problem for problem in found] == ([True] if answer else [])
    assert connector.unmet(SourceConnectorConfig.parse(BASE)) == []


def test_connector_boundary_needs_a_connector_that_declares_it() -> None:
    # Without this check such a connector would never commit.
    config = SourceConnectorConfig.parse({**BASE, "transaction.boundary": "connector"})
    assert ["'poll' or 'interval'" in problem for problem in Silent().unmet(config)] == [True]
    assert Exact().unmet(config) == []


def test_sources_share_connector_methods_with_sinks() -> None:
    connector = Silent()
    connector.start(None)
    connector.stop(True)
    assert connector.task_configs(2) == [{}, {}]
    assert connector.alter_offsets({}, []) is False
