"""A source that counts and holds a transaction open on request, for tests that freeze its tasks.

Three shares are counted by as many tasks as there are. Tasks are processes of their own and communicate by
files: ``<share>.pid`` has the process that reads a share, ``<share>.committed`` the number up to which a
commit was reported. ``<share>.hold`` makes the task send one more batch and wait until the file is removed;
``<share>.held`` says that it waits, and up to which number it has sent. ``<share>.stopped`` has the process
whose task stopped last.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pydantic import Field

from sinksdk.source import (
    ConnectorTransactionBoundaries,
    SourceConnector,
    SourceConnectorConfig,
    SourceRecord,
    SourceTask,
)

SHARES = 3
_BATCH = 10


class HeldConfig(SourceConnectorConfig):
    folder: Path = Field(description="Where the files are.")
    topic: str = Field(description="Where numbers go.")
    shares: str = Field(default="", description="Which shares a task counts.")
    spread: int = Field(default=0, description="Over how many partitions of its own a held batch goes.")


class HeldTask(SourceTask):
    def start(self, config: HeldConfig) -> None:
        self.config, self.stopping = config, threading.Event()
        self.shares = [int(share) for share in config.shares.split()]
        found = self.context.offset_storage_reader().offsets([{"share": share} for share in self.shares])
        self.next = {
            share: int(offset["next"]) if offset else 0  # type: ignore[arg-type]  # a number
            for share, offset in zip(self.shares, found, strict=True)
        }
        self.held: int | None = None
        for share in self.shares:
            self.tell(share, "pid", os.getpid())

    def poll(self) -> Sequence[SourceRecord]:
        if self.held is not None:
            self.tell(self.held, "held", self.next[self.held])
            while self.file(self.held, "hold").exists() and not self.stopping.wait(0.02):
                pass
            self.commit_now()
            return ()
        self.stopping.wait(0.02)
        self.held = next((share for share in self.shares if self.file(share, "hold").exists()), None)
        if self.held is not None:
            return list(self.batch(self.held, max(self.config.spread, _BATCH)))
        self.commit_now()
        return [record for share in self.shares for record in self.batch(share, _BATCH)]

    def commit_now(self) -> None:
        transactions = self.context.transaction_context()
        assert transactions is not None
        transactions.commit_transaction()

    def batch(self, share: int, size: int) -> Iterator[SourceRecord]:
        for number in range(self.next[share], self.next[share] + size):
            spread = self.config.spread if self.held is not None else 0
            place = SHARES + share * spread + number % spread if spread else share
            value = b"%d %d %d" % (share, number, os.getpid())
            yield SourceRecord(
                {"share": share}, {"next": number + 1}, self.config.topic, value, partition=place
            )
        self.next[share] += size

    def commit(self) -> None:
        for share in self.shares:
            self.tell(share, "committed", self.next[share])

    def stop(self) -> None:
        self.stopping.set()

    def stopped(self) -> None:
        for share in self.shares:
            self.tell(share, "stopped", os.getpid())

    def file(self, share: int, what: str) -> Path:
        return self.config.folder / f"{share}.{what}"

    def tell(self, share: int, what: str, number: int) -> None:
        fresh = self.file(share, f"{what}.new")
        fresh.write_text(str(number))
        fresh.replace(self.file(share, what))


class HeldSource(SourceConnector):
    # The only task of a share does not poll for close requests, so that it wakes up without knowing that it
    # was replaced.
    config_class, task_class = HeldConfig, HeldTask

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        shares = [list(range(task, SHARES, max_tasks)) for task in range(max_tasks)]
        return [
            {
                "shares": " ".join(map(str, mine)),
                "closing.poll.ms": "600000" if max_tasks == SHARES and mine != [0] else "100",
            }
            for mine in shares
        ]

    def can_define_transaction_boundaries(self, config: HeldConfig) -> ConnectorTransactionBoundaries:
        return ConnectorTransactionBoundaries.SUPPORTED
