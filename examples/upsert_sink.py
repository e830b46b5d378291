"""Keeps a table of an SQL database in step with a topic: the newest record of each key is its row.

The offset is in the database too, and moves in the transaction that writes the rows. So each record is
applied exactly once, also when a retry, another attempt or a zombie repeats it.
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from typing import Any

import sqlalchemy as sa
from pydantic import Field, SecretStr
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import (
    DataError,
    IntegrityError,
    InterfaceError,
    OperationalError,
    ProgrammingError,
    SQLAlchemyError,
)

from sinksdk import (
    ConfigException,
    ConnectorConfig,
    DataException,
    FencedException,
    OffsetAndMetadata,
    RetriableException,
    SinkConnector,
    SinkRecord,
    SinkRecords,
    SinkTask,
    TopicPartition,
)

WATERMARKS = sa.Table(
    "sinksdk_watermarks",
    sa.MetaData(),
    sa.Column("incarnation", sa.String(64), primary_key=True),
    sa.Column("topic", sa.String(249), primary_key=True),
    sa.Column("partition", sa.Integer, primary_key=True),
    sa.Column("next_offset", sa.BigInteger, nullable=False),  # all records before it are in the table
    sa.Column("generation", sa.Integer, nullable=False),  # the newest one that has opened the partition
)
COORDINATES = WATERMARKS.primary_key.columns.keys()
INSERTS: Mapping[str, Callable[[Any], Any]] = {  # dialects with ON CONFLICT
    "postgresql": postgresql.insert,
    "sqlite": sqlite.insert,
}
DATATYPE_MISMATCH = "42804"  # PostgreSQL's SQLSTATE for a value of a wrong type

Row = Mapping[str, Any]
Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class UpsertConfig(ConnectorConfig):
    database: SecretStr = Field(
        alias="database.url",
        description="SQLAlchemy URL: postgresql+psycopg://user:password@host/database, sqlite:///file.",
    )
    table: str = Field(description="Name of the table, which must exist.")
    key_columns: str = Field(
        alias="key.columns",
        description="Columns of the primary key, separated by commas: the record's key, or its fields.",
    )
    value_columns: str = Field(
        alias="value.columns", description="Other columns to write: fields of the record's value."
    )
    incarnation: str = Field(default="", description="Set by the connector.")

    @property
    def key_names(self) -> list[str]:
        return names_in(self.key_columns)

    @property
    def value_names(self) -> list[str]:
        return names_in(self.value_columns)

    def engine(self) -> sa.Engine:
        return sa.create_engine(self.database.get_secret_value())


def names_in(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


class UpsertTask(SinkTask):
    def start(self, config: UpsertConfig) -> None:
        self.config = config
        self.engine = config.engine()
        self.table = sa.table(config.table, *map(sa.column, [*config.key_names, *config.value_names]))
        self.upsert = upsert(self.engine, self.table, config.key_names, config.value_names)
        matches = (self.table.c[name] == sa.bindparam(name) for name in config.key_names)
        self.delete = sa.delete(self.table).where(*matches)
        self.watermarks: dict[TopicPartition, int] = {}

    def open(self, partitions: Collection[TopicPartition]) -> None:
        """Take over the watermarks; rewind, or skip, to the watermark if it differs from the commit."""
        for partition in partitions:
            commit = self.context.committed(partition) or OffsetAndMetadata(0)
            known = int(commit.metadata) if commit.metadata.isdigit() else 0  # the watermark at this commit
            new = {"next_offset": 0 if known else commit.offset, "generation": self.context.generation()}
            with transaction(self.engine) as connection:
                create = upsert(self.engine, WATERMARKS, COORDINATES, [])
                connection.execute(create, {**self.place(partition), **new})
                watermark = self.watermarks[partition] = self.lock(connection, partition)
            if watermark > commit.offset or watermark < known:  # a crash before the commit; a restored backup
                self.context.offset({partition: watermark})

    def put(self, records: SinkRecords) -> None:
        try:
            self.apply(records, self.write)
        except DataException:  # nothing was written: write one by one to find the bad records
            self.apply(records, self.write_each)

    def apply(self, records: SinkRecords, write: Callable[[sa.Connection, SinkRecords], None]) -> None:
        """Write the records after the watermark and move it, in one transaction."""
        partition = records.partition
        with transaction(self.engine) as connection:
            watermark = self.lock(connection, partition)
            fresh = records[int(records.offsets.searchsorted(watermark)) :]
            if len(fresh):
                write(connection, fresh)
                watermark = fresh.next_offset
                moved = sa.update(WATERMARKS).where(at(self.place(partition))).values(next_offset=watermark)
                connection.execute(moved)
        self.watermarks[partition] = watermark

    def lock(self, connection: sa.Connection, partition: TopicPartition) -> int:
        """Return the watermark if this generation still owns it; its row is locked until the transaction
        ends."""
        generation = self.context.generation()
        own = sa.update(WATERMARKS).where(at(self.place(partition)), WATERMARKS.c.generation <= generation)
        watermark: int | None = connection.execute(
            own.values(generation=generation).returning(WATERMARKS.c.next_offset)
        ).scalar_one_or_none()
        if watermark is None or watermark < self.watermarks.get(partition, 0):
            message = (
                f"{partition}: generation {generation} no longer owns the watermark: a newer one does, or "
                f"offsets were altered, or the connector was deleted; nothing was written"
            )
            raise FencedException(message)
        return watermark

    def place(self, partition: TopicPartition) -> Row:
        return place_of(self.config.incarnation, partition)

    def write(self, connection: sa.Connection, records: SinkRecords) -> None:
        """Write in the order of offsets: the last record of a key wins."""
        changes = [self.change(record) for record in records]
        for is_deletion, same in groupby(changes, lambda change: change[1] is None):
            if is_deletion:
                execute(connection, self.delete, [key for key, _ in same])
            else:
                execute(connection, self.upsert, [{**(row or {}), **key} for key, row in same])

    def write_each(self, connection: sa.Connection, records: SinkRecords) -> None:
        """Write one by one; report a record that cannot be written, and roll back its savepoint."""
        letters = []
        for number, record in enumerate(records):
            try:
                with connection.begin_nested():
                    self.write(connection, records[number : number + 1])
            except DataException as error:
                letters.append(self.context.errant_record_reporter().report(record, error))
        for letter in letters:
            letter.result()  # durable before the watermark passes the record

    def change(self, record: SinkRecord) -> tuple[Row, Row | None]:
        """Return the key of a record's row, and its other columns; None if the row is to be deleted."""
        names, where = self.config.key_names, f"{record.topic_partition} at offset {record.offset}"
        key = record.key if isinstance(record.key, dict) else {names[0]: record.key}
        if any(key.get(name) is None for name in names):
            raise DataException(f"{where}: the record's key has no {' and '.join(names)}")
        if record.value is not None and not isinstance(record.value, dict):
            kind = type(record.value).__name__
            raise DataException(f"{where}: the value is of type {kind}, and must be an object with fields")
        row = {name: plain(key[name]) for name in names}
        if record.value is None:
            return row, None
        return row, {name: plain(record.value.get(name)) for name in self.config.value_names}

    def pre_commit(self, offsets: Offsets) -> Offsets:
        """All is durable. A commit may be ahead of its watermark if offsets without records follow."""
        return {p: replace(offset, metadata=str(self.watermarks[p])) for p, offset in offsets.items()}

    def close(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            self.watermarks.pop(partition, None)

    def stop(self) -> None:
        if hasattr(self, "engine"):  # start may have failed
            self.engine.dispose()


@contextmanager
def transaction(engine: sa.Engine) -> Iterator[sa.Connection]:
    """Commit all or nothing. If the response to a COMMIT is lost, the next attempt reads the watermark."""
    try:
        with engine.begin() as connection:
            yield connection
    except (OperationalError, InterfaceError) as error:  # connection lost, deadlock, shut down, disk full
        raise RetriableException(f"{engine.url}: {reason(error)}") from error


def upsert(engine: sa.Engine, table: sa.TableClause, keys: Sequence[str], values: Sequence[str]) -> Any:
    """Return an INSERT that updates these values if the key exists."""
    statement = INSERTS[engine.dialect.name](table)
    if not values:
        return statement.on_conflict_do_nothing(index_elements=keys)
    replaced = {name: statement.excluded[name] for name in values}
    return statement.on_conflict_do_update(index_elements=keys, set_=replaced)


def execute(connection: sa.Connection, statement: sa.Executable, rows: Sequence[Row]) -> None:
    try:
        connection.execute(statement, rows)
    except (IntegrityError, DataError, OverflowError, UnicodeError) as error:
        raise DataException(reason(error)) from error
    except ProgrammingError as error:
        if getattr(error.orig, "sqlstate", None) != DATATYPE_MISMATCH:
            raise  # a missing table or permission is not the record's fault
        raise DataException(reason(error)) from error


def plain(value: Any) -> Any:
    """Write nested objects and lists as JSON, timestamps in them as text; the database converts the rest."""
    return json.dumps(value, default=str) if isinstance(value, dict | list) else value


def reason(error: Exception) -> str:
    """Return the database's message without the statement and its values."""
    return str(getattr(error, "orig", error)).partition("\n")[0]


def place_of(incarnation: str, partition: TopicPartition) -> Row:
    """Return the key of a watermark."""
    return dict(zip(COORDINATES, (incarnation, *partition), strict=True))


def at(place: Row) -> sa.ColumnElement[bool]:
    return sa.and_(*(WATERMARKS.c[name] == value for name, value in place.items()))


class UpsertSink(SinkConnector):
    config_class, task_class = UpsertConfig, UpsertTask

    def validate(self, config: UpsertConfig) -> Sequence[str]:
        try:
            dialect = config.engine().dialect.name
        except (SQLAlchemyError, ImportError) as error:
            return [f"'database.url': {error}"]
        return [] if dialect in INSERTS else [f"'database.url': {dialect} is none of {', '.join(INSERTS)}"]

    def start(self, config: UpsertConfig) -> None:
        self.config = config
        with self.database(config) as connection:
            check_table(sa.inspect(connection), config)

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """A later connector of the same name has another incarnation, and watermarks of its own."""
        return [{"incarnation": self.identity.incarnation}] * max_tasks

    def alter_offsets(self, config: UpsertConfig, offsets: Mapping[TopicPartition, int | None]) -> bool:
        """Move or delete the watermarks; otherwise records that are read again would be skipped."""
        with self.database(config) as connection:
            move = upsert(connection.engine, WATERMARKS, COORDINATES, ["next_offset"])
            for partition, offset in offsets.items():
                place = place_of(self.identity.incarnation, partition)
                if offset is None:
                    connection.execute(sa.delete(WATERMARKS).where(at(place)))
                else:
                    connection.execute(move, {**place, "next_offset": offset, "generation": 0})
        return True

    def stop(self, is_deleted: bool = False) -> None:  # noqa: FBT001, FBT002 - KIP-883's signature
        if is_deleted:
            with self.database(self.config) as connection:
                mine = {"incarnation": self.identity.incarnation}
                connection.execute(sa.delete(WATERMARKS).where(at(mine)))

    @contextmanager
    def database(self, config: UpsertConfig) -> Iterator[sa.Connection]:
        engine = config.engine()
        try:
            with transaction(engine) as connection:
                WATERMARKS.create(connection, checkfirst=True)
                yield connection
        finally:
            engine.dispose()


def check_table(database: sa.Inspector, config: UpsertConfig) -> None:
    table, names = config.table, [*config.key_names, *config.value_names]
    if not database.has_table(table):
        raise ConfigException(f"'table': there is no table '{table}' in the database; create it")
    there = [column["name"] for column in database.get_columns(table)]
    if missing := [name for name in names if name not in there]:
        raise ConfigException(
            f"the table '{table}' has no column {', '.join(missing)}; it has {', '.join(there)}"
        )
    unique = [set(key["column_names"]) for key in database.get_unique_constraints(table)]
    if set(config.key_names) not in (set(database.get_pk_constraint(table)["constrained_columns"]), *unique):
        raise ConfigException(
            f"'key.columns' must be the primary key of the table '{table}', or unique in it"
        )
