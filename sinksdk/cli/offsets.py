"""Offsets handled by an operator: a sink's are in the store, a source's where its records go."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from json import JSONDecodeError, JSONDecoder
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from sinksdk.cli.control import herding
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
from sinksdk.control.source_offsets import SourceOffsets
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

    A source's offsets are where its records go: say where that is, as 'sinksdk run' is told.
    """
    topics = SourceOptions(topic_directory, bootstrap_servers, kafka_config)
    with herding(store) as (herder, opened):
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
    """Commit other offsets, of a connector that is stopped: 'orders-0=1200'; 'orders-0=' forgets a commit.

    Where topics are need not be said of a sink; if it is, offsets are checked against what is there. Of a
    source it must be, and both are JSON objects: '{"file":"a"}={"byte":8}'; '{"file":"a"}=' has it read anew.
    """
    topics = SourceOptions(topic_directory, bootstrap_servers, kafka_config)
    with herding(store) as (herder, opened):
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
        typer.Argument(metavar="[PARTITION=OFFSET]...", help="Where the destination does not say itself."),
    ] = None,
    topic_directory: TargetDirectory = "",
    bootstrap_servers: TargetServers = "",
    kafka_config: KafkaConfig = "",
    store: KeptIn = DEFAULT_STORE,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Commit what the destination holds, after the store was lost, or restored from an older copy.

    Or after records were lost at the destination: what is read again is what it does not hold. Creates the
    connector if the store does not know it; it is stopped, and runs again with 'sinksdk run' or 'resume'.
    Only while nobody else writes there.
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
    """Forget everything that is committed, of a connector that is stopped."""
    topics = SourceOptions(topic_directory, bootstrap_servers, kafka_config)
    with herding(store) as (herder, opened):
        if (sources := _sources(herder, opened, name, topics)) is not None:
            sources.reset(name)
        else:
            herder.reset_offsets(name)
    write_result(
        f"{name}: nothing is committed any more; it begins anew when it is resumed", [], as_json=as_json
    )


def _herder(store: Store, topics: SourceOptions, offsets: Mapping[TopicPartition, int | None]) -> Herder:
    """A herder that checks offsets against the source, if that is given."""
    if topics != SourceOptions():
        return Herder(store, sinks=partial(sink_to_alter, topics.topics()))
    if any(offset is not None for offset in offsets.values()):
        unchecked = "whether the source has these offsets is not checked: for that, say where it is: "
        warn(f"{unchecked}--topic-directory DIR, or --bootstrap-servers HOST:PORT")
    return Herder(store)


def _sources(herder: Herder, store: Store, name: str, topics: SourceOptions) -> SourceOffsets | None:
    """What handles a source's offsets; None for a sink's.

    Raises:
        ConfigException: a source needs the location of topics, and only one.
    """
    if herder.info(name).type == "source":
        return _source_offsets(store, name, topics)
    if topics != SourceOptions():
        raise ConfigException(
            f"connector '{name}' is no source: its offsets are in the store; say only --store"
        )
    return None


def _source_offsets(store: Store, name: str, topics: SourceOptions) -> SourceOffsets:
    """Access to a source's offsets. Raises ConfigException: topics are not given, or do not exist."""
    if topics == SourceOptions():
        raise ConfigException(
            f"connector '{name}' is a source: its offsets are where its records go; say where that is, as "
            f"it is said to 'sinksdk run': --topic-directory DIR, or --bootstrap-servers HOST:PORT"
        )
    found = topics.topics()
    if isinstance(found, TopicDirectory) and not Path(found.path).is_dir():
        raise ConfigException(f"the topic directory {found.path} is not there, or is no folder")
    return SourceOffsets(store, partial(source_target, found))


def _change(text: str) -> tuple[TopicPartition, int | None]:
    where, _, offset = text.partition("=")
    topic, _, partition = where.rpartition("-")
    if "=" not in text or not topic or not partition.isdigit() or not (offset.isdigit() or not offset):
        message = f"'{text}' is no change: write TOPIC-PARTITION=OFFSET, as in orders-0=1200"
        raise ConfigException(message)
    return TopicPartition(topic, int(partition)), int(offset) if offset else None


def source_change(text: str) -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:
    """Two JSON objects with a ``=`` between them, which texts may have, too. Raises ConfigException."""
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
        f"""'{text}' is no change of a source's offset: write two JSON objects, PARTITION=OFFSET, as in """
        f"""'{{"file":"a"}}={{"byte":8}}'"""
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
