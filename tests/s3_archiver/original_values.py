"""``python -m tests.s3_archiver.original_values`` asks Connect and Confluent's S3 sink what they make of values.

A setup is a converter, a chain of transforms and a side: which part of the record is read, and which is
written. For each setup and input the table has the answer of Kafka's and Confluent's classes
(``java/values/Values.java``): why the record is bad and where that was found, ``null``, ``dropped`` by a
transform, or what each format writes.
"""

from __future__ import annotations

import base64
import io
import json
import math
import os
import struct
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, Literal

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from tests.kafka.maven import copy_jars
from tests.s3_archiver import original_lines as lines

ANSWERS: Final = Path(__file__).with_name("original_values.json")
FORMATS: Final = ("JsonFormat", "ByteArrayFormat", "AvroFormat", "ParquetFormat")
_JAVA: Final = Path(__file__).parent / "java" / "values"
_PATIENCE: Final = 900.0  # seconds

Part = Literal["key", "value"]
# "null", "dropped", {stage: class of the exception}, or what each format writes.
Answer = Any


@dataclass(frozen=True)
class Converter:
    """A converter's configuration.

    Args:
        kind: its short name here.
        class_name: Connect's.
        keys: of its configuration, without the prefix.
        decimals: ``json.decimal.format`` of the files.
    """

    kind: str
    class_name: str
    keys: Mapping[str, str]
    decimals: str = "BASE64"


@dataclass(frozen=True)
class Setup:
    """A row of the table.

    Args:
        converter: its name in :data:`CONVERTERS`.
        chain: its name in :data:`CHAINS`.
        reads: the part that the converter reads.
        writes: the part that is written.
    """

    converter: str
    chain: str
    reads: Part
    writes: Part

    @property
    def name(self) -> str:
        return f"{self.converter} {self.chain} {self.reads}>{self.writes}"

    @property
    def inputs(self) -> Sequence[bytes | None]:
        return INPUTS[self.converter] if self.chain == "none" else FEW_INPUTS[self.converter]

    @property
    def transforms(self) -> Sequence[tuple[str, Mapping[str, str]]]:
        side = "Key" if self.reads == "key" else "Value"
        return [(f"{name}{side}" if name.endswith("$") else name, keys) for name, keys in CHAINS[self.chain]]


# -- asking ------------------------------------------------------------------------------------------------


def ask(setups: Sequence[Setup]) -> list[list[Answer]]:
    jars = copy_jars(_JAVA / "pom.xml", f"kafka-connect-values-{lines.KAFKA}")
    java = Path(os.environ["JAVA_HOME"], "bin", "java") if os.environ.get("JAVA_HOME") else "java"
    done = subprocess.run(
        [
            *(str(java), "-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8", "-Duser.timezone=UTC"),
            *("-cp", ":".join(map(str, jars)), str(_JAVA / "Values.java")),
        ],
        input=json.dumps([_asked(setup) for setup in setups]),
        capture_output=True,
        encoding="utf-8",
        timeout=_PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [[_shown(answer) for answer in answers] for answers in json.loads(done.stdout)]


def _asked(setup: Setup) -> dict[str, Any]:
    converter = CONVERTERS[setup.converter]
    return {
        "converter": converter.class_name,
        "config": converter.keys,
        "decimals": converter.decimals,
        "reads": setup.reads,
        "writes": setup.writes,
        "transforms": setup.transforms,
        "schemas": {number: json.dumps(schema) for number, schema in SCHEMAS.items()},
        "inputs": [None if given is None else base64.b64encode(given).decode() for given in setup.inputs],
    }


def _shown(answer: Answer) -> Answer:
    if not isinstance(answer, dict) or not answer.keys() >= set(FORMATS):
        return answer
    shown = dict(answer)
    for name, read in (("AvroFormat", read_avro), ("ParquetFormat", read_parquet)):
        for kind in ("avro", "parquet"):
            if kind in answer[name]:
                (row,) = read(base64.b64decode(answer[name][kind]))
                shown[name] = {"row": row}
    return shown


def read_avro(data: bytes) -> list[Any]:
    physical = data.replace(b'"logicalType"', b'"physicalOne"')  # a name with the same number of characters
    return [shown(value) for value in fastavro.reader(io.BytesIO(physical))]


def read_parquet(data: bytes) -> list[Any]:
    (batch,) = pq.read_table(io.BytesIO(data)).combine_chunks().to_batches()
    return [_of_scalar(row) for row in batch.to_struct_array()]


def _of_scalar(scalar: Any) -> Any:
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _of_scalar(scalar[place]) for place, field in enumerate(kind)}
    if pa.types.is_map(kind):
        names, items = (map(_of_scalar, scalar.values.field(place)) for place in (0, 1))
        return sorted(map(list, zip(names, items, strict=True)), key=str)  # a map has no order
    if pa.types.is_list(kind):
        return [_of_scalar(item) for item in scalar.values]
    if pa.types.is_temporal(kind):
        return {f"${kind}": scalar.value}
    return shown(scalar.as_py())


def shown(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: shown(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [shown(item) for item in value]
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": str(value)}
    if isinstance(value, Decimal):
        return {"$decimal": str(value)}
    return value


def table(setups: Sequence[Setup], answers: Sequence[Sequence[Answer]]) -> str:
    # One line for each distinct answer, and one for each setup with the numbers of its answers.
    numbers: dict[str, int] = {}
    rows = []
    for setup, of_setup in zip(setups, answers, strict=True):
        texts = [json.dumps(answer, separators=(",", ":"), sort_keys=True) for answer in of_setup]
        places = ",".join(str(numbers.setdefault(text, len(numbers))) for text in texts)
        rows.append(f"{json.dumps(setup.name)}:[{places}]")
    return '{"answers":[\n' + ",\n".join(numbers) + '],\n"setups":{\n' + ",\n".join(rows) + "}}\n"


def kept() -> dict[str, list[Answer]]:
    found = json.loads(ANSWERS.read_text())
    return {
        name: [found["answers"][number] for number in numbers] for name, numbers in found["setups"].items()
    }


# -- setups ------------------------------------------------------------------------------------------------

_JSON: Final = "org.apache.kafka.connect.json.JsonConverter"
_ENVELOPE: Final = {"schemas.enable": "true"}

CONVERTERS: Final[Mapping[str, Converter]] = {
    "string": Converter("string", "org.apache.kafka.connect.storage.StringConverter", {}),
    "json": Converter("json", _JSON, {"schemas.enable": "false"}),
    "envelope": Converter("json", _JSON, _ENVELOPE),
    "envelope-nulls": Converter("json", _JSON, {**_ENVELOPE, "replace.null.with.default": "false"}),
    "envelope-numeric": Converter("json", _JSON, _ENVELOPE, "NUMERIC"),
    "avro": Converter("avro", "avro", {}),
    "avro-numeric": Converter("avro", "avro", {}, "NUMERIC"),
    "avro-nulls": Converter("avro", "avro", {"ignore.default.for.nullables": "true"}),
    **{
        kind: Converter(kind, f"org.apache.kafka.connect.converters.{name}Converter", {})
        for kind, name in {
            "bytes": "ByteArray",
            "short": "Short",
            "integer": "Integer",
            "long": "Long",
            "float": "Float",
            "double": "Double",
            "boolean": "Boolean",
        }.items()
    },
}

# A name that ends with $ applies to the setup's side.
CHAINS: Final[Mapping[str, Sequence[tuple[str, Mapping[str, str]]]]] = {
    "none": (),
    "extract": (("ExtractField$", {"field": "a"}),),
    "extract-nested": (("ExtractField$", {"field": "a.b", "field.syntax.version": "V2"}),),
    "hoist": (("HoistField$", {"field": "h"}),),
    "extract-hoist": (("ExtractField$", {"field": "a"}), ("HoistField$", {"field": "h"})),
    "exclude": (("ReplaceField$", {"exclude": "a"}),),
    "include": (("ReplaceField$", {"include": "a"}),),
    "rename": (("ReplaceField$", {"renames": "a:z"}),),
    "mask": (("MaskField$", {"fields": "a"}),),
    "mask-with": (("MaskField$", {"fields": "a", "replacement": "9"}),),
    "cast-string": (("Cast$", {"spec": "string"}),),
    "cast-int8": (("Cast$", {"spec": "int8"}),),
    "cast-int64": (("Cast$", {"spec": "int64"}),),
    "cast-float32": (("Cast$", {"spec": "float32"}),),
    "cast-float64": (("Cast$", {"spec": "float64"}),),
    "cast-boolean": (("Cast$", {"spec": "boolean"}),),
    "cast-a-string": (("Cast$", {"spec": "a:string"}),),
    "cast-a-int32": (("Cast$", {"spec": "a:int32"}),),
    "cast-a-float64": (("Cast$", {"spec": "a:float64"}),),
    "cast-a-boolean": (("Cast$", {"spec": "a:boolean"}),),
    "time": (("TimestampConverter$", {"target.type": "Timestamp"}),),
    "time-a": (("TimestampConverter$", {"field": "a", "target.type": "Timestamp"}),),
    "time-a-date": (("TimestampConverter$", {"field": "a", "target.type": "Date"}),),
    "time-a-time": (("TimestampConverter$", {"field": "a", "target.type": "Time"}),),
    "time-a-unix": (("TimestampConverter$", {"field": "a", "target.type": "unix"}),),
    "time-a-string": (
        ("TimestampConverter$", {"field": "a", "target.type": "string", "format": "yyyy-MM-dd HH:mm:ss.SSS"}),
    ),
    "flatten": (("Flatten$", {}),),
    "insert": (("InsertField$", {"static.field": "s", "static.value": "v"}),),
    "insert-place": (
        ("InsertField$", {"topic.field": "t", "partition.field": "p", "timestamp.field": "ts"}),
        ("InsertField$", {"offset.field": "o"}),
    ),
    "filter": (("Filter", {}),),
    "key": (("ValueToKey", {"fields": "a"}),),
    "key-extract": (("ValueToKey", {"fields": "a"}), ("ExtractField$Key", {"field": "a"})),
}


# -- inputs ------------------------------------------------------------------------------------------------

TIMESTAMP: Final = 1_700_000_000_123
_AT: Final = TIMESTAMP

_TEXTS: Final[Sequence[bytes | None]] = (
    *(
        b"text",
        b"",
        b" ",
        b"17",
        b"1.5",
        b"true",
        b"null",
        b"NaN",
        b'"quoted"',
        b'{"a":1}',
        b'{"a":1}{"a":2}',
    ),
    *("é ä 日本 😀".encode(), b'say "hi"', b"back\\slash", b"two\nlines\r\n\ttab", b"\x00\x01\x1f\x7f"),
    *("\u2028\u2029\ufeff".encode(), b"\xff\xfe", b"a\xc3", b"\xed\xa0\x80", b"\x00\x00\x00\x00\x01\x02"),
    *(b"2023-11-14 22:13:20.123", b"1700000000123", b"-128", b"128", b"9223372036854775808", None),
)
_OBJECTS: Final = r"""
{"a":1}
{"a":-1,"b":"x"}
{"a":1.5}
{"a":1e3}
{"a":2147483648}
{"a":9223372036854775807}
{"a":9223372036854775808}
{"a":"text"}
{"a":"17"}
{"a":"1.5"}
{"a":""}
{"a":"null"}
{"a":"true"}
{"a":"{\"b\":1}"}
{"a":true}
{"a":null}
{"a":[1,2]}
{"a":[]}
{"a":{"b":1}}
{"a":{"b":{"c":"x"}},"d":2}
{"a":{"b":null}}
{"a":{}}
{"a":1700000000123}
{"a":"2023-11-14 22:13:20.123"}
{"b":1}
{"a.b":1}
{}
[]
[{"a":1}]
17
-129
1.5
300
1e400
9223372036854775808
"text"
"17"
""
true
false
null
{a:1}
{"a":1}{"a":2}
{"a":2,,}
{"a":NaN}
NaN
{"a":
{"a":1} x
text
""".strip("\n").split("\n")
_EMPTY: Final = (b"", b" ", b"\n", b"\xff", b'{"a":"\xff"}', b'{"a":"\xc3"}', None)


def _number(how: str, *values: float) -> list[bytes]:
    return [struct.pack(how, value) for value in values]


_NO_NUMBERS: Final = (b"", b"\x01", b"\x00\x00\x01", b"123456789", b"17", None)
_FEW_NUMBERS: Final[Mapping[str, Sequence[bytes | None]]] = {
    "short": (*_number(">h", 0, 1, -1, -32768, 32767), *_NO_NUMBERS),
    "integer": (*_number(">i", 0, 1, -1, -(2**31), 2**31 - 1, 19_675), *_NO_NUMBERS),
    "long": (*_number(">q", 0, 1, -1, -(2**63), 2**63 - 1, 2**53 + 1, _AT), *_NO_NUMBERS),
    "float": (
        *_number(">f", 0, -0.0, 1, 0.1, -1.5, 16777216, 1e-10, 3e38, math.inf, -math.inf, math.nan),
        *_NO_NUMBERS,
    ),
    "double": (
        *_number(">d", 0, -0.0, 1, 0.1, -1.5, 1e10, 1e16, 1e-7, 1e300, math.inf, -math.inf, math.nan),
        *_NO_NUMBERS,
    ),
    "boolean": (b"\x00", b"\x01", b"\x02", b"\xff", b"\x00\x01", b"", None),
}


def _enveloped(schema: Any, payload: Any) -> bytes:
    return json.dumps(
        {"schema": schema, "payload": payload}, ensure_ascii=False, separators=(",", ":")
    ).encode()


_struct, _logical, _unscaled = lines._struct, lines._logical, lines._unscaled


def _optional(kind: Any, **more: Any) -> dict[str, Any]:
    return {**({"type": kind} if isinstance(kind, str) else kind), "optional": True, **more}


_FEW_ENVELOPES: Final = (
    *(_enveloped(schema, payload) for schema, payload in lines._ENVELOPES[:1]),
    _enveloped(_struct(a="int32", b="string"), {"a": 1, "b": "x"}),
    _enveloped(_struct(a="int64"), {"a": _AT}),
    _enveloped(_struct(a="int32"), {"a": "1"}),
    _enveloped(_struct(a="int32"), {"a": None}),
    _enveloped(_struct(a="float"), {"a": 0.1}),
    _enveloped(_struct(a="double"), {"a": 1.5}),
    _enveloped(_struct(a="double"), {"a": 3}),
    _enveloped(_struct(a="boolean"), {"a": True}),
    _enveloped(_struct(a="string"), {"a": "text"}),
    _enveloped(_struct(a="string"), {"a": "17"}),
    _enveloped(_struct(a="string"), {"a": "null"}),
    _enveloped(_struct(a="string"), {"a": '{"b":1}'}),
    _enveloped(_struct(a="string"), {"a": "2023-11-14 22:13:20.123"}),
    _enveloped(_struct(a="bytes"), {"a": "AAH/"}),
    _enveloped(_struct(a=_optional("string")), {"a": None}),
    _enveloped(_struct(a=_optional("int32"), b="int32"), {"b": 1}),
    _enveloped(_struct(a=_optional("int32", default=7)), {"a": None}),
    _enveloped(_struct(a=_optional("string", default="x")), {}),
    _enveloped(_struct(a={"type": "int32", "optional": False, "default": 7}), {}),
    _enveloped(_struct(a={"type": "array", "items": {"type": "int32"}}), {"a": [1, 2]}),
    _enveloped(
        _struct(a={"type": "map", "keys": {"type": "string"}, "values": {"type": "int32"}}), {"a": {"x": 1}}
    ),
    _enveloped(_struct(a=_struct(b="int32", c=_struct(d="string"))), {"a": {"b": 1, "c": {"d": "x"}}}),
    _enveloped(_struct(a=_optional(_struct(b="int32"))), {"a": None}),
    _enveloped(_struct(a=_optional(_struct(b="int32"), default={"b": 5})), {"a": None}),
    _enveloped(_struct(a=lines._decimal(2)), {"a": _unscaled(1250)}),
    _enveloped(_struct(a=lines._decimal(0)), {"a": _unscaled(-7)}),
    _enveloped(_struct(a=_logical("Date", "int32")), {"a": 19_675}),
    _enveloped(_struct(a=_logical("Time", "int32")), {"a": 3_600_123}),
    _enveloped(_struct(a=_logical("Timestamp", "int64")), {"a": _AT}),
    _enveloped({"type": "int32", "optional": False}, 17),
    _enveloped({"type": "string", "optional": False}, "17"),
    _enveloped({"type": "string", "optional": False}, "text"),
    _enveloped({"type": "string", "optional": True}, None),
    _enveloped({"type": "string", "optional": True, "default": "x"}, None),
    _enveloped({"type": "double", "optional": False}, 1.5),
    _enveloped({"type": "boolean", "optional": False}, True),
    _enveloped({"type": "bytes", "optional": False}, "AAH/"),
    _enveloped(_logical("Timestamp", "int64"), _AT),
    _enveloped(lines._decimal(2), _unscaled(1250)),
    _enveloped({"type": "array", "items": {"type": "int32"}}, [1, 2]),
    _enveloped(_optional(_struct(a="int32")), None),
    _enveloped(None, {"a": 1}),
    _enveloped(None, 17),
    _enveloped(None, None),
    *(b"null", b"", b" ", b"17", b'{"a":1}', b'{"payload":1}', b'{"schema":{"type":"int32"}}', None),
    *(
        b'{"schema":{"type":"int32"},"payload":1,"more":2}',
        b'{"schema":{"type":"int32"},"payload":1',
        b"\xff",
    ),
    *(b'{"schema":{"type":"int32"},"payload":1}x', b'{"schema":{"type":"none"},"payload":1}'),
    *(b'{"schema":{"type":"int32"},"payload":"1"}', b'{"schema":{"type":"int32"},"payload":1,,}'),
    b'{"schema":{"type":"double","optional":false},"payload":NaN}',
)


def _record(**fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": name, **(kind if isinstance(kind, dict) and "default" in kind else {"type": kind})}
            for name, kind in fields.items()
        ],
    }


def _typed(kind: str, logical: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical, **more}


ITEM: Final = ["null", {"type": "int", "connect.default": 5}]
# Avro's library ignores these logical types.
IGNORED_DECIMALS: Final = (
    _typed("bytes", "decimal", precision=2, scale=5),
    _typed("bytes", "decimal", precision=64, scale=127),
)

_DATUMS: Final[Sequence[tuple[Any, Sequence[Any]]]] = (
    (_record(a="int", b="string"), [{"a": 1, "b": "x"}, {"a": -(2**31), "b": ""}]),
    (_record(a="long"), [{"a": _AT}, {"a": 2**63 - 1}]),
    (_record(a="float"), [{"a": 0.1}, {"a": math.nan}]),
    (_record(a="double"), [{"a": 1.5}, {"a": 3.0}, {"a": math.inf}, {"a": math.nan}]),
    (_record(a="boolean"), [{"a": True}]),
    (_record(a="string"), [{"a": "text"}, {"a": "17"}, {"a": "null"}, {"a": '{"b":1}'}]),
    (_record(a="bytes"), [{"a": b"\x00\xff"}]),
    (_record(a={"type": "fixed", "name": "F", "size": 2}), [{"a": b"\x00\xff"}]),
    (_record(a={"type": "enum", "name": "E", "symbols": ["X", "Y"]}), [{"a": "Y"}]),
    (_record(a={"type": ["null", "int"], "default": None}), [{"a": None}, {"a": 1}]),
    (_record(a={"type": ["int", "null"], "default": 7}), [{"a": None}, {"a": 1}]),
    (_record(a={"type": "string", "default": "x"}), [{"a": "y"}]),
    (_record(a=["int", "string"]), [{"a": 1}, {"a": "x"}]),
    (_record(a=["null", "int", "string"]), [{"a": None}, {"a": "x"}]),
    (_record(a={"type": "array", "items": "int"}), [{"a": [1, 2]}, {"a": []}]),
    (_record(a={"type": "array", "items": ["null", "int"]}), [{"a": [1, None]}]),
    (_record(a={"type": "map", "values": "int"}), [{"a": {"x": 1}}, {"a": {}}]),
    (_record(a={**_record(b="int"), "name": "S"}), [{"a": {"b": 1}}]),
    (_record(a=["null", {**_record(b="int"), "name": "S"}]), [{"a": None}, {"a": {"b": 1}}]),
    (_record(a=_typed("bytes", "decimal", precision=9, scale=2)), [{"a": Decimal("12.50")}]),
    (_record(a=_typed("int", "date")), [{"a": 19_675}]),
    (_record(a=_typed("int", "time-millis")), [{"a": 3_600_123}]),
    (_record(a=_typed("long", "time-micros")), [{"a": 3_600_123_456}]),
    (_record(a=_typed("long", "timestamp-millis")), [{"a": _AT}, {"a": -1}]),
    (_record(a=_typed("long", "timestamp-micros")), [{"a": _AT * 1000 + 456}]),
    (_record(a=_typed("string", "uuid")), [{"a": "6f1f5c8e-0c1b-4b59-9d6c-0c6e2d8f6a11"}]),
    (_record(), [{}]),
    (
        {
            "type": "record",
            "name": "Node",
            "fields": [{"name": "a", "type": "int"}, {"name": "next", "type": ["null", "Node"]}],
        },
        [{"a": 1, "next": {"a": 2, "next": None}}],
    ),
    ("int", [17]),
    ("long", [_AT]),
    ("double", [1.5]),
    ("boolean", [True]),
    ("string", ["text", "17", "", "null", '{"a":1}']),
    ("null", [None]),
    (["null", "string"], [None, "x"]),
    ({"type": "array", "items": "int"}, [[1, 2]]),
    ({"type": "map", "values": "string"}, [{"x": "y"}]),
    ({"type": "enum", "name": "E", "symbols": ["X", "Y"]}, ["X"]),
    (_typed("long", "timestamp-millis"), [_AT]),
    (_typed("bytes", "decimal", precision=9, scale=2), [Decimal("12.50")]),
    # Connect's own sources write such a schema for an optional field with a default.
    (
        _record(a={"type": [{"type": "int", "connect.default": 7}, "null"], "default": 7}),
        [{"a": None}, {"a": 1}],
    ),
    (
        _record(a={"type": [{"type": "string", "connect.default": "x"}, "null"], "default": "x"}, b="int"),
        [{"a": None, "b": 1}, {"a": "y", "b": 1}],
    ),
    # Schemas of items with a default: of Connect's classes, only JsonConverter reads a null item as the
    # default.
    (_record(a={"type": "array", "items": ITEM}), [{"a": [None, 1]}]),
    (_record(a={"type": "map", "values": ITEM}), [{"a": {"x": None, "y": 1}}]),
    (_record(a={"type": "array", "items": {"type": "array", "items": ITEM}}), [{"a": [[None, 1], []]}]),
    (["null", _record(a={"type": "array", "items": ITEM})], [{"a": [None]}]),
    ({"type": "array", "items": ITEM}, [[None, 1]]),
    # Decimals that Avro's library ignores, and a decimal with more digits than its precision.
    *((_record(a=kind), [{"a": b"\x04\xd2"}]) for kind in IGNORED_DECIMALS),
    (_record(a=_typed("bytes", "Decimal", precision=6, scale=2)), [{"a": b"\x04\xd2"}]),
    (_record(a=_typed("bytes", "decimal", precision=4, scale=2)), [{"a": b"\x01\xe2\x40"}]),
)
# Id of the schema "bytes": Confluent's serializer writes its values without their length.
_AS_BYTES: Final = len(_DATUMS) + 1
SCHEMAS: Final = {number: schema for number, (schema, _) in enumerate(_DATUMS, 1)} | {_AS_BYTES: "bytes"}


def _framed(number: int, datum: bytes) -> bytes:
    return struct.pack(">bI", 0, number) + datum


def _datum(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    # fastavro refuses to write such a decimal.
    if isinstance(value, dict) and isinstance(value.get("a"), bytes):
        schema = json.loads(json.dumps(schema).replace('"logicalType"', '"physicalOne"'))
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


_DATA: Final = tuple(
    _framed(number, _datum(schema, value))
    for number, (schema, values) in enumerate(_DATUMS, 1)
    for value in values
)
_WITH_DEFAULTS: Final = tuple(
    datum for datum in _DATA if "connect.default" in json.dumps(SCHEMAS[int.from_bytes(datum[1:5])])
)
_BAD_DATA: Final = (
    *(
        b"",
        b" ",
        b"\x00",
        b"\x00\x00\x00\x00",
        b"text",
        b'{"a":1}',
        _framed(0, b""),
        _framed(999, b"\x02"),
        None,
    ),
    *(
        _framed(1, b""),
        _framed(1, b"\x02"),
        _framed(1, b"\x02\x06ab"),
        _framed(1, b"\x02\x02x\x02"),
        _framed(1, b"\x02\x01"),
    ),
    *(
        _framed(1, b"\xff" * 12),
        _framed(1, b"\x02\x02\xff"),
        _framed(6, b"\x04\xc3\x28"),
        _framed(9, b"\x04"),
    ),
    *(
        _framed(5, b"\x02"),
        _framed(10, b"\x06"),
        _framed(15, b"\x04\x02"),
        _framed(_AS_BYTES, b"\x00\xff"),
        _framed(_AS_BYTES, b""),
    ),
)

INPUTS: Final[Mapping[str, Sequence[bytes | None]]] = {
    "string": _TEXTS,
    "bytes": _TEXTS,
    "json": (
        *(text.encode() for text in _OBJECTS),
        *(case.value for case in lines.CASES if case.converter == "json" and not case.schemas),
        *_EMPTY,
    ),
    **dict.fromkeys(
        ("envelope", "envelope-nulls", "envelope-numeric"),
        (*_FEW_ENVELOPES, *(_enveloped(*one) for one in lines._ENVELOPES), *lines._NO_ENVELOPES),
    ),
    **dict.fromkeys(("avro", "avro-numeric"), (*_DATA, *_BAD_DATA)),
    "avro-nulls": _WITH_DEFAULTS,
    **_FEW_NUMBERS,
}
FEW_INPUTS: Final[Mapping[str, Sequence[bytes | None]]] = {
    "string": _TEXTS,
    "bytes": _TEXTS[:10],
    "json": (*(text.encode() for text in _OBJECTS), *_EMPTY),
    **dict.fromkeys(("envelope", "envelope-nulls", "envelope-numeric"), _FEW_ENVELOPES),
    **dict.fromkeys(("avro", "avro-numeric"), (*_DATA, *_BAD_DATA[:8])),
    "avro-nulls": _WITH_DEFAULTS,
    **_FEW_NUMBERS,
}


_OF_SCALARS: Final = [
    "none",
    "extract",
    "hoist",
    "cast-string",
    "cast-int8",
    "cast-int64",
    "cast-float32",
    "cast-float64",
    "cast-boolean",
    "time",
    "filter",
]
_OF_NULLS: Final = [
    "none",
    "extract",
    "extract-hoist",
    "exclude",
    "rename",
    "cast-a-string",
    "flatten",
    "insert",
    "key",
]
_OF_KEYS: Final = [
    "none",
    "extract",
    "extract-nested",
    "hoist",
    "extract-hoist",
    "rename",
    "mask",
    "cast-string",
    "cast-a-int32",
    "time-a",
    "flatten",
    "insert",
    "filter",
]


def _chains(converter: str) -> Sequence[str]:
    if converter in ("envelope-nulls", "avro-nulls"):
        return _OF_NULLS
    if converter in ("envelope-numeric", "avro-numeric"):
        return ("none", "hoist")
    return tuple(CHAINS) if converter in ("json", "envelope", "avro") else _OF_SCALARS


def _setups() -> Iterator[Setup]:
    for converter in CONVERTERS:
        for chain in _chains(converter):
            if chain.startswith("key"):
                yield Setup(converter, chain, "value", "key")
                continue
            yield Setup(converter, chain, "value", "value")
            if chain in _OF_KEYS:
                yield Setup(converter, chain, "key", "key")


SETUPS: Final = tuple(_setups())

if __name__ == "__main__":
    ANSWERS.write_text(table(SETUPS, ask(SETUPS)))
