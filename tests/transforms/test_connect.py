"""Whole configurations, compared with a real Connect worker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from sinksdk import ConnectorConfig, Header, SinkRecord, SinkRecords, TopicPartition
from sinksdk.testing import SinkTaskHarness
from tests.engine.sinks import Letters, Sink
from tests.helpers.needs import missing
from tests.kafka.maven import MavenError
from tests.transforms.connect import run_worker, stored_results
from tests.transforms.connect_cases import CHAINS, PARTITIONS, TOPICS, config_of, sent
from tests.transforms.shown import rows_shown


def _produced(topic: str, partition: int) -> list[SinkRecord]:
    return [
        SinkRecord(
            topic, partition, offset, key, value, timestamp, 0, tuple(Header(*header) for header in headers)
        )
        for offset, (key, value, timestamp, headers) in enumerate(sent(topic, partition))
    ]


def _lines(records: SinkRecords) -> Iterator[dict[str, Any]]:
    for record, shown in zip(records, rows_shown(records), strict=True):
        place = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
        yield {**shown, **place, "timestamp": record.timestamp}


def _ours(chain: str, topic: str) -> dict[str, Any]:
    """Return the records that a task receives here, and the dead letters."""
    config, problems = ConnectorConfig.check({"name": "c", **config_of(chain, topic)})
    if config is None:
        return {"refused": problems}
    letters = Letters()
    harness = SinkTaskHarness(Sink, config, dead_letters=letters)
    harness.start()
    for partition in range(PARTITIONS):
        harness.assign(TopicPartition(topic, partition))
        harness.deliver(TopicPartition(topic, partition), _produced(topic, partition))

    refused = []
    for letter in letters.records:
        headers = {header.key: header.value for header in letter.headers}
        stage = headers["__connect.errors.stage"]
        assert stage is not None
        refused.append([letter.partition, letter.offset, stage.decode()])
    records = [line for call in harness.called("put") for line in _lines(call.arguments[0])]
    harness.commit()
    assert harness.committed.keys() == {TopicPartition(topic, partition) for partition in range(PARTITIONS)}
    assert all(place.offset == len(sent(topic, p.partition)) for p, place in harness.committed.items())
    return {
        "records": sorted(records, key=lambda record: (record["partition"], record["offset"])),
        "letters": sorted(refused),
    }


def _numbers(shown: Any) -> Any:
    """Connect's timestamps as numbers, as in values without a type."""
    if isinstance(shown, dict):
        return shown["$date"] if shown.keys() == {"$date"} else {n: _numbers(v) for n, v in shown.items()}
    return shown


def _compared(
    theirs: dict[str, Any], ours: dict[str, Any], *, was_tombstone: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return both, with types only where ours have one.

    A tombstone has no schema in Connect, so HoistField's result has none, and its timestamp is a number.
    Here it is in a column among values with a schema, and has their type.
    """
    for part in ("key", "value"):
        kind = f"{part}Type"
        has_no_schema = part == "value" and was_tombstone and kind not in theirs
        if kind not in ours or has_no_schema or theirs[part] is None:
            theirs = {name: item for name, item in theirs.items() if name != kind}
            ours = {name: item for name, item in ours.items() if name != kind}
    return (theirs, ours) if "valueType" in ours else (_numbers(theirs), _numbers(ours))


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("chain", CHAINS)
def test_configuration_gives_the_same_records_as_in_connect(chain: str, topic: str) -> None:
    theirs, ours = stored_results()[chain][topic], _ours(chain, topic)
    assert ("refused" in ours) == ("refused" in theirs), (ours, theirs)
    if "refused" in ours:
        return
    assert ours["letters"] == theirs["letters"]
    for one, other in zip(theirs["records"], ours["records"], strict=True):
        record = sent(topic, one["partition"])[one["offset"]]
        expected, found = _compared(one, other, was_tombstone=record.value is None)
        assert found == expected


@pytest.mark.slow
@pytest.mark.nightly
def test_stored_results_equal_those_of_a_connect_worker() -> None:
    try:
        current = run_worker()
    except MavenError as error:
        missing("Kafka Connect", f"its jars come from Maven Central: {error}")
    assert json.loads(current) == stored_results()
