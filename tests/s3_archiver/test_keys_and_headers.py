from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import fastavro
import pyarrow.parquet as pq
import pytest

from sinksdk import Header, SinkRecord, SinkRecords
from sinksdk.connectors.s3_archiver.archive.header import Archived
from sinksdk.connectors.s3_archiver.archive.ranges import Skip
from sinksdk.connectors.s3_archiver.files.settings import MOST_OPEN_FILES
from sinksdk.connectors.s3_archiver.s3.client import Location
from sinksdk.connectors.s3_archiver.verify.check import verify
from tests.helpers.registry_server import RegistryServer
from tests.s3_archiver.support import TP, Bench, bench, config
from tests.s3_archiver.test_groups import expire, restarted, stop_before
from tests.s3_archiver.test_values_task import framed, problems

JSON = {
    "format.class": "io.confluent.connect.s3.format.json.JsonFormat",
    "store.kafka.keys": "true",
    "keys.format.class": "io.confluent.connect.s3.format.json.JsonFormat",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "store.kafka.headers": "true",
    "headers.format.class": "io.confluent.connect.s3.format.json.JsonFormat",
}
FOLDER = "topics/orders/partition=0/orders+0+"
FIRST = f"{FOLDER}0000000000"


def deliver(made: Bench, count: int, **changed: Any) -> None:
    first = made.harness.position(TP)
    given = [
        SinkRecord(
            *TP,
            offset=n,
            key=b"k%d" % n,
            value=b"[%d]" % n,
            headers=(Header("h", b"%d" % n), Header("h", b"")),
        )
        for n in range(first, first + count)
    ]
    made.harness.deliver(TP, SinkRecords.of(TP, [replace(record, **changed) for record in given]))


def lines(made: Bench, key: str) -> list[Any]:
    return [json.loads(line) for line in made.s3.data(key).splitlines()]


def all_lines(made: Bench, end: str) -> list[Any]:
    return [line for key in made.visible() if key.split(".", 1)[1] == end for line in lines(made, key)]


def found_by_verify(made: Bench, keys: dict[str, str]) -> list[str]:
    return verify(config(keys), made.s3, lambda: made.harness.committed).problems


def test_key_and_header_files_are_next_to_the_values_file() -> None:
    keys = {**JSON, "flush.size": "2"}
    made = bench(settings=config(keys))
    deliver(made, 3)
    made.harness.revoke()

    names = ("headers.json", "json", "keys.json")
    assert made.visible() == [f"{FOLDER}000000000{start}.{name}" for start in (0, 2) for name in names]
    assert lines(made, f"{FIRST}.json") == [[0], [1]]
    assert lines(made, f"{FIRST}.keys.json") == ["k0", "k1"]
    assert lines(made, f"{FIRST}.headers.json") == [
        {"headers": [{"key": "h", "value": str(n)}, {"key": "h", "value": ""}]} for n in (0, 1)
    ]
    archived = Archived.of(made.harness.committed[TP])
    assert (archived.files, archived.records, archived.end) == (6, 3, 3)
    report = verify(config(keys), made.s3, lambda: made.harness.committed)
    assert (report.problems, report.partitions[0].files, report.partitions[0].records) == ([], 6, 3)


def test_keys_and_headers_are_avro_unless_their_format_is_set() -> None:
    made = bench(settings=config({**JSON, "keys.format.class": "", "headers.format.class": ""}))
    deliver(made, 2)
    made.harness.revoke()

    read = {
        end: fastavro.reader(io.BytesIO(made.s3.data(f"{FIRST}.{end}.avro"))) for end in ("keys", "headers")
    }
    assert read["keys"].writer_schema == "string"
    assert list(read["keys"]) == ["k0", "k1"]
    assert [[header["value"] for header in row] for row in read["headers"]] == [["0", ""], ["1", ""]]  # type: ignore[index, call-overload]
    assert found_by_verify(made, JSON) == []


def test_framed_keys_are_copied_and_each_schema_has_its_own_files() -> None:
    # Where keys have two schemas, the values are also written to two files.
    schema = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]}
    with RegistryServer().running() as server:
        ids = [server.register("k", json.dumps({**schema, "doc": doc})) for doc in ("one", "two")]
        avro = {
            "keys.format.class": "AvroFormat",
            "key.converter": "io.confluent.connect.avro.AvroConverter",
            "key.converter.schema.registry.url": server.url,
        }
        made = bench(settings=config({**JSON, **avro}))
        given = [SinkRecord(*TP, offset=n, key=framed(ids[n % 2], n), value=b"[%d]" % n) for n in range(4)]
        made.harness.deliver(TP, SinkRecords.of(TP, given))
        made.harness.revoke()

    for start in (0, 1):
        file = fastavro.reader(io.BytesIO(made.s3.data(f"{FOLDER}000000000{start}.keys.avro")))
        assert [row["n"] for row in file] == [start, start + 2]  # type: ignore[index, call-overload]
        assert lines(made, f"{FOLDER}000000000{start}.json") == [[start], [start + 2]]
        assert lines(made, f"{FOLDER}000000000{start}.headers.json") == [{"headers": []}] * 2


def test_parquet_wraps_keys_and_headers() -> None:
    name = "io.confluent.connect.s3.format.parquet.ParquetFormat"
    made = bench(settings=config({**JSON, "keys.format.class": name, "headers.format.class": name}))
    deliver(made, 2)
    made.harness.revoke()

    def rows(end: str) -> Any:
        return pq.read_table(io.BytesIO(made.s3.data(f"{FIRST}.{end}.snappy.parquet"))).to_pylist()

    assert rows("keys") == [{"key": "k0"}, {"key": "k1"}]
    assert rows("headers")[1] == {"headers": [{"key": "h", "value": "1"}, {"key": "h", "value": ""}]}


def test_key_and_header_files_support_gzip_and_bytes() -> None:
    keys = {**JSON, "s3.compression.type": "gzip", "keys.format.class": "ByteArrayFormat"}
    made = bench(settings=config({**keys, "key.converter": "bytes"}))
    deliver(made, 2)
    made.harness.revoke()
    assert made.visible() == [f"{FIRST}.{end}.gz" for end in ("headers.json", "json", "keys.bin")]
    assert found_by_verify(made, keys) == []


@pytest.mark.parametrize(
    ("changed", "expected_text"),
    [
        ({"key": None}, "it has no key (null), but 'store.kafka.keys' needs one"),
        ({"key": b"\xff"}, "the bytes are not UTF-8 text"),
        ({"headers": (Header("h", b"\xff"),)}, "the value of its header 'h' is not UTF-8 text"),
    ],
    ids=["no key", "key of bytes", "header of bytes"],
)
def test_a_record_with_an_unwritable_key_or_header_is_bad(
    changed: dict[str, Any], expected_text: str
) -> None:
    # None of the files has the record, so that their rows still correspond.
    made = bench(settings=config({**JSON, "errors.tolerance": "all"}))
    deliver(made, 2)
    deliver(made, 1, **changed)
    deliver(made, 1)
    made.harness.revoke()

    assert all_lines(made, "json") == [[0], [1], [3]]
    assert all_lines(made, "keys.json") == ["k0", "k1", "k3"]
    assert len(all_lines(made, "headers.json")) == 3

    strict = bench(settings=config(JSON))
    deliver(strict, 1, **changed)
    strict.harness.revoke()
    failure = strict.harness.outcome(TP).failure
    assert failure is not None
    assert "orders-0" in failure.message
    assert "at offset 0" in failure.message
    assert expected_text in failure.message


def test_an_ignored_null_value_has_no_key_and_no_headers_in_files() -> None:
    made = bench(settings=config({**JSON, "behavior.on.null.values": "ignore"}))
    deliver(made, 1)
    deliver(made, 1, value=None)
    deliver(made, 1)
    made.harness.revoke()
    assert all_lines(made, "json") == [[0], [2]]
    assert all_lines(made, "keys.json") == ["k0", "k2"]


TOMBSTONES = {**JSON, "behavior.on.null.values": "write", "tombstone.encoded.partition": "deleted"}


@pytest.mark.parametrize("partitioner", ["DefaultPartitioner", "HourlyPartitioner"])
def test_keys_of_tombstones_are_in_the_tombstone_folder(partitioner: str) -> None:
    keys = {
        **TOMBSTONES,
        "partitioner.class": partitioner,
        **({} if partitioner.startswith("Def") else {"timestamp.extractor": "RecordField", "locale": "en"}),
        **({"timestamp.field": "at", "rotate.interval.ms": "1000"} if partitioner[0] == "H" else {}),
    }
    made = bench(settings=config(keys))
    value = {"value": b'{"at": 7200000}'}
    deliver(made, 1, value=None)
    deliver(made, 2, **value)
    deliver(made, 2, value=None)
    deliver(made, 1, **value)
    made.harness.revoke()

    folder = "topics/orders/deleted/orders+0+0000000000"
    tombstones = [key for key in made.visible() if "deleted" in key]
    assert tombstones[:2] == [f"{folder}.headers.json", f"{folder}.keys.json"]
    assert [key for name in tombstones if "keys" in name for key in lines(made, name)] == ["k0", "k3", "k4"]
    others = [key for key in made.visible() if "deleted" not in key and ".keys." in key]
    assert [key for name in others for key in lines(made, name)] == ["k1", "k2", "k5"]
    assert len(all_lines(made, "json")) == 3
    archived = Archived.of(made.harness.committed[TP])
    assert archived.records == 3
    report = verify(config(keys), made.s3, lambda: made.harness.committed)
    assert (report.problems, report.partitions[0].gaps) == ([], 0), "files hold keys of all offsets"


def test_tombstones_create_no_file_of_values() -> None:
    made = bench(settings=config(TOMBSTONES))
    deliver(made, 3, value=None)
    made.harness.revoke()
    assert [key.split(".", 1)[1] for key in made.visible()] == ["headers.json", "keys.json"]
    assert made.committed() == 3
    assert found_by_verify(made, TOMBSTONES) == []


# -- whole or not at all ---------------------------------------------------------------------------------


def test_verify_finds_a_missing_file_of_keys() -> None:
    keys = {**JSON, "flush.size": "2"}
    made = bench(settings=config(keys))
    deliver(made, 6)
    made.harness.revoke()
    del made.s3.objects[Location("bucket", f"{FOLDER}0000000002.keys.json")]
    (problem,) = found_by_verify(made, keys)
    assert "files in between are missing, unreadable" in problem


def test_verify_finds_a_file_of_keys_with_missing_rows() -> None:
    made = bench(settings=config(JSON))
    deliver(made, 3)
    made.harness.revoke()
    where = Location("bucket", f"{FIRST}.keys.json")
    found = made.s3.objects[where]
    made.s3.objects[where] = replace(found, data=b'"k0"\n', crc32=None)
    (problem,) = found_by_verify(made, JSON)
    assert "orders+0+0000000000.json has 3 rows and " in problem
    assert "orders+0+0000000000.keys.json has 1, although they are of the same records" in problem


@pytest.mark.parametrize("batch", [1, 3, 100])
@pytest.mark.parametrize("completed", [1, 2, 4])
def test_only_the_expired_files_of_a_commit_are_written_again(completed: int, batch: int) -> None:
    keys = {**JSON, "flush.size": "4"}
    made = bench(settings=config(keys))
    deliver(made, 8)
    stop_before(made, completed)
    visible = made.visible()
    assert len(visible) == completed
    tokens = made.harness.committed[TP].tokens
    expire(made, *(place for place, token in enumerate(tokens) if token.id in made.s3.uploads))
    restarted(made)
    skip = Skip.of_text(Archived.of(made.harness.committed[TP]).skip)
    assert len(skip.of) == completed % 3
    assert found_by_verify(made, keys) == []

    restarted(made)
    left = 10 - made.harness.position(TP)
    while left:
        deliver(made, min(batch, left))
        left -= min(batch, left)
    made.harness.revoke()

    assert all_lines(made, "json") == [[n] for n in range(10)]
    assert all_lines(made, "keys.json") == [f"k{n}" for n in range(10)]
    assert [row["headers"][0]["value"] for row in all_lines(made, "headers.json")] == [
        str(n) for n in range(10)
    ]
    assert set(visible) <= set(made.visible())
    assert made.s3.uploads == {}
    assert found_by_verify(made, keys) == []


@pytest.mark.parametrize("batch", [1, 100])
@pytest.mark.parametrize("completed", [1, 2, 3])
def test_a_tombstone_with_visible_key_and_headers_is_not_written_again(completed: int, batch: int) -> None:
    # Regression: such a record failed its partition at each attempt.
    keys = {**TOMBSTONES, "flush.size": "4"}
    made = bench(settings=config(keys))
    deliver(made, 1, value=None)
    deliver(made, 2)
    deliver(made, 1, value=None)
    stop_before(made, completed)
    tokens = made.harness.committed[TP].tokens
    expire(made, *(place for place, token in enumerate(tokens) if token.id in made.s3.uploads))
    restarted(made)
    restarted(made)

    for given in [{"value": None}, {}, {}, {"value": None}] if batch == 1 else []:
        deliver(made, 1, **given)
    if batch > 1:
        records = [
            SinkRecord(*TP, offset=n, key=b"k%d" % n, value=value, headers=(Header("h", b"%d" % n),))
            for n, value in enumerate((None, b"[1]", b"[2]", None))
        ]
        made.harness.deliver(TP, SinkRecords.of(TP, records))
    made.harness.revoke()

    assert made.committed() == 4
    assert sorted(all_lines(made, "json")) == [[1], [2]]
    assert sorted(all_lines(made, "keys.json")) == ["k0", "k1", "k2", "k3"]
    assert len(all_lines(made, "headers.json")) == 4
    assert made.s3.uploads == {}
    assert found_by_verify(made, keys) == []


# -- configuration ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "expected_text"),
    [
        ({"keys.format.class": "AvroFormat", "key.converter": "json"}, "needs a schema of the keys"),
        (
            {"keys.format.class": "ByteArrayFormat", "key.converter": "json"},
            "ByteArrayFormat writes unconverted keys",
        ),
        ({"keys.format.class": "OrcFormat"}, "use AvroFormat, JsonFormat"),
        (
            {"headers.format.class": "ByteArrayFormat"},
            "'headers.format.class' is unsupported: use AvroFormat",
        ),
        (
            {"store.kafka.keys": "false", "behavior.on.null.values": "write"},
            "needs 'store.kafka.keys' = true",
        ),
    ],
    ids=str,
)
def test_unsupported_key_and_header_settings_are_refused(keys: dict[str, str], expected_text: str) -> None:
    without = {"key.converter.schemas.enable": "false"} if keys.get("key.converter") == "json" else {}
    found = problems(**{key.replace(".", "_"): value for key, value in {**JSON, **keys, **without}.items()})
    assert len([problem for problem in found if expected_text in problem]) == 1


def test_files_of_whole_records_have_no_key_or_header_files() -> None:
    made = bench(settings=config({**JSON, "format.class": "AvroFormat", "archive.content": "record"}))
    deliver(made, 2)
    made.harness.revoke()
    assert made.visible() == [f"{FIRST}.avro"]


def test_key_and_header_files_do_not_increase_the_tokens_of_a_commit() -> None:
    # With files of keys and headers, fewer files may be open, and each token may list fewer runs of rows.
    alone, beside = config({"format.class": "JsonFormat"}).limits(), config(JSON).limits()
    assert (alone.files, beside.files) == (MOST_OPEN_FILES, MOST_OPEN_FILES // 3)
    assert beside.runs == alone.runs // 3


def test_key_bytes_are_followed_by_the_configured_separator() -> None:
    keys = {
        "key.converter": "bytes",
        "keys.format.class": "ByteArrayFormat",
        "format.bytearray.separator": ";",
        "format.bytearray.extension": ".raw",
    }
    made = bench(settings=config({**JSON, **keys}))
    deliver(made, 2)
    made.harness.revoke()
    assert made.s3.data(f"{FIRST}.keys.raw") == b"k0;k1;"


BROKEN = {"headers": (Header("h", b"text"), Header("trace", b"\xff"))}


@pytest.mark.parametrize(
    ("advised", "files"),
    [
        (
            {"transforms": "drop", "transforms.drop.type": "DropHeaders", "transforms.drop.headers": "trace"},
            3,
        ),
        ({"store.kafka.headers": "false"}, 2),
        ({"archive.content": "record", "format.class": "AvroFormat", "store.kafka.headers": "false"}, 1),
        ({"archive.content": "record", "format.class": "ParquetFormat", "store.kafka.headers": "false"}, 1),
    ],
    ids=["DropHeaders", "no headers", "Avro records", "Parquet records"],
)
def test_the_remedies_for_a_header_that_is_not_text_work(advised: dict[str, str], files: int) -> None:
    strict = bench(settings=config(JSON))
    deliver(strict, 1, **BROKEN)
    strict.harness.revoke()
    failure = strict.harness.outcome(TP).failure
    assert failure is not None
    assert "header 'trace'" in failure.message
    for words in ("DropHeaders", "'store.kafka.headers'", "'archive.content' record", "ParquetFormat"):
        assert words in failure.message

    keys = {**JSON, **advised}
    if "archive.content" in advised:
        keys = {
            name: text for name, text in keys.items() if not name.startswith(("store.", "keys.", "headers."))
        }
    made = bench(settings=config(keys))
    deliver(made, 1, **BROKEN)
    made.harness.revoke()
    assert len(made.visible()) == files
    assert made.committed() == 1
