"""Kafka's rule for topic names, checked where topics are listed, opened and written."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from sinksdk import ConnectException, SinkRecord, SinkRecords, TopicPartition
from sinksdk.connectors.s3_archiver.archive.layout import FileName, Layout
from sinksdk.offsets import is_topic_name
from sinksdk.source.records import SourceRecord
from sinksdk.topics import Subscription, TopicDirectorySource, write_records
from sinksdk.topics.directory.writer import TopicDirectoryWriter
from tests.engine.sinks import P0, opened

GOOD = ("t", "a.b_c-7", "...", "_x", "t" * 249)
BAD = ("", ".", "..", "../x", "../../escaped", "a/b", "a b", "a\\b", "ü", "a:b", "t" * 250, "a\n", "x\0")


@pytest.mark.parametrize("topic", GOOD)
def test_valid_topic_names(topic: str) -> None:
    assert is_topic_name(topic)


@pytest.mark.parametrize("topic", BAD)
def test_invalid_topic_names(topic: str) -> None:
    # Sinks build paths from topic names: one of these would leave the sink's folder, or lead to another
    # topic's keys.
    assert not is_topic_name(topic)


def records_of(partition: TopicPartition) -> SinkRecords:
    return SinkRecords.of(partition, [SinkRecord(*partition, offset=0, value=b"x")])


@pytest.mark.parametrize("topic", [name for name in BAD if name and len(name) < 100 and "\0" not in name])
def test_topic_directory_skips_and_logs_invalid_topic_names(
    topic: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_records(tmp_path, TopicPartition("good", 0), records_of(TopicPartition("good", 0)))
    bad = TopicPartition(topic, 0)
    folder = "".join(f"%{byte:02X}" for byte in topic.encode())
    place = tmp_path / f"topic={folder}" / "partition=0"
    write_records(tmp_path / "other", TopicPartition("x", 0), records_of(bad))
    place.parent.mkdir()
    (tmp_path / "other" / "topic=x" / "partition=0").rename(place)
    source = TopicDirectorySource(tmp_path)
    with caplog.at_level(logging.WARNING):
        found = [source.partitions(Subscription(regex="(?s).*")) for _ in range(2)]

    assert found == [{TopicPartition("good", 0): (0, 1)}] * 2
    said = [record.getMessage() for record in caplog.records if folder in record.getMessage()]
    assert len(said) == 1
    assert "does not name a topic that Kafka allows" in said[0]


@pytest.mark.parametrize("topic", ["../../escaped", "..", "a/b"])
def test_partition_with_an_invalid_topic_name_fails(topic: str) -> None:
    harness, _ = opened()
    bad = TopicPartition(topic, 0)
    harness.assign(bad)
    harness.deliver(P0, ["a"])
    harness.deliver(bad, ["b"])

    failed = {o.partition: o.failure.message for o in harness.worker.outcomes() if o.failure}
    assert failed.keys() == {bad}
    assert f"{topic!r} is not a valid name of a Kafka topic" in failed[bad]
    assert [call.arguments for call in harness.called("open")] == [([P0],)]
    assert {records.partition for (records,) in (call.arguments for call in harness.called("put"))} == {P0}


@pytest.mark.parametrize("topic", ["../../escaped", "..", "a/b", ""])
def test_archiver_refuses_invalid_topic_names(topic: str) -> None:
    layout = Layout()
    for key in (
        lambda: layout.file(FileName(TopicPartition(topic, 0), 0, "partition=0")),
        lambda: layout.probe(topic),
    ):
        with pytest.raises(ConnectException, match="cannot be archived: its name is not valid in Kafka"):
            key()


def test_source_refuses_to_write_invalid_topic_names(tmp_path: Path) -> None:
    writer = TopicDirectoryWriter(tmp_path, "id", "c")
    writer.init()
    writer.begin()
    with pytest.raises(ConnectException, match=r"'\.\./x' is not a topic name that Kafka allows"):
        writer.send(SourceRecord({}, {}, "../x", b"v"))
