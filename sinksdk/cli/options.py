"""Options and arguments that several commands share."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from sinksdk.errors import ConfigException
from sinksdk.launch.prepare import DeploymentOptions
from sinksdk.launch.topics import KafkaTopics, TopicDirectory, Topics, address_problems
from sinksdk.spark.options import SparkOptions
from sinksdk.support.logs import LogSettings, configure_logging

# Connectors that are started from the same folder share this store.
DEFAULT_STORE = "sqlite:///sinksdk.sqlite"


class LogFormats(StrEnum):
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
        help="Log lines as text, or as one JSON object a line with connector, task and generation.",
    ),
]


def start_logging(log_format: LogFormats, *, verbose: bool, level: Literal["INFO", "WARNING"]) -> LogSettings:
    logs = LogSettings("DEBUG" if verbose else level, log_format is LogFormats.JSON, verbose)
    configure_logging(logs)
    return logs


StoreUrl = Annotated[
    str,
    typer.Option(
        "--store",
        metavar="URL",
        help="Where commits are stored: sqlite:///FILE, postgresql://USER@HOST/DATABASE or "
        "s3://BUCKET/PREFIX. A relative file is in the working directory: a connector that is started "
        "elsewhere finds no commits.",
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
    typer.Option(
        metavar="HOST:PORT",
        help="Kafka cluster that sinks read and sources write, instead of a topic directory.",
    ),
]
KafkaConfig = Annotated[
    str,
    typer.Option(
        metavar="FILE", help="Properties file of the Kafka clients, as for Kafka's own tools (SASL, TLS)."
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
    typer.Option(metavar="KEY=VALUE", help="A Spark setting, as for spark-submit; may be repeated."),
]

Name = Annotated[str, typer.Argument(metavar="NAME", help="The connector's name.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
KeptIn = Annotated[
    str, typer.Option("--store", metavar="URL", help="The connector's store, as for 'sinksdk run'.")
]
TargetDirectory = Annotated[
    str,
    typer.Option(
        "--topic-directory",
        metavar="DIR",
        help="Of a source: the topic directory that it writes, with its offsets.",
    ),
]
TargetServers = Annotated[
    str,
    typer.Option(
        "--bootstrap-servers",
        metavar="HOST:PORT",
        help="Of a source: the Kafka cluster that it writes, with its offsets.",
    ),
]


@dataclass(frozen=True, slots=True)
class SourceOptions:
    directory: str = ""
    bootstrap_servers: str = ""
    kafka_config: str = ""

    def topics(self) -> Topics:
        if bool(self.directory) == bool(self.bootstrap_servers):
            raise ConfigException("give either --topic-directory DIR or --bootstrap-servers HOST:PORT")
        if not self.directory:
            if problems := list(address_problems(self.bootstrap_servers, "--bootstrap-servers")):
                raise ConfigException(problems)
            return KafkaTopics(self.bootstrap_servers, self.kafka_config or None)
        if self.kafka_config:
            raise ConfigException("--kafka-config needs --bootstrap-servers")
        return TopicDirectory(self.directory)

    def deployment(self, store: str, **spark: Any) -> DeploymentOptions:
        return DeploymentOptions.of(self.topics, store, SparkOptions(**spark))
