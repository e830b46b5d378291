"""Checks options, columns and the connector's record, and starts the connector, before Spark runs."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sinksdk.connector import ConnectorIdentity
from sinksdk.control import registry
from sinksdk.errors import ConfigException
from sinksdk.frames.batches import Terms
from sinksdk.frames.options import FrameOptions, read_options
from sinksdk.frames.rows import check_columns
from sinksdk.frames.writer import FrameWriter
from sinksdk.plugins.classes import sink_class
from sinksdk.store import Store, identify, newest_plan, open_store
from sinksdk.store.records import ConnectorRecord
from sinksdk.support.logs import logging_about
from sinksdk.worker.outside import prepare_dead_letters

if TYPE_CHECKING:
    import pyarrow as pa


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
