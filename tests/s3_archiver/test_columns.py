from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa

from sinksdk.connectors.s3_archiver.formats import columns
from sinksdk.topics import write_records
from tests.helpers.registry_server import RegistryServer
from tests.s3_archiver.support import OTHER, TP

SOME = pa.array([5, None, 7], pa.int64())


def test_numbers_with_nulls_round_trip_through_numpy() -> None:
    assert columns.filled(SOME).tolist() == [5, 0, 7]
    assert columns.null_where(np.array([50, 0, 70]), SOME).to_pylist() == [50, None, 70]
    assert columns.null_where(np.array([50, 60, 70]), SOME.fill_null(6)).to_pylist() == [50, 60, 70]
    assert [rows.tolist() for rows in columns.null_rows(SOME)] == [[1], [0, 2]]


def test_empty_slices_are_converted_like_other_columns() -> None:
    assert columns.filled(SOME.slice(1)).tolist() == [0, 7]
    assert columns.filled(SOME.slice(3)).tolist() == []
    assert columns.as_mask(SOME.slice(1).is_null()).tolist() == [True, False]
    assert columns.flag_column(np.empty(0, np.bool_)).to_pylist() == []


CODE = """if True:
    import sys
    from pathlib import Path
    from sinksdk.records import RECORD_COLUMNS
    from sinksdk.offsets import OffsetRange
    from sinksdk.topics import TopicDirectorySource
    from tests.s3_archiver.support import OTHER, TP, bench, config

    values = {"archive.content": "value", "behavior.on.null.values": "ignore", "errors.tolerance": "all"}
    by_time = {"path.format": "YYYY", "partition.duration.ms": "1", "timestamp.field": "at"}
    fields = {"partitioner.class": "FieldAndTimeBasedPartitioner", "partition.field.name": "f", **by_time}
    beside = {"store.kafka.headers": "true", "store.kafka.keys": "true", "behavior.on.null.values": "write"}
    for partition, keys in [
        (TP, {}),
        (TP, {"partitioner.class": "HourlyPartitioner", "timestamp.extractor": "Record"}),
        (TP, {"format.class": "ParquetFormat", "archive.content": "record"}),
        (TP, {"format.class": "ByteArrayFormat", **values}),
        (TP, {"format.class": "JsonFormat", **values, **fields, "timestamp.extractor": "Record"}),
        (TP, {"format.class": "JsonFormat", **values, **fields, "timestamp.extractor": "RecordField"}),
        (TP, {"format.class": "JsonFormat", **values, **beside}),
        (OTHER, {"value.converter": "avro", "value.converter.schema.registry.url": sys.argv[2], **values}),
    ]:
        task = bench(partition, settings=config(keys))
        ranges = {partition: OffsetRange(3, 60)}
        source = TopicDirectorySource(Path(sys.argv[1]))
        for records in source.reader(ranges).read(ranges, RECORD_COLUMNS, {}):
            if records is not None:
                task.harness.deliver(partition, records)
        task.harness.stop()
        print(bool(task.visible()), end=" ")
    print("pandas" in sys.modules)
"""


def test_archiving_does_not_import_pandas(tmp_path: Path) -> None:
    # Importing pandas would take 40 MB and half a second in each Python worker.
    schema = {"type": "record", "name": "Order", "fields": [{"name": "f", "type": ["null", "string"]}]}
    lines = [{"f": number % 3, "at": "2024-02-29T12:34:56Z"} for number in range(40)]
    values = [*lines, {"f": None, "at": 5}, {}, None, *lines]
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    with RegistryServer().running() as server:
        number = server.register("orders-value", json.dumps(schema))
        datum = struct.pack(">bI", 0, number) + b"\x02\x02x"
        made = [None if value is None else datum for value in values]
        texts = [None if value is None else json.dumps(value).encode() for value in values]
        for partition, column in ((TP, texts), (OTHER, made)):
            table = pa.table(
                {
                    "offset": range(len(column)),
                    "key": [None if row % 2 else b"k" for row in range(len(column))],
                    "value": pa.array(column, pa.binary()),
                    "timestamp": pa.array(range(len(column)), pa.timestamp("us", "UTC")),
                    "headers": pa.array(
                        [[{"key": "a", "value": None}] * (row % 2) for row in range(len(column))], headers
                    ),
                }
            )
            write_records(tmp_path, partition, table)
        output = subprocess.check_output([sys.executable, "-c", CODE, str(tmp_path), server.url], text=True)

    assert output.split() == [*["True"] * 8, "False"]
