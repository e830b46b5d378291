"""Detection of JSON as by Kafka Connect's JsonConverter, by the compiled scan and the one in Python."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import pyarrow as pa
import pytest

from sinksdk import bad_json, read_json
from sinksdk.values.json_text import JSON, Scan, Verdict, compiled_scan, plain_scan, scan
from tests.helpers.needs import missing

SCANS = {"plain": plain_scan, "compiled": compiled_scan}


@pytest.fixture(params=SCANS)
def one_scan(request: pytest.FixtureRequest) -> Scan:
    found = SCANS[request.param]
    if found is None:
        missing("the compiled scan", "install with a C compiler")
    return found


def verdict(one_scan: Scan, value: bytes) -> Verdict:
    """Return the verdict on one value, between others."""
    return Verdict(one_scan(pa.array([b"{", value, b"]"], pa.binary()).slice(1, 1))[0])


TEXTS = ("\x7f", "ä", "߿", "ࠀ", "\ud7ff", "\ue000", "✈", "\uffff", "\U00010000", "\U0010ffff")
NO_TEXTS = (
    *(
        b"\x80",
        b"\xc3",
        b"\xc1\xbf",
        b"\xe0\x9f\xbf",
        b"\xed\xa0\x80",
        b"\xf0\x8f\xbf\xbf",
        b"\xf4\x90\x80\x80",
    ),
    *(
        b"\xf5\x80\x80\x80",
        b"\xff",
        b"\xe2\x9c",
        b"\xe2\x9c(",
        b"\xf0\x90\x80",
        b"ab\x00",
        b"\n",
        b"\t",
        b"\\x",
        b"\\",
    ),
    *(b"\\u12", b"\\u12g4", b"\\'", b"\\U0041"),
)


def good() -> Iterator[bytes]:
    """Yield JSON that RFC 8259 allows."""
    yield from (
        b"{}",
        b"[]",
        b'""',
        b"0",
        b"-0",
        b"1.50",
        b"-1e5",
        b"1E+05",
        b"0.0e-0",
        b"true",
        b"false",
        b"[null]",
    )
    yield from (b' {"a" : [ 1 , {} , [ ] , "x" ] } \r\n\t', b'{"a":{"b":[{"c":null}]},"a":2}', b'{"":""}')
    yield from (
        b'"\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\uD800"',
        b"1" * 1_000,
        b"0." + b"1" * 999,
        b"1e999999999",
    )
    yield from (b"[" * 1_000 + b"]" * 1_000, b'{"a":' * 1_000 + b"1" + b"}" * 1_000)
    for text in TEXTS:
        yield from (f'["{"a" * before}{text}{"b" * before}"]'.encode() for before in range(18))


def bad() -> Iterator[bytes]:
    """Yield invalid JSON. Kafka refuses it, too, except for trailing text and invalid UTF-8."""
    yield from (
        b'{"a":2,,}',
        b"{a:1}",
        b'{"a":1}{"a":2}',
        b'{"a":1} {"b":2}',
        b"1 2",
        b'{"a":1}}',
        b"{}x",
        b"null null",
    )
    yield from (
        b"NaN",
        b'{"a":NaN}',
        b"[Infinity]",
        b"[-Infinity]",
        b"nan",
        b"tru",
        b"nul",
        b"truex",
        b"nullx",
    )
    yield from (
        b"{",
        b"[",
        b'"',
        b"}",
        b"]",
        b",",
        b":",
        b'{"a"',
        b'{"a":',
        b'{"a":1',
        b'{"a":1,',
        b'{"a":1,}',
    )
    yield from (
        b"[1,]",
        b"[,1]",
        b"[1 2]",
        b'{"a"}',
        b'{"a":}',
        b'{"a" 1}',
        b"{1:1}",
        b'{"a":1;}',
        b'{"a":1 "b":2}',
    )
    yield from (
        b"{,}",
        b"[}",
        b"{]",
        b'["a":1]',
        b'{"a":1]',
        b"1.",
        b".5",
        b"+1",
        b"-",
        b"1e",
        b"1e+",
        b"0x10",
        b"1-2",
    )
    yield from (
        b"--1",
        b"1.0.0",
        b"'a'",
        b"// c",
        b"/* */1",
        b"[1/*b*/]",
        b"#c\n1",
        b"hello",
        b"\x0c{}",
        b"\xc2\xa0{}",
    )
    yield from (b"[" * 1_001 + b"]" * 1_001, b"[" * 100_000)
    for octets in NO_TEXTS:
        yield from (b'["' + b"a" * before + octets + b'"]' for before in (0, 1, 5, 6, 7, 8, 9, 16))


@pytest.mark.parametrize("value", dict.fromkeys(good()), ids=lambda value: repr(value)[:40])
def test_valid_json_is_unchanged(one_scan: Scan, value: bytes) -> None:
    assert verdict(one_scan, value) is Verdict.JSON
    assert read_json(pa.array([value], pa.binary())).column.storage[0].as_py() == value.decode()
    assert bad_json(pa.array([value], pa.binary())) == {}


@pytest.mark.parametrize("value", dict.fromkeys(bad()), ids=lambda value: repr(value)[:40])
def test_invalid_json_is_rejected(one_scan: Scan, value: bytes) -> None:
    assert verdict(one_scan, value) is Verdict.BAD
    made = read_json(pa.array([b"1", value], pa.binary()))
    assert list(made.failed) == [1]
    assert made.rows.tolist() == [0]
    assert list(bad_json(pa.array([b"1", value], pa.binary()))) == [1]


@pytest.mark.parametrize("value", [b"", b" ", b"\r\n\t ", b"null", b" null\n"])
def test_empty_and_null_json_is_null(one_scan: Scan, value: bytes) -> None:
    # See KAFKA-10477.
    assert verdict(one_scan, value) is Verdict.NULL
    made = read_json(pa.array([None, value, b"{}"], pa.binary()))
    assert (made.rows.tolist(), made.failed, made.nulls) == ([2], {}, [1])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"01", "1"),
        (b'{"a":-007.50,"01":"01"}', '{"a":-7.50,"01":"01"}'),
        (b"[00, 0, 0.01, 1e05, -0]", "[0, 0, 0.01, 1e05, -0]"),
        (b'\xef\xbb\xbf{"a":"\xc3\xa4"}', '{"a":"ä"}'),
        ('{"a":"ä"}'.encode("utf-16"), '{"a":"ä"}'),
        ('{"a":"ä"}'.encode("utf-16-le"), '{"a":"ä"}'),
        ('{"a":"ä"}'.encode("utf-16-be"), '{"a":"ä"}'),
        ("[1]".encode("utf-32-le"), "[1]"),
        ("[1]".encode("utf-32-be"), "[1]"),
        (b"0" * 1_001, "0"),
        (b"1e0000000000000001", "1e0000000000000001"),
    ],
)
def test_json_that_only_jackson_accepts_is_normalized(one_scan: Scan, value: bytes, text: str) -> None:
    assert verdict(one_scan, value) is Verdict.ODD
    assert read_json(pa.array([b"[]", value, None], pa.binary())).column.storage.to_pylist() == [
        "[]",
        text,
        None,
    ]
    assert list(bad_json(pa.array([value], pa.binary()))) == ([] if value == text.encode() else [0])
    assert bad_json(pa.array([text])) == {}


@pytest.mark.parametrize(
    "value",
    [
        b"1" * 1_001,
        b"0." + b"1" * 1_000,
        b"1e2147483648",
        b"01 2",
        b"\xff\xfe[",
        b"\xef\xbb\xbf",
        b"\x00",
        b"\x00a",
    ],
)
def test_json_beyond_jacksons_limits_is_rejected(value: bytes) -> None:
    assert list(read_json(pa.array([value], pa.binary())).failed) == [0]


@pytest.mark.parametrize(
    "value",
    [b"[%s]" % (b"1" * 4_000), b"1E+2147483648", b'{"a":1e-2147483647,"01":1}'],
    ids=["digits", "large", "small"],
)
def test_bad_json_accepts_long_numbers_without_leading_zeros(value: bytes) -> None:
    # Decimals that a converter has typed may be longer than Jackson reads.
    assert bad_json(pa.array([value], pa.binary())) == {}
    zeros = value.replace(b"1", b"01", 1)
    assert list(bad_json(pa.array([zeros, value + b"1]", b"\xef\xbb\xbf" + value], pa.binary()))) == [0, 1, 2]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b'{"schema":1}', Verdict.MAYBE_ENVELOPE),
        (b'{ \n"payload" :1,"schema":null}', Verdict.MAYBE_ENVELOPE),
        (b'{"sch\\u0065ma":1}', Verdict.MAYBE_ENVELOPE),
        (b'{"schemas":1}', Verdict.JSON),
        (b'{"a":{"schema":1,"payload":2}}', Verdict.JSON),
        (b'["schema"]', Verdict.JSON),
        (b'{"schema"}', Verdict.BAD),
    ],
)
def test_possible_envelopes_are_marked(one_scan: Scan, value: bytes, expected: Verdict) -> None:
    assert verdict(one_scan, value) is expected


@pytest.mark.parametrize(
    "kind", [pa.binary(), pa.large_binary(), pa.binary_view(), pa.string(), pa.large_string()]
)
def test_scan_accepts_all_text_and_binary_columns(kind: pa.DataType) -> None:
    column = pa.array([b"x", b"{}", None, b"{", b"1"], pa.binary()).cast(kind).slice(1)
    assert scan(column).tolist() == [Verdict.JSON, Verdict.NULL, Verdict.BAD, Verdict.JSON]
    assert scan(column.slice(0, 0)).tolist() == []
    assert scan(pa.nulls(2, kind)).tolist() == [Verdict.NULL] * 2


def test_json_texts_keep_their_rows() -> None:
    made = read_json(pa.array([b'"a"', b"x", None, b"01", b"{}", b""], pa.binary()))
    assert made.column.type == JSON
    assert made.column.storage.to_pylist() == ['"a"', None, None, "1", "{}", None]
    assert made.rows.tolist() == [0, 3, 4]
    assert list(made.failed) == [1]


def test_reasons_do_not_quote_the_value() -> None:
    values = [b"secret", b'{"secret"', b'{"secret":"\xff"}', b'"secret" 1', b'{"secret":NaN}', b'"\\secret"']
    reasons = [
        *read_json(pa.array(values, pa.binary())).failed.values(),
        *bad_json(pa.array(values, pa.binary())).values(),
    ]
    assert len(reasons) == 2 * len(values)
    assert not [reason for reason in reasons if "secret" in reason]


def test_python_parses_scanned_json() -> None:
    for value in good():
        if len(value) < sys.getrecursionlimit():
            json.loads(value)


def test_compiled_scan_refuses_short_buffers() -> None:
    if compiled_scan is None:
        missing("the compiled scan", "install with a C compiler")
    from sinksdk.values import _json  # noqa: PLC0415 - it may be missing

    offsets = pa.array([0, 2, 1, 9], pa.int32()).buffers()[1].slice(0, 16)
    for order in ((0, 4, 4), (-1, 1, 4), (0, -1, 4), (0, 1, 2), (0, 2, 4), (2, 1, 4), (5, 0, 4)):
        with pytest.raises(ValueError, match="do not hold its rows"):
            _json.scan((*order, offsets, b"abc"))
    with pytest.raises(TypeError, match="tuple"):
        _json.scan([])  # type: ignore[arg-type]
