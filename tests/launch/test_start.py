"""sinksdk.run and sinksdk.start with a fake Spark."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pytest
from pyspark import SparkContext

import sinksdk
from sinksdk import (
    ClosingReason,
    ConfigException,
    ConnectorConfig,
    FencedException,
    OffsetAndMetadata,
    RetriableException,
    SinkRecords,
    TopicPartition,
)
from sinksdk.launch import running
from sinksdk.launch.deployment import PreparedConnector, check_and_prepare
from sinksdk.launch.signals import ClosingSignals
from sinksdk.store import Store, StoreUnavailable, take_over
from sinksdk.store.ledger import current_plan
from sinksdk.store.records import GenerationPlan
from sinksdk.topics import write_records
from tests.runtime.running_sinks import RAW, InProcess, Task

P0 = TopicPartition("t", 0)
RECORDS, HALF = 10, 6


class FakeSpark:
    made: FakeSpark
    launches: Callable[[Store], Any]

    def __init__(self, deployment: Any, name: str, **options: Any) -> None:
        FakeSpark.made = self
        self.store = deployment.store
        self.has_ended = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.has_ended = True

    def check(self, ready: Any) -> None:
        pass

    def launcher(self, ready: Any) -> Any:
        return FakeSpark.launches(self.store)


class Reading:
    """A generation that has read everything, and commits half of it when it is closed."""

    launched: threading.Event
    asked: ClosingReason | None = None

    def __init__(self, store: Store, plan: GenerationPlan | None = None) -> None:
        self.store = store
        self.plan = plan

    def launch(self, plan: GenerationPlan) -> Reading:
        Reading.launched.set()
        return Reading(self.store, plan)

    def wait(self, timeout: float) -> bool:
        assert self.plan is not None
        generation = self.plan.generation
        now = current_plan(self.store, "c", generation)
        if now is not None and now.closing is None:
            time.sleep(timeout)
            return False
        Reading.asked = now.closing.reason if now is not None and now.closing is not None else None
        taken = take_over(self.store, "c", generation, 0)
        if taken is not None:
            taken.ledger.commit({P0: OffsetAndMetadata(HALF)})
        return True

    def results(self) -> Sequence[Any]:
        return ()

    def cancel(self) -> None:
        pass


@pytest.fixture(autouse=True)
def _fake_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    # An earlier test may have left a Spark in this process.
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    FakeSpark.launches = lambda store: InProcess(store, Task)
    Reading.launched = threading.Event()
    monkeypatch.setattr(running, "SparkOnDemand", FakeSpark)


@pytest.fixture
def topics(tmp_path: Path) -> Path:
    rows = pa.table({"offset": range(RECORDS), "key": [b"k"] * RECORDS, "value": [b"v"] * RECORDS})
    write_records(tmp_path / "topics", P0, rows)
    return tmp_path / "topics"


@pytest.fixture
def where(topics: Path, tmp_path: Path) -> dict[str, Any]:
    return {"source": str(topics), "store": f"sqlite:///{tmp_path}/store.sqlite", "master": "local[1]"}


@pytest.fixture
def reading(where: dict[str, Any]) -> Iterator[sinksdk.RunningConnector]:
    """Yield a connector that has read everything, and committed nothing yet."""
    FakeSpark.launches = Reading
    connector = sinksdk.start(RAW, **where)
    assert Reading.launched.wait(10)
    yield connector
    connector.close()
    with suppress(FencedException):  # the test itself claims the connector, which fences the driver
        assert connector.wait(10)


def committed(where: dict[str, Any]) -> int:
    return sinksdk.committed_offsets(where["store"], "c")[P0].offset


def test_run_returns_committed_records_by_partition(where: dict[str, Any]) -> None:
    summary = sinksdk.run(RAW, **where, until_caught_up=True)

    assert (summary.records, summary.partitions, summary.signal) == (RECORDS, {P0: RECORDS}, None)
    assert (summary.files, summary.transactions) == (None, None)
    assert committed(where) == RECORDS
    assert FakeSpark.made.has_ended


def test_summary_has_files_if_the_connector_counts_them(
    where: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def put(self: Task, records: SinkRecords) -> None:
        self.context.count(records.partition, files=2, bytes=7)

    monkeypatch.setattr(Task, "put", put)
    summary = sinksdk.run(RAW, **where, until_caught_up=True)

    assert (summary.files, summary.size) == (2, 7)


@pytest.mark.parametrize(
    "written",
    [
        {"name": "c", "config": {**RAW, "tasks.max": 1, "offset.mirror": False}},
        '{"name": "c", "topics": "t", "connector.class": "tests.runtime.running_sinks:Connector"}',
        {**RAW, "_comment": None},
    ],
)
def test_start_accepts_any_form_of_connects_configurations(where: dict[str, Any], written: Any) -> None:
    assert sinksdk.run(written, **where, until_caught_up=True).records == RECORDS


def test_start_accepts_the_path_of_a_configuration_file(where: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "c.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in RAW.items()))

    assert sinksdk.run(str(path), **where, until_caught_up=True).records == RECORDS
    assert sinksdk.run(path, **where, until_caught_up=True).records == 0


def test_close_does_not_delete_the_connector(reading: sinksdk.RunningConnector) -> None:
    # Regression: close(DELETE) let the connector clean up as if it were deleted.
    with pytest.raises(TypeError):
        reading.close(ClosingReason.DELETE)  # type: ignore[call-arg]
    reading.stop()

    assert Reading.asked is ClosingReason.SHUTDOWN


@pytest.mark.parametrize("enter", [sinksdk.run, sinksdk.start])
def test_start_reports_every_problem_at_once(enter: Callable[..., Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigException) as caught:
        enter(
            {**RAW, "tasks.max": [2], 7: "x"},
            source=str(tmp_path / "absent"),
            store="commits.sqlite",
            master="loca[2]",
            spark_conf={"x": "y"},
        )

    problems = "\n".join(caught.value.problems)
    for problem in (
        "'tasks.max' must be a string, a number or a boolean",
        "the key 7 must be a string",
        f"the topic directory {tmp_path / 'absent'} does not exist",
        "'commits.sqlite' is not the URL of a store; give one such as sqlite:///FILE",
        "the Spark master 'loca[2]' is not supported",
        "'x' is not a Spark setting",
    ):
        assert problem in problems
    assert not list(tmp_path.glob("*sqlite*"))


def test_start_reports_a_store_whose_folder_is_missing(where: dict[str, Any], tmp_path: Path) -> None:
    where["store"] = f"sqlite:///{tmp_path}/absent/store.sqlite"

    with pytest.raises(ConfigException, match=r"the folder .* does not exist"):
        sinksdk.start(RAW, **where)


def test_an_unavailable_store_is_raised_by_start_and_retried_by_run(
    where: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, away = running_prepare().open_store, [StoreUnavailable("no answer")] * 2

    def open_store(*arguments: Any, **options: Any) -> Store:
        if away:
            raise away.pop()
        return opened(*arguments, **options)

    monkeypatch.setattr(running_prepare(), "open_store", open_store)
    monkeypatch.setattr("sinksdk.runtime.backoff.Waits.failed", lambda *_, **__: (0.0, None))
    with pytest.raises(StoreUnavailable):
        sinksdk.start(RAW, **where)

    assert sinksdk.run(RAW, **where, until_caught_up=True).records == RECORDS
    assert not away


def running_prepare() -> Any:
    from sinksdk.launch import prepare  # noqa: PLC0415 - the module, whose functions are replaced

    return prepare


def test_warnings_are_logged(where: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    sinksdk.run({**RAW, "unknown.key": "x"}, **where, until_caught_up=True)

    assert "'unknown.key'" in caplog.text


# -- the handle --------------------------------------------------------------------------------------


def test_leaving_the_block_flushes_and_commits(where: dict[str, Any]) -> None:
    FakeSpark.launches = Reading
    with sinksdk.start(RAW, **where) as connector:
        assert Reading.launched.wait(10)
        assert connector.wait(timeout=0) is False

    assert committed(where) == HALF
    assert connector.wait(timeout=0) is True
    assert FakeSpark.made.has_ended
    assert connector.status().state == "UNASSIGNED"


def test_the_blocks_own_exception_is_raised(where: dict[str, Any]) -> None:
    FakeSpark.launches = Reading
    with pytest.raises(KeyError), sinksdk.start(RAW, **where):  # noqa: PT012 - the block is what is tested
        assert Reading.launched.wait(10)
        raise KeyError

    assert committed(where) == HALF


def test_a_rebalance_commits_and_starts_the_next_generation(
    where: dict[str, Any], reading: sinksdk.RunningConnector
) -> None:
    Reading.launched.clear()
    reading.rebalance()

    assert Reading.launched.wait(10)
    assert committed(where) == HALF
    assert reading.status().generation == 2


def test_a_flush_commits_available_records(where: dict[str, Any], reading: sinksdk.RunningConnector) -> None:
    Reading.launched.clear()
    reading.flush()

    assert Reading.launched.wait(10)
    assert committed(where) == HALF


def test_status_is_read_from_the_store_before_and_after_the_end(reading: sinksdk.RunningConnector) -> None:
    status = reading.status()

    assert (status.name, status.state, status.generation) == ("c", "RUNNING", 1)
    assert [(p.partition, p.end) for p in status.partitions] == [(P0, RECORDS)]
    reading.stop()
    assert (reading.status().state, reading.status().partitions[0].committed) == ("UNASSIGNED", HALF)


def test_a_failure_is_raised_by_wait_stop_and_the_block(
    where: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.runtime.running_sinks.Connector.start", refuse, raising=False)
    connector = sinksdk.start(RAW, **where)

    for ask in (connector.wait, connector.stop):
        with pytest.raises(ConfigException, match="no such bucket"):
            ask()
    with pytest.raises(ConfigException, match="no such bucket"), connector:
        pass
    with pytest.raises(ConfigException, match="no such bucket"):
        sinksdk.run(RAW, **where)


def test_a_retried_start_uses_a_new_connector(where: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    # The new connector gets the configuration as the user wrote it.
    begun: list[object] = []
    opened: list[dict[str, str]] = []

    def start(self: object, _: ConnectorConfig) -> None:
        begun.append(self)
        if len(begun) == 1:
            message = "the bucket is away"
            raise RetriableException(message)

    def open_again(topics: Any, raw: Mapping[str, str], providers: Any) -> PreparedConnector:
        opened.append(dict(raw))
        return check_and_prepare(topics, raw, providers)

    monkeypatch.setattr("tests.runtime.running_sinks.Connector.start", start, raising=False)
    monkeypatch.setattr("sinksdk.launch.deployment.check_and_prepare", open_again)
    monkeypatch.setattr("sinksdk.runtime.backoff.Waits.failed", lambda *_, **__: (0.0, None))

    assert sinksdk.run(RAW, **where, until_caught_up=True).records == RECORDS
    assert opened == [RAW]
    assert len(begun) == 2
    assert begun[0] is not begun[1]


def refuse(*_: Any) -> None:
    message = "no such bucket"
    raise ConfigException(message)


def test_a_second_start_fences_the_first(where: dict[str, Any], reading: sinksdk.RunningConnector) -> None:
    Reading.launched.clear()
    with sinksdk.start(RAW, **where) as second:
        assert Reading.launched.wait(30)
        with pytest.raises(FencedException):
            reading.wait(10)
        assert second.wait(0) is False

    assert second.wait(0) is True


def test_start_works_in_a_running_event_loop(where: dict[str, Any]) -> None:
    FakeSpark.launches = Reading

    async def cell() -> sinksdk.Summary:
        connector = sinksdk.start(RAW, **where)
        await asyncio.to_thread(Reading.launched.wait, 10)
        return await asyncio.to_thread(connector.stop)

    before = signal.getsignal(signal.SIGINT)
    asyncio.run(cell())

    assert committed(where) == HALF
    assert signal.getsignal(signal.SIGINT) == before


# -- signals -----------------------------------------------------------------------------------------


def test_a_signal_closes_run_gracefully(where: dict[str, Any]) -> None:
    FakeSpark.launches = Reading
    before = signal.getsignal(signal.SIGTERM)

    def kill() -> None:
        assert Reading.launched.wait(10)
        os.kill(os.getpid(), signal.SIGTERM)

    killer = threading.Thread(target=kill)
    killer.start()
    summary = sinksdk.run(RAW, **where)
    killer.join()

    assert summary.signal is signal.SIGTERM
    assert committed(where) == HALF
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_second_signal_has_its_default_effect(where: dict[str, Any]) -> None:
    class Hanging(Reading):
        def launch(self, plan: GenerationPlan) -> Reading:
            Reading.launched.set()
            return self

        def wait(self, timeout: float) -> bool:
            time.sleep(timeout)
            return hung.is_set()

    hung = threading.Event()
    FakeSpark.launches = Hanging

    def kill() -> None:
        assert Reading.launched.wait(10)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGINT)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            sinksdk.run(RAW, **where)
    finally:
        hung.set()
        killer.join()


@pytest.mark.parametrize("first", ["here", "in the JVM"])
def test_a_ctrl_c_that_the_jvm_also_receives_counts_once(first: str) -> None:
    with ClosingSignals() as signals:
        if first == "in the JVM":
            signals.receive(signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        signals.receive(signal.SIGINT)
        assert signals.received is signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_run_outside_of_the_main_thread_handles_no_signals(where: dict[str, Any]) -> None:
    done: list[sinksdk.Summary] = []
    thread = threading.Thread(target=lambda: done.append(sinksdk.run(RAW, **where, until_caught_up=True)))
    thread.start()
    thread.join(30)

    assert [summary.records for summary in done] == [RECORDS]
