"""How to reach a Kafka cluster: one set of properties, in the words of both clients that are used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sinksdk.sources.kafka import librdkafka
from sinksdk.sources.kafka.client_file import read_client_file

BOOTSTRAP = "bootstrap.servers"


@dataclass(frozen=True, slots=True)
class KafkaClient:
    """Address of a cluster and where the properties of its clients are. Holds no secret, and may travel.

    Args:
        bootstrap_servers: ``host:port``, several separated by commas.
        properties_file: a client properties file, as Kafka's own tools take it (``security.protocol``,
            ``sasl.jaas.config`` …); read where a client is made, so it must be there on every host that
            makes one. References ``${env:…}`` and ``${file:…}`` in it are resolved there. Keys that begin
            with ``librdkafka.`` are for confluent-kafka only, without that prefix.
    """

    bootstrap_servers: str
    properties_file: str = ""

    def java(self, overrides: Mapping[str, str] | None = None) -> dict[str, str]:
        """Properties of a Java client; overrides win.

        Raises:
            ConfigException: the properties file cannot be read, lines of it set nothing or misspell a
                security setting, or a reference in it cannot be resolved.
        """
        everything = self._properties(overrides)
        return {key: value for key, value in everything.items() if not key.startswith(librdkafka.PREFIX)}

    def librdkafka(self, overrides: Mapping[str, str] | None = None) -> dict[str, str]:
        """The same for confluent-kafka: what it knows of them, in its own words.

        Raises:
            ConfigException: as :meth:`java`; or a security setting has no counterpart.
        """
        return librdkafka.translated(self._properties(overrides))

    def _properties(self, overrides: Mapping[str, str] | None) -> dict[str, str]:
        written = read_client_file(Path(self.properties_file)) if self.properties_file else {}
        return {**written, BOOTSTRAP: self.bootstrap_servers, **(overrides or {})}
