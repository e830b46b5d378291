"""Properties of a connector's Kafka producers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sinksdk.settings.model import ConfigModel
from sinksdk.topics.kafka.client import KafkaClient

PRODUCER: Final = "producer.override."
"""What keys of the clients that write to Kafka begin with."""

_DEFAULTS: Final[Mapping[str, Any]] = {
    "log_level": 2,  # what librdkafka logs of a broker that is away, the errors here say as well
    "linger.ms": 5,
    "delivery.timeout.ms": 120_000,  # Kafka's own
    "message.max.bytes": 100_000_000,  # the topic's limit decides, not the client's
    "queue.buffering.max.kbytes": 262_144,
    "partitioner": "murmur2_random",  # as Java's producers do
}
_DURABLE: Final[Mapping[str, Any]] = {"acks": "all", "enable.idempotence": True}
_TRANSLATED: Final[Mapping[str, str]] = {
    "batch.size": "batch.size",
    "compression.type": "compression.type",
    "delivery.timeout.ms": "delivery.timeout.ms",
    "linger.ms": "linger.ms",
    "max.request.size": "message.max.bytes",
}
"""Properties of Java's producer that librdkafka's has as well, and its names for them."""


def producer_properties(config: ConfigModel, kafka: KafkaClient) -> dict[str, Any]:
    """Properties of a connector's producer, in librdkafka's words; it is always durable.

    Raises:
        ConfigException: a reference cannot be resolved, or a security setting not be translated.
    """
    overrides = config.overrides(PRODUCER)
    own = {_TRANSLATED[key]: value for key, value in overrides.items() if key in _TRANSLATED}
    return {**_DEFAULTS, **kafka.librdkafka(overrides, consumes=False), **own, **_DURABLE}
