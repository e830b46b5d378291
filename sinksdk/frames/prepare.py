"""Before a write: options, columns and the connector's record are checked, and the connector is started."""

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
    """Check everything that can be checked before Spark runs, and start the connector.

    Raises:
        ConfigException: every problem at once.
        ConnectException: store or destination cannot be used.
    """
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
            configs = _started(identity, tuple(sorted(found.raw.items())))
    finally:
        store.close()
    terms = Terms(found.config.name, found.topic, found.raw, configs)
    return FrameWriter(found.store_url, store_id, terms, (str(Path.cwd()),))


def _check_names(names: Sequence[str]) -> None:
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigException(f"more than one column is called {', '.join(twice)}: rename or drop the others")


@functools.lru_cache(maxsize=16)
def _prepare_letters(raw: tuple[tuple[str, str], ...], topic: str) -> None:
    """Find their cluster and topic, or their folder, once in this process.

    A cluster that does not answer later is none of those micro-batches' business that have no dead letter.
    """
    if not topic:
        return
    config = sink_class(dict(raw)["connector.class"]).config_class.parse(dict(raw))
    prepare_dead_letters(config, None)


def _register(store: Store, found: FrameOptions) -> ConnectorRecord:
    """The connector's record, with this configuration; no driver of sinksdk's own runs it."""
    name = found.config.name
    _, plan = newest_plan(store, name)
    is_driven = plan is not None and plan.frames is None

    def changed(record: ConnectorRecord) -> ConnectorRecord:
        is_others = record.kind is None and (is_driven or record.target_state != "STOPPED")
        if is_others or record.kind not in (None, "dataframe"):
            raise ConfigException(
                f"connector {name} in store {store.url} is a {record.kind or 'connector'}, for 'sinksdk run' "
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
    """Sinks name files by topic, partition and offset: those of another name would be replaced."""
    own = _written_by(found.raw)
    for name in registry.names(store):
        other = registry.find(store, name).config if name != found.config.name else {}
        if any(key in own for key in _written_by(other)):
            raise ConfigException(
                f"connector {name} in store {store.url} writes the topic '{found.topic}' with the same "
                f"sink, and its records have the offsets that these would have: one would replace the "
                f"other's files. Give this DataFrame another 'topic', or write it as '{name}'"
            )


def _written_by(config: Mapping[str, str]) -> set[tuple[str, str]]:
    """Class and topic of what a connector writes."""
    topics = config.get("topics", "").split(",")
    return {(config.get("connector.class", ""), topic.strip()) for topic in topics if topic.strip()}


@functools.lru_cache(maxsize=16)
def _started(identity: ConnectorIdentity, raw: tuple[tuple[str, str], ...]) -> Sequence[Mapping[str, str]]:
    """Start a connector, once in this process, and stop it; returns its task configurations."""
    made = sink_class(dict(raw)["connector.class"])()
    made.identity = identity
    config = made.config_class.parse(dict(raw))
    try:
        made.start(config)
        return [dict(one) for one in made.task_configs(config.tasks_max)] or [{}]
    finally:
        made.stop()
