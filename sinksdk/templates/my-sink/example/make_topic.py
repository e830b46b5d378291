"""Write a small topic for the example: 1,000 records in each of two partitions."""

import json
import sys
from pathlib import Path

from sinksdk import SinkRecord, SinkRecords, TopicPartition
from sinksdk.topics import write_records


def reading(partition: TopicPartition, offset: int) -> SinkRecord:
    value = {"celsius": 20 + offset % 7}
    return SinkRecord(
        partition.topic,
        partition.partition,
        offset,
        key=f"sensor-{partition.partition}".encode(),
        value=json.dumps(value).encode(),
    )


for number in range(2):
    partition = TopicPartition("readings", number)
    records = [reading(partition, offset) for offset in range(1_000)]
    write_records(Path(sys.argv[1]), partition, SinkRecords.of(partition, records))
