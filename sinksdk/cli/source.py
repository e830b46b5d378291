"""Where connectors run, as the command line says it: topics, store and Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sinksdk.errors import ConfigException
from sinksdk.launch.prepare import Place
from sinksdk.launch.spark_options import SparkOptions
from sinksdk.launch.topics import KafkaTopics, TopicDirectory, Topics, address_problems


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """A topic directory, or else a Kafka cluster, with a file of its clients' properties if they need any."""

    directory: str = ""
    bootstrap_servers: str = ""
    kafka_config: str = ""

    def topics(self) -> Topics:
        """What they name. Raises ConfigException unless it is exactly one source."""
        if bool(self.directory) == bool(self.bootstrap_servers):
            message = "name one source: --source-directory DIR, or --bootstrap-servers HOST:PORT"
            raise ConfigException(message)
        if not self.directory:
            if problems := list(address_problems(self.bootstrap_servers, "--bootstrap-servers")):
                raise ConfigException(problems)
            return KafkaTopics(self.bootstrap_servers, self.kafka_config or None)
        if self.kafka_config:
            message = "--kafka-config goes with --bootstrap-servers"
            raise ConfigException(message)
        return TopicDirectory(self.directory)

    def place(self, store: str, **spark: Any) -> Place:
        """Where connectors run; ``spark`` as for :class:`SparkOptions`."""
        return Place(self.topics, store, SparkOptions(**spark))
