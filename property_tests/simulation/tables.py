"""A source of growing tables, with a connector and tasks that check how they are called."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from pydantic import Field

from property_tests.simulation.threads import SimulatedFlag
from property_tests.simulation.world import Process, World
from sinksdk import ConnectException, RetriableException
from sinksdk.source import (
    SourceConnector,
    SourceConnectorConfig,
    SourceRecord,
    SourceTask,
    SourceTaskContext,
)

GROUP: Final = 3
TOPIC: Final = "rows"
PARTITIONS: Final = 2


class Tables:
    current: ClassVar[Tables]

    def __init__(self, world: World, count: int) -> None:
        Tables.current = self
        self.world = world
        self.lengths: dict[str, int] = {f"table{number}": 0 for number in range(count)}
        self.trouble = 0.0
        self.tasks: list[TablesTask] = []
        self.watching: dict[Process, TablesConnector] = {}

    def grow(self, table: str, groups: int) -> None:
        self.lengths[table] += groups * GROUP

    def add(self) -> None:
        self.lengths[f"table{len(self.lengths)}"] = GROUP


def is_taken_back(row: int) -> bool:
    # A task that defines its own transactions aborts the transaction of each fourth group of rows.
    return row // GROUP % 4 == 3


class TablesConfig(SourceConnectorConfig):
    tables: str = Field(default="", description="Which tables, separated by commas.")

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> TablesConfig:  # type: ignore[override] # of no other class
        # The parsed texts are cached, because parsing took half of a simulated task's time.
        return _parsed(tuple(sorted(raw.items())))


@functools.cache
def _parsed(items: tuple[tuple[str, Any], ...]) -> TablesConfig:
    return super(TablesConfig, TablesConfig).parse(dict(items))


class TablesTask(SourceTask):
    def __init__(self) -> None:
        self._source = Tables.current
        self._world = self._source.world
        self._stopping = SimulatedFlag(self._world)
        self.process: Process = self._world.current.threads[0]
        self.calls: list[str] = []
        self._source.tasks.append(self)

    def initialize(self, context: SourceTaskContext) -> None:
        self._called("initialize")
        super().initialize(context)

    def start(self, config: TablesConfig) -> None:
        self._called("start")
        tables = config.tables.split(",")
        self._maybe_fail("start")
        partitions = [{"table": table} for table in tables]
        read = self.context.offset_storage_reader().offsets(partitions)
        self._next = {
            table: int(str(offset["row"])) if offset else 0
            for table, offset in zip(tables, read, strict=True)
        }
        self._asks = self.context.transaction_context()

    def poll(self) -> Sequence[SourceRecord] | None:
        self._called("poll")
        dice = self._world.dice
        self._maybe_fail("poll")
        if self._source.trouble and dice.random() < 0.005:
            self._world.happened["poll that hangs"] += 1
            self._world.sleep(dice.choice((10.0, 100.0)))
        if self._stopping.wait(dice.choice((0.0, 0.1, 0.1, 0.5))):
            return None
        table = self._with_news()
        if table is None:
            self._stopping.wait(dice.choice((0.5, 3.0)))
            return None
        first, group_ends = self._next[table], self._next[table] // GROUP * GROUP + GROUP
        end = group_ends if self._asks is not None else self._source.lengths[table]
        records = [
            _record(self.process, table, row)
            for row in range(first, min(first + dice.choice((1, 2, 5)), end))
        ]
        self._next[table] = first + len(records)
        if self._asks is not None and self._next[table] == group_ends:
            if is_taken_back(first):
                self._asks.abort_transaction(records[-1])
            else:
                self._asks.commit_transaction(records[-1])
        return records

    def commit(self) -> None:
        self._called("commit")

    def commit_record(self, record: SourceRecord, metadata: object) -> None:
        self._called("commit_record")

    def stop(self) -> None:
        self._expect("stop" not in self.calls, "stop for the second time")
        self._called("stop")
        self._stopping.set()

    def stopped(self) -> None:
        self._expect("stop" in self.calls, "stopped without stop")
        self._called("stopped")

    def _with_news(self) -> str | None:
        open_ = [table for table, row in self._next.items() if row % GROUP]
        if open_ and self._asks is not None:
            return open_[0]
        new = [table for table, row in self._next.items() if row < self._source.lengths[table]]
        return self._world.dice.choice(new) if new else None

    def _maybe_fail(self, what: str) -> None:
        dice = self._world.dice
        if self._source.trouble and dice.random() < self._source.trouble:
            self._world.happened[f"{what} fails"] += 1
            if what == "poll" and dice.random() < 0.5:
                message = "the source does not answer"
                raise RetriableException(message)
            message = f"{what}: the source is broken"
            raise ConnectException(message)

    def _called(self, what: str) -> None:
        self._expect("stopped" not in self.calls, f"{what} after stopped")
        if not self.calls or self.calls[-1] != what:
            self.calls.append(what)

    def _expect(self, holds: bool, what: str) -> None:
        if not holds and self.process.is_alive:
            self._world.violation(f"{self.process.name}: {what}")


def _record(process: Process, table: str, row: int) -> SourceRecord:
    return SourceRecord(
        {"table": table},
        {"row": row + 1},
        TOPIC,
        b"%s:%d" % (table.encode(), row),
        key=process.name.encode(),
        partition=int(table.removeprefix("table")) % PARTITIONS,
    )


class TablesConnector(SourceConnector):
    config_class: ClassVar[type[SourceConnectorConfig]] = TablesConfig
    task_class: ClassVar[type[SourceTask]] = TablesTask

    def start(self, config: Any) -> None:
        Tables.current.watching[Tables.current.world.current.threads[0]] = self

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        tables = list(Tables.current.lengths)
        tasks = min(max_tasks, len(tables))
        shares = [tables[(task + len(tables)) % tasks :: tasks] for task in range(tasks)]
        return [{"tables": ",".join(share)} for share in shares]
