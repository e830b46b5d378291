"""The front door: ``sinksdk.run`` and ``sinksdk.start``."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from sinksdk.launch.patience import patiently
from sinksdk.launch.prepare import DeploymentOptions, prepare
from sinksdk.launch.running import RunningConnector
from sinksdk.launch.signals import ClosingSignals, close_on_signal
from sinksdk.launch.summary import Summary
from sinksdk.launch.topics import Topics, topics_at
from sinksdk.plugins.checks import collecting
from sinksdk.spark.options import SparkOptions

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    Config = Mapping[str, Any] | str | os.PathLike[str]
    Source = Topics | str | os.PathLike[str]
    Spark = SparkSession | SparkContext | None

log = logging.getLogger(__name__)


def run(
    config: Config,
    *,
    source: Source,
    store: str,
    spark: Spark = None,
    master: str | None = None,
    spark_conf: Mapping[str, Any] | None = None,
    until_caught_up: bool = False,
) -> Summary:
    """Run a connector until it is stopped or has caught up, as ``sinksdk run`` does.

    In the main thread the first SIGINT, SIGTERM or SIGHUP closes it, also one that Spark's JVM gets: partial
    batches are flushed and committed, and this returns; the second one has its usual effect. At the start it
    waits for an unavailable Kafka or store, and logs that.

    Args:
        config: the connector's configuration: Connect's JSON (``{"name": …, "config": {…}}`` or flat) as a
            mapping or a text, or the path of a ``.json`` or ``.properties`` file.
        source: where its records come from; of a source connector, where they go: ``KafkaTopics``,
            ``TopicDirectory``, or the URL of one: ``kafka://HOST:PORT``, ``file:///DIR`` or ``DIR``.
        store: where commits are kept: ``sqlite:///FILE``, ``postgresql://USER@HOST/DATABASE`` or
            ``s3://BUCKET/PREFIX``.
        spark: a session to run in. None: the one that is active in this process. Nothing of it is changed,
            and it runs on. Where there is none, one is started as Spark is configured (spark-submit,
            ``spark-defaults.conf``), and ended.
        master: Spark's master URL, for a session that is started; ``local[*]`` by default.
        spark_conf: Spark's own settings, for a session that is started; they win over all others.
        until_caught_up: end when all records available now are committed, tails included.

    Returns:
        What was committed.

    Raises:
        ConfigException: the configuration or an option is invalid: ``problems`` lists all problems at once.
        MissingSourceTopicException: a subscribed topic is not there, or no longer.
        FencedException: a newer driver of the same connector has taken over.
        ConnectException: it failed for good; what was committed stays committed.
    """
    options = _options(source, store, SparkOptions(master, spark_conf or {}, spark, joins=True))
    with ClosingSignals() as signals:
        prepared = patiently(
            partial(prepare, config, options, cache(_warn)),  # each warning once, however often it is tried
            "a connector's start",
            lambda: signals.received is not None,
        )
        if prepared is None:
            return Summary(signal=signals.received)
        with RunningConnector(
            prepared,
            until_caught_up=until_caught_up,
            is_stopping=lambda: signals.received is not None,
            hear=signals.hear if signals.are_handled else None,
        ) as connector:
            close_on_signal(connector, signals)
        return replace(connector.summary(), signal=signals.received)


def start(
    config: Config,
    *,
    source: Source,
    store: str,
    spark: Spark = None,
    master: str | None = None,
    spark_conf: Mapping[str, Any] | None = None,
    until_caught_up: bool = False,
) -> RunningConnector:
    """Start a connector in threads of this process, and return at once.

    Needs no main thread and no event loop, minds none that runs, and leaves signals alone::

        with sinksdk.start(config, source="topics", store="sqlite:///commits.sqlite") as connector:
            connector.rebalance()

    Args:
        config, source, store, spark, master, spark_conf, until_caught_up: as :func:`run` takes them.

    Returns:
        The connector. Leaving its block stops it: what it has read is flushed and committed. What ends it
        otherwise is raised by its ``wait`` and ``stop``.

    Raises:
        ConfigException: the configuration or an option is invalid: ``problems`` lists all problems at once.
        RetriableException, StoreUnavailable: Kafka or the store is unavailable now. ConnectException: the
        source cannot be read.
    """
    options = _options(source, store, SparkOptions(master, spark_conf or {}, spark, joins=True))
    return RunningConnector(prepare(config, options, _warn), until_caught_up=until_caught_up)


def _options(source: Source, store: str, spark: SparkOptions) -> DeploymentOptions:
    topics, problems = None, list[str]()
    with collecting(problems):
        topics = topics_at(source)
    return DeploymentOptions(topics, store, spark, problems)


def _warn(text: str) -> None:
    log.warning("%s", text)
