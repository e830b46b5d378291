"""The store in a real PostgreSQL server: connections that are cut, and requests that the server refuses."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import psycopg
import pytest

from sinksdk import ConfigException
from sinksdk.store import (
    Conflict,
    StoreRefused,
    StoreUnavailable,
    base,
    identify,
    open_store,
    sql,
    sql_engine,
)
from sinksdk.store.sql import SqlStore
from tests.helpers.stores import sql_store
from tests.integration.fault_proxy import CUT_AFTER, CUT_BEFORE, SILENCE, TcpProxy, serving_tcp
from tests.store.postgres_server import PostgresServer

pytestmark = pytest.mark.slow


@pytest.fixture
def schema() -> str:
    return f"store_{uuid.uuid4().hex}"


@pytest.fixture
def store(postgres: PostgresServer, schema: str) -> Iterator[SqlStore]:
    opened = sql_store(postgres.url(schema), create=True)
    yield opened
    opened.close()


@pytest.fixture
def proxy(postgres: PostgresServer) -> Iterator[TcpProxy]:
    with serving_tcp(postgres.port) as before:
        yield before


@pytest.fixture
def remote(postgres: PostgresServer, schema: str, proxy: TcpProxy) -> Iterator[SqlStore]:
    opened = sql_store(postgres.url(schema, port=proxy.port), create=True, patience=60.0)
    yield opened
    opened.close()


@contextmanager
def session(postgres: PostgresServer, schema: str) -> Iterator[psycopg.Connection]:
    with postgres.connect(schema) as connection:
        yield connection


# -- connections that are cut ------------------------------------------------------------------------

cuts = pytest.mark.parametrize(
    "how",
    [[CUT_BEFORE], [CUT_AFTER], [CUT_BEFORE, CUT_BEFORE, CUT_AFTER], [CUT_AFTER, CUT_BEFORE, CUT_AFTER]],
    ids=" ".join,
)


@cuts
def test_a_first_write_takes_effect_exactly_once(
    store: SqlStore, remote: SqlStore, proxy: TcpProxy, how: list[str]
) -> None:
    proxy.spoil(rb"INSERT INTO sinksdk_records", *how)
    version = remote.put("k", {"x": 1}, None)
    assert len(proxy.spoiled) == len(how)
    assert store.get("k") == ({"x": 1}, version)
    assert remote.put("k", {"x": 2}, version)


@cuts
def test_a_replacement_takes_effect_exactly_once(
    store: SqlStore, remote: SqlStore, proxy: TcpProxy, how: list[str]
) -> None:
    first = remote.put("k", {"x": 1}, None)
    proxy.spoil(rb"UPDATE sinksdk_records", *how)
    second = remote.put("k", {"x": 2}, first)
    assert len(proxy.spoiled) == len(how)
    assert store.get("k") == ({"x": 2}, second)
    assert remote.put("k", {"x": 3}, second)


@cuts
def test_a_delete_takes_effect_despite_a_fault(
    store: SqlStore, remote: SqlStore, proxy: TcpProxy, how: list[str]
) -> None:
    version = remote.put("k", {"x": 1}, None)
    proxy.spoil(rb"DELETE FROM sinksdk_records", *how)
    remote.delete("k", version)
    assert len(proxy.spoiled) == len(how)
    assert store.get("k") is None


@cuts
def test_reading_and_listing_are_retried(
    store: SqlStore, remote: SqlStore, proxy: TcpProxy, how: list[str]
) -> None:
    version = store.put("k", {"x": 1}, None)
    proxy.spoil(rb"SELECT sinksdk_records", *how, *how)
    assert remote.get("k") == ({"x": 1}, version)
    assert remote.list("") == ["k"]
    assert len(proxy.spoiled) == 2 * len(how)


def test_another_process_writes_while_the_response_is_lost(
    store: SqlStore, remote: SqlStore, proxy: TcpProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The UPDATE took effect and its response was lost; another value has replaced it since.
    first = store.put("k", {"by": "nobody"}, None)
    is_replaced = threading.Event()
    pausing = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: is_replaced.wait(60))
    monkeypatch.setattr(base, "time", pausing)  # the retry comes after another process has replaced the value
    proxy.spoil(rb"UPDATE sinksdk_records", CUT_AFTER)
    caught: list[BaseException] = []

    def write() -> None:
        try:
            remote.put("k", {"by": "us"}, first)
        except Conflict as error:
            caught.append(error)

    writing = threading.Thread(target=write)
    writing.start()
    while (found := store.get("k")).version == first:
        time.sleep(0.01)
    assert found.value == {"by": "us"}
    store.put("k", {"by": "them"}, found.version)
    is_replaced.set()
    writing.join()
    assert len(caught) == 1
    assert store.get("k").value == {"by": "them"}


def test_a_server_without_a_response_is_disconnected(
    store: SqlStore, remote: SqlStore, proxy: TcpProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_engine, "_RESPONSE_SECONDS", 0.5)
    proxy.spoil(rb"INSERT INTO sinksdk_records", SILENCE)
    before = time.monotonic()
    version = remote.put("k", {"x": 1}, None)
    assert 0.5 < time.monotonic() - before < 12.0
    assert store.get("k") == ({"x": 1}, version)


def test_idle_connections_that_were_cut_are_replaced(remote: SqlStore, proxy: TcpProxy) -> None:
    version = remote.put("k", {"x": 1}, None)
    proxy.cut_all()
    version = remote.put("k", {"x": 2}, version)
    assert remote.get("k") == ({"x": 2}, version)


def test_a_lasting_outage_raises_store_unavailable(
    postgres: PostgresServer, schema: str, proxy: TcpProxy
) -> None:
    remote = sql_store(postgres.url(schema, port=proxy.port), create=True, patience=0.5)
    version = remote.put("k", {"x": 1}, None)
    proxy.is_refusing = True
    proxy.cut_all()
    with pytest.raises(StoreUnavailable, match=r"writing k got no response for 0\.5 s: "):
        remote.put("k", {"x": 2}, version)
    proxy.is_refusing = False
    assert remote.get("k") == ({"x": 1}, version)
    remote.close()


def test_one_connection_serves_many_requests(remote: SqlStore, proxy: TcpProxy) -> None:
    before = proxy.connections
    version = remote.put("k", {"x": 0}, None)
    for number in range(20):
        version = remote.put("k", {"x": number}, version)
    assert proxy.connections - before == 0
    assert remote.get("k").version == version


def test_an_unreferenced_store_closes_its_connections(
    remote: SqlStore, proxy: TcpProxy, postgres: PostgresServer
) -> None:
    with postgres.connect() as looking:

        def sessions() -> set[int]:
            found = looking.execute("SELECT pid FROM pg_stat_activity WHERE application_name = 'sinksdk'")
            return {pid for (pid,) in found}

        before = sessions()  # sessions of earlier tests may be about to end
        opened = sql_store(remote.url)
        opened.get("k")
        (mine,) = sessions() - before
        del opened
        gc.collect()
        deadline = time.monotonic() + 60
        while mine in sessions() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert mine not in sessions()


FORKED = """
import os, sys
from sinksdk.store import open_store
store = open_store(sys.argv[1])
store.get("k")
child = os.fork()
if child == 0:
    store.get("k")
    store.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
store.get("k")
"""


def test_a_forked_process_opens_its_own_connections(
    postgres: PostgresServer, schema: str, store: SqlStore, proxy: TcpProxy
) -> None:
    store.put("k", {"x": 1}, None)
    url = postgres.url(schema, port=proxy.port)
    subprocess.run([sys.executable, "-c", FORKED, url], check=True, timeout=60)
    assert proxy.connections == 2


# -- the server's own behaviour ---------------------------------------------------------------------


def test_a_deadlock_is_retried(postgres: PostgresServer, schema: str, store: SqlStore) -> None:
    first = store.put("k", {"x": 1}, None)
    deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'"
    versions: list[str] = []
    with session(postgres, schema) as other, session(postgres, schema) as looking:
        before = looking.execute(deadlocks).fetchone()[0]
        other.execute("SET deadlock_timeout = '30s'")  # the server terminates the session of the store
        with other.transaction(force_rollback=True):
            other.execute("UPDATE sinksdk_records SET value = 'theirs' WHERE key = 'k'")
            writing = threading.Thread(target=lambda: versions.append(store.put("k", {"x": 2}, first)))
            writing.start()
            wait_for_lock(looking)
            other.execute("LOCK TABLE sinksdk_records IN SHARE ROW EXCLUSIVE MODE")
        writing.join()
        deadline = time.monotonic() + 60
        while looking.execute(deadlocks).fetchone()[0] == before and time.monotonic() < deadline:
            looking.execute("SELECT pg_stat_clear_snapshot()")
            time.sleep(0.1)
        assert looking.execute(deadlocks).fetchone()[0] == before + 1
    assert store.get("k") == ({"x": 2}, versions[0])


def wait_for_lock(looking: psycopg.Connection) -> None:
    while not looking.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone()[0]:
        time.sleep(0.01)


def test_a_lock_timeout_raises_store_unavailable(
    postgres: PostgresServer, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_engine, "_POSTGRESQL_SESSION", "SET lock_timeout = '200ms'")
    store = sql_store(postgres.url(schema), create=True, patience=0.5)
    version = store.put("k", {"x": 1}, None)
    with session(postgres, schema) as other, other.transaction(force_rollback=True):
        other.execute("UPDATE sinksdk_records SET value = 'theirs' WHERE key = 'k'")
        with pytest.raises(StoreUnavailable, match="lock timeout"):
            store.put("k", {"x": 2}, version)
    assert store.put("k", {"x": 2}, version)
    store.close()


def test_sessions_have_timeouts(store: SqlStore) -> None:
    with store._engine().connect() as connection:
        shown = [connection.exec_driver_sql(f"SHOW {name}").scalar() for name in
                 ("statement_timeout", "lock_timeout", "synchronous_commit", "application_name")]  # fmt: skip
    assert shown == ["10s", "5s", "on", "sinksdk"]


def answering(postgres: PostgresServer, schema: str, state: str, times: int) -> None:
    # A sequence in the database counts the responses.
    with session(postgres, schema) as other:
        other.execute("CREATE SEQUENCE asked")
        other.execute(
            f"CREATE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            f"IF nextval('asked') <= {times} THEN "
            f"RAISE EXCEPTION 'spoiled by the test' USING ERRCODE = '{state}'; END IF; RETURN NEW; END $$"
        )
        other.execute(
            "CREATE TRIGGER spoil BEFORE INSERT OR UPDATE ON sinksdk_records "
            "FOR EACH ROW EXECUTE FUNCTION spoil()"
        )


def asked(postgres: PostgresServer, schema: str) -> int:
    with session(postgres, schema) as other:
        return int(other.execute("SELECT last_value FROM asked").fetchone()[0])


@pytest.mark.parametrize(
    "state", ["40001", "40P01", "53200", "53300", "55P03", "57014", "57P01", "58030", "08006"]
)
def test_transient_errors_are_retried(
    postgres: PostgresServer, schema: str, store: SqlStore, state: str
) -> None:
    version = store.put("k", {"x": 1}, None)
    answering(postgres, schema, state, times=2)
    version = store.put("k", {"x": 2}, version)
    assert asked(postgres, schema) == 3
    assert store.get("k") == ({"x": 2}, version)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("53100", "the server's disk is full: make room"),
        ("25006", "it is a standby, or read-only. Set the primary"),
        ("42501", "grant this user select, insert, update and delete on sinksdk_records"),
        ("XX001", "look the error up in PostgreSQL's manual"),
    ],
)
def test_permanent_errors_are_raised_at_once(
    postgres: PostgresServer, schema: str, store: SqlStore, state: str, words: str
) -> None:
    version = store.put("k", {"x": 1}, None)
    answering(postgres, schema, state, times=100)
    with pytest.raises(StoreRefused, match=f"cannot be used: spoiled by the test.*{words}"):
        store.put("k", {"x": 2}, version)
    assert asked(postgres, schema) == 1
    assert store.get("k") == ({"x": 1}, version)


def test_too_many_connections_are_retried(postgres: PostgresServer, schema: str, store: SqlStore) -> None:
    version = store.put("k", {"x": 1}, None)
    store.close()
    with session(postgres, schema) as other:
        taken = [other]
        try:
            while True:
                taken.append(postgres.connect())
        except psycopg.OperationalError as error:
            assert "too many clients" in str(error)  # noqa: PT017 - the loop ends here
        before = time.monotonic()
        threading.Timer(0.5, lambda: [connection.close() for connection in taken[1:]]).start()
        assert store.get("k") == ({"x": 1}, version)
        assert time.monotonic() - before > 0.4


# -- opening -----------------------------------------------------------------------------------------


def test_opening_creates_nothing(postgres: PostgresServer, schema: str) -> None:
    with pytest.raises(ConfigException, match="does not exist: the database has no table sinksdk_records"):
        open_store(postgres.url(schema))
    with session(postgres, schema) as other:
        assert other.execute("SELECT to_regclass('sinksdk_records')").fetchone() == (None,)


def test_plain_postgresql_urls_are_accepted(postgres: PostgresServer, schema: str, store: SqlStore) -> None:
    # The scheme names no driver: the store chooses psycopg.
    store.put("k", {"x": 1}, None)
    url = postgres.url(schema)
    assert url.startswith("postgresql://")
    for each in (url, open_store(url).url):
        assert open_store(each).get("k").value == {"x": 1}


def test_a_missing_database_is_reported(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql, "_OPENING", 300.0)
    before = time.monotonic()
    with pytest.raises(
        ConfigException, match=r'cannot be opened: .*"nowhere" does not exist; create the database'
    ):
        sql_store(postgres.url(database="nowhere"), create=True, patience=300.0)
    assert time.monotonic() - before < 30.0


def test_a_wrong_password_is_reported(postgres: PostgresServer) -> None:
    with postgres.password_required("somebody", "right"), pytest.raises(ConfigException) as caught:
        open_store(f"postgresql://somebody:wrong@127.0.0.1:{postgres.port}/postgres", create=True)
    assert "correct user and password in the store's URL" in str(caught.value)
    assert "wrong" not in str(caught.value)


def test_a_password_may_be_a_reference(
    postgres: PostgresServer, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORE_PASSWORD", "p@ss/w:rd?&=%41+#")
    with postgres.password_required("somebody", "p@ss/w:rd?&=%41+#"):
        url = postgres.url(schema).replace("//sinksdk@", "//somebody:${env:STORE_PASSWORD}@")
        with session(postgres, schema) as other:
            other.execute(f'GRANT ALL ON SCHEMA "{schema}" TO somebody')
        opened = open_store(url, create=True)
        assert identify(opened)
        opened.close()
        with session(postgres, schema) as other:
            other.execute(f'DROP SCHEMA "{schema}" CASCADE')


def test_a_user_without_create_permission_is_reported(postgres: PostgresServer, schema: str) -> None:
    # A table that another user has created is enough.
    url = postgres.url(schema).replace("//sinksdk@", "//guest@")
    with session(postgres, schema) as other:
        other.execute("CREATE ROLE guest LOGIN")
        other.execute(f'GRANT USAGE ON SCHEMA "{schema}" TO guest')
        with pytest.raises(ConfigException, match=r"permission denied for schema .*; grant this user"):
            open_store(url, create=True)
        sql_store(postgres.url(schema), create=True).close()
        other.execute(f'GRANT SELECT, INSERT, UPDATE, DELETE ON "{schema}".sinksdk_records TO guest')
        opened = open_store(url, create=True)
        opened.put("k", {"x": 1}, None)
        opened.close()
        other.execute("DROP OWNED BY guest")
        other.execute("DROP ROLE guest")


def test_a_standby_is_refused(postgres: PostgresServer, schema: str, store: SqlStore) -> None:
    # A driver needs a server that accepts writes, even if the store exists already.
    with session(postgres, schema) as other:
        other.execute("CREATE ROLE reader LOGIN")
        other.execute("ALTER ROLE reader SET default_transaction_read_only = on")
        other.execute(f'GRANT USAGE ON SCHEMA "{schema}" TO reader')
        other.execute("GRANT ALL ON sinksdk_records TO reader")
    url = postgres.url(schema).replace("//sinksdk@", "//reader@")
    with pytest.raises(ConfigException, match="read-only transaction; this server refuses writes"):
        open_store(url, create=True)
    with session(postgres, schema) as other:
        other.execute("DROP OWNED BY reader")
        other.execute("DROP ROLE reader")


def test_an_unreachable_server_is_reported() -> None:
    # An operator at a terminal does not wait long.
    with pytest.raises(StoreUnavailable, match=r"opening it got no response for 0\.3 s: .*127\.0\.0\.1"):
        sql_store("postgresql://127.0.0.1:9/db", create=True, patience=0.3)


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


def test_processes_may_create_the_store_at_the_same_time(postgres: PostgresServer, schema: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", CREATE, postgres.url(schema)],
        check=True,
        timeout=60,
        stdout=subprocess.PIPE,
        text=True,
    )
    answers = ran.stdout.split()
    assert len(answers) == 6
    assert len(set(answers)) == 1
