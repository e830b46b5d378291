"""Measure Connect's transforms on one core: ``python -m benchmarks.chain``.

Batches have 10,000 JSON values of 170 bytes, as converted objects or as an Arrow column of structures.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import pyarrow as pa

from benchmarks.table import Row, show
from sinksdk import SinkRecords, TopicPartition
from sinksdk.engine.converters import JsonConverter
from sinksdk.engine.encoding import BytesRead, as_bytes
from sinksdk.transforms.chain import Chain
from sinksdk.transforms.parts import with_content
from sinksdk.transforms.plugins import read_chain

ROWS: Final = 10_000
ROUNDS: Final = 7
_PARTITION: Final = TopicPartition("flights", 0)
_STEPS: Final[Mapping[str, Mapping[str, str]]] = {
    "MaskField": {"type": "MaskField$Value", "fields": "card"},
    "InsertField": {"type": "InsertField$Value", "offset.field": "at"},
    "ReplaceField": {"type": "ReplaceField$Value", "exclude": "note"},
    "Cast": {"type": "Cast$Value", "spec": "delay:string"},
    "Filter by predicate": {"type": "Filter", "predicate": "tombstone"},
}


def _value(number: int) -> dict[str, object]:
    flight = {
        "id": number,
        "carrier": "UA",
        "origin": "EWR",
        "delay": number % 60,
        "card": f"4711-{number:08}",
    }
    return {**flight, "note": "x" * (170 - len(json.dumps({**flight, "note": ""})))}


def _step(name: str) -> Chain:
    keys = {f"transforms.a.{key}": text for key, text in _STEPS[name].items()}
    found, problems = read_chain(
        ["a"], ["tombstone"], {**keys, "predicates.tombstone.type": "RecordIsTombstone"}
    )
    assert found is not None, problems
    return found


def _seconds(work: Callable[[], object], rows: int = ROWS) -> str:
    work()
    rounds = []
    for _ in range(ROUNDS):
        before = time.process_time()
        work()
        rounds.append(time.process_time() - before)
    return f"{statistics.median(rounds) / rows * 1e6:.2f} s/M"


def rows() -> list[Row]:
    values = [None if number % 10 == 0 else _value(number) for number in range(ROWS)]
    data = [None if value is None else json.dumps(value).encode() for value in values]
    arrow = pa.RecordBatch.from_pydict(
        {"offset": pa.array(range(ROWS), pa.int64()), "value": pa.array(data, pa.binary())}
    )
    # MaskField refuses tombstones: only the filter also gets records without a value.
    whole = SinkRecords(_PARTITION, arrow, None, values)
    present = whole.take([row for row, value in enumerate(values) if value is not None])
    column = pa.array(present.value_objects)
    typed = with_content(present, "value", column)
    converter = JsonConverter(schemas_enable=False)
    table = [Row("JSON converter", _seconds(lambda: [converter("t", one) for one in data]))]
    for name in _STEPS:
        given = {"objects": present, "structures": typed}
        if name.startswith("Filter"):
            given = {"objects": whole, "structures": with_content(whole, "value", pa.array(values))}
        for kind, records in given.items():
            table.append(Row(f"{name}, on {kind}", _seconds(partial(_step(name), records), len(records))))
    masked = _step("MaskField")(present)

    def written() -> None:
        as_bytes(masked, BytesRead(present, by_content=False))

    return [*table, Row("JSON again, for the archiver", _seconds(written, len(present)))]


if __name__ == "__main__":
    show(rows())
