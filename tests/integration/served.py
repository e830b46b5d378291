"""``sinksdk server`` as a process, and a client of it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.helpers.ports import free_port

PATIENCE = 60.0  # seconds
_ROOT = Path(__file__).parents[2]


class Server:
    """A server that runs in a folder.

    Args:
        folder: the working directory, which gets the log.
        source: options that name the source.
        store: the store's URL.
        options: further options.
        probe: the path that answers 200 once the server is up; ``/live`` where its store may be
            unavailable.
    """

    def __init__(
        self, folder: Path, source: Sequence[str], store: str, *options: str, probe: str = "/health"
    ) -> None:
        self.port = free_port()
        self.log = folder / "server.log"
        command = [sys.executable, "-m", "sinksdk", "server", *source, "--store", store]
        command += ["--master", "local[2]", "--port", str(self.port), "--log-format", "json", *options]
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                command, cwd=folder, stdout=subprocess.DEVNULL, stderr=log, start_new_session=True
            )
        self.url = f"http://127.0.0.1:{self.port}"
        # The server closes idle connections, perhaps just when a request is on its way.
        limits = httpx.Limits(max_keepalive_connections=0)
        self.client = httpx.Client(base_url=self.url, timeout=60, limits=limits)
        self._probe = probe
        self.until(self.is_up, "it answers")

    def is_up(self) -> bool:
        try:
            return self.client.get(self._probe).status_code == 200
        except httpx.TransportError:
            return False

    def until(self, condition: Callable[[], bool], what: str, patience: float = PATIENCE) -> float:
        began = time.monotonic()
        while not condition():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < began + patience, f"not within {patience:g} s: {what}"
            time.sleep(0.1)
        return time.monotonic() - began

    def ask(self, method: str, path: str, code: int, **body: Any) -> Any:
        answer = self.client.request(method, path, **body)
        assert answer.status_code == code, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def status(self, connector: str = "archive") -> Any:
        return self.ask("GET", f"/connectors/{connector}/status", 200)

    def state(self, connector: str = "archive") -> str:
        state: str = self.status(connector)["connector"]["state"]
        return state

    def task_states(self, connector: str = "archive") -> set[str]:
        return {task["state"] for task in self.status(connector)["tasks"]}

    def lines(self) -> list[dict[str, Any]]:
        found = [line for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [json.loads(line) for line in found]

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)


@contextmanager
def serving(folder: Path, source: Sequence[str], store: str, *options: str) -> Iterator[Server]:
    made = Server(folder, source, store, *options)
    try:
        yield made
    finally:
        made.client.close()
        if made.process.poll() is None:
            made.process.kill()
            made.process.wait()
