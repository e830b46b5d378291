"""Measure the extra CPU time of a bad record, and of one of another schema.

The archiver's task writes JSON lines to S3 in memory; a figure is the best of its turns less that of good
records. ``python -m benchmarks.bad_records [ROUNDS]``
"""

from __future__ import annotations

import json
import logging
import random
import sys
import time
from collections.abc import Callable, Mapping
from typing import Final

import pyarrow as pa

from benchmarks.encoding import ORDERS, one_core
from benchmarks.table import Row, show
from sinksdk import SinkRecords
from sinksdk.engine import EngineOptions
from tests.s3_archiver.support import bench, config

ROUNDS: Final = 5
BATCH, BATCHES = 10_000, 10
RECORDS: Final = BATCH * BATCHES
FEW: Final = 2_000
# Microseconds that a bad record may cost.
MOST: Final = 60.0

_SCHEMAS: Final = {"one schema": 1, "two schemas in turn": 2, "ten schemas in turn": 10}
_KEYS: Final = {
    "format.class": "JsonFormat",
    "value.converter": "json",
    "flush.size": "100000",
    "errors.tolerance": "all",
    "errors.deadletterqueue.max.share": "1",
}


def orders() -> list[bytes]:
    dice = random.Random(5)  # noqa: S311 - reproducible, nothing secret
    return [
        json.dumps({"id": n, "customer": dice.randbytes(8).hex(), "note": dice.randbytes(120).hex()}).encode()
        for n in range(RECORDS)
    ]


def with_bad(values: list[bytes], every: int) -> list[bytes]:
    # Bad values are cut off at their end.
    return [value[:-1] if n % every == 0 else value for n, value in enumerate(values)]


def enveloped(values: list[bytes], schemas: int) -> list[bytes]:
    fields = [("id", "int64"), ("customer", "string"), ("note", "string")]
    begins = []
    for number in range(schemas):
        kind = {
            "type": "struct",
            "fields": [
                *({"field": name, "type": kind, "optional": False} for name, kind in fields),
                {"field": f"other{number}", "type": "string", "optional": True},
            ],
        }
        begins.append(f'{{"schema":{json.dumps(kind)},"payload":'.encode())
    return [begins[n % schemas] + value + b"}" for n, value in enumerate(values)]


def seconds_of(values: list[bytes], keys: Mapping[str, str]) -> Callable[[], float]:
    settings = config({**_KEYS, **keys})
    given = []
    for first in range(0, len(values), BATCH):
        part = values[first : first + BATCH]
        columns = {
            "offset": pa.array(range(first, first + len(part)), pa.int64()),
            "key": pa.array([b"k"] * len(part), pa.binary()),
            "value": pa.array(part, pa.binary()),
        }
        given.append(SinkRecords(ORDERS, pa.RecordBatch.from_pydict(columns)))

    def run() -> float:
        made = bench(ORDERS, settings=settings, options=EngineOptions.of(settings))
        start = time.process_time()
        for batch in given:
            made.harness.deliver(ORDERS, batch)
        made.harness.revoke()
        seconds = time.process_time() - start
        assert made.committed(ORDERS) == len(values)
        return seconds

    return run


def measure(rounds: int = ROUNDS) -> list[Row]:
    logging.disable(logging.CRITICAL)
    values = orders()
    runs = {
        "good": seconds_of(values, {}),
        "1 % bad": seconds_of(with_bad(values, 100), {}),
        "10 % bad": seconds_of(with_bad(values, 10), {}),
        **{name: seconds_of(enveloped(values[:FEW], schemas), {}) for name, schemas in _SCHEMAS.items()},
    }
    best = dict.fromkeys(runs, float("inf"))
    with one_core():
        for _ in range(rounds + 1):
            for name, run in runs.items():
                best[name] = min(best[name], run())

    def extra(name: str, than: str, records: int) -> float:
        return (best[name] - best[than]) / records * 1e6

    bad = {share: extra(f"{share} % bad", "good", RECORDS * share // 100) for share in (1, 10)}
    mixed = {name: extra(name, "one schema", FEW) for name in _SCHEMAS if name != "one schema"}
    return [
        Row("JSON lines, all records good", f"{best['good'] / RECORDS * 1e6:.2f} CPU s/M"),
        *(
            Row.limit(
                f"a bad record, where {share} % are bad",
                f"{micros:.1f} µs",
                is_met=micros <= MOST,
                target=f"{MOST:g} µs",
            )
            for share, micros in bad.items()
        ),
        Row("envelopes of one schema", f"{best['one schema'] / FEW * 1e6:.2f} CPU s/M"),
        *(Row(f"envelopes: a record of {name}, extra", f"{micros:.1f} µs") for name, micros in mixed.items()),
    ]


if __name__ == "__main__":
    show(measure(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS))
