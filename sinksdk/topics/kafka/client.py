"""How to reach a Kafka cluster: one set of properties, as Kafka's own tools take them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sinksdk.errors import ConfigException
from sinksdk.topics.kafka import librdkafka
from sinksdk.topics.kafka.client_file import client_properties, read_client_file
from sinksdk.topics.kafka.rdkafka import has_feature

BOOTSTRAP = "bootstrap.servers"
_NO_KERBEROS: Final = (
    f"'sasl.mechanism' is {librdkafka.GSSAPI}, as also where it is not set: that is Kerberos, and this "
    f"confluent-kafka is built without it, as its wheels are. Install librdkafka and its headers, built with "
    f"libsasl2 and of confluent-kafka's version, then: pip install --force-reinstall --no-binary "
    f"confluent-kafka confluent-kafka"
)


@dataclass(frozen=True, slots=True)
class KafkaClient:
    """Address of a cluster and where the properties of its clients are. Travels to the executors.

    Args:
        bootstrap_servers: ``host:port``, several separated by commas.
        properties_file: a client properties file, as Kafka's own tools take it (``security.protocol``,
            ``sasl.jaas.config`` …); read where a client is made, so it must be there on every host that
            makes one. References ``${env:…}`` and ``${file:…}`` in it are resolved there. Keys that begin
            with ``librdkafka.`` are librdkafka's own, without that prefix.
        properties: the same, as they were written, instead of a file.
    """

    bootstrap_servers: str
    properties_file: str = ""
    properties: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def librdkafka(
        self, overrides: Mapping[str, str] | None = None, *, consumes: bool = True
    ) -> dict[str, str]:
        """What librdkafka knows of these properties, in its words; overrides win.

        Args:
            overrides: of the connector's configuration, in Java's words as the file.
            consumes: whether they are for a consumer; others have no use for all of them.

        Raises:
            ConfigException: the properties file cannot be read, lines of it set nothing or misspell a
                security setting, or a reference in it cannot be resolved; a security setting has no
                counterpart; or this librdkafka has no Kerberos, which they ask for.
        """
        found = librdkafka.translated(self._properties(overrides))
        if librdkafka.uses_kerberos(found) and not has_feature("sasl_gssapi"):
            raise ConfigException(_NO_KERBEROS)
        return found if consumes else librdkafka.without_consumers_own(found)

    def _properties(self, overrides: Mapping[str, str] | None) -> dict[str, str]:
        written = (
            read_client_file(Path(self.properties_file))
            if self.properties_file
            else client_properties(self.properties)
        )
        return {**written, BOOTSTRAP: self.bootstrap_servers, **(overrides or {})}
