"""``verify`` against a real broker; a task in the harness writes the archive, without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from sinksdk import ConnectException, Header, SinkRecord, SinkRecords, TopicPartition
from sinksdk.connectors.s3_archiver import __main__ as command
from sinksdk.connectors.s3_archiver.verify import kafka_log
from sinksdk.connectors.s3_archiver.verify.kafka_log import KafkaLog
from tests.helpers.ports import closed_port
from tests.kafka.topics import Read, consume, create_topic, produce, unused_name
from tests.s3_archiver.support import MINIMAL, Bench, bench

pytestmark = pytest.mark.slow


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = create_topic(bootstrap, unused_name("orders"))
    produce(bootstrap, name, [None, b"", b"x" * 300_000, b"plain"])
    produce(bootstrap, name, [b"no", b"no"], transaction=unused_name("aborted"), abort=True)
    produce(bootstrap, name, [b"kept", b"kept"], transaction=unused_name("kept"))
    return name


def archive(records: Iterable[Read]) -> Bench:
    found = [
        SinkRecord(
            r.topic,
            r.partition,
            r.offset,
            key=r.key,
            value=r.value,
            timestamp=r.timestamp,
            headers=tuple(Header(key, value) for key, value in r.headers),
        )
        for r in records
    ]
    partition = TopicPartition(found[0].topic, 0)
    b = bench(partition, flush_size=3)
    b.harness.deliver(partition, SinkRecords.of(partition, found))
    b.harness.revoke()
    return b


def verify(
    b: Bench, topic: str, bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **settings: str
) -> int:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"name": "archive", "config": {**MINIMAL, "topics": topic, **settings}}))
    monkeypatch.setattr(command, "committed_offsets", lambda _store, _name: b.harness.committed)
    return command.main(
        ["verify", str(path), "--store", "sqlite:///x", "--bootstrap-servers", bootstrap],
        connect=lambda _config, _endpoint=None: b.s3,
    )


def test_verify_compares_with_kafka(
    bootstrap: str,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    b = archive(consume(bootstrap, topic))

    assert verify(b, topic, bootstrap, tmp_path, monkeypatch) == 0
    assert f"6 records are the same as in the Kafka topic at {bootstrap}" in capsys.readouterr().out


def test_verify_names_missing_and_different_records(
    bootstrap: str,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    there = consume(bootstrap, topic)
    b = archive([*there[:1], *there[2:4], there[4]._replace(value=b"other"), there[5]])

    assert verify(b, topic, bootstrap, tmp_path, monkeypatch) == 1
    output = capsys.readouterr().out
    assert "offset 1 is in the Kafka topic" in output
    assert "offset 7 has a different value in the archive" in output


def test_verify_uses_the_isolation_level_of_the_connector(
    bootstrap: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    b = archive(consume(bootstrap, topic, isolation="read_uncommitted"))
    settings = {"consumer.override.isolation.level": "read_uncommitted"}

    assert verify(b, topic, bootstrap, tmp_path, monkeypatch, **settings) == 0
    assert verify(b, topic, bootstrap, tmp_path, monkeypatch) == 1


def test_verify_distinguishes_records_that_the_log_has_deleted(
    bootstrap: str,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    b = archive(consume(bootstrap, topic))
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for deleted in admin.delete_records([KafkaPartition(topic, 0, 2)]).values():
        deleted.result(60)

    assert verify(b, topic, bootstrap, tmp_path, monkeypatch) == 0
    output = capsys.readouterr().out
    assert "2 archived records are no longer in" in output
    assert "4 records are the same" in output


@pytest.mark.parametrize(("policy", "why"), [("compact", "which is compacted"), ("delete", "")])
def test_verify_accepts_gaps_of_compacted_topics_only(bootstrap: str, policy: str, why: str) -> None:
    topic = create_topic(bootstrap, unused_name("gap"), config={"cleanup.policy": policy})

    assert KafkaLog({"bootstrap.servers": bootstrap}).removal_cause(TopicPartition(topic, 0), 5) == why


def test_verify_reads_up_to_the_commit(bootstrap: str, topic: str) -> None:
    log = KafkaLog({"bootstrap.servers": bootstrap})

    (batch,) = log.batches(TopicPartition(topic, 0), 3)

    first, *others = batch.to_pylist()
    assert [first["offset"], *(row["offset"] for row in others)] == [0, 1, 2]
    assert first.pop("timestamp") > 0
    assert first == {
        "offset": 0,
        "timestamp_type": 0,
        "key": b"k0",
        "value": None,
        "headers": [{"key": "n", "value": b"0"}],
    }


def test_verify_reports_a_missing_topic(bootstrap: str) -> None:
    log = KafkaLog({"bootstrap.servers": bootstrap})

    with pytest.raises(
        ConnectException, match=r"no-such-topic-0 does not exist in Kafka at .*: was the topic deleted"
    ):
        list(log.batches(TopicPartition("no-such-topic", 0), 3))


def test_verify_reports_an_unreachable_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_log, "_PATIENCE", 1.0)
    with closed_port() as port:
        address = f"127.0.0.1:{port}"
        log = KafkaLog({"bootstrap.servers": address})

        with pytest.raises(
            ConnectException, match=f"cannot read topic t from the Kafka cluster at {address}"
        ):
            list(log.batches(TopicPartition("t", 0), 3))
