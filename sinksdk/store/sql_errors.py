"""What a database says, sorted into what passes and what never will."""

from __future__ import annotations

import sqlite3
from typing import Final

from sqlalchemy.exc import DBAPIError

_PRIMARY: Final = 0xFF  # SQLite's extended codes hold the primary one in their lowest byte
_SQLITE_ADVICE: Final = {
    sqlite3.SQLITE_FULL: "the disk is full, or the file may not grow: make room",
    sqlite3.SQLITE_CANTOPEN: "check that it exists and may be written",
    sqlite3.SQLITE_READONLY: "the file or its folder may not be written: check who owns them, and the mount",
    sqlite3.SQLITE_PERM: "the file may not be opened: check who owns it",
    sqlite3.SQLITE_CORRUPT: "the file is damaged: restore it from a backup",
    sqlite3.SQLITE_NOTADB: "the file is no SQLite database: name another one",
    sqlite3.SQLITE_TOOBIG: "the value is larger than SQLite allows",
    sqlite3.SQLITE_ERROR: "check that the file is a store of sinksdk",
    sqlite3.SQLITE_MISMATCH: "check that the file is a store of sinksdk",
    sqlite3.SQLITE_CONSTRAINT: "check that the file is a store of sinksdk",
}
"""What will not pass. All else (busy, locked, an error of the disk) leaves a doubt, and may pass."""

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
    "42501": "grant this user select, insert, update and delete on sinksdk_records; whoever makes the store "
    "needs create on the schema too",
    "42P01": "the table is gone: restore it from a backup, or start a driver, which makes it",
    "3D000": "create the database, or correct the store's URL",
    "28000": "correct user and password in the store's URL, or the server's pg_hba.conf",
    "28P01": "correct user and password in the store's URL",
}
_READ_ONLY: Final = "25006"
_STANDBY: Final = (
    "this server takes no writes: it is a standby, or read-only. Name the primary, or all of them with "
    "target_session_attrs=read-write"
)
_CONNECTING: Final = {
    "password authentication failed": _POSTGRESQL_ADVICE["28P01"],
    "no password supplied": _POSTGRESQL_ADVICE["28P01"],
    "no pg_hba.conf entry": _POSTGRESQL_ADVICE["28000"],
    'role "': _POSTGRESQL_ADVICE["28000"],
    "does not exist": _POSTGRESQL_ADVICE["3D000"],
    "session is read-only": _STANDBY,
    "permission denied for database": "grant this user connect on the database",
}
"""The server refused the connection. libpq hands its words on, not its code."""


def advice(error: DBAPIError) -> str | None:
    """What to do about an error that will not pass; None for one that may, or that leaves a doubt."""
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
