from __future__ import annotations

import json
import logging
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from sinksdk import SinkRecord, SinkRecords
from sinksdk.engine import EngineOptions
from sinksdk.topics.kafka.schema_registry import connect
from tests.helpers.registry_server import RegistryServer
from tests.helpers.tiers import extended_after
from tests.s3_archiver.support import TP, Bench, bench, config
from tests.s3_archiver.test_bad_input import Letters

IGNORE = {"behavior.on.null.values": "ignore"}
LETTERS = {"errors.deadletterqueue.topic.name": "letters", "errors.tolerance": "all"}
LINES = {"format.class": "JsonFormat", "value.converter": "json", "value.converter.schemas.enable": "false"}
FORMATS = {
    "lines": LINES,
    "Avro": {"format.class": "AvroFormat", "value.converter": "string"},
    "Parquet": {
        "format.class": "ParquetFormat",
        "value.converter": "json",
        "value.converter.schema": "a INT",
    },
    "bytes": {"format.class": "ByteArrayFormat", "value.converter": "bytes"},
    "by field": {**LINES, "partitioner.class": "FieldPartitioner", "partition.field.name": "a"},
    "with keys": {**LINES, "store.kafka.keys": "true"},
}
VALUES = (b'{"a":1}', None, b'{"a":2}', None)


def archived(keys: dict[str, str], records: list[SinkRecord], letters: Letters) -> Bench:
    settings = config(keys)
    made = bench(settings=settings, options=EngineOptions.of(settings, connect), dead_letters=letters)
    made.harness.deliver(TP, SinkRecords.of(TP, records))
    made.harness.revoke()
    return made


def delivered(
    keys: dict[str, str], values: tuple[bytes | None, ...] = VALUES
) -> tuple[list[int], int | None]:
    letters = Letters()
    records = [SinkRecord(*TP, offset=n, key=b"k", value=value) for n, value in enumerate(values)]
    made = archived(keys, records, letters)
    return [record.offset for record in letters.records], made.committed()


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("expected_text", [{}, {"report.null.values.to.dlq": "true"}])
def test_ignored_null_values_become_dead_letters(name: str, expected_text: dict[str, str]) -> None:
    assert delivered({**FORMATS[name], **IGNORE, **LETTERS, **expected_text}) == ([1, 3], 4)


@pytest.mark.parametrize("name", FORMATS)
def test_ignored_null_values_are_not_reported_if_reports_are_disabled(name: str) -> None:
    assert delivered({**FORMATS[name], **IGNORE, **LETTERS, "report.null.values.to.dlq": "false"}) == ([], 4)


def test_ignored_null_values_are_dropped_without_dead_letters_or_a_log() -> None:
    assert delivered({**LINES, **IGNORE}) == ([], 4)


def test_ignored_null_values_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        assert delivered({**LINES, **IGNORE, "errors.tolerance": "all", "errors.log.enable": "true"})[1] == 4
    assert [line.count("set 'report.null.values.to.dlq' to false") for line in caplog.messages] == [1, 1]


def test_a_reported_null_value_fails_its_partition_unless_errors_are_tolerated() -> None:
    # In Connect, any report of a record then fails the partition.
    assert delivered({**LINES, **IGNORE, **LETTERS, "errors.tolerance": "none"}) == ([1], None)


def test_ignored_null_values_do_not_count_as_errors() -> None:
    # A topic may hold mostly tombstones.
    values = (b'{"a":1}', *[None] * 1_500)

    offsets, committed = delivered({**LINES, **IGNORE, **LETTERS}, values)
    assert (len(offsets), committed) == (1_500, 1_501)


# -- nulls of Avro schemas ---------------------------------------------------------------------------------

RECORD = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
# Each case has a schema, nulls that Java reads (some with extra bytes, or with a number of too many bytes),
# and a value.
NULLS: dict[str, tuple[Any, list[bytes], bytes | None]] = {
    "of a union": (["null", RECORD], [b"\0", b"\0\7", b"\x80\0"], b"\2\2"),
    "of the last branch": ([RECORD, "null"], [b"\2", b"\x82\0"], b"\0\2"),
    "of no other type": ("null", [b"", b"\7"], None),
}
BY_FIELD = {"partitioner.class": "FieldPartitioner", "partition.field.name": "a"}
TRANSFORM = {
    "transforms": "h",
    "transforms.h.type": "org.apache.kafka.connect.transforms.InsertField$Value",
    "transforms.h.static.field": "s",
    "transforms.h.static.value": "v",
}


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryServer]:
    server = RegistryServer()
    with server.running():
        yield server


def framed(registry: RegistryServer, schema: Any, datum: bytes) -> bytes:
    return struct.pack(">bI", 0, registry.register("s", json.dumps(schema))) + datum


def of_registry(part: str, registry: RegistryServer) -> dict[str, str]:
    return {f"{part}.converter": "avro", f"{part}.converter.schema.registry.url": registry.url}


@pytest.mark.parametrize("kind", NULLS)
@pytest.mark.parametrize(
    "more", extended_after(1, [{}, BY_FIELD, TRANSFORM]), ids=["flat", "by field", "transformed"]
)
@pytest.mark.parametrize("name", ["AvroFormat", "JsonFormat", "ParquetFormat"])
def test_an_avro_null_is_a_null_value(
    name: str, more: dict[str, str], kind: str, registry: RegistryServer
) -> None:
    schema, nulls, value = NULLS[kind]
    values = [framed(registry, schema, datum) for datum in (*nulls, *([value] if value else []))]
    keys = {"format.class": name, **more, **of_registry("value", registry)}
    letters = Letters()
    for behavior in ({}, IGNORE):
        records = [SinkRecord(*TP, offset=n, value=each) for n, each in enumerate(values)]
        made = archived({**keys, **LETTERS, **behavior}, records, letters)
        assert made.committed() == len(values)
        files = [key for key in made.visible() if "_sinksdk" not in key]
        assert len(files) == (value is not None)
        assert all(f"+{len(nulls):010d}." in key for key in files)
    # The dead letters have the bytes as they were read.
    assert [record.value for record in letters.records] == values[: len(nulls)] * 2
    assert delivered({**keys, **IGNORE}, tuple(values)) == ([], len(values))


@pytest.mark.parametrize("kind", NULLS)
@pytest.mark.parametrize("name", ["AvroFormat", "JsonFormat"])
def test_the_key_of_an_avro_null_is_written_as_a_tombstone(
    name: str, kind: str, registry: RegistryServer
) -> None:
    schema, nulls, _ = NULLS[kind]
    keys = {"format.class": name, "store.kafka.keys": "true", "key.converter": "string"}
    keys |= {**of_registry("value", registry), "behavior.on.null.values": "write"}
    records = [
        SinkRecord(*TP, offset=n, key=b"k", value=framed(registry, schema, datum))
        for n, datum in enumerate(nulls)
    ]
    made = archived(keys, records, Letters())
    files = [key for key in made.visible() if "_sinksdk" not in key]
    assert files == ["topics/orders/tombstone/orders+0+0000000000.keys.avro"]


@pytest.mark.parametrize("name", ["AvroFormat", "JsonFormat"])
def test_a_null_avro_key_is_a_missing_key(
    name: str, registry: RegistryServer, caplog: pytest.LogCaptureFixture
) -> None:
    keys = {"format.class": "JsonFormat", "value.converter": "string", "store.kafka.keys": "true"}
    keys |= {
        **LETTERS,
        "errors.log.enable": "true",
        **of_registry("key", registry),
        "keys.format.class": name,
    }
    letters = Letters()
    given = [framed(registry, ["null", "string"], datum) for datum in (b"\0", b"\2\2k")]
    records = [SinkRecord(*TP, offset=n, key=key, value=b"v") for n, key in enumerate(given)]
    archived(keys, records, letters)
    assert [record.key for record in letters.records] == given[:1]
    assert [line.count("it has no key (null)") for line in caplog.messages] == [1]


def test_whole_records_keep_the_bytes_of_an_avro_null(registry: RegistryServer) -> None:
    # A null has no field from which a folder could be named.
    values = tuple(framed(registry, ["null", RECORD], datum) for datum in (b"\0", b"\2\2"))
    record = {"archive.content": "record", **of_registry("value", registry)}
    assert delivered({**record, **LETTERS}, values) == ([], 2)
    assert delivered({**record, **LETTERS, **BY_FIELD}, values) == ([0], 2)
