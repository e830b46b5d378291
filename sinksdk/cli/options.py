"""Options and arguments that many commands have, and what they name together."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from sinksdk.errors import ConfigException
from sinksdk.launch.prepare import DeploymentOptions
from sinksdk.launch.topics import KafkaTopics, TopicDirectory, Topics, address_problems
from sinksdk.plugins.checks import collecting
from sinksdk.spark.options import SparkOptions
from sinksdk.support.logs import LogSettings, configure_logging

DEFAULT_STORE = "sqlite:///sinksdk.sqlite"
"""One store for all connectors that are run from the same folder."""


class LogFormats(StrEnum):
    """How log lines are written."""

    TEXT = "text"
    JSON = "json"


Config = Annotated[
    Path,
    typer.Argument(
        metavar="CONFIG.json",
        help='The connector\'s configuration: {"name": …, "config": {…}}, flat JSON, or .properties.',
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show log lines and stack traces.")]

LogFormat = Annotated[
    LogFormats,
    typer.Option(
        help="Log lines for people, or one JSON object a line, with connector, task and generation.",
    ),
]


def start_logging(log_format: LogFormats, *, verbose: bool, level: Literal["INFO", "WARNING"]) -> LogSettings:
    """From now on log this level, or with ``verbose`` everything, with stack traces."""
    logs = LogSettings("DEBUG" if verbose else level, log_format is LogFormats.JSON, verbose)
    configure_logging(logs)
    return logs


StoreUrl = Annotated[
    str,
    typer.Option(
        "--store",
        metavar="URL",
        help="Where commits are kept: sqlite:///FILE, postgresql://USER@HOST/DATABASE or "
        "s3://BUCKET/PREFIX. A relative file is in the working directory: started elsewhere, a connector "
        "would find no commits.",
    ),
]
SourceDirectory = Annotated[
    str,
    typer.Option(
        "--topic-directory",
        metavar="DIR",
        help="Topic directory that sinks read and sources write: topic=<t>/partition=<p>/*.parquet.",
    ),
]
BootstrapServers = Annotated[
    str,
    typer.Option(metavar="HOST:PORT", help="Kafka cluster that they read and write, instead."),
]
KafkaConfig = Annotated[
    str,
    typer.Option(
        metavar="FILE", help="Properties of the Kafka clients, as Kafka's own tools take them (SASL, TLS)."
    ),
]
Master = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Spark's master; by default the one of spark-submit or spark-defaults.conf, else local[*].",
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE", help="A setting of Spark itself, as spark-submit takes it; may be repeated."
    ),
]

Name = Annotated[str, typer.Argument(metavar="NAME", help="The connector's name.")]
AsJson = Annotated[bool, typer.Option("--json", help="For programs.")]
KeptIn = Annotated[
    str, typer.Option("--store", metavar="URL", help="Where the connector is kept, as 'sinksdk run' has it.")
]
TargetDirectory = Annotated[
    str,
    typer.Option(
        "--topic-directory",
        metavar="DIR",
        help="Of a source: the topic directory that it writes, and that has its offsets.",
    ),
]
TargetServers = Annotated[
    str,
    typer.Option(
        "--bootstrap-servers",
        metavar="HOST:PORT",
        help="Of a source: the Kafka cluster that it writes, instead.",
    ),
]


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """A topic directory, or else a Kafka cluster, with a file of its clients' properties if they need any."""

    directory: str = ""
    bootstrap_servers: str = ""
    kafka_config: str = ""

    def topics(self) -> Topics:
        """What they name. Raises ConfigException unless it is exactly one source."""
        if bool(self.directory) == bool(self.bootstrap_servers):
            message = "name one source: --topic-directory DIR, or --bootstrap-servers HOST:PORT"
            raise ConfigException(message)
        if not self.directory:
            if problems := list(address_problems(self.bootstrap_servers, "--bootstrap-servers")):
                raise ConfigException(problems)
            return KafkaTopics(self.bootstrap_servers, self.kafka_config or None)
        if self.kafka_config:
            message = "--kafka-config goes with --bootstrap-servers"
            raise ConfigException(message)
        return TopicDirectory(self.directory)

    def deployment(self, store: str, **spark: Any) -> DeploymentOptions:
        """Where connectors run; ``spark`` as for :class:`SparkOptions`."""
        topics, problems = None, list[str]()
        with collecting(problems):
            topics = self.topics()
        return DeploymentOptions(topics, store, SparkOptions(**spark), problems)
