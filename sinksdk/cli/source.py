"""Where topics are, as the command line says it."""

from __future__ import annotations

from dataclasses import dataclass

from sinksdk.errors import ConfigException
from sinksdk.launch.topics import KafkaTopics, TopicDirectory, Topics, address_problems


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What the command was told of the source.

    Args:
        directory: a topic directory.
        bootstrap_servers: a Kafka cluster, instead.
        kafka_config: a file with properties of its clients.
    """

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
