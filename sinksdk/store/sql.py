"""A store in a SQL database, through SQLAlchemy: SQLite in a file, embedded; others for clusters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Engine, make_url
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from sinksdk.errors import ConfigException
from sinksdk.store.base import Lost, Store, Stored

T = TypeVar("T")

_BUSY_SECONDS = 30  # how long SQLite waits for another process's write

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
        url: an SQLAlchemy URL, ``sqlite:///relative.db`` or ``sqlite:////absolute.db``. A relative
            path is made absolute: other processes have other working directories.
        create: make the database and the table where they are missing. Executors must not: an empty
            database on another machine would look like a new store.

    Raises:
        ConfigException: not a URL of a database this process can open.
    """

    def __init__(self, url: str, *, create: bool = False, patience: float = 30.0) -> None:
        super().__init__(patience=patience)
        self._url = _absolute(url)
        try:
            self._engine = _engine(self._url, create=create)
            if create:
                with self._engine.begin() as connection:
                    # One statement, not a look and a statement: others may create it at the same time.
                    connection.execute(sa.schema.CreateTable(_records, if_not_exists=True))
            elif not sa.inspect(self._engine).has_table(_records.name):
                raise ConfigException(f"store {self.url} is there but is no store of sinksdk")
        except (SQLAlchemyError, ModuleNotFoundError) as error:
            raise ConfigException(
                f"store {self.url} cannot be opened: {getattr(error, 'orig', None) or error}; check that it "
                f"exists and may be {'written' if create else 'reached from this machine'}"
            ) from error

    @property
    def url(self) -> str:
        """The URL with an absolute path, passwords masked."""
        return self._url.render_as_string(hide_password=True)

    @property
    def is_local_file(self) -> bool:
        """True for SQLite."""
        return self._url.get_backend_name() == "sqlite"

    def close(self) -> None:
        """Close the database."""
        self._engine.dispose()

    def _read(self, key: str) -> Stored | None:
        query = sa.select(_records.c.value, _records.c.version).where(_records.c.key == key)
        row = self._transact(lambda connection: connection.execute(query).one_or_none())
        return None if row is None else Stored(row.value, row.version)

    def _write(self, key: str, stored: Stored, if_version: str | None) -> bool:
        if if_version is None:
            insert = sa.insert(_records).values(key=key, value=stored.body, version=stored.version)
            try:
                return self._transact(lambda connection: connection.execute(insert).rowcount == 1)
            except IntegrityError:
                return False
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

    def _transact(self, work: Callable[[Connection], T]) -> T:
        """Run one statement in a transaction of its own; whatever the database says besides is doubt."""
        try:
            with self._engine.begin() as connection:
                return work(connection)
        except IntegrityError:
            raise
        except (OperationalError, DBAPIError) as error:
            raise Lost(str(error.orig)) from error


def _absolute(text: str) -> URL:
    try:
        url = make_url(text)
    except (SQLAlchemyError, ValueError):
        # Neither the text nor the parser's words: they may hold a password.
        message = "the store's URL cannot be understood; name a file as sqlite:///FILE"
        raise ConfigException(message) from None
    if url.get_backend_name() != "sqlite":
        return url
    if not url.database or url.database == ":memory:":
        message = f"store {text}: a database in memory dies with its process; name a file, sqlite:///FILE"
        raise ConfigException(message)
    return url.set(database=str(Path(url.database).absolute()))


def _engine(url: URL, *, create: bool) -> Engine:
    """No pool: tasks run in forked processes, which must not share connections."""
    if url.get_backend_name() != "sqlite":
        return sa.create_engine(url, poolclass=NullPool)
    mode = "rwc" if create else "rw"
    path = quote(str(url.database))  # in a file: URI "?" and "#" end the path
    file_url = url.set(database=f"file:{path}", query={**url.query, "mode": mode, "uri": "true"})
    engine = sa.create_engine(file_url, poolclass=NullPool, connect_args={"timeout": _BUSY_SECONDS})

    @sa.event.listens_for(engine, "connect")
    def configure(connection: object, _record: object) -> None:
        # Readers never wait for a writer, and a commit survives a power cut.
        cursor = connection.cursor()  # type: ignore[attr-defined]  # the driver's own connection
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.close()

    return engine
