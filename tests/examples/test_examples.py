from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from examples import exactly_once_folder_sink, folder_sink, make_topic
from sinksdk import (
    ClosingReason,
    ConnectorConfig,
    FencedException,
    OffsetAndMetadata,
    OffsetRange,
    RetriableException,
    SinkConnector,
    TopicPartition,
)
from sinksdk.plugins.checks import check_file
from sinksdk.testing import SinkTaskHarness
from sinksdk.topics import Subscription, TopicDirectorySource, write_records

EXAMPLES = Path(folder_sink.__file__).parent
P0, P1 = TopicPartition("readings", 0), TopicPartition("readings", 1)
SINKS = [folder_sink.FolderSink, exactly_once_folder_sink.ExactlyOnceFolderSink]

both = pytest.mark.parametrize("sink", SINKS, ids=lambda sink: sink.__name__)


def configured(sink: type[SinkConnector], folder: Path) -> ConnectorConfig:
    return sink.config_class.parse(
        {
            "name": "n",
            "topics": "readings",
            "folder": str(folder),
            "flush.size": "10",
            "value.converter": "json",
        }
    )


def harness_of(sink: type[SinkConnector], folder: Path) -> SinkTaskHarness:
    harness = SinkTaskHarness(sink.task_class, configured(sink, folder))
    harness.start()
    return harness


def values(count: int) -> list[str]:
    return [json.dumps({"n": n}) for n in range(count)]


def visible(folder: Path) -> dict[str, list[int]]:
    return {
        path.name: [json.loads(line)["offset"] for line in path.read_text().splitlines()]
        for path in sorted(folder.glob("*.jsonl"))
    }


def hidden(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name.startswith(".")] if folder.exists() else []


def offsets(harness: SinkTaskHarness) -> dict[TopicPartition, int]:
    return {partition: committed.offset for partition, committed in harness.committed.items()}


@both
def test_a_full_file_is_written_and_committed_at_once(sink: type[SinkConnector], tmp_path: Path) -> None:
    harness = harness_of(sink, tmp_path)
    harness.assign(P0, P1)
    harness.deliver(P0, values(12))
    harness.deliver(P1, values(4))
    assert list(visible(tmp_path).values()) == [list(range(12))]
    assert offsets(harness) == {P0: 12}
    harness.lose()


@both
def test_a_partial_file_is_written_and_committed_on_close(sink: type[SinkConnector], tmp_path: Path) -> None:
    harness = harness_of(sink, tmp_path)
    harness.assign(P0, P1)
    harness.deliver(P0, values(4))
    harness.deliver(P1, values(7))
    harness.revoke(P0)
    assert list(visible(tmp_path).values()) == [[0, 1, 2, 3]]
    harness.commit()
    assert offsets(harness) == {P0: 4}  # the other partition still collects records
    harness.stop()
    assert offsets(harness) == {P0: 4, P1: 7}


@both
def test_values_are_written_as_they_were_read(sink: type[SinkConnector], tmp_path: Path) -> None:
    harness = harness_of(sink, tmp_path)
    harness.assign(P0)
    harness.deliver(P0, ['{"a": "é"}', None])
    harness.stop()
    lines = next(tmp_path.glob("readings-0+0000000000*.jsonl")).read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"offset": 0, "value": {"a": "é"}},
        {"offset": 1, "value": None},
    ]


@both
def test_a_tail_is_kept_back_at_the_end_of_a_range(sink: type[SinkConnector], tmp_path: Path) -> None:
    harness = harness_of(sink, tmp_path)
    harness.assign(P0, P1, limits=OffsetRange(0, 4))
    harness.deliver(P0, values(4))
    harness.finish(P0)
    harness.deliver(P1, values(4))
    harness.finish(P1, ClosingReason.DUE)
    assert list(visible(tmp_path).values()) == [[0, 1, 2, 3]]
    assert offsets(harness) == {P1: 4}


@both
def test_skipped_records_alone_are_committed(sink: type[SinkConnector], tmp_path: Path) -> None:
    config = sink.config_class.parse(
        {**configured(sink, tmp_path).model_dump(by_alias=True, exclude_none=True), "errors.tolerance": "all"}
    )
    harness = SinkTaskHarness(sink.task_class, config)
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, ["no JSON"])
    harness.stop()
    assert offsets(harness) == {P0: 1}
    assert visible(tmp_path) == {}


@both
def test_the_connector_waits_for_whole_files(sink: type[SinkConnector], tmp_path: Path) -> None:
    policy = sink().batch_policy(configured(sink, tmp_path))
    assert (policy.max_records, policy.max_wait) == (10, 60)


@pytest.mark.parametrize("name", ["folder_sink.json", "exactly_once_folder_sink.json"])
def test_the_configurations_are_startable(name: str) -> None:
    checked = check_file(EXAMPLES / name)
    assert (checked.problems, checked.warnings) == ([], [])


def test_the_topic_is_readable(tmp_path: Path) -> None:
    for partition in (P0, P1):
        write_records(tmp_path, partition, make_topic.readings(partition))
    found = TopicDirectorySource(tmp_path).partitions(Subscription(("readings",)))
    assert found == {P0: OffsetRange(0, 5_000), P1: OffsetRange(0, 5_000)}
    record = make_topic.readings(P1)[7]
    assert record.key == b"sensor-1"
    assert record.headers == (("unit", b"celsius"),)
    assert record.timestamp == make_topic.MIDNIGHT + 7_000


# -- exactly once: what a crash or a fence leaves behind ---------------------------------------------


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[SinkTaskHarness]:
    made = harness_of(exactly_once_folder_sink.ExactlyOnceFolderSink, tmp_path)
    made.assign(P0)
    yield made
    made.lose()


def crash_and_restart(harness: SinkTaskHarness) -> None:
    dying = harness.task
    harness.crash()
    for file in dying.files.values():  # type: ignore[attr-defined]  # the example's own
        file.stream.close()  # the operating system closes the file of a dead process
    harness.start()
    harness.assign(P0)


def test_nothing_is_visible_before_its_commit(harness: SinkTaskHarness, tmp_path: Path) -> None:
    harness.deliver(P0, values(4))
    assert visible(tmp_path) == {}
    assert harness.log.noted == {P0: [str(hidden(tmp_path)[0])]}


def test_a_crash_before_the_commit_leaves_nothing(harness: SinkTaskHarness, tmp_path: Path) -> None:
    harness.deliver(P0, values(4))
    crash_and_restart(harness)
    assert hidden(tmp_path) == []
    harness.deliver(P0, values(6))
    harness.stop()
    assert visible(tmp_path) == {"readings-0+0000000000.jsonl": list(range(6))}


def test_the_next_owner_publishes_after_a_crash_after_the_commit(
    harness: SinkTaskHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(harness.task, "publish", dies)
    harness.deliver(P0, values(4))
    with pytest.raises(KeyboardInterrupt):
        harness.revoke(P0)
    assert offsets(harness) == {P0: 4}
    assert visible(tmp_path) == {}
    crash_and_restart(harness)
    assert visible(tmp_path) == {"readings-0+0000000000.jsonl": [0, 1, 2, 3]}
    harness.deliver(P0, values(3))
    harness.stop()
    assert visible(tmp_path)["readings-0+0000000004.jsonl"] == [4, 5, 6]


def test_publish_is_idempotent(harness: SinkTaskHarness, tmp_path: Path) -> None:
    harness.deliver(P0, values(10))
    crash_and_restart(harness)
    assert harness.outcome(P0).failure is None
    assert visible(tmp_path) == {"readings-0+0000000000.jsonl": list(range(10))}


def test_a_missing_committed_file_stops_the_partition(harness: SinkTaskHarness, tmp_path: Path) -> None:
    harness.deliver(P0, values(10))
    (tmp_path / "readings-0+0000000000.jsonl").unlink()
    crash_and_restart(harness)
    failure = harness.outcome(P0).failure
    assert failure is not None
    assert "was committed and is missing" in failure.message


def test_a_zombie_makes_nothing_visible(harness: SinkTaskHarness, tmp_path: Path) -> None:
    harness.deliver(P0, values(4))
    harness.fence()
    with pytest.raises(FencedException):
        harness.revoke(P0)
    assert visible(tmp_path) == {}


class HalfWritten:
    """A file whose next write fails halfway."""

    def __init__(self, stream: Any, error: Exception) -> None:
        self.stream, self.error = stream, error

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, content: bytes) -> None:
        if self.error is not None:
            error, self.error = self.error, None
            self.stream.write(content[: len(content) // 2])
            raise error
        self.stream.write(content)


def test_half_a_batch_is_never_committed(harness: SinkTaskHarness, tmp_path: Path) -> None:
    harness.deliver(P0, values(4))
    file = harness.task.files[P0]  # type: ignore[attr-defined]  # the example's own
    file.stream = HalfWritten(file.stream, OSError(28, "no space left on device"))
    harness.deliver(P0, values(4))
    assert harness.committed[P0].offset == 4
    crash_and_restart(harness)
    assert visible(tmp_path) == {"readings-0+0000000000.jsonl": [0, 1, 2, 3]}
    assert hidden(tmp_path) == []


def test_a_redelivered_batch_is_written_once(harness: SinkTaskHarness, tmp_path: Path) -> None:
    harness.deliver(P0, values(4))
    file = harness.task.files[P0]  # type: ignore[attr-defined]  # the example's own
    file.stream = HalfWritten(file.stream, RetriableException("busy"))
    harness.deliver(P0, values(6))
    harness.advance(1)
    harness.tick()
    harness.commit()
    assert visible(tmp_path) == {"readings-0+0000000000.jsonl": list(range(10))}


def test_metadata_is_unchanged(harness: SinkTaskHarness) -> None:
    harness.deliver(P0, values(10))
    harness.revoke(P0)
    assert harness.committed == {P0: OffsetAndMetadata(10)}
