"""Comparisons of folders, names and values with those of Confluent's sink, for collected configurations.

Folders by time are compared with Joda-Time's stored results. ``test_original_lines.py`` compares values with
Kafka's converters; here each format writes every field of a value.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import struct
from pathlib import Path
from typing import Any, Final

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sinksdk import SinkRecord, SinkRecords, TopicPartition
from sinksdk.connectors.s3_archiver.config import S3ArchiverConfig
from tests.helpers.needs import missing
from tests.helpers.registry_server import RegistryServer
from tests.kafka.maven import MavenError
from tests.s3_archiver.corpus_files import CORPUS, settings_of
from tests.s3_archiver.corpus_verdicts import CONVERTED, EXPECTED
from tests.s3_archiver.original_lines import ask_for_folders
from tests.s3_archiver.support import Bench, bench

COLLECTED: Final = [name for name in sorted(EXPECTED) if re.fullmatch(r"[eilr]\d\d", name)]
STARTED: Final = [name for name in COLLECTED if EXPECTED[name].starts or name in CONVERTED]
# Configurations that start, but whose files are not compared.
OTHERS: Final = {
    **dict.fromkeys(("l01", "l02", "r11", "r13", "r31"), "another sink's files have other names"),
    "i08": "its 'path.format' ends with a slash, of which the original makes a folder without a name",
    "r40": "its partitioner is nobody's that could be asked",
}
FOLDERS: Final = Path(__file__).with_name("original_folders.json")

TP = TopicPartition("events", 0)
# the end of a leap day, and the hour in which Zurich's clocks go forward
_TIMES: Final = (1_709_251_199_999, 1_711_846_800_000)
_NOW: Final = 1_700_002_800_000  # the clock of the test bench
_HOURS: Final = "'year'=YYYY/'month'=MM/'day'=dd/'hour'=HH"
_FIXED: Final = {"HourlyPartitioner": (_HOURS, 3_600_000), "DailyPartitioner": (_HOURS[:-10], 86_400_000)}
_TIME_FIELDS: Final = ("timestamp", "updated_at", "eventTimestamp", "date", "__source_ts_ms")
_EXTENSIONS: Final = {
    "AvroFormat": ".avro",
    "JsonFormat": ".json",
    "ParquetFormat": ".snappy.parquet",
}


def raw_of(name: str) -> dict[str, str]:
    given = settings_of(json.loads((CORPUS / f"{name}.json").read_text()))
    raw = {"name": name, **{key: _text(value) for key, value in given.items()}}
    return dict(S3ArchiverConfig.converted(raw).config) if name in CONVERTED else raw


def _text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, bool) else str(value)


def short(raw: dict[str, str], key: str, default: str = "") -> str:
    return raw.get(key, default).rpartition(".")[2]


def folder_case(raw: dict[str, str], timestamp: int) -> tuple[str, int, str, int] | None:
    kind = short(raw, "partitioner.class", "DefaultPartitioner")
    if "Default" in kind or kind == "FieldPartitioner":
        return None
    pattern, duration = _FIXED.get(kind) or (raw["path.format"], int(raw["partition.duration.ms"]))
    by_record = "Record" in raw.get("timestamp.extractor", "Wallclock")
    return pattern, duration, raw["timezone"], timestamp if by_record else _NOW


def folder_of(raw: dict[str, str], timestamp: int) -> str:
    case = folder_case(raw, timestamp)
    if case is not None:
        answers: dict[str, str] = json.loads(FOLDERS.read_text())
        return answers[json.dumps(case)]
    fields = raw.get("partition.field.name", "")
    return "/".join(f"{field}={VALUE[field]}" for field in fields.split(",")) if fields else "partition=0"


VALUE: Final[dict[str, Any]] = {
    "id": 17,
    "team_id": 7,
    "session_id": "s-1",
    "window_id": "w",
    "country": "DE",
    "name": "Zoë",
    "delay": 12.5,
    "delayed": True,
    "note": None,
}


def value_at(timestamp: int) -> dict[str, Any]:
    return {**VALUE, **dict.fromkeys(_TIME_FIELDS, timestamp)}


_NAMES: Final = {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE"}
_DDL: Final = ", ".join(f"{key} {_NAMES.get(type(value), 'STRING')}" for key, value in value_at(0).items())
_TYPES: Final = {bool: "boolean", str: "string", int: "long", float: "double"}


def archived(name: str, registry: RegistryServer) -> tuple[dict[str, str], Bench]:
    raw = raw_of(name)
    raw.pop("topics.regex", None)
    raw["topics"] = "events"
    raw.setdefault("key.converter", "org.apache.kafka.connect.storage.StringConverter")
    kind = short(raw, "format.class")
    if kind == "AvroFormat":
        raw["value.converter"] = "io.confluent.connect.avro.AvroConverter"
        raw["value.converter.schema.registry.url"] = registry.url
    is_spliced = kind == "AvroFormat" and "transforms" not in raw
    is_typed = not is_spliced and (kind != "JsonFormat" or "Avro" in raw.get("value.converter", ""))
    if is_typed:  # the test delivers what a converter would return
        for key in [key for key in raw if key.startswith("value.converter")]:
            del raw[key]
    # JsonFormat gets typed values only from a converter that returns types.
    if is_typed and kind == "JsonFormat":
        raw |= {"value.converter": "json", "value.converter.schema": _DDL}
    made = bench(TP, settings=S3ArchiverConfig.parse(raw))
    values = [value_at(timestamp) for timestamp in _TIMES]
    given = [
        SinkRecord(*TP, offset=offset, key=b"k", value=b"", timestamp=timestamp)
        for offset, timestamp in enumerate(_TIMES)
    ]
    records = SinkRecords.of(TP, given)
    if is_spliced:
        fields = [
            {"name": key, "type": ["null", _TYPES.get(type(value), "string")]}
            for key, value in values[0].items()
        ]
        schema = {"type": "record", "name": "Event", "fields": fields}
        schema_id = registry.register("events-value", json.dumps(schema))
        column: Any = pa.array([_framed(schema, schema_id, value) for value in values])
    elif is_typed and kind != "JsonFormat":
        arrow = {bool: pa.bool_(), int: pa.int64(), float: pa.float64()}
        kinds = [(key, arrow.get(type(value), pa.string())) for key, value in values[0].items()]
        column = pa.array(values, pa.struct(kinds))
    else:
        envelope = raw.get("value.converter.schemas.enable", "").lower() == "true"
        column = pa.array([json.dumps(_enveloped(value) if envelope else value).encode() for value in values])
    place = records.arrow.schema.get_field_index("value")
    made.harness.deliver(TP, SinkRecords(TP, records.arrow.set_column(place, "value", column)))
    made.harness.revoke()
    return raw, made


def _framed(schema: dict[str, Any], schema_id: int, value: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return struct.pack(">bI", 0, schema_id) + out.getvalue()


def _enveloped(value: dict[str, Any]) -> dict[str, Any]:
    types = {bool: "boolean", str: "string", int: "int64", float: "double"}
    fields = [
        {"field": key, "type": types.get(type(found), "string"), "optional": True}
        for key, found in value.items()
    ]
    return {"schema": {"type": "struct", "fields": fields}, "payload": value}


def rows_of(key: str, data: bytes) -> list[Any]:
    if key.endswith(".avro"):
        return list(fastavro.reader(io.BytesIO(data)))
    if key.endswith(".parquet"):
        rows: list[Any] = pq.read_table(io.BytesIO(data)).to_pylist()
        return rows
    text = gzip.decompress(data) if key.endswith(".gz") else data
    return [json.loads(line) for line in text.splitlines()]


def expected(raw: dict[str, str]) -> dict[str, list[Any]]:
    end = _EXTENSIONS[short(raw, "format.class")]
    if raw.get("s3.compression.type") == "gzip" and end == ".json":
        end += ".gz"
    if end.endswith("parquet"):
        codec = raw.get("parquet.codec", "snappy")
        end = {"snappy": ".snappy.parquet", "gzip": ".gz.parquet", "none": ".parquet"}[codec]
    files: dict[str, list[Any]] = {}
    starts: dict[str, int] = {}
    ends_by_time = "rotate.interval.ms" in raw and folder_case(raw, 0) not in (None, folder_case(raw, 1))
    is_by_itself = raw["flush.size"] == "1" or (ends_by_time and raw["rotate.interval.ms"] != "-1")
    for offset, timestamp in enumerate(_TIMES):
        folder = folder_of(raw, timestamp)
        start = offset if is_by_itself else starts.setdefault(folder, offset)
        key = f"{raw.get('topics.dir', 'topics')}/events/{folder}/events+0+{start:010d}{end}"
        files.setdefault(key, []).append(value_at(timestamp))
    return files


@pytest.fixture(scope="module")
def registry() -> Any:
    with RegistryServer().running() as server:
        yield server


@pytest.mark.parametrize("name", [name for name in STARTED if name not in OTHERS])
def test_folders_file_names_and_values_equal_confluents(name: str, registry: RegistryServer) -> None:
    raw, made = archived(name, registry)
    keys = [key for key in made.visible() if "/_sinksdk/" not in key]
    values = [key for key in keys if ".keys." not in key and ".headers." not in key]
    beside = (raw.get("store.kafka.keys"), raw.get("store.kafka.headers")).count("true")

    assert {key: rows_of(key, made.s3.data(key)) for key in values} == expected(raw)
    assert len(keys) == len(values) * (1 + beside)


def test_at_least_40_of_54_configurations_produce_confluents_files() -> None:
    assert len(STARTED) == 48
    assert OTHERS.keys() < set(STARTED)
    assert len(STARTED) - len(OTHERS) == 41


def asked() -> dict[str, str]:
    cases = {
        case
        for name in STARTED
        if name not in OTHERS
        for timestamp in _TIMES
        if (case := folder_case(raw_of(name), timestamp)) is not None
    }
    return dict(zip(map(json.dumps, sorted(cases)), ask_for_folders(sorted(cases)), strict=True))


@pytest.mark.extended
@pytest.mark.slow
def test_the_recorded_folders_equal_joda_times() -> None:
    try:
        answers = asked()
    except MavenError as error:
        missing("Joda-Time", f"its jar comes from Maven Central: {error}")
    assert answers == json.loads(FOLDERS.read_text())


if __name__ == "__main__":
    FOLDERS.write_text(json.dumps(asked(), indent=1) + "\n")
