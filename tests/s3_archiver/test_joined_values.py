from __future__ import annotations

import pyarrow as pa
import pytest

from sinksdk.connectors.s3_archiver.formats.values import (
    Fate,
    ValueKind,
    ValueLoop,
    compiled_values,
    join_values,
    plain_values,
)
from tests.helpers.needs import missing

LOOPS = {"plain": plain_values, "compiled": compiled_values}


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> ValueLoop:
    found = LOOPS[request.param]
    if found is None:
        missing("the compiled loop", "install with a C compiler")
    return found


def joined(loop: ValueLoop, kind: ValueKind, value: bytes | None, before: bytes = b"") -> tuple[Fate, bytes]:
    column = pa.array([b"{}", value, b"[]"], pa.binary()).slice(1, 1)
    rows, fates = join_values(column, kind, before, b"|", loop)
    return Fate(fates[0]), bytes(rows.payload)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b'{"a": 1}', b'{"a": 1}'),
        (b" [1, 2]\t", b" [1, 2]\t"),
        (b'"text"', b'"text"'),
        (b'{"a":\n 1,\r\n\t"b" : [1,\n2]}\n', b'{"a":1,"b":[1,2]}'),
        (b'["\\"\\\\", " \\n "]\n', b'["\\"\\\\"," \\n "]'),
        (b"{\n}", b"{}"),
        (b"{not looked at}", b"{not looked at}"),
        (b" 7\n", b"7"),
        (b"", b""),
    ],
)
def test_json_with_line_feeds_is_minified_and_other_json_unchanged(
    loop: ValueLoop, value: bytes, expected: bytes
) -> None:
    assert joined(loop, ValueKind.JSON, value) == (Fate.TAKEN, expected + b"|")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"\0\0\0\0\x07datum", (Fate.TAKEN, b"datum|")),
        (b"\0\0\0\0\x07", (Fate.TAKEN, b"|")),
        (b"\0\0\0\0", (Fate.SHORT, b"")),
        (b"", (Fate.SHORT, b"")),
        (b"\x01\0\0\0\x07datum", (Fate.OTHER, b"")),
        (None, (Fate.NULL, b"")),
    ],
)
def test_framing_is_removed(loop: ValueLoop, value: bytes | None, expected: tuple[Fate, bytes]) -> None:
    assert joined(loop, ValueKind.FRAMED, value, bytes(5)) == expected


@pytest.mark.parametrize("value", [b"", b"\n", bytes(100_000)])
def test_bytes_are_joined_unchanged(loop: ValueLoop, value: bytes) -> None:
    assert joined(loop, ValueKind.PLAIN, value) == (Fate.TAKEN, value + b"|")


@pytest.mark.parametrize(
    "kind",
    [pa.binary(), pa.large_binary(), pa.binary_view(), pa.string(), pa.large_string(), pa.string_view()],
)
def test_every_binary_column_type_is_joined(loop: ValueLoop, kind: pa.DataType) -> None:
    column = pa.array([b"x", b"a", None, b"bc"], pa.binary()).cast(kind).slice(1)
    rows, fates = join_values(column, ValueKind.PLAIN, after=b"|", loop=loop)
    assert bytes(rows.payload) == b"a|bc|"
    assert fates.tolist() == [Fate.TAKEN, Fate.NULL, Fate.TAKEN]
    rows, fates = join_values(pa.nulls(2, kind), ValueKind.PLAIN, after=b"|", loop=loop)
    assert (rows.nbytes, fates.tolist()) == (0, [Fate.NULL] * 2)


def test_the_compiled_loop_refuses_inconsistent_columns() -> None:
    if compiled_values is None:
        missing("the compiled loop", "install with a C compiler")
    from sinksdk.connectors.s3_archiver.formats import _datums  # noqa: PLC0415 - it may be missing

    def ask(kind: int = 0, before: bytes = b"", rows: int = 1, column: object = None) -> object:
        return _datums.values((kind, before, b"|", rows, pa.allocate_buffer, column))

    data, numbers = pa.py_buffer(b"abc"), pa.array([0, 2, 1], pa.int32()).buffers()[1]
    with pytest.raises(ValueError, match="do not hold its rows"):
        ask(column=(9, 0, 4, None, numbers, data))
    with pytest.raises(ValueError, match="not in order"):
        ask(rows=2, column=(2, 0, 4, None, numbers, data))
    for kind, before in ((-1, b""), (3, b""), (1, b""), (2, b"x")):
        with pytest.raises(ValueError, match="kind of values"):
            ask(kind, before)
    with pytest.raises(TypeError, match="tuple"):
        _datums.values([])  # type: ignore[arg-type]
