"""Commands that control a source, which has run against a topic directory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from sinksdk.cli.offsets import source_change
from sinksdk.control.herder import Herder
from sinksdk.errors import ConfigException
from sinksdk.store import Store, open_store
from sinksdk.topics.directory.layout import local_root
from sinksdk.topics.directory.writer import TopicDirectoryTarget
from tests.cli.support import Here
from tests.runtime.running_sources import CountingTask, Running, eventually

DIRECTORY = ("--topic-directory", "topics")


@pytest.fixture
def store(here: Here) -> Iterator[Store]:
    """Yield the default store of the commands, with a driven source ``c`` whose task 1 has failed."""
    opened = open_store(f"sqlite:///{here.folder / 'sinksdk.sqlite'}", create=True)
    target = TopicDirectoryTarget(str(local_root("topics").absolute()))
    running = Running(opened, target, **{"restart.backoff.ms": 60_000})
    running.connector.shares = [{"share": "[a]"}, {"share": "b", "fails": "true"}]
    with running:
        eventually(lambda: len(CountingTask.started) == 2)
        yield opened
    opened.close()


def _told(store: Store) -> bool:
    info = Herder(store).info("c")
    return bool(info.source_offsets) and info.tasks[1].trace is not None


def json_output(here: Here, *command: str) -> Any:
    """Return the parsed JSON output of a command."""
    result = here.sinksdk(*command, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def stop(here: Here, store: Store) -> None:
    here.sinksdk("stop", "c")
    eventually(lambda: not Herder(store).info("c").driver)


def test_a_source_is_listed_without_lag(here: Here, store: Store) -> None:
    (row,) = json_output(here, "list")
    line = here.sinksdk("list").stdout.splitlines()[1].split()

    assert (row["type"], row["lag"], row["tasks"]) == ("source", None, 2)
    assert line[:5] == ["c", "source", "RUNNING", "2", "–"]


def test_status_shows_tasks_and_source_partitions(here: Here, store: Store) -> None:
    eventually(lambda: _told(store))
    shown, found = here.sinksdk("status", "c").stdout, json_output(here, "status", "c")

    assert shown.startswith("c: source, RUNNING, generation 1, ")
    assert "task 0: RUNNING: " in shown
    assert "task 1: RESTARTING: 0 records committed in 0 transactions" in shown
    assert "the source is gone" in shown
    assert '{"share":"[a]"}' in shown
    assert "lag" not in shown
    first, second = found["tasks"]
    assert first["records"] > 0
    assert (first["state"], first["source_state"], first["trace"]) == ("RUNNING", "RUNNING", None)
    assert (second["state"], second["source_state"]) == ("RESTARTING", "STOPPED")
    assert "the source is gone" in second["trace"]
    (partition,) = found["source_partitions"]
    assert (partition["partition"], partition["task"]) == ({"share": "[a]"}, 0)
    assert partition["offset"]["next"] > 0
    assert "partitions" not in found


def test_offsets_are_shown_altered_and_reset(here: Here, store: Store) -> None:
    eventually(lambda: _told(store))
    change = '{"share":"b=2"}={"next":7}'
    refused = here.sinksdk("offsets", "alter", "c", change, *DIRECTORY)
    assert refused.exit_code == 1
    assert "only while it is stopped" in refused.stderr
    stop(here, store)
    (row,) = json_output(here, "offsets", "show", "c", *DIRECTORY)
    assert (row["partition"], list(row["offset"])) == ({"share": "[a]"}, ["next"])

    assert len(json_output(here, "offsets", "alter", "c", change, *DIRECTORY)) == 2
    assert [known["partition"] for known in json_output(here, "status", "c")["source_partitions"]] == [
        {"share": "[a]"}
    ]
    altered = json_output(here, "offsets", "alter", "c", '{"share":"[a]"}=', *DIRECTORY)
    assert altered == [{"partition": {"share": "b=2"}, "offset": {"next": 7}}]
    assert '{"next":7}' in here.sinksdk("offsets", "show", "c", *DIRECTORY).stdout
    assert json_output(here, "status", "c")["source_partitions"] == []
    reset = here.sinksdk("offsets", "reset", "c", *DIRECTORY)
    assert reset.stdout == "c: all offsets removed; when resumed, the connector reads from the start\n"
    assert here.sinksdk("offsets", "show", "c", *DIRECTORY).stdout == "nothing is committed\n"


def test_a_sources_offsets_need_its_topics(here: Here, store: Store) -> None:
    # An empty result for a mistyped directory would look like a source that has read nothing.
    unsaid = here.sinksdk("offsets", "show", "c")
    mistyped = here.sinksdk("offsets", "show", "c", "--topic-directory", "topisc")
    both = here.sinksdk("offsets", "show", "c", *DIRECTORY, "--bootstrap-servers", "localhost:9092")

    assert [result.exit_code for result in (unsaid, mistyped, both)] == [2, 2, 2]
    assert "--topic-directory DIR or --bootstrap-servers HOST:PORT" in unsaid.stderr
    assert "topisc does not exist" in mistyped.stderr
    assert "give either --topic-directory DIR" in both.stderr
    assert not (here.folder / "topisc").exists()


def test_topics_are_refused_for_a_sinks_offsets(here: Here, store: Store) -> None:
    Herder(store).create("lines", {"connector.class": "linesink:Sink", "topics": "flights"})
    refused = here.sinksdk("offsets", "show", "lines", *DIRECTORY)

    assert refused.exit_code == 2
    assert "connector 'lines' is a sink" in refused.stderr


@pytest.mark.parametrize(
    "text",
    [
        "orders-0=5",
        '{"file":"a"}',
        '{"file":"a"}=8',
        '{"file":"a"}:{"byte":8}',
        '["a"]={}',
        "",
        "={}",
        '{"a":1}={',
    ],
)
def test_malformed_source_offset_changes_are_refused(text: str) -> None:
    with pytest.raises(ConfigException, match="is not PARTITION=OFFSET, two JSON objects") as refused:
        source_change(text)
    assert repr(text) in str(refused.value)


def test_nested_source_offsets_are_refused() -> None:
    with pytest.raises(ConfigException, match=r"has a list as 'byte'"):
        source_change('{"file":"a"}={"byte":[1]}')


@pytest.mark.parametrize(
    ("command", "target"), [("pause", "PAUSED"), ("resume", "RUNNING"), ("stop", "STOPPED")]
)
def test_a_sources_requests_are_stored_like_a_sinks(
    here: Here, store: Store, command: str, target: str
) -> None:
    result = here.sinksdk(command, "c")

    assert f"c: {command} requested; driver " in result.stdout
    assert Herder(store).connector("c").target_state == target
