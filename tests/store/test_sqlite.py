"""The embedded store: a SQLite file, opened by several processes of one machine."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from sinksdk.errors import ConfigException
from sinksdk.store import StoreRefused, StoreUnavailable, identify, open_store, sql, sql_engine
from sinksdk.store.sql import SqlStore
from tests.helpers.stores import sql_store


def test_a_relative_path_is_converted_to_an_absolute_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A process with another working directory opens the same file.
    monkeypatch.chdir(tmp_path)
    store = open_store("sqlite:///state.db", create=True)
    store.put("k", {"x": 1}, None)
    assert store.url == f"sqlite:///{tmp_path}/state.db"
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert store.get("k").value == {"x": 1}
    assert open_store(store.url).get("k").value == {"x": 1}
    assert list(Path.cwd().iterdir()) == []


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("a b.db", "a b.db"),
        ("50%.db", "50%.db"),
        ("what%3F.db", "what?.db"),
        ("is#this.db", "is#this.db"),
        ("naïve ☂.db", "naïve ☂.db"),
        ("a&mode=ro.db", "a&mode=ro.db"),
    ],
)
def test_any_file_name_is_accepted(tmp_path: Path, written: str, name: str) -> None:
    folder = tmp_path / f"in {name}"
    folder.mkdir()
    url = f"sqlite:///{tmp_path}/in {written}/{written}"
    store = open_store(url, create=True)
    store.put("k", {"x": 1}, None)
    assert list(tmp_path.iterdir()) == [folder]
    assert name in {path.name for path in folder.iterdir()}
    assert open_store(url).get("k").value == {"x": 1}
    assert open_store(store.url).get("k").value == {"x": 1}


def test_opening_creates_nothing(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigException, match=r"state\.db cannot be opened: unable to open database file; check"
    ):
        open_store(f"sqlite:///{tmp_path}/state.db")
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state.db").touch()
    with pytest.raises(ConfigException, match="does not exist: the database has no table sinksdk_records"):
        open_store(f"sqlite:///{tmp_path}/state.db")


@pytest.mark.parametrize("create", [False, True])
def test_a_file_that_is_not_a_database_is_refused(tmp_path: Path, create: bool) -> None:
    (tmp_path / "state.db").write_text("these are my notes, and they are long enough to be looked at " * 10)
    with pytest.raises(ConfigException, match="file is not a database"):
        open_store(f"sqlite:///{tmp_path}/state.db", create=create)
    assert "these are my notes" in (tmp_path / "state.db").read_text()


def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigException, match="check that it exists and is writable"):
        open_store(f"sqlite:///{tmp_path}/nowhere/state.db", create=True)


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:"])
def test_a_database_in_memory_is_refused(url: str) -> None:
    # Each process would have another database in memory.
    with pytest.raises(ConfigException, match="ends with its process; use a file"):
        open_store(url, create=True)


@pytest.mark.parametrize(
    "url", ["state.db", "", "://", "a b://x", "nosuchdb://host/db", "postgresql://u:secret@host:secret/db"]
)
def test_an_invalid_store_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigException) as caught:
        open_store(url)
    assert "secret" not in str(caught.value)


def test_creating_a_store_twice_keeps_its_values(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/state.db"
    open_store(url, create=True).put("k", {"x": 1}, None)
    assert open_store(url, create=True).get("k").value == {"x": 1}


CREATE = """
import multiprocessing, os, sys
from sinksdk.store import identify, open_store
fork = multiprocessing.get_context("fork")
together = fork.Barrier(6)
def create():
    together.wait()
    os.write(1, f"{identify(open_store(sys.argv[1], create=True))}\\n".encode())
running = [fork.Process(target=create) for _ in range(6)]
[process.start() for process in running]
[process.join() for process in running]
sys.exit(max(process.exitcode for process in running))
"""


@pytest.mark.slow
def test_processes_may_create_the_store_at_the_same_time(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", CREATE, f"sqlite:///{tmp_path}/state.db"],
        check=True,
        timeout=60,
        stdout=subprocess.PIPE,
        text=True,
    )
    answers = ran.stdout.split()
    assert len(answers) == 6
    assert len(set(answers)) == 1


LOCK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute(f"BEGIN {sys.argv[2]}")
print("locked", flush=True)
sys.stdin.readline()
connection.execute("ROLLBACK")
"""


@contextmanager
def locked(database: Path, kind: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", LOCK, str(database), kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout.readline() == "locked\n"
        yield holder


@pytest.mark.parametrize("kind", ["IMMEDIATE", "EXCLUSIVE"])
def test_a_locked_database_is_awaited(tmp_path: Path, kind: str) -> None:
    store = open_store(f"sqlite:///{tmp_path}/state.db", create=True)
    first = store.put("k", {"x": 1}, None)
    with locked(tmp_path / "state.db", kind) as holder, ThreadPoolExecutor() as pool:
        writing = pool.submit(store.put, "k", {"x": 2}, first)
        assert not wait([writing], timeout=0.5).done
        holder.stdin.close()
        second = writing.result(60)
    assert store.get("k") == ({"x": 2}, second)


def test_opening_a_locked_database_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A store is opened and read without the lock; creating one waits for it.
    monkeypatch.setattr(sql, "_OPENING", 60.0)
    url = f"sqlite:///{tmp_path}/state.db"
    open_store(url, create=True).put("k", {"x": 1}, None)
    with locked(tmp_path / "state.db", "IMMEDIATE") as holder, ThreadPoolExecutor() as pool:
        assert open_store(url).get("k").value == {"x": 1}
        creating = pool.submit(sql_store, url, create=True, patience=60.0)
        assert not wait([creating], timeout=0.5).done
        holder.stdin.close()
        assert creating.result(60).get("k").value == {"x": 1}


# -- what SQLite refuses -----------------------------------------------------------------------------


def on_every_connection(store: SqlStore, pragma: str) -> None:
    @sa.event.listens_for(store._engine(), "checkout")
    def configure(connection: sqlite3.Connection, *_: object) -> None:
        connection.execute(pragma)


def test_a_full_disk_is_reported_at_once(tmp_path: Path) -> None:
    store = sql_store(f"sqlite:///{tmp_path}/state.db", create=True, patience=300.0)
    version = store.put("k", {"x": 1}, None)
    on_every_connection(store, "PRAGMA max_page_count = 10")
    before = time.monotonic()
    with pytest.raises(
        StoreRefused, match=r"state\.db cannot be used: .* is full; the disk is full.*: make room"
    ):
        store.put("k", {"x": "large" * 100_000}, version)
    with pytest.raises(StoreRefused, match="make room"):
        store.put("new", {"x": "large" * 100_000}, None)
    assert time.monotonic() - before < 30.0
    assert store.get("k") == ({"x": 1}, version)
    assert store.list("") == ["k"]
    assert store.put("k", {"x": 2}, version)


def test_a_read_only_file_is_reported_at_once(tmp_path: Path) -> None:
    store = sql_store(f"sqlite:///{tmp_path}/state.db", create=True)
    version = store.put("k", {"x": 1}, None)
    on_every_connection(store, "PRAGMA query_only = 1")
    with pytest.raises(StoreRefused, match="readonly database; the file or its folder is not writable"):
        store.put("k", {"x": 2}, version)
    assert store.get("k") == ({"x": 1}, version)


def test_a_damaged_file_is_reported_at_once(tmp_path: Path) -> None:
    store = sql_store(f"sqlite:///{tmp_path}/state.db", create=True)
    for number in range(50):
        store.put(f"key-{number}", {"text": "x" * 1000}, None)
    with sqlite3.connect(tmp_path / "state.db") as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    with (tmp_path / "state.db").open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 40_000)
    with pytest.raises(StoreRefused, match="malformed; the file is damaged: restore it from a backup"):
        store.get("key-7")


def test_a_missing_table_is_reported_at_once(tmp_path: Path) -> None:
    store = sql_store(f"sqlite:///{tmp_path}/state.db", create=True)
    with sqlite3.connect(tmp_path / "state.db") as connection:
        connection.execute("DROP TABLE sinksdk_records")
    connection.close()
    with pytest.raises(StoreRefused, match=r"no such table.*check that the file is a store of sinksdk"):
        store.get("k")


def test_a_file_that_stays_locked_raises_store_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_engine, "_BUSY_SECONDS", 0.1)
    store = sql_store(f"sqlite:///{tmp_path}/state.db", create=True, patience=0.3)
    version = store.put("k", {"x": 1}, None)
    with sqlite3.connect(tmp_path / "state.db", isolation_level=None) as connection:
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match=r"writing k got no response for .* database is locked"):
            store.put("k", {"x": 2}, version)
        connection.execute("ROLLBACK")
    connection.close()
    assert store.put("k", {"x": 2}, version)


def test_a_commit_survives_a_power_cut(tmp_path: Path) -> None:
    store = sql_store(f"sqlite:///{tmp_path}/state.db", create=True)
    with store._engine().connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2


# -- which store it is -------------------------------------------------------------------------------


def test_a_store_keeps_its_id(tmp_path: Path) -> None:
    url, other = f"sqlite:///{tmp_path}/a.db", f"sqlite:///{tmp_path}/b.db"
    first = identify(open_store(url, create=True))
    assert identify(open_store(url)) == first
    assert identify(open_store(other, create=True)) != first


def test_the_expected_store_is_opened(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    store_id = identify(open_store(url, create=True))
    assert identify(open_store(url, expected_id=store_id)) == store_id


def test_another_store_is_refused(tmp_path: Path) -> None:
    # Driver and executors must reach the same store.
    url = f"sqlite:///{tmp_path}/a.db"
    identify(open_store(url, create=True))
    with pytest.raises(ConfigException, match="is not the store this connector was started with"):
        open_store(url, expected_id="another")


def test_a_store_without_an_id_is_refused_and_unchanged(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    open_store(url, create=True)
    with pytest.raises(ConfigException, match="is not the store"):
        open_store(url, expected_id="expected")
    assert open_store(url).list("") == []


def test_the_table_is_readable_with_sql(tmp_path: Path) -> None:
    version = open_store(f"sqlite:///{tmp_path}/a.db", create=True).put("k", {"x": 1}, None)
    with sqlite3.connect(tmp_path / "a.db") as connection:
        rows = connection.execute("SELECT key, value, version FROM sinksdk_records").fetchall()
    connection.close()
    assert rows == [("k", f'{{"format": 1, "nonce": "{version}", "x": 1}}', version)]


def test_the_file_is_readable_only_by_its_owner(tmp_path: Path) -> None:
    store = sql_store(f"sqlite:///{tmp_path}/state.db", create=True)
    store.put("k", {"x": 1}, None)
    # SQLite's other files exist while the store is open.
    with sqlite3.connect(tmp_path / "state.db") as reader:
        reader.execute("select * from sinksdk_records").fetchall()
        store.put("l", {"x": 1}, None)
        assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
        assert len(list(tmp_path.iterdir())) == 3

    (tmp_path / "state.db").chmod(0o660)
    sql_store(f"sqlite:///{tmp_path}/state.db", create=True)
    assert (tmp_path / "state.db").stat().st_mode & 0o777 == 0o660


# -- connections that are kept -----------------------------------------------------------------------


def test_one_connection_serves_many_requests(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/state.db", create=True)
    opened: list[object] = []

    def count(connection: object, _record: object) -> None:
        opened.append(connection)

    sa.event.listen(sa.pool.Pool, "connect", count)
    try:
        version = store.put("k", {"x": 0}, None)
        for x in range(1, 20):
            version = store.put("k", {"x": x}, version)
            assert store.version("k") == version
            assert store.get("k").value == {"x": x}
        assert store.list("") == ["k"]
    finally:
        sa.event.remove(sa.pool.Pool, "connect", count)
    assert len(opened) <= 1


def test_a_replaced_file_is_opened_again(tmp_path: Path) -> None:
    for name in ("state.db", "backup.db"):
        open_store(f"sqlite:///{tmp_path}/{name}", create=True).put("k", {"from": name}, None)
    store = open_store(f"sqlite:///{tmp_path}/state.db")
    assert store.get("k").value == {"from": "state.db"}
    sqlite3.connect(tmp_path / "backup.db").execute("PRAGMA wal_checkpoint(TRUNCATE)").connection.close()
    for ending in ("-wal", "-shm"):
        (tmp_path / f"state.db{ending}").unlink(missing_ok=True)
    (tmp_path / "backup.db").replace(tmp_path / "state.db")
    assert store.get("k").value == {"from": "backup.db"}


def test_a_removed_file_is_reported(tmp_path: Path) -> None:
    version = open_store(f"sqlite:///{tmp_path}/state.db", create=True).put("k", {"x": 1}, None)
    store = open_store(f"sqlite:///{tmp_path}/state.db")
    for path in tmp_path.iterdir():
        path.unlink()
    with pytest.raises(StoreRefused, match="unable to open database file"):
        store.put("k", {"x": 2}, version)
    assert list(tmp_path.iterdir()) == []


def test_a_forked_process_inherits_no_connection(tmp_path: Path) -> None:
    # A child process would treat its parent's locks as its own.
    store = open_store(f"sqlite:///{tmp_path}/state.db", create=True)
    store.put("k", {"x": 1}, None)
    if (child := os.fork()) == 0:
        links = [path for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
        os._exit(any(str(tmp_path) in str(path.readlink()) for path in links))
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert store.get("k").value == {"x": 1}


def test_busy_connections_are_not_reported_as_an_outage_of_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = sql_store(f"sqlite:///{tmp_path / 'store.sqlite'}", create=True, patience=0.0)

    def busy() -> sa.Engine:
        message = "QueuePool limit of size 2 overflow 2 reached, connection timed out, timeout 10.00"
        raise sa.exc.TimeoutError(message)

    monkeypatch.setattr(store, "_engine", busy)
    with pytest.raises(StoreUnavailable, match="all 4 connections of this process are busy"):
        store.get("key")
