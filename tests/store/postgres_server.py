"""A PostgreSQL server of the tests: Debian's programs, a temporary folder, the loopback interface."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import psycopg.sql

from tests.helpers.needs import missing
from tests.helpers.ports import free_port

USER = "sinksdk"
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "30",
    # A session checks for a deadlock once, after this time: a test's other session must wait by then.
    "deadlock_timeout": "2s",
    "lc_messages": "C",
    "logging_collector": "off",
}


@dataclass
class PostgresServer:
    port: int
    data: Path

    def url(self, schema: str | None = None, *, port: int | None = None, database: str = "postgres") -> str:
        url = f"postgresql://{USER}@127.0.0.1:{port or self.port}/{database}"
        if schema is None:
            return url
        with self.connect() as connection:
            connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
        return f"{url}?options=-csearch_path%3D{schema}"

    def connect(self, schema: str = "public") -> psycopg.Connection:
        return psycopg.connect(
            host="127.0.0.1",
            port=self.port,
            user=USER,
            dbname="postgres",
            autocommit=True,
            options=f"-csearch_path={schema}",
        )

    @contextmanager
    def password_required(self, user: str, password: str) -> Iterator[None]:
        rules = self.data / "pg_hba.conf"
        before = rules.read_text()
        with self.connect() as connection:
            connection.execute(
                psycopg.sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(
                    psycopg.sql.Identifier(user), psycopg.sql.Literal(password)
                )
            )
            try:
                rules.write_text(f"host all {user} 127.0.0.1/32 scram-sha-256\n{before}")
                connection.execute("SELECT pg_reload_conf()")
                yield
            finally:
                rules.write_text(before)
                connection.execute("SELECT pg_reload_conf()")
                connection.execute(f"DROP OWNED BY {user}")
                connection.execute(f"DROP ROLE {user}")


@contextmanager
def serving() -> Iterator[PostgresServer]:
    programs = _programs()
    folder = Path(tempfile.mkdtemp(prefix="postgres-"))
    try:
        user = _as_somebody(folder)
        data = folder / "data"
        _run(
            [*user, str(programs / "initdb"), "-D", str(data), "-U", USER, "-A", "trust", "-N", "-E", "UTF8"]
        )
        port = free_port()
        settings = [f"-c{name}={value}" for name, value in {**_SETTINGS, "port": str(port)}.items()]
        log = folder / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*user, str(programs / "postgres"), "-D", str(data), *settings],
                stdout=output,
                stderr=output,
                cwd=folder,
            )
        try:
            server = PostgresServer(port, data)
            _await(server, process, log)
            yield server
        finally:
            process.send_signal(signal.SIGINT)  # ends sessions, then the server
            process.wait(timeout=30)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _programs() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[4]))
    if not found:
        missing("PostgreSQL", "install it, on Debian with apt-get install postgresql")
    return found[-1].parent


def _as_somebody(folder: Path) -> Sequence[str]:
    # PostgreSQL refuses to run as root. The returned arguments run a command as another user.
    if os.geteuid() != 0:
        return ()
    shutil.chown(folder, "nobody")
    return ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups")


def _run(command: Sequence[str]) -> None:
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd="/")
    if ran.returncode:
        message = f"{' '.join(command)}, run by {getpass.getuser()}, failed: {ran.stdout}{ran.stderr}"
        raise RuntimeError(message)


def _await(server: PostgresServer, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            server.connect().close()
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > deadline:
                message = f"PostgreSQL did not start: {log.read_text()}"
                raise RuntimeError(message) from None
            time.sleep(0.05)
        else:
            return
