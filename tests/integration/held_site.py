"""Drivers, as processes, of the source that holds transactions open."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.integration.archive_site import ended
from tests.integration.freezing import Pids, cleared_away, freeze, is_frozen
from tests.integration.held_source import SHARES

# With two tasks, task 1 exists but task 2 does not.
FROZEN = (1, 2)
_FENCED = 3
_PATIENCE = 180.0  # seconds: five JVMs start slowly on a busy machine
_ROOT = Path(__file__).parents[2]


class HeldSite:
    def __init__(self, folder: Path, where: Sequence[str], topic: str, **settings: object) -> None:
        self.folder = folder
        self.store_file = folder / "store.sqlite"
        self._where = where
        self._settings = {"topic": topic, **settings}
        self._config = folder / "numbers.json"
        self._started: list[subprocess.Popen[str]] = []
        self.configure(tasks=SHARES)

    def configure(self, *, tasks: int) -> None:
        config = {
            "connector.class": "tests.integration.held_source:HeldSource",
            "tasks.max": tasks,
            "folder": str(self.folder),
            "transaction.boundary": "connector",
            "task.shutdown.graceful.timeout.ms": 3_000,
            **self._settings,
        }
        self._config.write_text(json.dumps({"name": "numbers", "config": config}))

    def start(self, master: str) -> subprocess.Popen[str]:
        with self._log(len(self._started)).open("w") as log:
            driver = subprocess.Popen(
                [*self._command("run", str(self._config)), *self._where, "--master", master],
                cwd=_ROOT,
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        self._started.append(driver)
        return driver

    def reconfigure(self, *, tasks: int) -> None:
        self.configure(tasks=tasks)
        command = self._command("config", "set", "numbers", str(self._config))
        subprocess.run(command, cwd=_ROOT, check=True, timeout=60, stdout=subprocess.DEVNULL)

    def printed(self, driver: subprocess.Popen[str]) -> str:
        return self._log(self._started.index(driver)).read_text()

    def finish(self, driver: subprocess.Popen[str]) -> None:
        driver.send_signal(signal.SIGTERM)
        code, _ = ended(driver)
        assert code == 0, self.printed(driver)

    def expect_replaced(self, driver: subprocess.Popen[str]) -> None:
        code, _ = ended(driver)
        assert code == _FENCED, self.printed(driver)

    def said(self, share: int, what: str) -> int:
        path = self.folder / f"{share}.{what}"
        return int(path.read_text()) if path.exists() else -1

    def wait(self, condition: Callable[[], bool], driver: subprocess.Popen[str], what: str) -> None:
        deadline = time.monotonic() + _PATIENCE
        while not condition():
            assert driver.poll() is None, f"it ended before {what}:\n{self.printed(driver)}"
            assert time.monotonic() < deadline, f"never came: {what}\n{self.printed(driver)}"
            time.sleep(0.005)

    # -- the story ---------------------------------------------------------------------------------

    def run_until_held(self, driver: subprocess.Popen[str]) -> Mapping[int, Transaction]:
        self.wait(
            lambda: min(self.said(share, "committed") for share in range(SHARES)) > 50,
            driver,
            "all tasks have committed",
        )
        for share in FROZEN:
            (self.folder / f"{share}.hold").touch()
        self.wait(lambda: min(self.said(share, "held") for share in FROZEN) > 0, driver, "two tasks hold")
        return {share: Transaction(self, share) for share in FROZEN}

    def release(self) -> None:
        for share in FROZEN:
            (self.folder / f"{share}.hold").unlink()

    def freeze(self, pids: Pids) -> list[int]:
        return freeze(self.store_file, pids)

    def await_successors(
        self, driver: subprocess.Popen[str], held: Mapping[int, Transaction], frozen: Sequence[int]
    ) -> None:
        def have_committed() -> bool:
            return all(
                self.said(share, "pid") != transaction.worker
                and self.said(share, "committed") > transaction.numbers.stop
                for share, transaction in held.items()
            )

        self.wait(have_committed, driver, "successors have committed")
        assert all(map(is_frozen, frozen))

    def await_ends(self, driver: subprocess.Popen[str], held: Mapping[int, Transaction]) -> None:
        self.wait(
            lambda: all(self.said(share, "stopped") == held[share].worker for share in held),
            driver,
            "those who woke up have ended",
        )

    def _log(self, number: int) -> Path:
        return self.folder / f"driver-{number}.log"

    def _command(self, *what: str) -> list[str]:
        return [sys.executable, "-m", "sinksdk", *what, "--store", f"sqlite:///{self.store_file}"]


class Transaction:
    def __init__(self, site: HeldSite, share: int) -> None:
        self.worker = site.said(share, "pid")
        """The process that holds the transaction open."""
        self.numbers = range(site.said(share, "committed"), site.said(share, "held"))
        """The numbers that the transaction contains."""
        self.values = {b"%d %d %d" % (share, number, self.worker) for number in self.numbers}
        """The values of its records; no other transaction has the same ones."""
        assert self.numbers


def output_of(worker: int) -> Path:
    return Path(f"/proc/{worker}/cwd").readlink() / "stderr"


def says_fenced(task: int, log: str) -> bool:
    return any(f"[numbers|task-{task}|" in line and "was fenced" in line for line in log.splitlines())


def all_of(groups: Collection[Pids]) -> Pids:
    return lambda: [pid for group in groups for pid in group()]


def expect_each_once(values: Sequence[bytes]) -> None:
    found: dict[int, list[int]] = {share: [] for share in range(SHARES)}
    for value in values:
        share, number, _ = map(int, value.split())
        found[share].append(number)
    for share, numbers in found.items():
        twice = [number for number, times in Counter(numbers).items() if times > 1]
        assert not twice, f"share {share}: {twice}"
        assert set(numbers) == set(range(len(numbers))), f"share {share} has gaps"


@contextmanager
def held_site(folder: Path, where: Sequence[str], topic: str, **settings: object) -> Iterator[HeldSite]:
    site = HeldSite(folder, where, topic, **settings)
    with cleared_away(site._started):
        yield site
