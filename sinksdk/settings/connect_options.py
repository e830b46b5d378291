"""Verdicts on Kafka Connect's own keys, which any connector's configuration may contain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from sinksdk.compatibility import Verdict
from sinksdk.settings.converter_keys import RULES

_same, _differs = Verdict.same, Verdict.differs
_ignored, _unsupported = Verdict.ignored, Verdict.unsupported

_INSTALLED = _ignored("connectors, converters and transforms have the installed version")
_NO_GROUP = _ignored("tasks are not members of a consumer group: a slow task causes no rebalance")
_OF_JAVA = _ignored("it names classes of Java's client; librdkafka reads Kafka here")
_OF_SOURCES = _ignored("it concerns source connectors; a sink's guarantee depends on its connector")
_OF_THE_WORKER = _ignored("it configures Connect's workers, which sinksdk does not have")
_PLUGINS = _ignored("connectors are Python packages: install them in sinksdk's environment")
_KEPT = (
    "records keep their topic, because its offsets are committed: remove it from 'transforms'; to write to "
    "another name at the destination, create a separate connector and set the name by the sink's own keys"
)

_TRANSFORM = _same("or a class of your own, as package.module:Class").when(
    {
        "RegexRouter": _unsupported(_KEPT),
        "TimestampRouter": _unsupported(_KEPT),
        "ByLogicalTableRouter": _unsupported(_KEPT),
        "ExtractNewRecordState": _unsupported(
            "change events are delivered with 'before' and 'after': use ExtractField on 'after', or unwrap "
            "them with a class of your own"
        ),
        "SetSchemaMetadata*": _differs("it has no effect: schemas have no names here"),
    }
)


def _converter(side: str) -> Mapping[str, Verdict]:
    source = _same().when(
        {
            "SASL_INHERIT": _unsupported(
                f"converters do not have Kafka's login: use USER_INFO, and set '{side}.basic.auth.user.info'"
            )
        }
    )
    return {
        side: _same("bytes, string, json, avro and numbers, under Connect's class names or these"),
        f"{side}.schemas.enable": _same("if not set, an envelope is unwrapped if the record has one"),
        f"{side}.schema.registry.url": _same(),
        f"{side}.basic.auth.credentials.source": source,
        f"{side}.schema.registry.basic.auth.credentials.source": replace(
            source, why=f"another name of '{side}.basic.auth.credentials.source'"
        ),
        f"{side}.basic.auth.user.info": _same(),
        f"{side}.schema.registry.basic.auth.user.info": _same(
            f"another name of '{side}.basic.auth.user.info'"
        ),
        f"{side}.converter.encoding": _same(),
        f"{side}.schema.id.deserializer": _unsupported(
            "it is a Java class that cannot run here: use DualSchemaIdDeserializer, which is the default"
        ).when(
            dict.fromkeys(
                (
                    f"{package}{name}SchemaIdDeserializer"
                    for package in ("", "io.confluent.kafka.serializers.schema.id.")
                    for name in ("Dual", "Prefix")
                ),
                _same(),
            )
        ),
    }


# A connector's own verdicts on these keys take precedence.
CONNECT_OPTIONS: Final[Mapping[str, Verdict]] = MappingProxyType(
    {
        "name": _same(),
        "connector.class": _same("Java class names are accepted where a connector here replaces one"),
        "tasks.max": _same("a task is a task of Spark"),
        "tasks.max.enforce": _ignored("there are never more tasks than 'tasks.max'"),
        "topics": _same(),
        "topics.regex": _same(),
        **_converter("key.converter"),
        **_converter("value.converter"),
        "csfle.enabled": RULES.when(dict.fromkeys(("false", "False", "FALSE"), _same())),
        "csfle.onFailure": _ignored("it applies only with 'csfle.enabled'"),
        "rule.executors.*": _ignored("it applies only with 'csfle.enabled'"),
        "header.converter": _ignored("headers are delivered as bytes"),
        "header.converter.*": _ignored("headers are delivered as bytes"),
        "transforms": _same("after the converters; a record that a transform refuses is a bad record"),
        "transforms.*": _same(),
        "transforms.*.type": _TRANSFORM,
        "transforms.*.plugin.version": _INSTALLED,
        "predicates": _same(),
        "predicates.*": _same(),
        "predicates.*.plugin.version": _INSTALLED,
        "errors.tolerance": _same(),
        "errors.retry.timeout": _differs(
            "it also limits the retries of put and publish (five minutes by default); then the partition is "
            "opened again"
        ),
        "errors.retry.delay.max.ms": _same(),
        "errors.log.enable": _same(),
        "errors.log.include.messages": _same(),
        "errors.deadletterqueue.topic.name": _same("written before the commit that covers them"),
        "errors.deadletterqueue.topic.replication.factor": _same(),
        "errors.deadletterqueue.context.headers.enable": _same(),
        "offset.flush.interval.ms": _same("a worker's key in Connect, each connector's own here"),
        "task.shutdown.graceful.timeout.ms": _same("a worker's key in Connect; 60,000 by default, not 5,000"),
        "config.action.reload": _ignored("references are resolved again in every generation"),
        "config.providers": _ignored("${env:NAME} and ${file:/path:key} are always understood"),
        "config.providers.*": _ignored("${env:NAME} and ${file:/path:key} are always understood"),
        "bootstrap.servers": _ignored("the source is set by options of 'sinksdk run'"),
        "group.id": _OF_THE_WORKER,
        "consumer.override.*": _same("for the client that reads Kafka; a topic directory needs none"),
        "consumer.override.auto.offset.reset": _same(
            "for the first start; partitions added later begin at their first record"
        ),
        "consumer.override.max.poll.records": _same(
            "as 'max.poll.records': maximum number of records of one put"
        ),
        "consumer.override.isolation.level": _same(
            "read_committed if not set; a topic directory contains only committed records"
        ),
        "consumer.override.group.id": _same("the consumer group that gets a copy of the commits"),
        "consumer.override.max.poll.interval.ms": _NO_GROUP,
        "consumer.override.session.timeout.ms": _NO_GROUP,
        "consumer.override.heartbeat.interval.ms": _NO_GROUP,
        "consumer.override.partition.assignment.strategy": _NO_GROUP,
        "consumer.override.group.instance.id": _NO_GROUP,
        "consumer.override.enable.auto.commit": _ignored(
            "offsets are committed to the store, never by the client"
        ),
        "consumer.override.interceptor.classes": _OF_JAVA,
        "consumer.override.key.deserializer": _OF_JAVA,
        "consumer.override.value.deserializer": _OF_JAVA,
        "producer.override.*": _same("for the client that writes dead letters"),
        "admin.override.*": _ignored("a sink creates no topics"),
        "connector.client.config.override.policy": _OF_THE_WORKER,
        "connector.plugin.version": _INSTALLED,
        "key.converter.plugin.version": _INSTALLED,
        "value.converter.plugin.version": _INSTALLED,
        "header.converter.plugin.version": _INSTALLED,
        "plugin.path": _PLUGINS,
        "plugin.discovery": _PLUGINS,
        "exactly.once.support": _OF_SOURCES,
        "exactly.once.source.support": _OF_SOURCES,
        "transaction.boundary": _OF_SOURCES,
        "transaction.boundary.interval.ms": _OF_SOURCES,
        "offsets.storage.topic": _OF_SOURCES,
        "topic.creation.*": _OF_SOURCES,
        "offset.flush.timeout.ms": _ignored(
            "a commit is one write to the store, which has its own time-outs"
        ),
        "offset.storage.*": _ignored("commits are kept in the store of 'sinksdk run --store'"),
        "config.storage.*": _ignored("configurations are kept in the store of 'sinksdk run --store'"),
        "status.storage.*": _ignored("states are kept in the store of 'sinksdk run --store'"),
        "internal.key.converter": _OF_THE_WORKER,
        "internal.value.converter": _OF_THE_WORKER,
        "rest.*": _OF_THE_WORKER,
        "listeners": _OF_THE_WORKER,
        "_comment*": _ignored("a comment"),
    }
)
