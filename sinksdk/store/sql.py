"""A store in a SQL database, through SQLAlchemy: SQLite in a file, embedded; PostgreSQL for clusters."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Final, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError

from sinksdk.errors import ConfigException
from sinksdk.store.base import Lost, Store, Stored, StoreRefused
from sinksdk.store.snapshot import Snapshot
from sinksdk.store.sql_address import SQLITE, sql_address
from sinksdk.store.sql_engine import answer_awaited, create_engine
from sinksdk.store.sql_errors import advice

T = TypeVar("T")

_OPENING: Final = 5.0  # seconds: whoever starts a driver waits for the message

_records = sa.Table(
    "sinksdk_records",
    sa.MetaData(),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
    sa.Column("version", sa.Text, nullable=False),
)


class SqlStore(Store):
    """One table of keys, values and versions. Each write is one conditional statement.

    Args:
        url: ``sqlite:///relative.db``, ``sqlite:////absolute.db`` or ``postgresql://user@host/database``.
            A relative path is made absolute: other processes have other working directories.
        create: make the table, and SQLite's file, where they are missing. Executors must not: an empty
            database on another machine would look like a new store.
        patience: seconds for which a request without an answer is made again.

    Raises:
        ConfigException: not a URL of a database this process can open.
        StoreUnavailable: no answer.
    """

    def __init__(self, url: str, *, create: bool = False, patience: float = 30.0) -> None:
        super().__init__(patience=min(patience, _OPENING) if create else patience)
        self._url = sql_address(url)
        self._engines: dict[int, Engine] = {}  # by process
        self._doing = "opened"
        try:
            self._engine(create=create)
            self._ask(self._make_table if create else self._find_table, "opening it")
        except StoreRefused as error:
            raise ConfigException(str(error)) from error
        except ModuleNotFoundError as error:
            raise ConfigException(
                f"store {self.url} cannot be opened: {error}; pip install 'sinksdk[postgres]'"
            ) from error
        self._patience = patience
        self._doing = "used"

    @property
    def url(self) -> str:
        """The URL with an absolute path, passwords masked."""
        return self._url.render_as_string(hide_password=True)

    @property
    def is_local_file(self) -> bool:
        """True for SQLite."""
        return self._url.get_backend_name() == SQLITE

    @property
    def closing_poll(self) -> float:
        """A server has more tasks to answer than a file."""
        return 0.5 if self.is_local_file else 1.0

    def snapshot(self, prefix: str) -> Store:
        """See :meth:`Store.snapshot`: one statement sees one state of the table."""
        query = sa.select(_records).where(_records.c.key.startswith(prefix, autoescape=True))
        rows = self._ask(
            lambda: self._transact(lambda connection: connection.execute(query).all()), f"reading {prefix}"
        )
        # SQLite's LIKE takes A for a.
        return Snapshot(
            self.url, {row.key: Stored(row.value, row.version) for row in rows if row.key.startswith(prefix)}
        )

    def close(self) -> None:
        """Close the database."""
        _dispose(self._engines)

    def _read(self, key: str) -> Stored | None:
        query = sa.select(_records.c.value, _records.c.version).where(_records.c.key == key)
        row = self._transact(lambda connection: connection.execute(query).one_or_none())
        return None if row is None else Stored(row.value, row.version)

    def _write(self, key: str, stored: Stored, if_version: str | None) -> bool:
        if if_version is None:
            insert = sa.insert(_records).values(key=key, value=stored.body, version=stored.version)
            try:
                self._transact(lambda connection: connection.execute(insert))
            except IntegrityError:
                return False
            return True
        update = (
            sa.update(_records)
            .where(_records.c.key == key, _records.c.version == if_version)
            .values(value=stored.body, version=stored.version)
        )
        return self._transact(lambda connection: connection.execute(update).rowcount == 1)

    def _remove(self, key: str, if_version: str) -> bool:
        delete = sa.delete(_records).where(_records.c.key == key, _records.c.version == if_version)
        return self._transact(lambda connection: connection.execute(delete).rowcount == 1)

    def _keys(self, prefix: str) -> list[str]:
        query = sa.select(_records.c.key).where(_records.c.key.startswith(prefix, autoescape=True))
        keys = self._transact(lambda connection: list(connection.execute(query).scalars()))
        return [key for key in keys if key.startswith(prefix)]  # SQLite's LIKE takes A for a

    def _find_table(self) -> None:
        if not self._transact(_has_table):
            raise ConfigException(
                f"store {self.url} is there but is no store of sinksdk. A driver that is given this URL "
                f"makes it one"
            )

    def _make_table(self) -> None:
        if not self._transact(_has_table):
            self._create_table()
        self._remove("", "")  # removes nothing; refused where writing is

    def _create_table(self) -> None:
        try:
            create = sa.schema.CreateTable(_records, if_not_exists=True)
            self._transact(lambda connection: connection.execute(create))
        except (IntegrityError, StoreRefused):
            # PostgreSQL's own IF NOT EXISTS fails when another session creates it at the same time.
            if not self._transact(_has_table):
                raise

    def _transact(self, work: Callable[[Connection], T]) -> T:
        """Run one statement in a transaction of its own."""
        try:
            with self._engine().begin() as connection, answer_awaited(connection):
                return work(connection)
        except IntegrityError:
            raise
        except DBAPIError as error:
            words = advice(error)
            if words is None:
                raise Lost(str(error.orig)) from error
            raise StoreRefused(
                f"store {self.url} cannot be {self._doing}: {_said(error)}; {words}"
            ) from error
        except SQLAlchemyError as error:  # no free connection
            raise Lost(str(error)) from error

    def _engine(self, *, create: bool = False) -> Engine:
        """This process's: a forked one must not share, nor close, its parent's connections."""
        process = os.getpid()
        if process not in self._engines:
            self._engines[process] = create_engine(self._url, create=create)
            weakref.finalize(self, _dispose, self._engines).atexit = False
        return self._engines[process]


def _has_table(connection: Connection) -> bool:
    return sa.inspect(connection).has_table(_records.name)


def _dispose(engines: dict[int, Engine]) -> None:
    """Close this process's connections."""
    engine = engines.pop(os.getpid(), None)
    if engine is not None:
        engine.dispose()


def _said(error: DBAPIError) -> str:
    """The database's own words, on one line."""
    return " ".join(str(error.orig).split())
