"""``python -m tests.s3_archiver.original_lines`` stores the lines of JSON that Kafka's converters write."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.kafka.maven import copy_jars

KAFKA: Final = "4.1.0"
ANSWERS: Final = Path(__file__).with_name("original_lines.tsv")
_HERE: Final = Path(__file__).parent
_PATIENCE: Final = 120.0  # seconds
_CLASSES: Final = {
    "json": "org.apache.kafka.connect.json.JsonConverter",
    "string": "org.apache.kafka.connect.storage.StringConverter",
    "bytes": "org.apache.kafka.connect.converters.ByteArrayConverter",
    **{
        name.lower(): f"org.apache.kafka.connect.converters.{name}Converter"
        for name in ("Long", "Integer", "Short", "Double", "Float", "Boolean")
    },
}


class Case(NamedTuple):
    """A value and its converter.

    Args:
        converter: by its name here.
        schemas: ``value.converter.schemas.enable``.
        value: None for a record without one.
    """

    converter: str
    schemas: bool
    value: bytes | None

    @property
    def name(self) -> str:
        value = "-" if self.value is None else base64.b64encode(self.value).decode()
        return f"{self.converter}\t{json.dumps(self.schemas)}\t{value}"


def ask(cases: Sequence[Case]) -> list[str]:
    """Return the line of each case; ``!`` and a class is an exception, ``!null`` is no value.

    Raises MavenError if Kafka's jars are unavailable.
    """
    return ask_java(
        "Lines.java",
        [
            (
                _CLASSES[case.converter],
                json.dumps(case.schemas),
                None if case.value is None else base64.b64encode(case.value).decode(),
            )
            for case in cases
        ],
    )


def ask_for_folders(cases: Sequence[tuple[str, int, str, int]]) -> list[str]:
    """Return Joda-Time's folders of a pattern, a duration, a zone and a timestamp in milliseconds.

    Raises MavenError if its jar is unavailable.
    """
    return ask_java("Folders.java", cases)


def ask_java(program: str, cases: Sequence[Any]) -> list[str]:
    """Return what a program of ``java/`` writes, one text per case. Raises MavenError if the jars are unavailable."""
    jars = copy_jars(_HERE / "java" / "pom.xml", f"kafka-connect-converters-{KAFKA}-joda")
    java = Path(os.environ["JAVA_HOME"], "bin", "java") if os.environ.get("JAVA_HOME") else "java"
    done = subprocess.run(
        [
            *(str(java), "-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8"),
            *("-cp", ":".join(map(str, jars)), str(_HERE / "java" / program)),
        ],
        input=json.dumps(cases),
        capture_output=True,
        encoding="utf-8",
        timeout=_PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers: list[str] = json.loads(done.stdout)
    return answers


def kept() -> list[tuple[Case, str]]:
    found = []
    for line in ANSWERS.read_text().splitlines():
        converter, schemas, value, answer = line.split("\t")
        given = None if value == "-" else base64.b64decode(value)
        found.append((Case(converter, schemas == "true", given), json.loads(answer)))
    return found


# -- cases ---------------------------------------------------------------------------------------------

_JSON: Final = r"""
{}
[]
""
"text"
0
-0
1
-1
9223372036854775807
-9223372036854775808
9223372036854775808
-9223372036854775809
123456789012345678901234567890
0.1
-0.0
1.0
1.10
100.00
1e3
1E3
1e+3
1.5e-7
0.1e1
1e22
1e23
1e308
1e400
-1e400
5e-324
1e-400
0.30000000000000004
3.141592653589793238462643383279
2.2250738585072014e-308
12345678901234567.5
true
false
null
{"a":1}
{"a": 1}
{ "a" : [ 1 , 2 ] }
{"a":1,"b":2,"c":3}
{"b":2,"a":1}
{"z":1,"y":2,"x":3,"w":4,"v":5,"u":6,"t":7,"s":8,"r":9,"q":10,"p":11,"o":12,"n":13}
{"id":17,"carrier":"AA","delayed":true,"delay":12.5,"tail":null}
{"a":{"b":{"c":{"d":{"e":[[[[1]]]]}}}}}
{"a":null}
{"a":[]}
{"a":{}}
{"":""}
{"a":""}
{"a b":"c d"}
{"a":"b\"c"}
{"a":"b\\c"}
{"a":"b\/c"}
{"a":"b/c"}
{"a":"\b\f\n\r\t"}
{"a":"\u0000"}
{"a":"\u001f"}
{"a":"\u007f"}
{"a":"\u0041"}
{"a":"\u00e9"}
{"a":"é"}
{"a":"日本"}
{"a":"😀"}
{"a":"\ud83d\ude00"}
{"a":"\u2028\u2029"}
{"a":"\ud800"}
{"é":1}
{"a":1,"a":2}
{"a":1,"b":2,"a":3}
{"a":9007199254740993}
{"a":18446744073709551615}
{"a":1.0}
{"a":1.10}
{"a":19.99}
{"a":1e5}
{"a":1E-5}
{"a":0.00001}
{"a":1234567.0}
{"a":12345678.0}
{"a":1e400}
{"a":-0}
{"a":-0.0}
[1,"two",3.0,true,null]
[1, 2]
[[],[[]],{}]
[{"a":1},{"a":2}]
["\u00e4","ä"]
[null]
{"schema":null,"payload":{"a":1}}
{"schema":{"type":"int32"},"payload":1}
{"payload":1}
 {"a":1}
	[1]
{"a":01}
{"a":.5}
{"a":1.}
{"a":+1}
{"a":NaN}
{"a":Infinity}
NaN
{"a":'b'}
{a:1}
{"a":1,}
[1,]
[,1]
{"a"}
{"a":}
{
[
"
}
{"a":1}}
{"a":1} {"b":2}
1 2
tru
nul
text
// comment
{"a":1/*b*/}
{"a":"b	c"}
"""

_PRETTY: Final = (
    b'{\n  "a": 1,\n  "b": [\n    1,\n    2\n  ]\n}\n',
    b'{"a":1}\n',
    b'{"a":1} ',
    b'{"a":1}\r\n',
    b'\n{"a":1}',
    b"[1,\n2]",
    b'{"a":\n"b c"}',
    b'"two\\nlines"',
    b'"two\nlines"',
    b"",
    b" ",
    b"\n",
    b"\xef\xbb\xbf{}",
    b"\xff",
    b'{"a":"\xff"}',
    b'{"a":"\xc3"}',
    b'{"a":"\xed\xa0\x80"}',
    b'"\xf0\x9f\x98\x80"',
    b'{"a":1}\x00',
    b"\x00\x00\x00\x00\x01\x02",
)

_OPTIONAL: Final[dict[str, Any]] = {"optional": True}


def _struct(**fields: Any) -> dict[str, Any]:
    return {
        "type": "struct",
        "optional": False,
        "fields": [
            {"field": name, **({"type": kind, "optional": False} if isinstance(kind, str) else kind)}
            for name, kind in fields.items()
        ],
    }


def _logical(name: str, kind: str, **more: Any) -> dict[str, Any]:
    return {
        "type": kind,
        "optional": False,
        "name": f"org.apache.kafka.connect.data.{name}",
        "version": 1,
    } | more


def _decimal(scale: int) -> dict[str, Any]:
    return _logical("Decimal", "bytes", parameters={"scale": str(scale)})


def _unscaled(number: int) -> str:
    size = max((number.bit_length() + 8) // 8, 1)
    return base64.b64encode(number.to_bytes(size, "big", signed=True)).decode()


_TEXTS: Final = {"type": "map", "optional": False, "keys": {"type": "string"}, "values": {"type": "int32"}}
_NUMBERS: Final = {"type": "map", "optional": False, "keys": {"type": "int32"}, "values": {"type": "string"}}
_LIST: Final = {"type": "array", "optional": False, "items": {"type": "int64", "optional": True}}

_ENVELOPES: Final[Sequence[tuple[Any, Any]]] = (
    (_struct(a="int8"), {"a": 127}),
    (_struct(a="int8"), {"a": 300}),
    (_struct(a="int16"), {"a": -32768}),
    (_struct(a="int32"), {"a": 2147483647}),
    (_struct(a="int32"), {"a": 2147483648}),
    (_struct(a="int32"), {"a": "1"}),
    (_struct(a="int32"), {"a": 1.5}),
    (_struct(a="int64"), {"a": 9223372036854775807}),
    (_struct(a="int64"), {"a": 1e3}),
    (_struct(a="float"), {"a": 0.1}),
    (_struct(a="float"), {"a": 16777217}),
    (_struct(a="float"), {"a": 3.4e38}),
    (_struct(a="double"), {"a": 0.1}),
    (_struct(a="double"), {"a": 1}),
    (_struct(a="double"), {"a": 1e16}),
    (_struct(a="double"), {"a": 1234567.125}),
    (_struct(a="boolean"), {"a": True}),
    (_struct(a="string"), {"a": "text"}),
    (_struct(a="string"), {"a": 'é"\\/ 😀'}),
    (_struct(a="bytes"), {"a": "AAH/"}),
    (_struct(a="bytes"), {"a": ""}),
    (_struct(a="int32", b="string"), {"b": "x", "a": 1}),
    (_struct(a="int32"), {"a": 1, "b": 2}),
    (_struct(a="int32", b="string"), {"a": 1}),
    (_struct(a="int32", b={"type": "string", **_OPTIONAL}), {"a": 1}),
    (_struct(a="int32", b={"type": "string", **_OPTIONAL}), {"a": 1, "b": None}),
    (_struct(a={"type": "int32", "optional": False, "default": 7}), {}),
    (_struct(a={"type": "int32", "optional": True, "default": 7}), {"a": None}),
    (_struct(a={"type": "string", "optional": True, "default": "x"}), {"a": "y"}),
    (_struct(a=_LIST), {"a": [1, 2, None]}),
    (_struct(a=_LIST), {"a": []}),
    (_struct(a=_TEXTS), {"a": {"x": 1}}),
    (_struct(a=_TEXTS), {"a": {"z": 1, "y": 2, "x": 3}}),
    (_struct(a=_NUMBERS), {"a": [[1, "one"], [2, "two"]]}),
    (_struct(a=_struct(b=_struct(c="int32"))), {"a": {"b": {"c": 1}}}),
    (_struct(a={**_struct(b="int32"), "optional": True}), {"a": None}),
    (_struct(a={"type": "array", "items": _struct(b="int32")}), {"a": [{"b": 1}, {"b": 2}]}),
    (_struct(a=_decimal(2)), {"a": _unscaled(1250)}),
    (_struct(a=_decimal(2)), {"a": _unscaled(-1)}),
    (_struct(a=_decimal(0)), {"a": _unscaled(10**20)}),
    (_struct(a=_decimal(2)), {"a": 12.5}),
    (_struct(a=_logical("Date", "int32")), {"a": 19000}),
    (_struct(a=_logical("Time", "int32")), {"a": 3600000}),
    (_struct(a=_logical("Timestamp", "int64")), {"a": 1700000000123}),
    (_struct(a=_logical("Timestamp", "int64")), {"a": -1}),
    (_struct(), {}),
    (_struct(**{"ä b": "int32"}), {"ä b": 1}),
    ({"type": "int32", "optional": False}, 1),
    ({"type": "int64", "optional": False}, 9223372036854775807),
    ({"type": "double", "optional": False}, 1.5),
    ({"type": "double", "optional": False}, 1e10),
    ({"type": "string", "optional": False}, "text"),
    ({"type": "string", "optional": True}, None),
    ({"type": "boolean", "optional": False}, False),
    ({"type": "bytes", "optional": False}, "AAH/"),
    (_LIST, [1, None]),
    (_TEXTS, {"x": 1}),
    (_decimal(2), _unscaled(1250)),
    (_logical("Date", "int32"), 19000),
    (_logical("Timestamp", "int64"), 1700000000123),
    ({"type": "array", "items": _struct(b="int32")}, [{"b": 1}]),
    (None, {"a": 1}),
    (None, None),
    ({"type": "none"}, 1),
)
_NO_ENVELOPES: Final = (
    b'{"a":1}',
    b"1",
    b'{"schema":{"type":"int32"}}',
    b'{"payload":1}',
    b'{"schema":{"type":"int32"},"payload":1,"more":2}',
    b'{"payload":{"a":1.50},"schema":{"type":"struct","fields":[{"field":"a","type":"double"}]}}',
    b'{ "schema" : {"type":"struct","fields":[{"field":"a","type":"int32"}]} , "payload" : {"a" : 1} }',
    b"null",
    b"",
)
_TEXTS_AS_TEXT: Final = (
    b"text",
    b"",
    b'{"a":1}',
    b'say "hi"',
    b"back\\slash",
    b"a/b",
    b"two\nlines\r\n\ttab",
    b"\x00\x01\x1f\x7f",
    "é ä 日本 😀".encode(),
    "\u2028\u2029\ufeff".encode(),
    b"\xff\xfe",
    b"a\xc3",
)
_NUMBERS_AS_BYTES: Final = (
    *(("long", number.to_bytes(8, "big", signed=True)) for number in (0, -1, 2**63 - 1)),
    *(("integer", number.to_bytes(4, "big", signed=True)) for number in (0, -(2**31))),
    ("short", b"\x01\x00"),
    ("long", b"\x01"),
    *(
        ("double", bytes.fromhex(text))
        for text in ("3fb999999999999a", "4202a05f20000000", "7ff8000000000000")
    ),
    *(
        ("double", bytes.fromhex(text))
        for text in ("7ff0000000000000", "8000000000000000", "3eb0c6f7a0b5ed8d")
    ),
    *(("float", bytes.fromhex(text)) for text in ("3dcccccd", "4b800000", "7fc00000")),
    ("boolean", b"\x01"),
    ("boolean", b"\x02"),
)


def _all() -> Iterator[Case]:
    for text in _JSON.strip("\n").split("\n"):
        yield Case("json", False, text.encode())
    yield from (Case("json", False, value) for value in _PRETTY)
    for schema, payload in _ENVELOPES:
        text = json.dumps({"schema": schema, "payload": payload}, ensure_ascii=False, separators=(",", ":"))
        yield Case("json", True, text.encode())
    yield from (Case("json", True, value) for value in _NO_ENVELOPES)
    for converter in ("string", "bytes"):
        yield from (Case(converter, False, value) for value in _TEXTS_AS_TEXT)
    yield from (Case(converter, False, value) for converter, value in _NUMBERS_AS_BYTES)
    yield from (Case(converter, False, None) for converter in ("json", "string", "bytes", "long"))


CASES: Final = tuple(_all())

if __name__ == "__main__":
    ANSWERS.write_text(
        "".join(
            f"{case.name}\t{json.dumps(answer)}\n" for case, answer in zip(CASES, ask(CASES), strict=True)
        )
    )
