"""``sinksdk offsets``. A sink's offsets are in the store, a source's next to the topics that it writes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from json import JSONDecodeError, JSONDecoder
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from sinksdk.cli.control import open_herder
from sinksdk.cli.options import (
    DEFAULT_STORE,
    AsJson,
    KafkaConfig,
    KeptIn,
    Name,
    SourceOptions,
    TargetDirectory,
    TargetServers,
    Verbose,
)
from sinksdk.cli.output import (
    add_row,
    command,
    number,
    print_json,
    stdout,
    table,
    warn,
    write,
    write_result,
    write_table,
)
from sinksdk.control.herder import Herder
from sinksdk.control.offsets import SourceOffsets
from sinksdk.errors import ConfigException, DataException
from sinksdk.launch.idle import sink_to_alter, source_target
from sinksdk.launch.topics import TopicDirectory
from sinksdk.offsets import TopicPartition
from sinksdk.settings.file import read_config_file
from sinksdk.source.positions import SourcePosition
from sinksdk.source.positions import as_json as compact
from sinksdk.store import Store, absolute_store_url, open_store


@command
def show_offsets(
    *,
    name: Name,
    topic_directory: TargetDirectory = "",
    bootstrap_servers: TargetServers = "",
    kafka_config: KafkaConfig = "",
    store: KeptIn = DEFAULT_STORE,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Show the next offset to read of each partition; of a source, the offset of each source partition.

    A source's offsets are stored next to its topics: give the same option for topics as for 'sinksdk run'.
    """
    topics = SourceOptions(topic_directory, bootstrap_servers, kafka_config)
    with open_herder(store) as (herder, opened):
        if (sources := _sources(herder, opened, name, topics)) is not None:
            _show_positions(sources.read(name), as_json=as_json)
        else:
            _show_commits(herder.offsets(name), as_json=as_json)


@command
def alter_offsets(
    *,
    name: Name,
    changes: Annotated[list[str], typer.Argument(metavar="PARTITION=OFFSET...")],
    topic_directory: TargetDirectory = "",
    bootstrap_servers: TargetServers = "",
    kafka_config: KafkaConfig = "",
    store: KeptIn = DEFAULT_STORE,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Change committed offsets of a stopped connector: 'orders-0=1200'; 'orders-0=' removes a commit.

    For a sink the option for topics may be left out; with it, offsets are checked against the topics. For a
    source it is needed, and partition and offset are JSON objects: '{"file":"a"}={"byte":8}';
    '{"file":"a"}=' has the source partition read from its start.
    """
    topics = SourceOptions(topic_directory, bootstrap_servers, kafka_config)
    with open_herder(store) as (herder, opened):
        if herder.info(name).type == "source":
            sources = _source_offsets(opened, name, topics)
            sources.alter(name, list(map(source_change, changes)))
            _show_positions(sources.read(name), as_json=as_json)
        else:
            offsets = dict(map(_change, changes))
            _show_commits(_herder(opened, topics, offsets).alter_offsets(name, offsets), as_json=as_json)


@command
def recover_offsets(
    *,
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG", help="The connector's configuration, as for 'sinksdk run'.")
    ],
    changes: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PARTITION=OFFSET]...", help="Offsets that the destination does not store."),
    ] = None,
    topic_directory: TargetDirectory = "",
    bootstrap_servers: TargetServers = "",
    kafka_config: KafkaConfig = "",
    store: KeptIn = DEFAULT_STORE,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Commit the offsets that the destination holds, after the store or records at the destination were lost.

    The connector then reads again what the destination does not hold. Creates the connector if the store
    lacks it. The connector is stopped afterwards; 'sinksdk run' or 'resume' starts it. Only use this while no
    other process writes to the destination.
    """
    topics = SourceOptions(topic_directory, bootstrap_servers, kafka_config)
    file = read_config_file(config)
    if file.problems:
        raise ConfigException(file.problems)
    given = {p: offset for p, offset in map(_change, changes or ()) if offset is not None}
    opened = open_store(absolute_store_url(store), create=True)
    try:
        herder = _herder(opened, topics, given)
        found = herder.recover_offsets(file.config["name"], file.config, given)
    finally:
        opened.close()
    _show_commits(found, as_json=as_json)


@command
def reset_offsets(
    *,
    name: Name,
    topic_directory: TargetDirectory = "",
    bootstrap_servers: TargetServers = "",
    kafka_config: KafkaConfig = "",
    store: KeptIn = DEFAULT_STORE,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Remove all committed offsets of a stopped connector."""
    topics = SourceOptions(topic_directory, bootstrap_servers, kafka_config)
    with open_herder(store) as (herder, opened):
        if (sources := _sources(herder, opened, name, topics)) is not None:
            sources.reset(name)
        else:
            herder.reset_offsets(name)
    write_result(
        f"{name}: all offsets removed; when resumed, the connector reads from the start", [], as_json=as_json
    )


def _herder(store: Store, topics: SourceOptions, offsets: Mapping[TopicPartition, int | None]) -> Herder:
    if topics != SourceOptions():
        return Herder(store, sinks=partial(sink_to_alter, topics.topics()))
    if any(offset is not None for offset in offsets.values()):
        warn(
            "the offsets are not checked against the topics: for that, give --topic-directory DIR or "
            "--bootstrap-servers HOST:PORT"
        )
    return Herder(store)


def _sources(herder: Herder, store: Store, name: str, topics: SourceOptions) -> SourceOffsets | None:
    if herder.info(name).type == "source":
        return _source_offsets(store, name, topics)
    if topics != SourceOptions():
        raise ConfigException(
            f"connector '{name}' is a sink, whose offsets are in the store: give only --store"
        )
    return None


def _source_offsets(store: Store, name: str, topics: SourceOptions) -> SourceOffsets:
    if topics == SourceOptions():
        raise ConfigException(
            f"connector '{name}' is a source, whose offsets are stored next to its topics: give "
            f"--topic-directory DIR or --bootstrap-servers HOST:PORT, as for 'sinksdk run'"
        )
    found = topics.topics()
    if isinstance(found, TopicDirectory) and not Path(found.path).is_dir():
        raise ConfigException(f"the topic directory {found.path} does not exist or is not a folder")
    return SourceOffsets(store, partial(source_target, found))


def _change(text: str) -> tuple[TopicPartition, int | None]:
    where, _, offset = text.partition("=")
    topic, _, partition = where.rpartition("-")
    if "=" not in text or not topic or not partition.isdigit() or not (offset.isdigit() or not offset):
        raise ConfigException(f"'{text}' is not TOPIC-PARTITION=OFFSET, as in orders-0=1200")
    return TopicPartition(topic, int(partition)), int(offset) if offset else None


def source_change(text: str) -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:
    """Parse ``{…}={…}``; texts in the objects may contain a ``=``. Raises ConfigException."""
    try:
        where, end = JSONDecoder().raw_decode(text)
        equals, rest = text[end : end + 1], text[end + 1 :].strip()
        offset = json.loads(rest) if rest else None
        if equals == "=" and isinstance(where, dict) and (offset is None or isinstance(offset, dict)):
            SourcePosition.of(where, offset or {})
            return where, offset
    except JSONDecodeError:
        pass
    except DataException as error:
        raise ConfigException(f"'{text}': {error}") from error
    raise ConfigException(
        f"""'{text}' is not PARTITION=OFFSET, two JSON objects as in '{{"file":"a"}}={{"byte":8}}'"""
    )


def _show_commits(offsets: Mapping[TopicPartition, int], *, as_json: bool) -> None:
    if as_json:
        print_json([{"topic": p.topic, "partition": p.partition, "offset": at} for p, at in offsets.items()])
        return
    rows = table("partition", "offset", right=1)
    for partition, offset in offsets.items():
        add_row(rows, str(partition), number(offset))
    _show(rows)


def _show_positions(positions: Sequence[SourcePosition], *, as_json: bool) -> None:
    if as_json:
        print_json([{"partition": dict(at.partition), "offset": dict(at.offset)} for at in positions])
        return
    rows = table("source partition", "offset")
    for partition, offset in positions:
        add_row(rows, compact(partition), compact(offset))
    _show(rows)


def _show(rows: Table) -> None:
    if rows.row_count:
        write_table(stdout(), rows)
    else:
        write(stdout(), "nothing is committed")
