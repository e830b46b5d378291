"""Good and bad values in one topic, with kills: good ones are archived as if they were alone, bad ones are dead letters.

DuckDB, pyarrow, fastavro and Python's json read the files; sinksdk shares no code with them.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import signal
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sinksdk import TopicPartition
from sinksdk.topics import write_records
from tests.helpers.depth import DEPTH
from tests.helpers.registry_server import RegistryServer
from tests.integration.archive_site import Site, client, ended, site, wait_until
from tests.integration.freezing import python_workers_of

pytestmark = [pytest.mark.extended, pytest.mark.spark, pytest.mark.slow]

RECORDS = 200_000 if DEPTH.name == "nightly" else 20_000
PARTITIONS = 2
LETTERS = "letters"


class Value(NamedTuple):
    """A record's value. ``good`` is what a reader gets of it; None for a bad value and for one that is left out."""

    data: bytes | None
    good: Any = None
    is_bad: bool = False


# -- JSON --------------------------------------------------------------------------------------------------

BROKEN_JSON = [
    b'{"a":2,,}', b"{a:1}", b'{"a":1}{"a":2}', b'{"a":', b"nope", b'{"a":NaN}', b'"\xff"', b"[1,2", b"{'a':1}",
    b"\x00\x00", b'{"a":"\n"}', b"tru",
]  # fmt: skip
ODD_JSON: list[tuple[bytes, Any]] = [
    (b"1", 1), (b"1.0", 1.0), (b'"17"', "17"), (b'"null"', "null"), (b"[]", []), (b"true", True), (b'""', ""),
    (b'{"a":1.1,"b":[1,"x",null]}', {"a": 1.1, "b": [1, "x", None]}), (b' { "a" : 1 } ', {"a": 1}),
    ('{"größe":"\U0001f600"}'.encode(), {"größe": "\U0001f600"}), (b'{"a":1,"c":{"d":"e"}}', {"a": 1, "c": {"d": "e"}}),
]  # fmt: skip
NULL_JSON: list[bytes | None] = [None, b"", b"  ", b"null"]


def json_value(offset: int, chance: random.Random) -> Value:
    kind = chance.random()
    if kind < 0.004:
        return Value(chance.choice(BROKEN_JSON), is_bad=True)
    if kind < 0.007:
        return Value(chance.choice(NULL_JSON))
    if kind < 0.012:
        data, good = chance.choice(ODD_JSON)
        return Value(data, good)
    row = {"id": offset, "text": f"order {offset}", "price": offset / 8}
    return Value(json.dumps(row).encode(), row)


# -- Avro --------------------------------------------------------------------------------------------------

V1 = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "text", "type": "string"},
        {"name": "price", "type": "float"},
    ],
}
V2 = {**V1, "fields": [*V1["fields"], {"name": "note", "type": ["string", "null"], "default": "none"}]}
OTHER = {"type": "record", "name": "Customer", "fields": [{"name": "name", "type": "string"}]}
SCHEMAS = [V1, V2, OTHER]
PARSED = [fastavro.parse_schema(schema) for schema in SCHEMAS]


def framed(number: int, row: dict[str, Any]) -> bytes:
    datum = io.BytesIO()
    fastavro.schemaless_writer(datum, PARSED[number], row)
    return struct.pack(">bI", 0, number + 1) + datum.getvalue()


def avro_value(offset: int, chance: random.Random) -> Value:
    row: dict[str, Any] = {"id": offset, "text": f"order {offset}", "price": offset % 64 / 8}
    kind = chance.random()
    if kind < 0.005:
        whole = framed(0, row)
        broken = [
            whole[:-1],
            whole[:7],
            b"",
            b"\x00\x00",
            b"\x01" + whole[1:],
            whole[:5] + b"\xff" * 12,
            b"text",
        ]
        return Value(chance.choice(broken), is_bad=True)
    if kind < 0.007:
        return Value(None)
    if kind < 0.009:
        customer = {"name": f"customer {offset}"}
        return Value(framed(2, customer), customer)
    if kind < 0.012:
        return Value(framed(0, row) + b"stray", row)  # Connect's converter ignores bytes after the datum
    if offset // 5_000 % 2:
        newer = {**row, "note": None if offset % 3 else f"note {offset}"}
        return Value(framed(1, newer), newer)
    return Value(framed(0, row), row)


# -- the run -----------------------------------------------------------------------------------------------


class Form(NamedTuple):
    value: Any
    settings: dict[str, object]


JSON = {"value_converter": "json", "value_converter_schemas_enable": "false"}
FORMS = {
    "JSON lines": Form(json_value, {"format_class": "JsonFormat", **JSON}),
    "JSON lines, gzip": Form(
        json_value, {"format_class": "JsonFormat", "s3_compression_type": "gzip", **JSON}
    ),
    "Avro": Form(avro_value, {"format_class": "AvroFormat", "avro_codec": "zstandard"}),
    "Avro as Parquet": Form(avro_value, {"format_class": "ParquetFormat"}),
    "Avro as JSON lines": Form(avro_value, {"format_class": "JsonFormat"}),
}


def values_of(value: Any) -> dict[int, list[Value]]:
    made = {}
    for number in range(PARTITIONS):
        chance = random.Random(f"{value.__name__} {number}")  # noqa: S311 - the same in each run
        made[number] = [value(offset, chance) for offset in range(RECORDS // PARTITIONS)]
    return made


def append_third(archive: Site, topic: dict[int, list[Value]], third: int) -> None:
    for number, values in topic.items():
        first, end = (len(values) * part // 3 for part in (third, third + 1))
        rows = pa.table(
            {
                "offset": range(first, end),
                "key": [b"k%d" % offset for offset in range(first, end)],
                "value": pa.array([each.data for each in values[first:end]], pa.binary()),
                "timestamp": pa.array([1_700_000_000_000] * (end - first), pa.timestamp("ms", "UTC")),
            }
        )
        write_records(archive.topics, TopicPartition(archive.topic, number), rows)


def committed(archive: Site) -> int:
    return sum(archive.committed().values())


def append_in_mid_upload(
    archive: Site, run: subprocess.Popen[str], topic: dict[int, list[Value]], third: int
) -> None:
    archive.s3.hold_parts()
    append_third(archive, topic, third)
    wait_until(lambda: archive.s3.held_parts > 0, run, "a part was sent")


def run_with_kills(archive: Site, topic: dict[int, list[Value]]) -> None:
    # The topic grows before each kill, because one commit may cover all full files; nothing commits the rest.
    append_third(archive, topic, 0)
    run = archive.start()
    wait_until(lambda: committed(archive) > 0, run, "something was committed")

    append_in_mid_upload(archive, run, topic, 1)
    workers = python_workers_of(run)()
    assert workers, "there was no Python worker to kill"
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    before = committed(archive)
    archive.s3.heal()
    wait_until(lambda: committed(archive) > before, run, "more was committed")

    append_in_mid_upload(archive, run, topic, 2)
    os.killpg(run.pid, signal.SIGKILL)
    ended(run)
    archive.s3.heal()
    assert 0 < committed(archive) < RECORDS
    code, output = ended(archive.start("--until-caught-up"), 600.0)
    assert code == 0, output


def archived(archive: Site) -> dict[int, list[Any]]:
    s3, found = client(archive.endpoint), dict[int, list[tuple[str, list[Any]]]]()
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=archive.bucket, Prefix="topics/orders/"):
        for item in page.get("Contents", []):
            key = item["Key"]
            body = s3.get_object(Bucket=archive.bucket, Key=key)["Body"].read()
            path = archive.folder / "read" / key.rpartition("/")[2]
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(body)
            number = int(path.name.split("+")[1])
            found.setdefault(number, []).append((path.name.split("+")[2], values_in(path)))
    return {
        number: [row for _, rows in sorted(files, key=lambda file: file[0]) for row in rows]
        for number, files in found.items()
    }


def values_in(path: Path) -> list[Any]:
    if path.name.endswith(".avro"):
        with path.open("rb") as file:
            return list(fastavro.reader(file))
    if path.name.endswith(".parquet"):
        rows: list[Any] = pq.read_table(path).to_pylist()
        assert len(duckdb.read_parquet(str(path)).fetchall()) == len(rows)
        return rows
    data = gzip.decompress(path.read_bytes()) if path.name.endswith(".gz") else path.read_bytes()
    lines = data.decode().splitlines(keepends=True)
    assert all(line.endswith("\n") for line in lines)
    return [json.loads(line, parse_constant=partial(pytest.fail, "not JSON: %s")) for line in lines]


def letters(archive: Site) -> Counter[bytes | None]:
    found: Counter[bytes | None] = Counter()
    for file in (archive.topics / f"topic={LETTERS}").rglob("*.parquet"):
        found.update(pq.read_table(file, partitioning=None).column("value").to_pylist())
    return found


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Site]:
    with site(tmp_path) as made:
        yield made


@pytest.mark.parametrize("name", FORMS)
def test_valid_values_are_archived_independently_and_bad_records_become_dead_letters(
    archive: Site, name: str
) -> None:
    form = FORMS[name]
    with RegistryServer().running() as registry:
        for number, schema in enumerate(SCHEMAS, 1):
            assert registry.register(f"orders-{number}", json.dumps(schema)) == number
        settings = dict(form.settings)
        if form.value is avro_value:
            settings |= {"value_converter": "avro", "value_converter_schema_registry_url": registry.url}
        archive.configure(
            **settings,
            tasks_max=PARTITIONS,
            flush_size=RECORDS // 20,
            behavior_on_null_values="ignore",
            errors_tolerance="all",
            errors_deadletterqueue_topic_name=LETTERS,
            errors_deadletterqueue_max_share=1,
            report_null_values_to_dlq="false",
            offset_flush_interval_ms=500,
        )
        topic = values_of(form.value)
        run_with_kills(archive, topic)
        assert archive.committed() == dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS)
        expected = {n: [each.good for each in values if each.good is not None] for n, values in topic.items()}
        found = archived(archive)
        for number, values in expected.items():
            # Files of several schemas lie side by side, so rows are compared without their order.
            assert as_texts(found[number]) == as_texts(values)
        bad = {each.data for values in topic.values() for each in values if each.is_bad}
        sent = letters(archive)
        assert set(sent) == bad
        # A letter that was sent before a kill may come again (docs/errors-and-dead-letters.md); none is missing.
        wanted = Counter(each.data for values in topic.values() for each in values if each.is_bad)
        assert all(sent[data] >= count for data, count in wanted.items())
    code, said = archive_verify(archive)
    assert code == 0, said


def as_texts(values: list[Any]) -> Counter[str]:
    return Counter(json.dumps(value, sort_keys=True, ensure_ascii=False) for value in values)


def archive_verify(archive: Site) -> tuple[int, str]:
    command = [sys.executable, "-m", "sinksdk.connectors.s3_archiver", "verify", str(archive.config)]
    done = subprocess.run(
        [*command, "--store", archive.store], cwd=archive.folder, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr
