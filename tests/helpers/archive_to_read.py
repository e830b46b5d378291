"""The archives that docs/read-an-archive.md reads, and the page's code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from sinksdk import SinkRecord, SinkRecords
from tests.s3_archiver.support import TP, bench, config

PAGE = Path(__file__).parents[2] / "docs/read-an-archive.md"
JSON = {
    "format.class": "JsonFormat",
    "store.kafka.keys": "true",
    "keys.format.class": "JsonFormat",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
}
BY_DAY = {
    "format.class": "ParquetFormat",
    "value.converter": "json",
    "value.converter.schema": "shop INT, total BIGINT",
    "partitioner.class": "FieldAndTimeBasedPartitioner",
    "partition.field.name": "shop",
    "path.format": "'date'=YYYY-MM-dd",
    "partition.duration.ms": "86400000",
    "timestamp.extractor": "Record",
    "locale": "en-US",
}
ARCHIVES: Mapping[str, Mapping[str, str]] = {"by-day": BY_DAY, "lines": JSON, "topics": {}}
_FEBRUARY_28 = 1_709_078_400_000
_HALF_A_DAY = 43_200_000


def objects() -> dict[str, bytes]:
    # Six orders, two a day from 28 February 2024 on, of shops 0 and 1, with totals 0, 10, 20 and so on.
    found: dict[str, bytes] = {}
    for folder, keys in ARCHIVES.items():
        made = bench(settings=config({**keys, "topics.dir": folder}))
        given = [
            SinkRecord(
                *TP,
                offset=number,
                key=b"k%d" % number,
                value=b'{"shop":%d,"total":%d}' % (number % 2, 10 * number),
                timestamp=_FEBRUARY_28 + number * _HALF_A_DAY,
            )
            for number in range(6)
        ]
        made.harness.deliver(TP, SinkRecords.of(TP, given))
        made.harness.revoke()
        found |= {key: made.s3.data(key) for key in made.visible()}
    return found


def copied(folder: Path) -> None:
    for key, data in objects().items():
        path = folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def code(*, of_spark: bool) -> str:
    before, after = PAGE.read_text().split("\n## Spark\n")
    blocks = re.findall(r"^```python\n(.*?)^```$", after if of_spark else before, re.DOTALL | re.MULTILINE)
    return "\n".join(blocks)
