"""Checks everything before Spark is started, which takes seconds, so that problems are reported at once."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, Self

from sinksdk.compatibility import Meaning
from sinksdk.config import ConnectorConfig
from sinksdk.errors import ConfigException, MissingSourceTopicException, RetriableException
from sinksdk.launch.deployment import Deployment, PreparedConnector, prepare_connector
from sinksdk.launch.topics import Topics, open_source
from sinksdk.plugins.checks import Checked, check_file, collecting
from sinksdk.settings.references import ConfigProviders
from sinksdk.source.config import SourceConnectorConfig
from sinksdk.spark.options import SparkOptions, SparkSettings
from sinksdk.store import absolute_store_url, open_store
from sinksdk.topics import Source, Subscription

_AVRO: Final = ("confluent_kafka", "cachetools", "authlib", "fastavro")

Warn = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class DeploymentOptions:
    """Unchecked options. Without ``topics`` their options are invalid, for the reasons in ``problems``."""

    topics: Topics | None
    store: str
    spark: SparkOptions
    problems: Sequence[str] = ()

    @classmethod
    def of(cls, topics: Callable[[], Topics], store: str, spark: SparkOptions) -> Self:
        found, problems = None, list[str]()
        with collecting(problems):
            found = topics()
        return cls(found, store, spark, problems)


class Prepared(NamedTuple):
    deployment: Deployment
    connector: PreparedConnector


def prepare(
    config: Mapping[str, Any] | str | os.PathLike[str], options: DeploymentOptions, warn: Warn
) -> Prepared:
    problems, unavailable = list[str](), list[RetriableException]()
    checked, topics, opened = Checked({}), options.topics, None
    with collecting(problems):
        checked = check_file(config)
        problems += [*checked.problems, *checked.unmet]
        _warn_of(checked, warn)
    problems += options.problems
    sink = checked.config if isinstance(checked.config, ConnectorConfig) else None
    if topics is not None and (sink is not None or checked.config is None):
        with collecting(problems, unavailable):
            opened = open_source(topics, sink)
    store_url, spark = _check(options, problems)
    if sink is not None and sink.needs_registry() and not _has(_AVRO):
        problems.append("Avro needs packages that are not installed: pip install 'sinksdk[kafka]'")
    if unavailable and not problems:
        raise unavailable[0]
    if problems or topics is None or spark is None:
        raise ConfigException(problems)
    if isinstance(checked.config, SourceConnectorConfig):
        _warn_of_task_slots(checked.config.tasks_max, spark, warn)
    if sink is not None and opened is not None:
        _check_topics(opened.source, sink, warn)
    ready = prepare_connector(topics, checked, opened)
    return Prepared(Deployment(topics, open_store(store_url, create=True), store_url, spark), ready)


def prepare_server(options: DeploymentOptions, providers: ConfigProviders) -> Callable[[], Deployment]:
    """Check the options of a server; return a function that opens the store."""
    topics, problems = options.topics, list(options.problems)
    if topics is not None:
        with collecting(problems):
            open_source(topics, None)
    store_url, spark = _check(options, problems)
    if not _has(["fastapi", "uvicorn"]):
        problems.append("the server is not installed: pip install 'sinksdk[server]'")
    if problems or topics is None or spark is None:
        raise ConfigException(problems)
    create = partial(Deployment, topics, store_url=store_url, spark=spark, providers=providers)
    return lambda: create(open_store(store_url, create=True))


def _check(options: DeploymentOptions, problems: list[str]) -> tuple[str, SparkSettings | None]:
    store_url, spark = options.store, None
    with collecting(problems):
        store_url = absolute_store_url(options.store)
    with collecting(problems):
        spark = options.spark.settings(store_is_local_file=store_url.startswith("sqlite"))
    return store_url, spark


def _has(packages: Sequence[str]) -> bool:
    return all(importlib.util.find_spec(name) is not None for name in packages)


def _warn_of(checked: Checked, warn: Warn) -> None:
    for text in (*checked.warnings, *(option.sentence for option in checked.having(Meaning.UNKNOWN))):
        warn(text)
    if ignored := checked.having(Meaning.IGNORED):
        names = ", ".join(f"'{option.key}'" for option in ignored)
        warn(f"keys without effect: {names} ('sinksdk validate' gives the reasons)")


def _warn_of_task_slots(tasks_max: int, spark: SparkSettings, warn: Warn) -> None:
    # Only a warning: ``task_configs`` determines the number of tasks, and runs after the connector's start.
    task_slots = spark.task_slots
    if task_slots is not None and tasks_max > task_slots:
        warn(
            f"'tasks.max' is {tasks_max}, but Spark on {spark.master} has {task_slots} task slots: a source "
            f"with more tasks than task slots fails; lower 'tasks.max', or give Spark more task slots "
            f"(--master 'local[N]')"
        )


def _check_topics(source: Source, config: ConnectorConfig, warn: Warn) -> None:
    try:
        source.partitions(Subscription(config.topics, config.topics_regex))
    except RetriableException:
        return  # the driver retries
    except MissingSourceTopicException as error:
        # The driver decides: the topic may be new, and the policy may be to wait for it.
        grace = config.missing_topic_grace_ms / 1000
        warn(f"{error} (retrying for {grace:g} s, see missing.topic.grace.ms)")
