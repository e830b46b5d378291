"""How a store's database is connected to: time limits, durability, and nothing shared over a fork."""

from __future__ import annotations

import os
import socket
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Timer
from typing import Final
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool

from sinksdk.store.sql_address import SQLITE

_BUSY_SECONDS: Final = 30  # how long SQLite waits for another process's write

_CONNECT_SECONDS: Final = 5
_LOCK_SECONDS: Final = 5
_STATEMENT_SECONDS: Final = 10
_ANSWER_SECONDS: Final = 12  # for a server, or something before it, that says nothing at all
_POOL_SECONDS: Final = 10
_CONNECTIONS: Final = 2  # a task's commits, and its looks whether it shall close
MOST_CONNECTIONS: Final = 4
"""How many a process has to a server at most; a driver that fences many tasks uses them all."""
_FILE: Final = "file"  # which one a connection has open
_POSTGRESQL_CONNECTION: Final = {
    "connect_timeout": _CONNECT_SECONDS,
    "keepalives_idle": 30,
    "tcp_user_timeout": _STATEMENT_SECONDS * 1000,
    "application_name": "sinksdk",
}
_POSTGRESQL_SESSION: Final = (
    f"SET statement_timeout = '{_STATEMENT_SECONDS}s'; SET lock_timeout = '{_LOCK_SECONDS}s'; "
    f"SET synchronous_commit = on"  # whatever the server's default is: a commit must survive a power cut
)


def create_engine(url: URL, *, create: bool) -> Engine:
    """An engine for the calling process; a forked one needs its own.

    Args:
        create: make SQLite's file where it is missing.
    """
    return _sqlite(url, create=create) if url.get_backend_name() == SQLITE else _postgresql(url)


def _sqlite(url: URL, *, create: bool) -> Engine:
    """A few connections are kept: opening the file costs several times what a request does.

    Closing the last one costs more still, since SQLite then writes the whole log into the file.
    """
    if create:
        _create_private(str(url.database))
    mode = "rwc" if create else "rw"
    path = quote(str(url.database))  # in a file: URI "?" and "#" end the path
    file_url = url.set(database=f"file:{path}", query={**url.query, "mode": mode, "uri": "true"})
    engine = sa.create_engine(
        file_url,
        poolclass=QueuePool,
        pool_size=_CONNECTIONS,
        max_overflow=-1,  # whoever finds none opens one: nobody waits for a connection
        pool_use_lifo=True,
        isolation_level="AUTOCOMMIT",  # every statement is a transaction of its own
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
        # A file that was removed, or restored from a backup, lives on for those that have it open.
        if record.info[_FILE] != _identity(str(url.database)):
            raise DisconnectionError

    return engine


def _identity(path: str) -> tuple[int, int] | None:
    """What tells a file from another one of its name; None where there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116 - asked at every request
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _let_go() -> None:
    """Close what is kept and not in use: a child would take its locks for its own, and hold none."""
    for engine in list(_kept):
        engine.dispose()


_kept: Final = weakref.WeakSet[Engine]()
os.register_at_fork(before=_let_go)


def _create_private(path: str) -> None:
    """Make the file where it is missing, for its owner alone: configurations in it may hold secrets.

    SQLite gives the files beside it (``-wal``, ``-shm``) its mode. What keeps it from being made SQLite says.
    """
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def _postgresql(url: URL) -> Engine:
    """Every statement is a transaction of its own, and one round trip."""
    given = {name: value for name, value in _POSTGRESQL_CONNECTION.items() if name not in url.query}
    engine = sa.create_engine(
        url,
        poolclass=QueuePool,
        pool_size=_CONNECTIONS,
        max_overflow=MOST_CONNECTIONS - _CONNECTIONS,
        pool_timeout=_POOL_SECONDS,
        isolation_level="AUTOCOMMIT",
        # Nothing is prepared: a pooler between may give the next statement to another session.
        connect_args={**given, "prepare_threshold": None},
    )

    @sa.event.listens_for(engine, "connect")
    def configure(connection: object, _record: object) -> None:
        cursor = connection.cursor()  # type: ignore[attr-defined]  # the driver's own connection
        cursor.execute(_POSTGRESQL_SESSION)
        cursor.close()

    return engine


@contextmanager
def answer_awaited(connection: Connection) -> Iterator[None]:
    """Cut a connection to a server that does not answer: the driver itself waits for ever."""
    descriptor = getattr(connection.connection.dbapi_connection, "fileno", None)
    if descriptor is None:  # SQLite waits for nobody
        yield
        return
    with socket.socket(fileno=os.dup(descriptor())) as same:
        timer = Timer(_ANSWER_SECONDS, same.shutdown, [socket.SHUT_RDWR])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()
