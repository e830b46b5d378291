"""A store in a SQL database, through SQLAlchemy: SQLite in a file, or PostgreSQL for clusters."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from sinksdk.errors import ConfigException
from sinksdk.store.addresses import SQLITE
from sinksdk.store.base import Lost, Store, Stored, StoreRefused, outage_of
from sinksdk.store.sql_engine import MOST_CONNECTIONS, advice, create_engine, response_awaited
from sinksdk.support.delays import STORE

T = TypeVar("T")

_OPENING: Final = 5.0  # seconds: the user who starts a driver waits for the message

AGE: Final = 0.25  # seconds for which SharedVersions reuse versions

_FORGOTTEN: Final = 30.0  # seconds without a request for a key after which its version is no longer read

_records = sa.Table(
    "sinksdk_records",
    sa.MetaData(),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
    sa.Column("version", sa.Text, nullable=False),
)

# The statements are built once, because building one takes longer than running it in SQLite.
_KEY: Final = _records.c.key == sa.bindparam("of_key")
_VERSION: Final = _records.c.version == sa.bindparam("of_version")
_READ: Final = sa.select(_records.c.value, _records.c.version).where(_KEY)
_READ_VERSION: Final = sa.select(_records.c.version).where(_KEY)
_READ_VERSIONS: Final = sa.select(_records.c.key, _records.c.version).where(
    _records.c.key.in_(sa.bindparam("of_keys", expanding=True))
)
_INSERT: Final = sa.insert(_records)
_UPDATE: Final = (
    sa.update(_records)
    .where(_KEY, _VERSION)
    .values(value=sa.bindparam("new_value"), version=sa.bindparam("new_version"))
)
_DELETE: Final = sa.delete(_records).where(_KEY, _VERSION)


class SharedVersions:
    """Reads the versions that many threads poll together, in one request."""

    def __init__(
        self,
        read: Callable[[Collection[str]], Mapping[str, str]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._clock = clock
        self._reading = threading.Lock()
        self._requested_at: dict[str, float] = {}
        self._known: Mapping[str, str | None] = {}
        self._read_at = -AGE

    def version(self, key: str) -> str | None:
        now = self._clock()
        # During an outage another thread's read may take very long: until it returns, each thread reads for
        # itself.
        if not self._reading.acquire(blocking=False):
            return self._read([key]).get(key)
        try:
            self._requested_at[key] = now
            if now - self._read_at >= AGE or key not in self._known:
                kept = {k: at for k, at in self._requested_at.items() if now - at < _FORGOTTEN}
                self._requested_at = kept
                self._known = {**dict.fromkeys(kept), **self._read(kept.keys())}
                self._read_at = now
            return self._known[key]
        finally:
            self._reading.release()


class Snapshot(Store):
    def __init__(self, url: str, records: Mapping[str, Stored]) -> None:
        super().__init__()
        self._of = url
        self._records = records

    @property
    def url(self) -> str:
        return self._of

    def _read(self, key: str) -> Stored | None:
        return self._records.get(key)

    def _keys(self, prefix: str) -> list[str]:
        return [key for key in self._records if key.startswith(prefix)]

    def _write(self, key: str, stored: Stored, if_version: str | None) -> bool:  # noqa: ARG002 - nothing is written
        raise StoreRefused(f"{key} is not written: this is a snapshot of store {self._of}")

    def _remove(self, key: str, if_version: str) -> bool:
        return self._write(key, Stored("", ""), if_version)


class SqlStore(Store):
    """One table of keys, values and versions; each write is one conditional statement."""

    def __init__(self, address: URL, *, create: bool = False, patience: float = STORE.total) -> None:
        super().__init__(patience=min(patience, _OPENING) if create else patience)
        self._address = address
        if address.get_backend_name() != SQLITE:  # SQLite has one writer at a time
            self.closing_poll = 1.0  # a server serves more tasks than a file
            self.most_at_once = MOST_CONNECTIONS
        self._outage = outage_of(self.url)
        self._engines: dict[int, Engine] = {}  # engines by process id
        self._shared = SharedVersions(self._versions)
        self._doing = "opened"
        try:
            self._engine(create=create)
            # Executors create nothing: an empty database elsewhere would look like a new store.
            self._request(self._create_table if create else self._find_table, "opening it")
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
        return self._address.render_as_string(hide_password=True)

    def snapshot(self, prefix: str) -> Store:
        # One statement sees one state of the table.
        rows = self._request(lambda: self._below(prefix, _records), f"reading {prefix}")
        return Snapshot(self.url, {row.key: Stored(row.value, row.version) for row in rows})

    def close(self) -> None:
        _dispose(self._engines)

    def recent_version(self, key: str) -> str | None:
        return self._shared.version(key)

    def _read(self, key: str) -> Stored | None:
        found = self._rows(_READ, {"of_key": key})
        return Stored(found[0].value, found[0].version) if found else None

    def _version(self, key: str) -> str | None:
        found = self._rows(_READ_VERSION, {"of_key": key})
        return found[0].version if found else None

    def _versions(self, keys: Collection[str]) -> dict[str, str]:
        named = {"of_keys": sorted(keys)}
        rows = self._request(lambda: self._rows(_READ_VERSIONS, named), "reading versions")
        return {row.key: row.version for row in rows}

    def _write(self, key: str, stored: Stored, if_version: str | None) -> bool:
        if if_version is None:
            row = {"key": key, "value": stored.body, "version": stored.version}
            try:
                self._transact(lambda connection: connection.execute(_INSERT, row))
            except IntegrityError:
                return False
            return True
        new = {"new_value": stored.body, "new_version": stored.version}
        return self._changes(_UPDATE, {"of_key": key, "of_version": if_version, **new})

    def _remove(self, key: str, if_version: str) -> bool:
        return self._changes(_DELETE, {"of_key": key, "of_version": if_version})

    def _changes(self, statement: sa.Executable, values: dict[str, str]) -> bool:
        return self._transact(lambda connection: connection.execute(statement, values).rowcount == 1)

    def _keys(self, prefix: str) -> list[str]:
        return [row.key for row in self._below(prefix, _records.c.key)]

    def _below(self, prefix: str, what: sa.Table | sa.Column[str]) -> list[sa.Row[Any]]:
        rows = self._rows(sa.select(what).where(_records.c.key.startswith(prefix, autoescape=True)))
        return [row for row in rows if row.key.startswith(prefix)]  # SQLite's LIKE ignores the case

    def _rows(self, query: sa.Select[Any], values: Mapping[str, Any] | None = None) -> Sequence[sa.Row[Any]]:
        return self._transact(lambda connection: connection.execute(query, values).all())

    def _find_table(self) -> None:
        if not self._transact(_has_table):
            raise ConfigException(
                f"store {self.url} does not exist: the database has no table {_records.name}. Correct the "
                f"URL, or start a driver with it, which creates the store"
            )

    def _create_table(self) -> None:
        create = sa.schema.CreateTable(_records, if_not_exists=True)
        try:
            if not self._transact(_has_table):
                self._transact(lambda connection: connection.execute(create))
        except (IntegrityError, StoreRefused):
            # PostgreSQL's own IF NOT EXISTS fails when another session creates it at the same time.
            if not self._transact(_has_table):
                raise
        self._remove("", "")  # removes nothing, but is refused if the store is read-only

    def _transact(self, work: Callable[[Connection], T]) -> T:
        try:
            with self._engine().begin() as connection, response_awaited(connection):
                return work(connection)
        except IntegrityError:
            raise
        except DBAPIError as error:
            words = advice(error)
            if words is None:
                raise Lost(_message(error)) from error
            raise StoreRefused(
                f"store {self.url} cannot be {self._doing}: {_message(error)}; {words}"
            ) from error
        except PoolTimeoutError as error:
            raise Lost(f"all {MOST_CONNECTIONS} connections of this process are busy") from error
        except SQLAlchemyError as error:
            raise Lost(str(error).splitlines()[0]) from error  # the other lines link to SQLAlchemy's manual

    def _engine(self, *, create: bool = False) -> Engine:
        # A forked process must not share, nor close, its parent's connections.
        process = os.getpid()
        if process not in self._engines:
            self._engines[process] = create_engine(self._address, create=create)
            weakref.finalize(self, _dispose, self._engines).atexit = False
        return self._engines[process]


def _has_table(connection: Connection) -> bool:
    return sa.inspect(connection).has_table(_records.name)


def _dispose(engines: dict[int, Engine]) -> None:
    engine = engines.pop(os.getpid(), None)
    if engine is not None:
        engine.dispose()


def _message(error: DBAPIError) -> str:
    return " ".join(str(error.orig).split())
