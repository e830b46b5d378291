"""Measure folders on one core, in batches of 10,000: ``python -m benchmarks.folders``."""

from __future__ import annotations

import io
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import fastavro
import numpy as np
import pyarrow as pa

from benchmarks.encoding import one_core
from benchmarks.table import Row, show
from sinksdk import TopicPartition
from sinksdk.connectors.s3_archiver.config import S3ArchiverConfig
from sinksdk.connectors.s3_archiver.partitioners.folders import Folders, folders_of

ROWS: Final = 10_000
BATCHES: Final = 10
ORDERS: Final = TopicPartition("orders", 3)
BEGIN: Final = 1_729_900_800_000  # 2024-10-26T00:00Z, a day before Europe's clocks are put back
HOUR: Final = 3_600_000
TIME: Final = {
    "partitioner_class": "TimeBasedPartitioner",
    "path_format": "'year'=YYYY/'month'=MM/'day'=dd/'hour'=HH",
    "partition_duration_ms": HOUR,
}


def measure(rounds: int = 11) -> list[Row]:
    dice = np.random.default_rng(1)
    hours = dice.integers(0, 5_000, 500)
    with one_core():
        rows = [
            _row("1 hour in a batch", _by_time(dice.integers(0, HOUR, (BATCHES, ROWS))), rounds, 0.10),
            _row("24 hours in a batch", _by_time(dice.integers(0, 24 * HOUR, (BATCHES, ROWS))), rounds, 0.20),
            _row(
                "500 random hours in a batch",
                _by_time(
                    dice.choice(hours, (BATCHES, ROWS)) * HOUR + dice.integers(0, HOUR, (BATCHES, ROWS))
                ),
                rounds,
            ),
        ]
        late = dice.integers(0, 5_000 * HOUR, (BATCHES, ROWS))
        rows.append(_row("any of 5,000 hours, buckets of 10 ms", _by_time(late, 10), rounds))
        values = _values()
        for what, keys in {
            "a text in JSON": {
                "partitioner_class": "FieldPartitioner",
                "partition_field_name": ["meta.shop"],
            },
            "a number in JSON as timestamp": _by_field("created"),
            "ISO 8601 in JSON as timestamp": _by_field("meta.at"),
            "a text in JSON and its timestamp": {
                **_by_field("created"),
                "partitioner_class": "FieldAndTimeBasedPartitioner",
                "partition_field_name": ["meta.shop"],
            },
        }.items():
            rows.append(_row(what, _run(keys, [_batch(np.full(ROWS, BEGIN), values)] * BATCHES), rounds))
        rows.append(_row("a text in Avro", _of_avro(values), rounds))
        rows.append(
            _row("for comparison: Python's json alone", lambda: list(map(json.loads, values * BATCHES)), 3)
        )
    return rows


def _by_field(name: str) -> dict[str, Any]:
    return {**TIME, "timestamp_extractor": "RecordField", "timestamp_field": name}


def _by_time(past: np.ndarray[Any, Any], duration: int = HOUR) -> Callable[[], object]:
    keys = {
        **TIME,
        "timestamp_extractor": "Record",
        "timezone": "Europe/Berlin",
        "partition_duration_ms": duration,
    }
    return _run(keys, [_batch(BEGIN + each) for each in past])


def _run(
    keys: Mapping[str, Any],
    batches: list[pa.RecordBatch],
    schema_of: Callable[[int], Any] | None = None,
) -> Callable[[], object]:
    folders = _folders(keys, schema_of)
    for batch in batches:
        assert not folders.split(ORDERS, batch, 0).bad

    def run() -> None:
        for batch in batches:
            folders.split(ORDERS, batch, 0)

    return run


def _of_avro(values: list[bytes]) -> Callable[[], object]:
    meta = _record("Meta", {"shop": "string", "at": "string"})
    kinds = {"id": "long", "created": "long", "customer": ["null", "string"], "meta": meta}
    schema = fastavro.parse_schema(_record("Order", {**kinds, "amount": "double"}))
    encoded = []
    for value in values:
        out = io.BytesIO(b"\0\0\0\0\1")
        out.seek(0, io.SEEK_END)
        fastavro.schemaless_writer(out, schema, json.loads(value))
        encoded.append(out.getvalue())
    keys = {
        "partitioner_class": "FieldPartitioner",
        "partition_field_name": ["meta.shop"],
        "value_converter": "avro",
    }
    return _run(keys, [_batch(np.full(ROWS, BEGIN), encoded)] * BATCHES, lambda _: schema)


def _record(name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": k} for n, k in fields.items()]}


def _folders(keys: Mapping[str, Any], schema_of: Callable[[int], Any] | None = None) -> Folders:
    base = {"name": "a", "topics": "orders", "s3_bucket_name": "bucket", "flush_size": 1}
    return folders_of(S3ArchiverConfig.model_construct(**base, **keys), schema_of)


def _batch(timestamps: np.ndarray[Any, Any], values: list[bytes] | None = None) -> pa.RecordBatch:
    columns = {
        "offset": pa.array(range(len(timestamps)), pa.int64()),
        "timestamp": pa.array(timestamps, pa.int64()).cast(pa.timestamp("ms", "UTC")),
        "value": pa.array(values or [b"v"] * len(timestamps), pa.binary()),
    }
    return pa.record_batch(list(columns.values()), list(columns))


def _values() -> list[bytes]:
    dice = random.Random(2)  # noqa: S311 - reproducible, nothing secret
    return [
        json.dumps(
            {
                "id": dice.randrange(10**9),
                "created": BEGIN + dice.randrange(24 * HOUR),
                "customer": f"customer-{dice.randrange(10**6):06d}",
                "meta": {
                    "shop": f"shop-{dice.randrange(50)}",
                    "at": f"2024-10-26T{dice.randrange(24):02}:{dice.randrange(60):02}:07.123Z",
                },
                "amount": dice.randrange(100_000) / 100,
                "paid": dice.random() < 0.9,
            }
        ).encode()
        for _ in range(ROWS)
    ]


def _row(what: str, run: Callable[[], object], rounds: int, most: float | None = None) -> Row:
    seconds = []
    for _ in range(rounds + 1):
        begun = time.process_time()
        run()
        seconds.append((time.process_time() - begun) / (ROWS * BATCHES) * 1e6)
    cost = statistics.median(seconds[1:])  # the first warms up
    measured = f"{cost:.3f} CPU s per million"
    if most is None:
        return Row(f"folders: {what}", measured)
    return Row.limit(f"folders: {what}", measured, is_met=cost <= most, target=f"{most:.2f}")


def main() -> int:
    """Print the table; return 1 if a target is missed."""
    rows = measure()
    show(rows)
    return int(not all(row.is_met for row in rows))


if __name__ == "__main__":
    sys.exit(main())
