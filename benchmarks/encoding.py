"""Measure how fast Arrow batches become Avro containers, against a naive loop and the codecs.

The variants take turns, so that other load hits all alike; a ratio is the median over the turns. Speeds are
per second of CPU time, in records and in megabytes of datums before compression.
"""

from __future__ import annotations

import io
import json
import os
import random
import statistics
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from unittest import mock

import fastavro
import pyarrow as pa
import pyarrow.compute as pc

from sinksdk import TopicPartition
from sinksdk.connectors.s3_archiver.files.file import BatchCoalescer
from sinksdk.connectors.s3_archiver.formats.codecs import codec
from sinksdk.connectors.s3_archiver.formats.container import BLOCK_BYTES, ContainerWriter
from sinksdk.connectors.s3_archiver.formats.encoder import Loop, RecordEncoder, compiled_loop, plain_loop
from sinksdk.connectors.s3_archiver.formats.schema import RECORD_SCHEMA, sync_marker
from sinksdk.records import RECORD_COLUMNS

ROWS: Final = 10_000  # Spark's spark.sql.execution.arrow.maxRecordsPerBatch
SMALL_ROWS: Final = 100
ORDERS: Final = TopicPartition("orders", 3)
MARKER: Final = sync_marker("benchmark")
LOOPS: Final[Mapping[str, Loop]] = {
    "plain": plain_loop,
    **({"compiled": compiled_loop} if compiled_loop else {}),
}
WORDS: Final = [
    "ash",
    "birch",
    "cedar",
    "elm",
    "fir",
    "hazel",
    "larch",
    "linden",
    "maple",
    "oak",
    "pine",
    "rowan",
    "spruce",
    "willow",
    "yew",
]

Row = dict[str, Any]


def measure(rounds: int = 21) -> list[Row]:
    shapes = {"200 B random": random_values(200), "1 KB JSON": json_values(1_000)}
    targets = {"200 B random": 30.0, "1 KB JSON": 20.0}
    table: list[Row] = []
    with one_core():
        for shape, values in shapes.items():
            batch = records(values)
            table += against_naive(shape, batch, rounds, targets[shape])
            for name in ("zstandard", "deflate", "snappy"):
                table += against_codec(shape, batch, name, rounds)
            table += small_batches(shape, batch, rounds)
    return table


def against_naive(shape: str, batch: pa.RecordBatch, rounds: int, target: float) -> list[Row]:
    named_for_avro = _with_coordinates(batch)
    for loop in LOOPS.values():
        assert naive(named_for_avro) == b"".join(ours([batch], "null", loop))
    seconds = interleaved(
        {
            "naive": (1, lambda: naive(named_for_avro)),
            **{name: (10, _file_of(batch, "null", loop)) for name, loop in LOOPS.items()},
        },
        rounds,
    )
    return [
        _row(shape, "naive: to_pylist, fastavro.writer", batch, seconds["naive"]),
        *(
            _row(shape, f"{name}, null codec", batch, seconds[name], seconds["naive"], "naive", target)
            for name in LOOPS
        ),
    ]


def against_codec(shape: str, batch: pa.RecordBatch, name: str, rounds: int) -> list[Row]:
    # Both compress the same blocks.
    blocks = [piece for piece in ours([batch], "null") if len(piece) > BLOCK_BYTES / 4]
    compress, joins = codec(name).compress, arrow_joins(batch)
    seconds = interleaved(
        {
            "codec": (3, lambda: drain(map(compress, blocks))),
            "floor": (3, lambda: (joins(), drain(map(compress, blocks)))),
            **{loop_name: (3, _file_of(batch, name, loop)) for loop_name, loop in LOOPS.items()},
        },
        rounds,
    )
    alone = f"{name} alone"
    targets = {} if name == "snappy" else {"compiled": 0.8}
    return [
        _row(shape, alone, batch, seconds["codec"]),
        *(
            _row(shape, f"{each}, {name}", batch, seconds[each], seconds["codec"], alone, targets.get(each))
            for each in LOOPS
        ),
        _row(shape, f"Arrow's joins of plain, {name}", batch, seconds["floor"], seconds["codec"], alone),
    ]


def _file_of(batch: pa.RecordBatch, codec_name: str, loop: Loop) -> Callable[[], object]:
    return lambda: drain(ours([batch], codec_name, loop))


def small_batches(shape: str, batch: pa.RecordBatch, rounds: int) -> list[Row]:
    small = [batch.take(pa.array(range(at, at + SMALL_ROWS))) for at in range(0, ROWS, SMALL_ROWS)]
    seconds = interleaved(
        {
            "large": (5, lambda: drain(ours([batch], "null"))),
            "coalesced": (5, lambda: drain(ours(coalesced(small), "null"))),
            "not coalesced": (1, lambda: drain(ours(small, "null"))),
        },
        rounds,
    )
    large = f"batches of {ROWS:,}"
    return [
        _row(shape, f"batches of {SMALL_ROWS}, {how}", batch, seconds[how], seconds["large"], large, target)
        for how, target in (("coalesced", 0.5), ("not coalesced", None))
    ]


def arrow_joins(batch: pa.RecordBatch) -> Callable[[], object]:
    # No encoder by joins can be faster: everything but the copying in C++ is prepared.
    calls: list[tuple[Any, Any]] = []
    join = pc.binary_join_element_wise

    def recorded(*pieces: Any, **options: Any) -> Any:
        calls.append((pieces, options))
        return join(*pieces, **options)

    with mock.patch.object(pc, "binary_join_element_wise", recorded):
        RecordEncoder(ORDERS, plain_loop).encode(batch)
    return lambda: [join(*pieces, **options) for pieces, options in calls]


def ours(
    batches: Iterable[pa.RecordBatch], codec_name: str, loop: Loop | None = None
) -> Iterator[bytes | memoryview]:
    # None: the faster loop.
    encoder = RecordEncoder(ORDERS, loop)
    writer = ContainerWriter(RECORD_SCHEMA, codec(codec_name), {}, MARKER)
    yield from writer.header()
    for batch in batches:
        yield from writer.append(encoder.encode(batch))
    yield from writer.finish()


def coalesced(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    coalescer = BatchCoalescer()
    for batch in batches:
        yield from coalescer.add(batch)
    yield from coalescer.flush()


def naive(batch: pa.RecordBatch) -> bytes:
    out = io.BytesIO()
    fastavro.writer(
        out, dict(RECORD_SCHEMA), batch.to_pylist(), sync_interval=BLOCK_BYTES, sync_marker=MARKER
    )
    return out.getvalue()


def records(values: list[bytes]) -> pa.RecordBatch:
    dice = random.Random(2)  # noqa: S311 - reproducible, nothing secret
    rows = range(len(values))
    columns: dict[str, list[Any]] = {
        "offset": [1_000_000 + n for n in rows],
        "timestamp": [1_700_000_000_000 + 20 * n + dice.randrange(20) for n in rows],
        "timestampType": [0] * len(values),
        "key": [None if dice.random() < 0.05 else b"customer-%06d" % dice.randrange(10**6) for _ in rows],
        "value": values,
        "headers": [_headers(dice) for _ in rows],
    }
    arrays = [pa.array(columns[name], kind) for name, kind in RECORD_COLUMNS.items()]
    return pa.RecordBatch.from_arrays(arrays, names=list(RECORD_COLUMNS))


def random_values(size: int) -> list[bytes]:
    dice = random.Random(3)  # noqa: S311 - reproducible, nothing secret
    return [dice.randbytes(size) for _ in range(ROWS)]


def json_values(size: int) -> list[bytes]:
    # Such orders compress 4 times, as real ones do.
    dice = random.Random(4)  # noqa: S311 - reproducible, nothing secret
    return [_order(dice, size) for _ in range(ROWS)]


def _order(dice: random.Random, size: int) -> bytes:
    order: dict[str, Any] = {"id": str(uuid.UUID(int=dice.getrandbits(128))), "lines": []}
    encoded = b""
    while len(encoded) < size:
        order["lines"].append(
            {
                "sku": f"SKU-{dice.randrange(10**7):07d}",
                "name": " ".join(dice.choices(WORDS, k=3)),
                "quantity": dice.randint(1, 9),
                "price": dice.randrange(100, 100_000) / 100,
                "warehouse": dice.choice(WORDS),
            }
        )
        encoded = json.dumps(order).encode()
    return encoded


def _headers(dice: random.Random) -> list[dict[str, Any]]:
    if dice.random() < 0.5:
        return []
    return [{"key": "trace-id", "value": dice.randbytes(16)}, {"key": "source", "value": b"web"}]


def _with_coordinates(batch: pa.RecordBatch) -> pa.RecordBatch:
    rows = batch.num_rows
    coordinates: list[Any] = [
        pa.array([ORDERS.topic] * rows),
        pa.array([ORDERS.partition] * rows, pa.int32()),
    ]
    names = [field["name"] for field in RECORD_SCHEMA["fields"]]
    return pa.RecordBatch.from_arrays([*coordinates, *batch.columns], names=names)


def interleaved(
    candidates: Mapping[str, tuple[int, Callable[[], object]]], rounds: int
) -> dict[str, list[float]]:
    # One figure per round: the mean of all calls.
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for number in range(rounds + 1):
        for name, (calls, run) in candidates.items():
            start = time.process_time()
            for _ in range(calls):
                run()
            if number:  # the first round warms up
                seconds[name].append((time.process_time() - start) / calls)
    return seconds


def drain(pieces: Iterable[bytes | memoryview]) -> int:
    return sum(map(len, pieces))


@contextmanager
def one_core() -> Iterator[None]:
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def _row(  # noqa: PLR0917 - the columns of the table, from left to right
    shape: str,
    what: str,
    batch: pa.RecordBatch,
    seconds: list[float],
    other: list[float] | None = None,
    against: str = "",
    target: float | None = None,
) -> Row:
    middle = statistics.median(seconds)
    return {
        "shape": shape,
        "what": what,
        "records_per_second": batch.num_rows / middle,
        "megabytes_per_second": RecordEncoder(ORDERS).encode(batch).nbytes / middle / 1e6,
        "against": against,
        "ratio": other
        and statistics.median(theirs / own for own, theirs in zip(seconds, other, strict=True)),
        "target": target,
    }


def print_table(table: list[Row]) -> None:
    print(f"{'shape':14}{'what':36}{'k records/s':>12}{'MB/s':>8}{'ratio':>8}{'target':>8}  against")
    for row in table:
        ratio = f"{row['ratio']:.2f}" if row["ratio"] else ""
        target = f"{row['target']:g}" if row["target"] else ""
        print(
            f"{row['shape']:14}{row['what']:36}{row['records_per_second'] / 1e3:12,.0f}"
            f"{row['megabytes_per_second']:8,.0f}{ratio:>8}{target:>8}  {row['against']}"
        )


def main() -> int:
    """Print the table; return 1 if a target is missed."""
    table = measure()
    print_table(table)
    return int(any(row["target"] and row["ratio"] < row["target"] for row in table))


if __name__ == "__main__":
    sys.exit(main())
