"""A SQL store's database: its connections and errors."""

from __future__ import annotations

import os
import socket
import sqlite3
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Timer
from typing import Final
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.exc import DBAPIError, DisconnectionError
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool

from sinksdk.store.addresses import SQLITE

_BUSY_SECONDS: Final = 30  # seconds for which SQLite waits for another process's write

_CONNECT_SECONDS: Final = 5
_LOCK_SECONDS: Final = 5
_STATEMENT_SECONDS: Final = 10
_RESPONSE_SECONDS: Final = 12  # seconds without a response from the server or a proxy
_POOL_SECONDS: Final = 10
_CONNECTIONS: Final = 2  # one for a task's commits, and one for its checks for a close request
MOST_CONNECTIONS: Final = 4  # connections of a process to a server
_FILE: Final = "file"  # key of the file that a connection has open
_POSTGRESQL_CONNECTION: Final = {
    "connect_timeout": _CONNECT_SECONDS,
    "keepalives_idle": 30,
    "tcp_user_timeout": _STATEMENT_SECONDS * 1000,
    "application_name": "sinksdk",
}
_POSTGRESQL_SESSION: Final = (
    f"SET statement_timeout = '{_STATEMENT_SECONDS}s'; SET lock_timeout = '{_LOCK_SECONDS}s'; "
    f"SET synchronous_commit = on"  # set in any case, because a commit must survive a power cut
)

_PRIMARY: Final = 0xFF  # the lowest byte of SQLite's extended codes is the primary code
# Other errors (busy, locked, disk errors) may be transient, and leave the outcome unknown.
_SQLITE_ADVICE: Final = {
    sqlite3.SQLITE_FULL: "the disk is full, or the file may not grow: make room",
    sqlite3.SQLITE_CANTOPEN: "check that it exists and is writable",
    sqlite3.SQLITE_READONLY: "the file or its folder is not writable: check their owner, and the mount",
    sqlite3.SQLITE_PERM: "permission denied: check the owner of the file",
    sqlite3.SQLITE_CORRUPT: "the file is damaged: restore it from a backup",
    sqlite3.SQLITE_NOTADB: "the file is not a SQLite database: correct the path",
    sqlite3.SQLITE_TOOBIG: "the value is larger than SQLite allows",
    sqlite3.SQLITE_ERROR: "check that the file is a store of sinksdk",
    sqlite3.SQLITE_MISMATCH: "check that the file is a store of sinksdk",
    sqlite3.SQLITE_CONSTRAINT: "check that the file is a store of sinksdk",
}

_PASSING_CLASSES: Final = frozenset(
    {
        "08",  # connection exceptions
        "40",  # deadlocks, serialization failures: rolled back
        "53",  # too many connections, out of memory
        "55",  # locked for longer than the time-out
        "57",  # cancelled, shut down, starting up
        "58",  # errors of the server's disk
    }
)
_POSTGRESQL_ADVICE: Final = {
    "53100": "the server's disk is full: make room",
    "57P04": "the database was dropped: create it, or correct the store's URL",
    "42501": "grant this user select, insert, update and delete on sinksdk_records; the user that "
    "creates the store needs create on the schema too",
    "42P01": "the table is missing: restore it from a backup, or start a driver, which creates it",
    "3D000": "create the database, or correct the store's URL",
    "28000": "correct user and password in the store's URL, or the server's pg_hba.conf",
    "28P01": "correct user and password in the store's URL",
}
_READ_ONLY: Final = "25006"  # an SQLSTATE
_STANDBY: Final = (
    "this server refuses writes: it is a standby, or read-only. Set the primary in the store's URL, or all "
    "servers with target_session_attrs=read-write"
)
# When the server refuses a connection, libpq passes on the server's message but not its code.
_CONNECTING: Final = {
    "password authentication failed": _POSTGRESQL_ADVICE["28P01"],
    "no password supplied": _POSTGRESQL_ADVICE["28P01"],
    "no pg_hba.conf entry": _POSTGRESQL_ADVICE["28000"],
    'role "': _POSTGRESQL_ADVICE["28000"],
    "does not exist": _POSTGRESQL_ADVICE["3D000"],
    "session is read-only": _STANDBY,
    "permission denied for database": "grant this user connect on the database",
}


def create_engine(url: URL, *, create: bool) -> Engine:
    return _sqlite(url, create=create) if url.get_backend_name() == SQLITE else _postgresql(url)


def _sqlite(url: URL, *, create: bool) -> Engine:
    if create:
        _create_private(str(url.database))
    mode = "rwc" if create else "rw"
    path = quote(str(url.database))  # in a file: URI a "?" or "#" ends the path
    file_url = url.set(database=f"file:{path}", query={**url.query, "mode": mode, "uri": "true"})
    engine = sa.create_engine(
        file_url,
        poolclass=QueuePool,
        # Opening the file takes several times as long as a request; closing the last connection takes longer
        # still, since SQLite then writes the whole log into the file.
        pool_size=_CONNECTIONS,
        max_overflow=-1,  # opens another connection if all are busy, so that no request waits
        pool_use_lifo=True,
        isolation_level="AUTOCOMMIT",  # every statement is its own transaction
        connect_args={"timeout": _BUSY_SECONDS, "check_same_thread": False},
    )
    _kept.add(engine)

    @sa.event.listens_for(engine, "do_connect")
    def before(_dialect: object, record: ConnectionPoolEntry, _args: object, _kwargs: object) -> None:
        record.info[_FILE] = _identity(str(url.database))

    @sa.event.listens_for(engine, "connect")
    def configure(connection: object, _record: object) -> None:
        # Readers never wait for a writer, and a commit survives a power cut.
        cursor = connection.cursor()  # type: ignore[attr-defined]  # the driver's own connection
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.close()

    @sa.event.listens_for(engine, "checkout")
    def expect_same_file(_connection: object, record: ConnectionPoolEntry, _proxy: object) -> None:
        # Open connections still use a file that was removed, or replaced from a backup.
        if record.info[_FILE] != _identity(str(url.database)):
            raise DisconnectionError

    return engine


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - called at every request
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _dispose_all() -> None:
    # SQLite in a forked child would take over the locks of idle connections.
    for engine in list(_kept):
        engine.dispose()


_kept: Final = weakref.WeakSet[Engine]()
os.register_at_fork(before=_dispose_all)


def _create_private(path: str) -> None:
    # Configurations may hold secrets. SQLite gives -wal and -shm the same mode, and reports errors itself.
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def _postgresql(url: URL) -> Engine:
    given = {name: value for name, value in _POSTGRESQL_CONNECTION.items() if name not in url.query}
    engine = sa.create_engine(
        url,
        poolclass=QueuePool,
        pool_size=_CONNECTIONS,
        max_overflow=MOST_CONNECTIONS - _CONNECTIONS,
        pool_timeout=_POOL_SECONDS,
        isolation_level="AUTOCOMMIT",
        # No prepared statements: a pooler may give the next statement to another session.
        connect_args={**given, "prepare_threshold": None},
    )

    @sa.event.listens_for(engine, "connect")
    def configure(connection: object, _record: object) -> None:
        cursor = connection.cursor()  # type: ignore[attr-defined]  # the driver's own connection
        cursor.execute(_POSTGRESQL_SESSION)
        cursor.close()

    return engine


@contextmanager
def response_awaited(connection: Connection) -> Iterator[None]:
    """Shut down a connection without a response: psycopg itself has no time-out."""
    descriptor = getattr(connection.connection.dbapi_connection, "fileno", None)
    if descriptor is None:  # SQLite has no server to wait for
        yield
        return
    with socket.socket(fileno=os.dup(descriptor())) as same:
        timer = Timer(_RESPONSE_SECONDS, same.shutdown, [socket.SHUT_RDWR])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()


def advice(error: DBAPIError) -> str | None:
    """Return what to do about a permanent error; None if it may be transient or its outcome is unknown."""
    origin = error.orig
    if isinstance(origin, sqlite3.Error):
        code = getattr(origin, "sqlite_errorcode", None)
        return None if code is None else _SQLITE_ADVICE.get(code & _PRIMARY)
    state = getattr(origin, "sqlstate", None)
    if state is None:
        return next((what for words, what in _CONNECTING.items() if words in str(origin)), None)
    if state == _READ_ONLY:
        return _STANDBY
    if state not in _POSTGRESQL_ADVICE and state[:2] in _PASSING_CLASSES:
        return None
    return _POSTGRESQL_ADVICE.get(state, "look the error up in PostgreSQL's manual")
