"""Measure the formats of values against record mode: ``python -m benchmarks.formats``.

A figure is the CPU time of all work between a batch and the bytes of its files: kinds, division, encoding.
"""

from __future__ import annotations

import io
import json
import random
import statistics
import struct
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import fastavro
import numpy as np
import pyarrow as pa

from benchmarks.encoding import ORDERS, ROWS, drain, interleaved, json_values, one_core, records
from sinksdk.connectors.s3_archiver.archive.header import Archived, FileHeader
from sinksdk.connectors.s3_archiver.formats.avro_value import AvroValues
from sinksdk.connectors.s3_archiver.formats.base import Format
from sinksdk.connectors.s3_archiver.formats.encoder import RecordAvro
from sinksdk.connectors.s3_archiver.formats.lines import JsonLines, RawBytes
from sinksdk.engine.converters import JsonConverter

HEADER: Final = FileHeader(ORDERS, 1_000_000, "benchmark", 1, Archived())
SCHEMA: Final[dict[str, Any]] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "price", "type": "double"},
        {"name": "note", "type": ["null", "string"]},
    ],
}


class Measured(NamedTuple):
    """A row of the table.

    Args:
        cpu: seconds per million records.
        ratio: to record mode.
        most: the target; None: there is none.
    """

    shape: str
    what: str
    cpu: float
    ratio: float | None = None
    most: float | None = None


def measure(rounds: int = 21) -> list[Measured]:
    with one_core():
        return [row for shape in (small_json, large_json, enveloped, avro) for row in shape(rounds)]


def small_json(rounds: int) -> list[Measured]:
    return _json_rows("200 B JSON", small_values(), rounds)


def large_json(rounds: int) -> list[Measured]:
    return _json_rows("1 KB JSON", json_values(1_000), rounds)


def _json_rows(shape: str, values: list[bytes], rounds: int) -> list[Measured]:
    batch = records(values)
    indented = records([json.dumps(json.loads(value), indent=1).encode() for value in values])
    umlauts = records([value.replace(b'": "', '": "ä'.encode(), 1) for value in values])
    rows = _against_record(
        shape,
        batch,
        rounds,
        {
            "JSON lines": (5, lambda: file_of(JsonLines(), converted(batch)), 1.0),
            "JSON lines, none of them ASCII": (5, lambda: file_of(JsonLines(), converted(umlauts)), None),
            "JSON lines, each indented before": (1, lambda: file_of(JsonLines(), converted(indented)), None),
            "bytes with a separator": (5, lambda: file_of(RawBytes(), batch), None),
        },
    )
    compressed = _against_record(
        shape,
        batch,
        rounds,
        {
            "JSON lines, gzip": (1, lambda: file_of(JsonLines(gzip_level=-1), converted(batch)), None),
            "bytes with a separator, gzip": (1, lambda: file_of(RawBytes(gzip_level=-1), batch), None),
        },
        "deflate",
    )
    return rows + compressed


def enveloped(rounds: int) -> list[Measured]:
    before = (
        '{"schema":{"type":"struct","fields":[{"type":"string","optional":false,"field":"note"}]},"payload":'
    )
    batch = records([before.encode() + value + b"}" for value in small_values()])

    def unwrapped() -> int:
        return file_of(JsonLines(), converted(batch, in_envelope=True))

    return _against_record(
        "200 B in an envelope", batch, rounds, {"JSON lines, unwrapped": (2, unwrapped, None)}
    )


def avro(rounds: int) -> list[Measured]:
    one, ten = records(framed_values(1)), records(framed_values(10))
    return _against_record(
        "200 B Avro, framed",
        one,
        rounds,
        {
            "values spliced": (5, lambda: file_of(splicing(), one), 1.3),
            "values spliced, 10 schemas in turn": (2, lambda: file_of(splicing(), ten), None),
        },
    )


def _against_record(
    shape: str,
    batch: pa.RecordBatch,
    rounds: int,
    candidates: dict[str, tuple[int, Callable[[], object], float | None]],
    codec_name: str = "null",
) -> list[Measured]:
    against = f"record mode, {codec_name}"
    seconds = interleaved(
        {
            against: (1 if codec_name != "null" else 5, lambda: file_of(RecordAvro(codec_name), batch)),
            **{name: (calls, run) for name, (calls, run, _) in candidates.items()},
        },
        rounds,
    )
    record = seconds[against]
    return [
        Measured(shape, against, _per_million(record)),
        *(
            Measured(
                shape,
                name,
                _per_million(seconds[name]),
                statistics.median(own / theirs for own, theirs in zip(seconds[name], record, strict=True)),
                most,
            )
            for name, (_, _, most) in candidates.items()
        ),
    ]


def _per_million(seconds: list[float]) -> float:
    return statistics.median(seconds) / ROWS * 1e6


def file_of(format_: Format[Any], batch: pa.RecordBatch) -> int:
    # The archiver makes one file for each kind.
    format_.learn(batch)
    kinds = format_.kinds(ORDERS, batch)
    if kinds is None or len(kinds.kinds) == 1:
        rows = format_.encode(ORDERS, batch).rows
        return drain(_pieces(format_, rows, kinds and kinds.kinds[0]))
    order = np.argsort(kinds.codes.astype(np.int16), kind="stable")
    borders = np.searchsorted(kinds.codes[order], np.arange(len(kinds.kinds) + 1)).tolist()
    looked_at = batch if format_.columns is None else batch.select(format_.columns)
    rows = format_.encode(ORDERS, looked_at.take(pa.array(order))).rows
    return sum(
        drain(_pieces(format_, rows.slice(begin, end), kind))
        for kind, begin, end in zip(kinds.kinds, borders[:-1], borders[1:], strict=True)
    )


def converted(batch: pa.RecordBatch, *, in_envelope: bool = False) -> pa.RecordBatch:
    # The engine passes values to the archiver after the converter.
    place = batch.schema.get_field_index("value")
    read = JsonConverter(in_envelope).convert(ORDERS.topic, batch.column(place).cast(pa.binary()))
    (piece,) = read.pieces
    assert len(piece.rows) == len(batch), "a value is no JSON"
    return batch.set_column(place, "value", piece.content)


def _pieces(format_: Format[Any], rows: Any, kind: object) -> Iterator[bytes | memoryview]:
    content = format_.begin(HEADER, "benchmark", kind)
    yield from content.header()
    yield from content.append(rows)
    yield from content.finish()


def splicing() -> AvroValues:
    parsed = fastavro.parse_schema(SCHEMA)
    return AvroValues(lambda _: parsed)


def small_values() -> list[bytes]:
    dice = random.Random(5)  # noqa: S311 - reproducible, nothing secret
    return [json.dumps({"id": n, "note": dice.randbytes(85).hex()}).encode() for n in range(ROWS)]


def framed_values(schemas: int) -> list[bytes]:
    dice, parsed, values = random.Random(6), fastavro.parse_schema(SCHEMA), []  # noqa: S311 - reproducible, nothing secret
    for number in range(ROWS):
        out = io.BytesIO(struct.pack(">bI", 0, 1 + number % schemas))
        out.seek(0, io.SEEK_END)
        row = {
            "id": number,
            "customer": dice.randbytes(8).hex(),
            "price": number / 4,
            "note": dice.randbytes(82).hex(),
        }
        fastavro.schemaless_writer(out, parsed, row)
        values.append(out.getvalue())
    return values


def main() -> int:
    """Print the table; return 1 if a target is missed."""
    table = measure()
    print(f"{'shape':22}{'what':38}{'CPU s/M records':>16}{'ratio':>8}{'target':>8}")
    for row in table:
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        most = "" if row.most is None else f"{row.most:g}"
        print(f"{row.shape:22}{row.what:38}{row.cpu:16.3f}{ratio:>8}{most:>8}")
    return int(any(row.most is not None and (row.ratio or 0) > row.most for row in table))


if __name__ == "__main__":
    sys.exit(main())
