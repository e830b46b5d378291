"""Values, one behind the other: the compiled loop and the one in Python do the same."""

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
    with_texts,
)
from tests.needs import missing

LOOPS = {"plain": plain_values, "compiled": compiled_values}
ENVELOPE = b'{"schema":{},"payload":'


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> ValueLoop:
    found = LOOPS[request.param]
    if found is None:
        missing("the compiled loop", "install with a C compiler")
    return found


def joined(loop: ValueLoop, kind: ValueKind, value: bytes | None, before: bytes = b"") -> tuple[Fate, bytes]:
    """What becomes of one value, between others."""
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
    ],
)
def test_json_is_written_as_it_is_or_without_space(loop: ValueLoop, value: bytes, expected: bytes) -> None:
    """JSON: written as it is; without space between its parts where it holds a line's end."""
    assert joined(loop, ValueKind.JSON, value) == (Fate.TAKEN, expected + b"|")


@pytest.mark.parametrize(
    "value",
    [
        *(b"1", b"true", b"null", b" ", b"{", b'"', b"}{", b'{"a":1', b"hello", b"\x00\x00\x00\x00\x01ab"),
        *(
            b'{"a":1}\n{"b":2}',
            b"[1\n2]",
            b"[tr\nue]",
            b'"a\nb"',
            b'{"a":"\\\n"}',
            b"{\n",
            b"{}}\n",
            b"[[]\n",
        ),
        *(b'{"a\n', b'"\n"', b'"\\"\n'),
    ],
)
def test_what_only_a_parser_can_judge_is_not_taken(loop: ValueLoop, value: bytes) -> None:
    """JSON: scalars, several values, broken ones, and what would change without its space are not taken."""
    assert joined(loop, ValueKind.JSON, value) == (Fate.OTHER, b"")


@pytest.mark.parametrize("kind", [ValueKind.JSON, ValueKind.MAYBE_ENVELOPE, ValueKind.PAYLOAD])
def test_an_empty_value_is_short(loop: ValueLoop, kind: ValueKind) -> None:
    """JSON: nothing at all is no JSON."""
    before = ENVELOPE if kind is ValueKind.PAYLOAD else b""
    assert joined(loop, kind, b"", before) == (Fate.SHORT, b"")


@pytest.mark.parametrize(
    "character", ["\x80", "ä", "߿", "ࠀ", "\ud7ff", "\ue000", "✈", "\uffff", "\U00010000", "\U0010ffff"]
)
def test_json_beyond_ascii_is_text(loop: ValueLoop, character: str) -> None:
    """JSON: a few characters beyond ASCII are looked at, wherever they stand; many are told from others."""
    for before in (0, 1, 27, 28, 29, 30, 31, 32, 64):
        value = f'["{"a" * before}{character}"]'.encode()
        assert joined(loop, ValueKind.JSON, value) == (Fate.TAKEN, value + b"|")
    for count, fate in ((16, Fate.TAKEN), (17, Fate.WIDE)):
        value = f'["{character * count}"]'.encode()
        assert joined(loop, ValueKind.JSON, value) == (fate, value + b"|")


@pytest.mark.parametrize(
    "octets",
    [
        *(
            b"\x80",
            b"\xc3",
            b"\xc1\xbf",
            b"\xe0\x9f\xbf",
            b"\xed\xa0\x80",
            b"\xf0\x8f\xbf\xbf",
            b"\xf4\x90\x80\x80",
        ),
        *(b"\xf5\x80\x80\x80", b"\xff", b"\xe2\x9c", b"\xe2\x9c(", b"\xf0\x90\x80"),
    ],
)
def test_json_that_is_no_text_is_not_taken(loop: ValueLoop, octets: bytes) -> None:
    """JSON: bytes that are no UTF-8 are found, wherever they stand, unless there are many before them."""
    for before in (0, 30, 31, 32):
        assert joined(loop, ValueKind.JSON, b'["' + b"a" * before + octets + b'"]') == (Fate.OTHER, b"")
    assert joined(loop, ValueKind.JSON, b'["' + "ä".encode() * 16 + octets + b'"]')[0] is Fate.WIDE


@pytest.mark.parametrize(
    ("value", "is_envelope"),
    [
        (b'{"schema":1}', True),
        (b'{ \n"payload" :1}', True),
        (b'{"schemas":1}', False),
        (b'["schema"]', False),
        (b'{"payload"}', True),
        (b'{"a":1}', False),
    ],
)
def test_objects_that_begin_as_envelopes_are_not_taken(
    loop: ValueLoop, value: bytes, *, is_envelope: bool
) -> None:
    """JSON that may be an envelope: what begins as one is looked at by a parser."""
    fate, _ = joined(loop, ValueKind.MAYBE_ENVELOPE, value)
    assert fate is (Fate.OTHER if is_envelope else Fate.TAKEN)


@pytest.mark.parametrize(
    ("payload", "expected"),
    [(b'{"a": 1}', b'{"a":1}'), (b' ["x y"] ', b'["x y"]'), (b'"b"', b'"b"')],
)
def test_a_payload_is_taken_out_of_its_envelope(loop: ValueLoop, payload: bytes, expected: bytes) -> None:
    """Envelopes: of one that begins as said, the payload is taken."""
    found = joined(loop, ValueKind.PAYLOAD, ENVELOPE + payload + b"}", ENVELOPE)
    assert found == (Fate.TAKEN, expected + b"|")


@pytest.mark.parametrize(
    "rest", [b"}", b"1}", b"null}", b'{"a":1},"b":{}}', b'{"a":1}', b'{"a":1}} ', b"", b"{}}}"]
)
def test_anything_else_in_an_envelope_is_not_taken(loop: ValueLoop, rest: bytes) -> None:
    """Envelopes: what has more in it than a payload, or ends otherwise, is looked at by a parser."""
    assert joined(loop, ValueKind.PAYLOAD, ENVELOPE + rest, ENVELOPE)[1] == b""


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
def test_framing_is_cut_off(loop: ValueLoop, value: bytes | None, expected: tuple[Fate, bytes]) -> None:
    """Framing: five bytes are cut off where the first is zero."""
    assert joined(loop, ValueKind.FRAMED, value, bytes(5)) == expected


@pytest.mark.parametrize("value", [b"", b"\n", bytes(100_000)])
def test_bytes_are_bytes(loop: ValueLoop, value: bytes) -> None:
    """Bytes: taken whatever they are."""
    assert joined(loop, ValueKind.PLAIN, value) == (Fate.TAKEN, value + b"|")


@pytest.mark.parametrize(
    "kind",
    [pa.binary(), pa.large_binary(), pa.binary_view(), pa.string(), pa.large_string(), pa.string_view()],
)
def test_columns_of_any_type_of_bytes(loop: ValueLoop, kind: pa.DataType) -> None:
    """Columns: bytes and texts of every type, slices of them, with nulls, or of nulls only."""
    column = pa.array([b"x", b"a", None, b"bc"], pa.binary()).cast(kind).slice(1)
    rows, fates = join_values(column, ValueKind.PLAIN, after=b"|", loop=loop)
    assert bytes(rows.payload) == b"a|bc|"
    assert fates.tolist() == [Fate.TAKEN, Fate.NULL, Fate.TAKEN]
    rows, fates = join_values(pa.nulls(2, kind), ValueKind.PLAIN, after=b"|", loop=loop)
    assert (rows.nbytes, fates.tolist()) == (0, [Fate.NULL] * 2)


def test_texts_take_their_places() -> None:
    """Rows without bytes can be given some, wherever they stand."""
    column = pa.array([b"1", b"{}", b"2", b"x", b"[]", None, b"3"], pa.binary())
    found = with_texts(join_values(column, ValueKind.JSON, after=b"|"), {0: b"1|", 2: None, 6: b"3|"})
    assert bytes(found.rows.payload) == b"1|{}|[]|3|"
    taken, null, other = Fate.TAKEN, Fate.NULL, Fate.OTHER
    assert found.fates.tolist() == [taken, taken, null, other, taken, null, taken]
    assert found.rows.borders.tolist() == [0, 2, 5, 5, 5, 8, 8, 10]


def test_orders_that_do_not_hold_are_refused() -> None:
    """The compiled loop refuses buffers that do not hold their rows, offsets out of order, and unknown kinds."""
    if compiled_values is None:
        missing("the compiled loop", "install with a C compiler")
    from sinksdk.connectors.s3_archiver import _datums  # noqa: PLC0415 - it may be missing

    def ask(kind: int = 0, before: bytes = b"", rows: int = 1, column: object = None) -> object:
        return _datums.values((kind, before, b"|", rows, pa.allocate_buffer, column))

    data, numbers = pa.py_buffer(b"abc"), pa.array([0, 2, 1], pa.int32()).buffers()[1]
    with pytest.raises(ValueError, match="do not hold its rows"):
        ask(column=(9, 0, 4, None, numbers, data))
    with pytest.raises(ValueError, match="not in order"):
        ask(rows=2, column=(2, 0, 4, None, numbers, data))
    for kind, before in ((-1, b""), (5, b""), (1, b""), (2, b"x")):
        with pytest.raises(ValueError, match="kind of values"):
            ask(kind, before)
    with pytest.raises(TypeError, match="tuple"):
        _datums.values([])  # type: ignore[arg-type]
