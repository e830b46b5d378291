"""sinksdk.run and sinksdk.start, where Spark is not the point: its generations are run by a fake."""

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
from sinksdk.launch.connectors import PreparedConnector, prepare_written
from sinksdk.launch.signals import ClosingSignals
from sinksdk.store import Store, StoreUnavailable, take_over
from sinksdk.store.ledger import current_plan
from sinksdk.store.records import GenerationPlan
from sinksdk.topics import write_records
from tests.runtime.running_sinks import RAW, InProcess, Task

P0 = TopicPartition("t", 0)
RECORDS, HALF = 10, 6


class FakeSpark:
    """Ends with the connector, and is told apart by that."""

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
        """No Spark runs yet."""

    def launcher(self, ready: Any) -> Any:
        return FakeSpark.launches(self.store)


class Reading:
    """A generation that has read everything, and commits half of it when it is asked to close."""

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
        """Nothing runs."""


@pytest.fixture(autouse=True)
def _fake_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    # The Spark of other tests of this process is another one.
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
    """A connector that has read everything, and committed nothing yet."""
    FakeSpark.launches = Reading
    connector = sinksdk.start(RAW, **where)
    assert Reading.launched.wait(10)
    yield connector
    connector.close()
    with suppress(FencedException):  # the test's own doing
        assert connector.wait(10)


def committed(where: dict[str, Any]) -> int:
    return sinksdk.committed_offsets(where["store"], "c")[P0].offset


def test_a_connector_runs_until_it_has_caught_up(where: dict[str, Any]) -> None:
    """run: returns how many records were committed, by partition; what it started has ended then."""
    summary = sinksdk.run(RAW, **where, until_caught_up=True)

    assert (summary.records, summary.partitions, summary.signal) == (RECORDS, {P0: RECORDS}, None)
    assert (summary.files, summary.transactions) == (None, None)
    assert committed(where) == RECORDS
    assert FakeSpark.made.has_ended


def test_files_are_told_where_the_connector_counts_them(
    where: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """run: what tasks count as files and bytes."""

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
def test_a_configuration_in_any_of_connects_forms(where: dict[str, Any], written: Any) -> None:
    """config: Connect's JSON as a mapping or as a text, with the name outside or flat; numbers and booleans too."""
    assert sinksdk.run(written, **where, until_caught_up=True).records == RECORDS


def test_a_configuration_in_a_file(where: dict[str, Any], tmp_path: Path) -> None:
    """config: a path, as a text or not."""
    path = tmp_path / "c.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in RAW.items()))

    assert sinksdk.run(str(path), **where, until_caught_up=True).records == RECORDS
    assert sinksdk.run(path, **where, until_caught_up=True).records == 0


def test_closing_deletes_nothing(reading: sinksdk.RunningConnector) -> None:
    """close: takes no reason. With DELETE the connector cleaned up as if deleted, and was not."""
    with pytest.raises(TypeError):
        reading.close(ClosingReason.DELETE)  # type: ignore[call-arg]
    reading.stop()

    assert Reading.asked is ClosingReason.SHUTDOWN


@pytest.mark.parametrize("enter", [sinksdk.run, sinksdk.start])
def test_every_problem_is_told_at_once(enter: Callable[..., Any], tmp_path: Path) -> None:
    """Configuration, source, store, master and settings of Spark: one ConfigException; no store is made."""
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
        "'tasks.max' must be a text, a number or a boolean",
        "the key 7 must be a text",
        f"the source directory {tmp_path / 'absent'} is not there",
        "'commits.sqlite' is no store; name one as sqlite:///FILE",
        "the Spark master 'loca[2]' is none that is supported",
        "the Spark setting 'x' is none",
    ):
        assert problem in problems
    assert not list(tmp_path.glob("*sqlite*"))


def test_a_store_whose_folder_is_not_there(where: dict[str, Any], tmp_path: Path) -> None:
    """start: said at once, not by the connector that has started."""
    where["store"] = f"sqlite:///{tmp_path}/absent/store.sqlite"

    with pytest.raises(ConfigException, match="there is no folder"):
        sinksdk.start(RAW, **where)


def test_a_store_that_is_away(where: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is raised by start, for whoever starts it is there to decide; run waits for it."""
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
    """A key that nobody knows keeps nothing from starting, and is named."""
    sinksdk.run({**RAW, "unknown.key": "x"}, **where, until_caught_up=True)

    assert "'unknown.key'" in caplog.text


# -- the handle --------------------------------------------------------------------------------------


def test_leaving_the_block_flushes_and_commits(where: dict[str, Any]) -> None:
    """start: as a context manager; what was read is committed, and all that it started has ended."""
    FakeSpark.launches = Reading
    with sinksdk.start(RAW, **where) as connector:
        assert Reading.launched.wait(10)
        assert connector.wait(timeout=0) is False

    assert committed(where) == HALF
    assert connector.wait(timeout=0) is True
    assert FakeSpark.made.has_ended
    assert connector.status().state == "UNASSIGNED"


def test_the_blocks_own_exception_is_raised(where: dict[str, Any]) -> None:
    """Leaving the block with an exception commits as well, and raises that one."""
    FakeSpark.launches = Reading
    with pytest.raises(KeyError), sinksdk.start(RAW, **where):  # noqa: PT012 - the block is what is tested
        assert Reading.launched.wait(10)
        raise KeyError

    assert committed(where) == HALF


def test_a_rebalance_commits_and_goes_on(where: dict[str, Any], reading: sinksdk.RunningConnector) -> None:
    """rebalance: the generation closes, the next one is launched."""
    Reading.launched.clear()
    reading.rebalance()

    assert Reading.launched.wait(10)
    assert committed(where) == HALF
    assert reading.status().generation == 2


def test_a_flush_commits_what_is_there(where: dict[str, Any], reading: sinksdk.RunningConnector) -> None:
    """flush: the generation closes as due."""
    Reading.launched.clear()
    reading.flush()

    assert Reading.launched.wait(10)
    assert committed(where) == HALF


def test_the_status_says_how_it_is_doing(reading: sinksdk.RunningConnector) -> None:
    """status: as the store says, from the start to after the end."""
    status = reading.status()

    assert (status.name, status.state, status.generation) == ("c", "RUNNING", 1)
    assert [(p.partition, p.end) for p in status.partitions] == [(P0, RECORDS)]
    reading.stop()
    assert (reading.status().state, reading.status().partitions[0].committed) == ("UNASSIGNED", HALF)


def test_what_a_connector_fails_with_is_raised(
    where: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """wait, stop and the block's end raise it, as it is documented; each time it is asked."""
    monkeypatch.setattr("tests.runtime.running_sinks.Connector.start", refuse, raising=False)
    connector = sinksdk.start(RAW, **where)

    for ask in (connector.wait, connector.stop):
        with pytest.raises(ConfigException, match="no such bucket"):
            ask()
    with pytest.raises(ConfigException, match="no such bucket"), connector:
        pass
    with pytest.raises(ConfigException, match="no such bucket"):
        sinksdk.run(RAW, **where)


def test_what_was_started_and_failed_is_not_started_again(
    where: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """run: an outage in start; the next attempt is another connector's, with the configuration as it was written."""
    begun: list[object] = []
    opened: list[dict[str, str]] = []

    def start(self: object, _: ConnectorConfig) -> None:
        begun.append(self)
        if len(begun) == 1:
            message = "the bucket is away"
            raise RetriableException(message)

    def open_again(topics: Any, raw: Mapping[str, str], providers: Any) -> PreparedConnector:
        opened.append(dict(raw))
        return prepare_written(topics, raw, providers)

    monkeypatch.setattr("tests.runtime.running_sinks.Connector.start", start, raising=False)
    monkeypatch.setattr("sinksdk.launch.deployment.prepare_written", open_again)
    monkeypatch.setattr("sinksdk.runtime.backoff.Waits.failed", lambda *_, **__: (0.0, None))

    assert sinksdk.run(RAW, **where, until_caught_up=True).records == RECORDS
    assert opened == [RAW]
    assert len(begun) == 2
    assert begun[0] is not begun[1]


def refuse(*_: Any) -> None:
    message = "no such bucket"
    raise ConfigException(message)


def test_a_second_start_fences_the_first(where: dict[str, Any], reading: sinksdk.RunningConnector) -> None:
    """The newer one takes over once the first has committed; the first one's wait raises FencedException."""
    Reading.launched.clear()
    with sinksdk.start(RAW, **where) as second:
        assert Reading.launched.wait(30)
        with pytest.raises(FencedException):
            reading.wait(10)
        assert second.wait(0) is False

    assert second.wait(0) is True


def test_it_starts_beside_an_event_loop(where: dict[str, Any]) -> None:
    """As in a notebook: nothing of it needs the loop, and waiting in a thread leaves the loop free."""
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


def test_a_signal_closes_what_runs(where: dict[str, Any]) -> None:
    """run: SIGTERM in the main thread commits and returns; its handlers are put back."""
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


def test_a_second_signal_does_what_it_does_otherwise(where: dict[str, Any]) -> None:
    """run: a second Ctrl-C is a KeyboardInterrupt, at once."""

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
def test_a_ctrl_c_that_the_jvm_gets_as_well_is_one_signal(first: str) -> None:
    """Whichever of both is first; the next one is a KeyboardInterrupt."""
    with ClosingSignals() as signals:
        if first == "in the JVM":
            signals.hear(signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        signals.hear(signal.SIGINT)
        assert signals.received is signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_another_thread_gets_no_handlers(where: dict[str, Any]) -> None:
    """run: elsewhere than in the main thread it works as well, and signals stay whose they are."""
    done: list[sinksdk.Summary] = []
    thread = threading.Thread(target=lambda: done.append(sinksdk.run(RAW, **where, until_caught_up=True)))
    thread.start()
    thread.join(30)

    assert [summary.records for summary in done] == [RECORDS]
