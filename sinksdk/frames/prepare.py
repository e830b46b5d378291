"""Checks options, columns and the connector's record, and starts the connector, before Spark runs."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sinksdk.compatibility import Meaning
from sinksdk.config import ConnectorConfig
from sinksdk.connector import ConnectorIdentity, SinkConnector
from sinksdk.control import registry
from sinksdk.engine.encoding import becoming_bytes
from sinksdk.errors import ConfigException
from sinksdk.frames.batches import Terms
from sinksdk.frames.rows import check_columns
from sinksdk.frames.writer import FrameWriter
from sinksdk.offsets import is_topic_name
from sinksdk.plugins.checks import check_config, collecting, load_class
from sinksdk.plugins.classes import sink_class
from sinksdk.settings.connect_options import CONNECT_OPTIONS
from sinksdk.settings.references import ALL_PROVIDERS
from sinksdk.source.connector import SourceConnector
from sinksdk.store import Store, absolute_store_url, identify, newest_plan, open_store
from sinksdk.store.records import ConnectorRecord
from sinksdk.support.logs import logging_about
from sinksdk.transforms.parts import Part
from sinksdk.worker.outside import prepare_dead_letters

if TYPE_CHECKING:
    import pyarrow as pa

CLASS: Final = "connector.class"
STORE: Final = "store"
TOPIC: Final = "topic"

# Spark passes its own options to every data source.
_OF_SPARK: Final = frozenset({"checkpointlocation", "queryname"})
_FORMAT: Final = 'df.write.format("sinksdk")'


@dataclass(frozen=True, slots=True)
class FrameOptions:
    """Checked options; references in ``raw`` and ``store_url`` are unresolved."""

    raw: Mapping[str, str]
    store_url: str
    topic: str
    config: ConnectorConfig

    @property
    def as_bytes(self) -> Mapping[Part, str]:
        """Return the parts (key, value) that become bytes, with the reason."""
        takes_bytes = _sink(self.raw[CLASS]).task_class.takes_bytes
        return becoming_bytes(self.config, takes_bytes=takes_bytes)


def read_options(options: Mapping[str, str]) -> FrameOptions:
    # Spark passes keys in lower case.
    given = {key.lower(): value for key, value in options.items() if key.lower() not in _OF_SPARK}
    own, problems = {key: given.pop(key, "") for key in (CLASS, STORE, TOPIC)}, list[str]()
    problems += [f"option '{key}' is required and not set: {_MISSING[key]}" for key in own if not own[key]]
    store_url = own[STORE]
    if store_url:
        with collecting(problems):
            store_url = absolute_store_url(store_url)
    if own[TOPIC] and not is_topic_name(own[TOPIC]):
        problems.append(
            f"option '{TOPIC}': '{own[TOPIC]}' is not a valid topic name: use at most 249 letters, digits, "
            f"'.', '_' and '-'"
        )
    if not own[CLASS]:
        raise ConfigException(problems)
    problems += _refused(given)
    sink = _sink(own[CLASS])
    raw = {**_declared(given, sink), CLASS: own[CLASS], "topics": own[TOPIC] or TOPIC}
    checked = check_config(raw, ALL_PROVIDERS)
    problems += checked.problems
    for option in checked.having(Meaning.UNKNOWN):
        nearest = f"; {option.verdict.why}" if option.verdict.why else ""
        problems.append(f"option '{option.key}' is not known to {own[CLASS]}{nearest}")
    if problems or not isinstance(checked.config, ConnectorConfig):
        raise ConfigException(problems)
    return FrameOptions(checked.raw, store_url, own[TOPIC], checked.config)


_MISSING: Final = {
    CLASS: f"name the sink, as in {_FORMAT}.option('{CLASS}', 's3-archiver')",
    STORE: "offsets are stored there; use sqlite:///FILE, postgresql://… or s3://BUCKET/PREFIX",
    TOPIC: "rows become records of a topic; use any name that Kafka allows",
}


def _refused(given: dict[str, str]) -> Iterator[str]:
    for key, instead in (
        ("path", "call save() or start() without a path; the sink's own keys name its destination"),
        ("topics", "name the topic of the rows with 'topic'"),
        ("topics.regex", "name the topic of the rows with 'topic'"),
        ("records.sql", "transform the DataFrame before the write"),
        ("records.transform", "transform the DataFrame before the write"),
        ("transforms", "transform the DataFrame before the write"),
    ):
        if given.pop(key, None) is not None:
            yield f"option '{key}' cannot be used with {_FORMAT}: {instead}"


def _sink(name: str) -> type[SinkConnector]:
    found = load_class(name)
    if issubclass(found, SourceConnector):
        raise ConfigException(f"'{CLASS}': {name} is a source, but a DataFrame is written by a sink")
    return found


def _declared(given: Mapping[str, str], sink: type[SinkConnector]) -> dict[str, str]:
    # Only declared keys regain their case; entries of a map do not.
    model = sink.config_class
    known = {key.lower(): key for key in (*CONNECT_OPTIONS, *model.compatibility, *model.keys())}
    maps = {key.lower(): key for key, kind in model.multi_valued().items() if kind == "map"}

    def declared(key: str) -> str:
        of = max((name for name in maps if key.startswith(f"{name}.")), key=len, default="")
        return known.get(key) or maps.get(of, "") + key[len(of) :]

    return {declared(key): value for key, value in given.items()}


def prepare_writer(options: Mapping[str, str], columns: pa.Schema) -> FrameWriter:
    found = read_options(options)
    _check_names(columns.names)
    check_columns(columns, found.as_bytes)
    _prepare_letters(tuple(sorted(found.raw.items())), found.config.dead_letter_topic)
    store = open_store(found.store_url, create=True)
    try:
        with logging_about(connector=found.config.name):
            record = _register(store, found)
            store_id = identify(store)
            identity = ConnectorIdentity(store_id, found.config.name, record.incarnation)
            configs = _task_configs(identity, tuple(sorted(found.raw.items())))
    finally:
        store.close()
    terms = Terms(found.config.name, found.topic, found.raw, configs)
    return FrameWriter(found.store_url, store_id, terms, (str(Path.cwd()),))


def _check_names(names: Sequence[str]) -> None:
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigException(f"several columns are named {', '.join(twice)}: rename or drop them")


@functools.lru_cache(maxsize=16)
def _prepare_letters(raw: tuple[tuple[str, str], ...], topic: str) -> None:
    # Cached: a micro-batch without dead letters needs the cluster only the first time.
    if not topic:
        return
    config = sink_class(dict(raw)["connector.class"]).config_class.parse(dict(raw))
    prepare_dead_letters(config, None)


def _register(store: Store, found: FrameOptions) -> ConnectorRecord:
    name = found.config.name
    _, plan = newest_plan(store, name)
    is_driven = plan is not None and plan.frames is None

    def changed(record: ConnectorRecord) -> ConnectorRecord:
        is_others = record.kind is None and (is_driven or record.target_state != "STOPPED")
        if is_others or record.kind not in (None, "dataframe"):
            raise ConfigException(
                f"connector {name} in store {store.url} is a {record.kind or 'connector'} of 'sinksdk run' "
                f"or a server (target state {record.target_state}): give this DataFrame another 'name'"
            )
        record = record.model_copy(update={"kind": "dataframe"})
        if record.config == found.raw:
            return record
        if _written_by(record.config) != _written_by(found.raw):
            _expect_own_offsets(store, found)
        return record.model_copy(update={"config": dict(found.raw), "version": record.version + 1})

    def created() -> ConnectorRecord:
        _expect_own_offsets(store, found)
        return registry.created(found.raw, target_state="STOPPED", kind="dataframe")

    return registry.change(store, name, changed, otherwise=created)


def _expect_own_offsets(store: Store, found: FrameOptions) -> None:
    # Sinks name files by topic, partition and offset: two connectors would replace each other's files.
    own = _written_by(found.raw)
    for name in registry.names(store):
        other = registry.find(store, name).config if name != found.config.name else {}
        if any(key in own for key in _written_by(other)):
            raise ConfigException(
                f"connector {name} in store {store.url} writes the topic '{found.topic}' with the same sink "
                f"and the same offsets: both would replace each other's files. Give this DataFrame another "
                f"'topic', or write it as '{name}'"
            )


def _written_by(config: Mapping[str, str]) -> set[tuple[str, str]]:
    topics = config.get("topics", "").split(",")
    return {(config.get("connector.class", ""), topic.strip()) for topic in topics if topic.strip()}


# Cached: a process starts a connector once, not for each micro-batch.
@functools.lru_cache(maxsize=16)
def _task_configs(
    identity: ConnectorIdentity, raw: tuple[tuple[str, str], ...]
) -> Sequence[Mapping[str, str]]:
    connector = sink_class(dict(raw)["connector.class"])()
    connector.identity = identity
    config = connector.config_class.parse(dict(raw))
    try:
        connector.start(config)
        return [dict(config) for config in connector.task_configs(config.tasks_max)] or [{}]
    finally:
        connector.stop()
