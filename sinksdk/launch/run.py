"""``sinksdk.run`` and ``sinksdk.start``."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from sinksdk.launch.prepare import DeploymentOptions, prepare
from sinksdk.launch.running import RunningConnector
from sinksdk.launch.signals import ClosingSignals, close_on_signal
from sinksdk.launch.startup import retry_until_available
from sinksdk.launch.summary import Summary
from sinksdk.launch.topics import Topics, topics_at
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

    In the main thread, the first SIGINT, SIGTERM or SIGHUP closes the connector, also one that Spark's JVM
    receives: partial batches are flushed and committed, and the function returns. The second signal has its
    usual effect. While Kafka or the store is unavailable at the start, the function retries and logs that.

    Args:
        config: the connector's configuration: Connect's JSON (``{"name": …, "config": {…}}`` or flat) as a
            mapping or a text, or the path of a ``.json`` or ``.properties`` file.
        source: the topics that a sink reads or a source writes: ``KafkaTopics``, ``TopicDirectory``, or the
            URL of one: ``kafka://HOST:PORT``, ``file:///DIR`` or ``DIR``.
        store: where commits are stored: ``sqlite:///FILE``, ``postgresql://USER@HOST/DATABASE`` or
            ``s3://BUCKET/PREFIX``.
        spark: a session to run in; None: the active session of this process. The session is neither changed
            nor stopped. Without an active session, one is started with Spark's own configuration
            (spark-submit, ``spark-defaults.conf``), and stopped at the end.
        master: Spark's master URL for a session that is started; ``local[*]`` by default.
        spark_conf: Spark settings for a session that is started; they override all others.
        until_caught_up: return when all records available now are committed, partial batches included.

    Returns:
        The committed totals.

    Raises:
        ConfigException: the configuration or an option is invalid: ``problems`` lists all problems.
        MissingSourceTopicException: a subscribed topic does not exist.
        FencedException: a newer driver of the same connector has taken over.
        ConnectException: a permanent failure; committed records stay committed.
    """
    options = DeploymentOptions.of(
        partial(topics_at, source), store, SparkOptions(master, spark_conf or {}, spark, joins=True)
    )
    with ClosingSignals() as signals:
        prepared = retry_until_available(
            # cached: each warning is logged once, not at each attempt
            partial(prepare, config, options, cache(_warn)),
            "the start of a connector",
            lambda: signals.received is not None,
        )
        if prepared is None:
            return Summary(signal=signals.received)
        with RunningConnector(
            prepared,
            until_caught_up=until_caught_up,
            is_stopping=lambda: signals.received is not None,
            on_jvm_signal=signals.receive if signals.are_handled else None,
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

    Works in any thread, with or without a running event loop, and leaves signal handlers unchanged::

        with sinksdk.start(config, source="topics", store="sqlite:///commits.sqlite") as connector:
            connector.rebalance()

    Args:
        config, source, store, spark, master, spark_conf, until_caught_up: as :func:`run` takes them.

    Returns:
        The connector. Leaving its ``with`` block stops it: partial batches are flushed and committed. Its
        ``wait`` and ``stop`` raise a failure of the connector.

    Raises:
        ConfigException: the configuration or an option is invalid: ``problems`` lists all problems.
        RetriableException, StoreUnavailable: Kafka or the store is unavailable.
        ConnectException: the source cannot be read.
    """
    options = DeploymentOptions.of(
        partial(topics_at, source), store, SparkOptions(master, spark_conf or {}, spark, joins=True)
    )
    return RunningConnector(prepare(config, options, _warn), until_caught_up=until_caught_up)


def _warn(text: str) -> None:
    log.warning("%s", text)
