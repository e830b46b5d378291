from __future__ import annotations

import re
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sinksdk import TopicPartition, committed_offsets
from sinksdk.topics.directory import write_records
from tests.integration.served import Server, serving

pytestmark = [pytest.mark.extended, pytest.mark.spark, pytest.mark.slow]

MANY = 20
RECORDS = 100
QUICK = 0.5  # seconds, on a machine that runs other tests as well


def produce(folder: Path, topic: str, first: int = 0, records: int = RECORDS) -> None:
    offsets = np.arange(first, first + records)
    table = pa.table(
        {
            "key": pa.nulls(records, pa.binary()),
            "value": pa.array([b"%d" % offset for offset in offsets], pa.binary()),
            "offset": offsets,
            "timestamp": pa.array(1_700_000_000_000 + offsets, pa.timestamp("ms", tz="UTC")),
        }
    )
    write_records(folder / "topics", TopicPartition(topic, 0), table)


def lines_of(folder: Path, topic: str) -> dict[str, Any]:
    return {
        "connector.class": "tests.integration.line_sink:LineSink",
        "topics": topic,
        "tasks.max": 1,
        "out.folder": str(folder / "out"),
        "batch.size": 10,
        "closing.poll.ms": 100,
    }


def hanging(folder: Path, where: str) -> dict[str, Any]:
    return {
        "connector.class": "tests.integration.hanging_sink:HangingSink",
        "topics": "busy",
        "tasks.max": 1,
        "hangs.in": where,
        "calls.file": str(folder / f"{where}.calls"),
        "closing.poll.ms": 100,
        "task.hang.timeout.ms": 2_000,
        "task.shutdown.graceful.timeout.ms": 1_000,
        "restart.max.attempts": 1,
    }


def waits(text: str, call: str) -> list[float]:
    return [
        float(found) for found in re.findall(rf"{re.escape(call)} has not returned for (\d+\.\d) s", text)
    ]


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    (tmp_path / "out").mkdir()
    for topic in ("busy", *(f"idle-{number}" for number in range(MANY - 1))):
        produce(tmp_path, topic)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    source = ["--topic-directory", str(tmp_path / "topics")]
    with serving(tmp_path, source, f"sqlite:///{tmp_path}/store.sqlite") as made:
        yield made


def create(server: Server, name: str, config: dict[str, Any]) -> None:
    server.ask("POST", "/connectors", 201, json={"name": name, "config": config})


def committed(folder: Path, connector: str) -> int:
    found = committed_offsets(f"sqlite:///{folder}/store.sqlite", connector).values()
    return sum(offset.offset for offset in found)


@pytest.mark.nightly
def test_rest_requests_are_fast_with_many_connectors(server: Server, tmp_path: Path) -> None:
    for number in range(MANY - 1):
        create(server, f"idle-{number}", lines_of(tmp_path, f"idle-{number}"))
    create(server, "busy", {**lines_of(tmp_path, "busy"), "pause.seconds": 0.05})
    names = server.ask("GET", "/connectors", 200)
    assert len(names) == MANY
    server.until(lambda: all(committed(tmp_path, name) == RECORDS for name in names), "all caught up", 120)

    calls: dict[str, list[float]] = {}

    def timed(method: str, path: str, code: int, **body: Any) -> None:
        began = time.perf_counter()
        server.ask(method, path, code, **body)
        calls.setdefault(f"{method} {path.replace('idle-3', '{name}')}", []).append(
            time.perf_counter() - began
        )

    for turn in range(15):
        # With more records, a generation runs nearly all the time.
        produce(tmp_path, "busy", RECORDS * (turn + 1))
        timed("GET", "/connectors", 200)
        timed("GET", "/connectors?expand=status&expand=info", 200)
        timed("GET", "/connectors/idle-3/status", 200)
        timed("PUT", "/connectors/idle-3/pause", 202)
        timed("PUT", "/connectors/idle-3/resume", 202)
        timed("POST", "/connectors/idle-3/restart", 204)
        timed("PUT", "/connectors/idle-3/config", 200, json=lines_of(tmp_path, "idle-3"))
    medians = {call: statistics.median(seconds) for call, seconds in calls.items()}
    print("\n".join(f"{median * 1000:7.1f} ms  {call}" for call, median in sorted(medians.items())))
    assert all(median < QUICK for median in medians.values()), medians
    server.until(lambda: committed(tmp_path, "busy") == 16 * RECORDS, "the busy one has caught up")
    took = server.until(lambda: server.state("idle-3") == "RUNNING", "it runs")
    assert took < 30
    server.ask("PUT", "/connectors/idle-5/pause", 202)
    assert server.until(lambda: server.state("idle-5") == "PAUSED", "it is paused") < 10
    assert server.stop() == 0


def test_a_hanging_connector_does_not_block_others(server: Server, tmp_path: Path) -> None:
    create(server, "well", lines_of(tmp_path, "idle-0"))
    server.until(lambda: committed(tmp_path, "well") == RECORDS, "the one that does not hang is caught up")

    create(server, "start", {**hanging(tmp_path, "start"), "connector.start.timeout.ms": 3_000})
    server.until(lambda: server.state("start") == "FAILED", "the one that hangs in start has FAILED")
    trace = server.status("start")["connector"]["trace"]
    assert max(waits(trace, "start")) >= 3
    assert "for_ever()" in trace

    # RESTARTING lasts as long as the backoff: long enough for a slow client to see it.
    create(server, "put", {**hanging(tmp_path, "put"), "restart.backoff.ms": 8_000})
    server.until(lambda: server.task_states("put") == {"RESTARTING"}, "its task was cut off, and waits")
    produce(tmp_path, "idle-0", RECORDS)
    server.until(lambda: committed(tmp_path, "well") == 2 * RECORDS, "the other one goes on meanwhile")
    server.until(lambda: server.state("put") == "FAILED", "the one that hangs in put has FAILED")
    (task,) = server.status("put")["tasks"]
    assert task["state"] == "FAILED"
    assert "its code has not returned for" in task["trace"]
    assert "for_ever()" in task["trace"]

    create(server, "stop", hanging(tmp_path, "stop"))
    server.until(lambda: server.state("stop") == "RUNNING", "it runs")
    began = time.monotonic()
    server.ask("DELETE", "/connectors/stop", 204)
    server.until(lambda: "stop" not in server.ask("GET", "/connectors", 200), "it is deleted")
    assert time.monotonic() - began >= 5
    assert (tmp_path / "stop.calls").read_text() == "stop True\n"
    assert any(
        line["level"] == "ERROR"
        and line["connector"] == "stop"
        and any(seconds >= 5 for seconds in waits(line["message"], "stop(is_deleted=True)"))
        for line in server.lines()
    )

    produce(tmp_path, "idle-0", 2 * RECORDS)
    server.until(lambda: committed(tmp_path, "well") == 3 * RECORDS, "the other one still goes on")
    for name in ("start", "put", "well"):
        server.ask("DELETE", f"/connectors/{name}", 204)
    server.until(lambda: server.ask("GET", "/connectors", 200) == [], "all are deleted", 40)
    assert server.stop() == 0
