"""All that can be found wrong before Spark is started: it takes seconds, and nobody waits for an error."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from sinksdk.cli.dead_letters import prepare_dead_letters
from sinksdk.cli.output import warn
from sinksdk.cli.source import OpenedSource, SourceOptions, open_group, open_source, open_target
from sinksdk.cli.startable import Launchers, Startable, StartableSource, Watcher
from sinksdk.compatibility import Meaning
from sinksdk.config import ConnectorConfig
from sinksdk.connector import SinkConnector
from sinksdk.control.checks import Checked, check_config, check_file
from sinksdk.control.consumer_group import OffsetGroup
from sinksdk.control.requests import ClosingSignal, PendingRequests
from sinksdk.control.sink_offsets import OpenedSink, opened_sink
from sinksdk.control.source_offsets import OpenedTarget
from sinksdk.engine.clock import SystemWallClock
from sinksdk.errors import ConfigException, MissingSourceTopicException, RetriableException
from sinksdk.records import TopicPartition
from sinksdk.references import ALL_PROVIDERS, ConfigProviders, resolve_references
from sinksdk.runtime.backoff import Waits
from sinksdk.runtime.driver import ConnectorDriver
from sinksdk.runtime.source_driver import SourceDriver
from sinksdk.runtime.worker_connector import WorkerConnector
from sinksdk.source.config import SourceConnectorConfig
from sinksdk.source.connector import SourceConnector
from sinksdk.sources import Source, Subscription
from sinksdk.sources.snapshot import end_offsets
from sinksdk.spark.conf import parse_conf
from sinksdk.spark.master import check_master, with_places
from sinksdk.store import Store, open_store, s3_address
from sinksdk.store.records import ConnectorRecord
from sinksdk.store.sql_address import SQLITE, sql_address

_AVRO: Final = ("confluent_kafka", "cachetools", "authlib", "fastavro")


@dataclass(frozen=True, slots=True)
class Place:
    """Where connectors run, whatever their configurations.

    Args:
        source: where records come from.
        store: opened, created where it was missing.
        store_url: its URL as executors need it: absolute; references unresolved, but of a file.
        master: Spark's master URL.
        spark_conf: Spark's own settings.
        providers: what configurations may refer to.
    """

    source: SourceOptions
    store: Store
    store_url: str
    master: str
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    providers: ConfigProviders = ALL_PROVIDERS

    def startable(self, raw: Mapping[str, str]) -> Startable | StartableSource:
        """A connector that runs here: checked, and what it needs opened.

        Args:
            raw: its configuration as written.

        Raises:
            ConfigException: every problem at once.
        """
        checked = check_config(raw, self.providers)
        if checked.problems:
            raise ConfigException(checked.problems)
        return checked_for(self.source, checked)(self)

    def source_target(self, raw: Mapping[str, str]) -> OpenedTarget:
        """A source that does not run, and where its records go.

        Raises:
            ConfigException: every problem at once.
        """
        return source_target(self.source, raw, self.providers)

    def opened_sink(self, raw: Mapping[str, str]) -> OpenedSink:
        """A sink that does not run, and opens its source when it is asked. Raises ConfigException."""
        return opened_sink(raw, partial(sink_source, self.source), self.providers)

    def worker(
        self,
        name: str,
        launchers: Launchers,
        listener: Watcher,
        *,
        first: Startable | StartableSource | None = None,
        signal: ClosingSignal | None = None,
    ) -> WorkerConnector:
        """What runs a connector here as its operator wants.

        Args:
            name: the connector's.
            launchers: make what launches its generations.
            listener: watches.
            first: the configuration that this process brings; None: the store has it, and the connector is
                watched over when it has failed, too.
            signal: asks for the end.
        """
        signal = signal or ClosingSignal()
        waits = Waits(f"connector {name}", SystemWallClock())
        brought, raw = ([first], first.checked.raw) if first is not None else ([], {})

        def driver(
            record: ConnectorRecord | None, requests: PendingRequests
        ) -> ConnectorDriver | SourceDriver:
            if record is None and brought:
                ready = brought.pop()
            else:  # what was started before, and failed, is not started again: another one is
                ready = self.startable(raw if record is None else record.config)
            more = {"signal": signal, "requests": requests, "record": record, "waits": waits}
            if isinstance(ready, StartableSource):
                return ready.driver(launchers.source_launcher(ready), listener, **more)
            return ready.driver(launchers.launcher(ready), listener, **more)

        return WorkerConnector(
            self.store,
            name,
            driver,
            partial(connector_to_delete, providers=self.providers),
            groups=partial(group_to_delete, self.source, providers=self.providers),
            brings_config=first is not None,
            stays=first is None,
            signal=signal,
            ends=self._ends_of,
            waits=waits,
        )

    def _ends_of(self, record: ConnectorRecord) -> Callable[[], Mapping[TopicPartition, int]]:
        """Asks where a connector's source ends that nobody drives; it is opened by the first look."""
        opened: list[Callable[[], Mapping[TopicPartition, int]]] = []

        def look() -> Mapping[TopicPartition, int]:
            if not opened:
                opened.append(self._open_ends(record))
            return opened[0]()

        return look

    def _open_ends(self, record: ConnectorRecord) -> Callable[[], Mapping[TopicPartition, int]]:
        config = _of_sink(check_config(record.config, self.providers))
        read = None if config is None else open_source(self.source, config)
        if config is None or read is None:
            return dict  # a source has no end, and of a sink that cannot be configured nothing is known
        return partial(end_offsets, read.source, Subscription(config.topics, config.topics_regex))


def sink_source(source: SourceOptions, config: ConnectorConfig) -> Source:
    """Where a sink's records come from. Raises ConfigException: it is not there, or does not answer."""
    opened = open_source(source, config)
    assert opened is not None  # noqa: S101 - there is a configuration
    return opened.source


def source_target(
    source: SourceOptions, raw: Mapping[str, str], providers: ConfigProviders = ALL_PROVIDERS
) -> OpenedTarget:
    """A source that does not run, and where its records go.

    Args:
        source: where topics are.
        raw: its configuration as written.
        providers: what that may refer to.

    Raises:
        ConfigException: every problem at once.
    """
    checked = check_config(raw, providers)
    if checked.problems:
        raise ConfigException(checked.problems)
    connector, config = checked.connector, checked.config
    if not isinstance(connector, SourceConnector) or not isinstance(config, SourceConnectorConfig):
        raise ConfigException(f"connector '{raw.get('name')}' is no source")
    config.keep_secrets()
    return OpenedTarget(connector, config, open_target(source, config))


def checked_for(
    source: SourceOptions, checked: Checked, opened: OpenedSource | None = None
) -> Callable[[Place], Startable | StartableSource]:
    """Open what a connector needs besides its place.

    Args:
        source: where topics are.
        checked: its configuration, which has no problems.
        opened: where a sink's records come from, if that is opened already.

    Returns:
        The connector, once its place is known.

    Raises:
        ConfigException: something it needs is not there, or does not answer.
        ConnectException: the source cannot be read.
    """
    connector, config = checked.connector, checked.config
    if isinstance(connector, SourceConnector):
        assert isinstance(config, SourceConnectorConfig)  # noqa: S101 - its config_class says so
        target = open_target(source, config)
        return lambda place: StartableSource(place, checked, connector, config, target)
    assert connector is not None  # noqa: S101 - there are no problems
    assert isinstance(config, ConnectorConfig)  # noqa: S101 - its config_class says so
    opened = opened or open_source(source, config)
    assert opened is not None  # noqa: S101 - there is a configuration
    read = opened
    dead_letters = prepare_dead_letters(source, config)
    return lambda place: Startable(place, checked, connector, config, read, dead_letters)


def connector_to_delete(
    record: ConnectorRecord, providers: ConfigProviders = ALL_PROVIDERS
) -> tuple[SinkConnector | SourceConnector, ConnectorConfig | SourceConnectorConfig]:
    """A connector that does not run, and is to clean up. Raises ConfigException."""
    checked = check_config(record.config, providers)
    if checked.connector is None or checked.config is None:
        raise ConfigException(checked.problems)
    checked.config.keep_secrets()
    return checked.connector, checked.config


def group_to_delete(
    source: SourceOptions | None, record: ConnectorRecord, providers: ConfigProviders = ALL_PROVIDERS
) -> OffsetGroup | None:
    """The group that a connector's commits are mirrored to, if they are, and it is known where.

    Raises:
        ConfigException: Kafka's client is not installed.
    """
    config = check_config(record.config, providers).config
    if source is None or not source.is_kafka or not isinstance(config, ConnectorConfig):
        return None
    return open_group(source, config) if config.offset_mirror else None


def prepare(
    config: Path,
    source: SourceOptions,
    store: str,
    master: str,
    spark_conf: Sequence[str] = (),
    *,
    tell: Callable[[Sequence[str]], None] = warn,
) -> Startable | StartableSource:
    """Check everything, tell of warnings, and open the store.

    Args:
        config: the configuration file.
        source: where topics are.
        store: the store's URL.
        master: Spark's master URL.
        spark_conf: Spark's own settings, each ``KEY=VALUE``.
        tell: takes warnings.

    Raises:
        ConfigException: every problem at once.
        RetriableException, StoreUnavailable: there is no problem, but something is away.
        ConnectException: the source cannot be read.
    """
    problems, away = list[str](), list[RetriableException]()
    checked, opened = Checked({}), None
    with _collecting(problems):
        checked = check_file(config)
        problems += checked.problems
        _tell(checked, tell)
    is_source = isinstance(checked.connector, SourceConnector)
    with _collecting(problems, away):
        if is_source:
            source.check()
        else:
            opened = open_source(source, _of_sink(checked))
    store_url, conf = _check_spark(store, master, spark_conf, problems)
    if (sink := _of_sink(checked)) is not None and sink.needs_registry() and not _has(_AVRO):
        problems.append("Avro needs what is not installed: pip install 'sinksdk[kafka]'")
    if problems:
        raise ConfigException(problems)
    if away:
        raise away[0]
    if sink is not None and opened is not None:
        _check_topics(opened.source, sink, tell)
    ready = checked_for(source, checked, opened)
    place = Place(source, open_store(store_url, create=True), store_url, master, conf)
    return ready(place)


def prepare_sink(
    config: Path, source: SourceOptions, store: str, master: str, spark_conf: Sequence[str] = ()
) -> Startable:
    """As :func:`prepare`, of a connector that is known to be a sink."""
    ready = prepare(config, source, store, master, spark_conf)
    assert isinstance(ready, Startable)  # noqa: S101 - the caller's file names one
    return ready


def _of_sink(checked: Checked) -> ConnectorConfig | None:
    """The configuration, if it is a sink's and a good one."""
    return checked.config if isinstance(checked.config, ConnectorConfig) else None


def prepare_place(
    source: SourceOptions,
    store: str,
    master: str,
    spark_conf: Sequence[str] = (),
    *,
    providers: ConfigProviders = ALL_PROVIDERS,
    places: int | None = None,
) -> Callable[[], Place]:
    """Check where connectors shall run.

    Args:
        source: where records come from.
        store: the store's URL.
        master: Spark's master URL.
        spark_conf: Spark's own settings, each ``KEY=VALUE``.
        providers: what configurations may refer to.
        places: how many tasks of all connectors run at the same time on a local master; None: more than
            it has cores.

    Returns:
        Opens the store.

    Raises:
        ConfigException: every problem at once.
    """
    problems: list[str] = []
    with _collecting(problems):
        open_source(source, None)
    store_url, conf = _check_spark(store, master, spark_conf, problems)
    with _collecting(problems):
        master = with_places(master, places)
    if not _has(["fastapi", "uvicorn"]):
        problems.append("the server is not installed: pip install 'sinksdk[server]'")
    if problems:
        raise ConfigException(problems)
    return lambda: Place(source, open_store(store_url, create=True), store_url, master, conf, providers)


def _check_spark(
    store: str, master: str, spark_conf: Sequence[str], problems: list[str]
) -> tuple[str, dict[str, str]]:
    """The store's URL as executors need it, and Spark's settings; what is wrong joins the problems."""
    store_url, conf = store, dict[str, str]()
    with _collecting(problems):
        store_url = absolute_store_url(store)
    with _collecting(problems):
        check_master(master, store_is_local_file=store_url.startswith("sqlite"))
    with _collecting(problems):
        conf = parse_conf(spark_conf)
    if not _has(["pyspark"]):
        problems.append("Spark is not installed: pip install 'sinksdk[spark]'")
    return store_url, conf


def _has(packages: Sequence[str]) -> bool:
    return all(importlib.util.find_spec(name) is not None for name in packages)


@contextmanager
def _collecting(problems: list[str], away: list[RetriableException] | None = None) -> Iterator[None]:
    try:
        yield
    except ConfigException as error:
        problems += error.problems
    except RetriableException as error:
        if away is None:
            raise
        away.append(error)


def _tell(checked: Checked, tell: Callable[[Sequence[str]], None]) -> None:
    tell(checked.warnings)
    tell([option.sentence for option in checked.having(Meaning.UNKNOWN)])
    if ignored := checked.having(Meaning.IGNORED):
        names = ", ".join(f"'{option.key}'" for option in ignored)
        tell([f"no effect here: {names} ('sinksdk validate' says why)"])


def _check_topics(source: Source, config: ConnectorConfig, tell: Callable[[Sequence[str]], None]) -> None:
    try:
        source.partitions(Subscription(config.topics, config.topics_regex))
    except RetriableException:
        return  # a file is being written just now: the driver looks again
    except MissingSourceTopicException as error:
        # The driver decides: the topic may have been created a moment ago, or may be waited for.
        grace = config.missing_topic_grace_ms / 1000
        tell([f"{error} (looked for again for {grace:g} s, as missing.topic.grace.ms says)"])


def absolute_store_url(text: str) -> str:
    """A store's URL that means the same in another working directory.

    Raises:
        ConfigException: it is no URL, or the folder of its file is not there.
    """
    url = resolve_references(text) if text.startswith("${") else text
    if "://" not in url:
        message = f"'{text}' is no store; name one as sqlite:///FILE"
        raise ConfigException(message)
    if url.startswith(s3_address.SCHEME):
        s3_address.S3Address.parse(url)
        return text
    address = sql_address(url)
    if address.get_backend_name() != SQLITE:
        return text
    path = Path(str(address.database))
    if not path.parent.is_dir():
        message = f"the store {text} cannot be made: there is no folder {path.parent}"
        raise ConfigException(message)
    return address.render_as_string(hide_password=False)
