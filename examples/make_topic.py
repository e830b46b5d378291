"""Writes a small topic as Parquet files: ``python examples/make_topic.py build/topics``."""

import json
import sys
from pathlib import Path

from sinksdk import Header, SinkRecord, SinkRecords, TopicPartition
from sinksdk.topics import write_records

TOPIC, PARTITIONS, RECORDS = "readings", 2, 5_000
MIDNIGHT = 1_767_225_600_000  # 2026-01-01 in UTC, milliseconds since the epoch


def readings(partition: TopicPartition) -> SinkRecords:
    """Return the temperatures of one sensor, one each second."""
    sensor = f"sensor-{partition.partition}"
    return SinkRecords.of(
        partition,
        [
            SinkRecord(
                *partition,
                offset=second,
                key=sensor.encode(),
                value=json.dumps({"sensor": sensor, "celsius": 20 + second % 7}).encode(),
                timestamp=MIDNIGHT + 1_000 * second,
                headers=(Header("unit", b"celsius"),),
            )
            for second in range(RECORDS)
        ],
    )


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    for number in range(PARTITIONS):
        print(write_records(folder, TopicPartition(TOPIC, number), readings(TopicPartition(TOPIC, number))))
