"""Commands that control connectors through the store, with and without a driver."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from sinksdk import FencedException, OffsetAndMetadata, TopicPartition
from sinksdk.control.herder import Herder
from sinksdk.control.status import StatusKeeper
from sinksdk.engine.clock import SystemWallClock
from sinksdk.model.plan import PlannerState, RangePlan
from sinksdk.model.status import Waiting
from sinksdk.runtime.worker_connector import WorkerConnector
from sinksdk.store import Store, open_store, take_over
from sinksdk.store.generations import Generations
from sinksdk.store.keys import config_key
from sinksdk.store.records import TaskPlan
from sinksdk.topics import write_records
from tests.cli.support import Here
from tests.helpers.modules import changed

T0 = TopicPartition("flights", 0)


@pytest.fixture
def store(here: Here) -> Iterator[Store]:
    """Yield the default store of the commands, with one connector that has a commit."""
    opened = open_store(f"sqlite:///{here.folder / 'sinksdk.sqlite'}", create=True)
    config = {"connector.class": "linesink:Sink", "topics": "flights", "out.folder": str(here.folder)}
    Herder(opened).create("lines", {**config, "name": "lines", "aws.secret.access.key": "do not tell"})
    generations = Generations(opened, "lines")
    ranges = (RangePlan(topic="flights", partition=0, start=0, end=100),)
    generations.plan(generations.claim(), [TaskPlan(ranges=ranges)], 1)
    taken = take_over(opened, "lines", 1, 0)
    assert taken is not None
    taken.ledger.commit({T0: OffsetAndMetadata(60)})
    yield opened
    opened.close()


def driven(store: Store, *, failures: int = 0) -> StatusKeeper:
    """Store the heartbeat of a driver of another process."""
    keeper = StatusKeeper(store, "lines", "elsewhere:7#1", SystemWallClock())
    row = PlannerState(
        topic="flights", partition=0, end=100, failures=failures, error="S3 says no" if failures else None
    )
    keeper.update([row])
    keeper.become("RUNNING")
    return keeper


def test_list_has_a_line_for_each_connector(here: Here, store: Store) -> None:
    driven(store)
    Herder(store).create("other", {"topics": "t"}, "STOPPED")

    shown = here.sinksdk("list")
    rows = json.loads(here.sinksdk("list", "--json").stdout)

    assert shown.exit_code == 0
    assert ["lines", "sink", "RUNNING", "1", "40", "0", "elsewhere:7#1"] in [
        line.split() for line in shown.stdout.splitlines()
    ]
    assert [(row["name"], row["state"], row["lag"]) for row in rows] == [
        ("lines", "RUNNING", 40),
        ("other", "STOPPED", None),
    ]


def test_status_shows_the_unavailable_system_and_next_retry(here: Here, store: Store) -> None:
    waiting = Waiting(reason="the bucket does not answer", since=0.0, next_attempt=60.0, attempts=3)
    driven(store).become("RUNNING", waiting=waiting)

    shown = " ".join(here.sinksdk("status", "lines").stdout.split())

    assert (
        "waiting for an unavailable system, retrying: since 1970-01-01 00:00:00 UTC, tried 3 times, "
        "next at 1970-01-01 00:01:00 UTC: the bucket does not answer"
    ) in shown


def test_status_shows_tasks_and_partitions(here: Here, store: Store) -> None:
    driven(store, failures=2)

    shown = here.sinksdk("status", "lines")
    found = json.loads(here.sinksdk("status", "lines", "--json").stdout)

    assert "S3 says no" in shown.stdout
    assert found["tasks"] == [
        {"id": 0, "state": "RESTARTING", "partitions": ["flights-0"], "trace": "S3 says no"}
    ]
    (partition,) = found["partitions"]
    assert (partition["committed"], partition["end"], partition["lag"]) == (60, 100, 40)


def test_status_names_partitions_without_a_leader(here: Here, store: Store) -> None:
    driven(store).leave_out([TopicPartition("flights", number) for number in range(103)])

    shown = here.sinksdk("status", "lines").stdout
    found = json.loads(here.sinksdk("status", "lines", "--json").stdout)

    assert re.search(r"flights-7 has had no leader since \d\d\d\d-.*: not read until it has one", shown)
    assert "and 3 more partitions have no leader" in shown
    assert (found["unavailable"][7]["partition"], found["unavailable_count"]) == (7, 103)


def test_status_without_heartbeats_is_unassigned(here: Here, store: Store) -> None:
    found = json.loads(here.sinksdk("status", "lines", "--json").stdout)

    assert (found["state"], found["target_state"], found["driver"]) == ("UNASSIGNED", "RUNNING", "")
    assert "no living driver" in here.sinksdk("status", "lines").stdout


@pytest.mark.parametrize(
    ("command", "target"), [("pause", "PAUSED"), ("stop", "STOPPED"), ("resume", "RUNNING")]
)
def test_requests_are_stored_as_target_states(here: Here, store: Store, command: str, target: str) -> None:
    alone = here.sinksdk(command, "lines")
    driven(store)
    driver = here.sinksdk(command, "lines")

    assert alone.stdout == f"lines: {command} requested; no driver is alive: the next one applies it\n"
    assert driver.stdout == f"lines: {command} requested; driver elsewhere:7#1 applies it\n"
    assert Herder(store).connector("lines").target_state == target


def test_restart_rebalance_and_flush_are_counted_requests(here: Here, store: Store) -> None:
    for command in (["restart"], ["restart", "--only-failed"], ["rebalance"], ["flush"], ["flush"]):
        assert here.sinksdk(*command, "lines").exit_code == 0

    orders = Herder(store).connector("lines").orders
    assert (orders.restart, orders.restart_failed, orders.rebalance, orders.flush) == (1, 1, 1, 2)


@pytest.mark.parametrize(
    "command", [["status"], ["pause"], ["delete"], ["offsets", "show"], ["config", "get"]]
)
def test_a_missing_connector_is_an_error(here: Here, store: Store, command: list[str]) -> None:
    result = here.sinksdk(*command, "absent")

    assert result.exit_code == 1
    assert "has no connector 'absent'" in result.stderr
    assert "sinksdk.sqlite" in result.stderr


def test_a_missing_store_is_not_created(here: Here) -> None:
    # An empty list would hide the mistake in a mistyped URL.
    result = here.sinksdk("list", "--store", "sqlite:///absent.sqlite")

    assert result.exit_code == 2
    assert not (here.folder / "absent.sqlite").exists()


def test_offsets_are_shown_altered_and_reset(here: Here, store: Store) -> None:
    assert here.sinksdk("offsets", "alter", "lines", "flights-0=5").exit_code == 1
    here.sinksdk("stop", "lines")
    altered = here.sinksdk("offsets", "alter", "lines", "flights-0=5", "flights-1=7", "--json")
    assert [(row["partition"], row["offset"]) for row in json.loads(altered.stdout)] == [(0, 5), (1, 7)]
    here.sinksdk("offsets", "alter", "lines", "flights-0=")
    shown = here.sinksdk("offsets", "show", "lines")
    assert "flights-1" in shown.stdout
    assert "flights-0" not in shown.stdout
    assert here.sinksdk("offsets", "reset", "lines").exit_code == 0
    assert here.sinksdk("offsets", "show", "lines").stdout == "nothing is committed\n"


def test_altered_offsets_are_checked_if_topics_are_given(here: Here, store: Store) -> None:
    # Topics are optional: not every machine that reaches the store reaches them.
    records = pa.table({"offset": list(range(10)), "key": [b"k"] * 10, "value": [b"v"] * 10})
    write_records(here.folder / "topics", T0, records)
    here.sinksdk("stop", "lines")
    refused = here.sinksdk("offsets", "alter", "lines", "flights-0=11", "--topic-directory", "topics")
    unchecked = here.sinksdk("offsets", "alter", "lines", "flights-0=11")
    checked = here.sinksdk("offsets", "alter", "lines", "flights-0=9", "--topic-directory", "topics")

    assert (refused.exit_code, unchecked.exit_code, checked.exit_code) == (2, 0, 0)
    assert "flights-0: offset 11 is not in the source, which has offsets 0 to 10" in refused.stderr
    assert "are not checked against the topics" in unchecked.stderr
    assert "not checked" not in checked.stderr
    assert Herder(store).offsets("lines") == {T0: 9}


def test_offsets_refused_by_the_connector_exit_1_with_its_reason(here: Here, store: Store) -> None:
    sink = here.folder / "linesink.py"
    refusal = (
        "    def alter_offsets(self, config, offsets):\n        raise ConnectException('files are there')\n\n"
    )
    sink.write_text(
        "from sinksdk import ConnectException\n"
        + sink.read_text().replace("class Sink(SinkConnector):\n", f"class Sink(SinkConnector):\n{refusal}")
    )
    here.sinksdk("stop", "lines")
    result = here.sinksdk("offsets", "reset", "lines")

    assert result.exit_code == 1
    assert "connector lines: alter_offsets failed, and no offsets were altered" in result.stderr
    assert "files are there" in result.stderr
    assert Herder(store).offsets("lines") == {T0: 60}


def test_recovered_offsets_are_those_of_the_destination(here: Here, store: Store) -> None:
    sink = here.folder / "linesink.py"
    hook = "    def recover_offsets(self, config, given):\n        return {**dict.fromkeys(given, 0), **given}\n\n"
    sink.write_text(
        sink.read_text().replace("class Sink(SinkConnector):\n", f"class Sink(SinkConnector):\n{hook}")
    )
    config = here.folder / "recovered.json"
    config.write_text(json.dumps(Herder(store).connector("lines").config))
    result = here.sinksdk("offsets", "recover", str(config), "flights-0=42")

    assert result.exit_code == 0, result.stderr
    assert Herder(store).offsets("lines")[T0] == 42
    assert Herder(store).connector("lines").target_state == "STOPPED"


@pytest.mark.parametrize("change", ["flights-0", "flights=5", "=5", "flights-0=x", "flights-x=5"])
def test_malformed_offset_changes_are_refused(here: Here, store: Store, change: str) -> None:
    here.sinksdk("stop", "lines")
    result = here.sinksdk("offsets", "alter", "lines", "flights-0=5", change)

    assert result.exit_code == 2
    assert "is not TOPIC-PARTITION=OFFSET" in result.stderr
    assert Herder(store).offsets("lines") == {T0: 60}


def test_config_get_hides_secrets(here: Here, store: Store) -> None:
    shown = here.sinksdk("config", "get", "lines")

    assert json.loads(shown.stdout)["config"]["aws.secret.access.key"] == "********"
    assert "do not tell" not in shown.stdout


def test_config_set_keeps_hidden_secrets(here: Here, store: Store) -> None:
    shown = json.loads(here.sinksdk("config", "get", "lines").stdout)
    shown["config"]["tasks.max"] = "3"
    changed = here.file("changed.json", json.dumps(shown))
    assert here.sinksdk("config", "set", "lines", changed).exit_code == 0
    assert Herder(store).connector("lines").config["aws.secret.access.key"] == "do not tell"
    Herder(store).create("other", {"connector.class": "linesink:Sink", "topics": "t"})
    refused = here.sinksdk("config", "set", "other", changed)

    assert refused.exit_code == 2
    assert "'aws.secret.access.key' is hidden" in refused.stderr


def test_config_set_refuses_a_configuration_with_problems(here: Here, store: Store) -> None:
    good = here.config(name="another", tasks_max=3)
    assert (
        here.sinksdk("config", "set", "lines", good).stdout == "lines: configuration replaced by version 2\n"
    )
    assert here.sinksdk("config", "set", "lines", good).stdout == "lines: configuration unchanged\n"
    bad = here.config(tasks_max=0)
    refused = here.sinksdk("config", "set", "lines", bad)

    assert refused.exit_code == 2
    assert Herder(store).connector("lines").config["tasks.max"] == "3"


def test_delete_without_a_living_driver_runs_in_the_command(here: Here, store: Store) -> None:
    result = here.sinksdk("delete", "lines")

    assert (result.exit_code, result.stdout) == (0, "lines: deleted\n")
    assert Herder(store).connectors() == []
    assert (Path(here.folder) / "deleted").read_text() == "True"


def test_delete_waits_for_a_living_driver(here: Here, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    driven(store)
    monkeypatch.setattr("sinksdk.cli.control._PATIENCE", 0.3)
    Herder(store).configure(
        "lines",
        {
            "connector.class": "linesink:Sink",
            "topics": "flights",
            "out.folder": str(here.folder),
            "task.shutdown.graceful.timeout.ms": "0",
        },
    )
    began = time.monotonic()
    result = here.sinksdk("delete", "lines")

    assert result.exit_code == 1
    assert "its driver has not completed this" in result.stderr
    assert time.monotonic() - began >= 0.3
    assert Herder(store).connectors() == ["lines"]


def test_delete_is_completed_by_a_slow_driver_that_fences_the_command(
    here: Here, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Regression: the command ended with exit code 3 although the connector was deleted.
    def fenced(_: object) -> None:
        store.delete(config_key("lines"), store.version(config_key("lines")))
        message = "a newer driver has taken over"
        raise FencedException(message)

    monkeypatch.setattr(WorkerConnector, "run", fenced)
    result = here.sinksdk("delete", "lines")

    assert (result.exit_code, result.stdout) == (0, "lines: deleted\n")


def test_delete_ends_when_the_connector_was_created_again(
    here: Here, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Regression: the command waited for the new connector to be deleted.
    driven(store)
    config = Herder(store).connector("lines").config

    def another_process(seconds: float) -> None:
        store.delete(config_key("lines"), store.version(config_key("lines")))
        Herder(store).create("lines", config)

    monkeypatch.setattr("sinksdk.cli.control.time", changed(time, sleep=another_process))
    result = here.sinksdk("delete", "lines")

    assert (result.exit_code, result.stdout) == (0, "lines: deleted\n")
    assert Herder(store).connector("lines").deleted is False


def test_json_of_every_command_is_one_value_on_stdout(here: Here, store: Store) -> None:
    shown = here.sinksdk("config", "get", "lines").stdout
    (here.folder / "same.json").write_text(shown)

    def json_output(*command: str) -> object:
        result = here.sinksdk(*command, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    for action in ("pause", "resume", "rebalance", "flush", "stop", "restart"):
        assert json_output(action, "lines") == {"name": "lines", "requested": action, "driver": ""}
    assert json_output("config", "get", "lines") == json.loads(shown)
    assert json_output("config", "set", "lines", "same.json") == {
        "name": "lines",
        "version": 1,
        "changed": False,
    }
    assert json_output("offsets", "show", "lines") == [{"topic": "flights", "partition": 0, "offset": 60}]
    assert json_output("offsets", "alter", "lines", "flights-0=50") == [
        {"topic": "flights", "partition": 0, "offset": 50}
    ]
    assert json_output("offsets", "reset", "lines") == []
    assert json_output("delete", "lines") == {"name": "lines", "deleted": True}
    assert json_output("list") == []


def test_list_leaves_out_a_damaged_connector(here: Here, store: Store) -> None:
    row = store._read("connectors/lines/config")
    assert row is not None
    Herder(store).create("other", {"topics": "t"}, "STOPPED")
    store.put("connectors/lines/config", {"config": "no dictionary"}, row.version)

    shown = here.sinksdk("list", "--json")

    assert [row["name"] for row in json.loads(shown.stdout)] == ["other"]
    assert "connector lines cannot be read and is left out" in shown.stderr
