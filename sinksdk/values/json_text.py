"""JSON texts as a column, and the only place that decides which values are JSON.

A column of :data:`JSON` contains values that are JSON already; any other contains typed values.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sinksdk.errors import DataException
from sinksdk.values.rows import Flags, Longs, rows_to_take, valid_flags, valid_only, valid_rows

JSON: Final = pa.json_(pa.string())

# The rules of Kafka Connect's JsonConverter (Kafka 4.1, Jackson 2.16): RFC 8259, at most 1,000 levels and
# numbers of 1,000 digits, also in UTF-16 and UTF-32; an empty text is null (KAFKA-10477). Unlike in Connect,
# text after the first JSON value and invalid UTF-8 make a value bad.
_MOST_DEPTH: Final = 1_000
_MOST_DIGITS: Final = 1_000
_MOST_EXPONENT: Final = 2**31 - 1

Verdicts = npt.NDArray[np.uint8]


class Verdict(IntEnum):
    JSON = 0
    MAYBE_ENVELOPE = 1
    """JSON of an object whose first name is ``schema`` or ``payload``, or contains an escape."""
    NULL = 2
    """Empty, only space, or JSON's null."""
    ODD = 3
    """Perhaps JSON that Connect accepts beyond RFC 8259: :func:`_normal` decides."""
    BAD = 4


class JsonTexts(NamedTuple):
    """The JSON texts of a column of bytes; null where a value is null or is not JSON.

    Args:
        failed: why values are not JSON, by row; the reasons do not quote the value.
        nulls: rows whose value is empty or the JSON text ``null``.
    """

    column: pa.Array
    maybe_envelopes: Flags
    failed: Mapping[int, str]
    nulls: list[int]

    @property
    def rows(self) -> Longs:
        return valid_rows(self.column)


def is_json(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.JsonType)


def json_column(texts: pa.Array) -> pa.Array:
    if texts.type != pa.string():
        if texts.type != pa.binary():
            texts = texts.cast(pa.binary())
        texts = pa.Array.from_buffers(
            pa.string(), len(texts), texts.buffers(), texts.null_count, texts.offset
        )
    return pa.ExtensionArray.from_storage(JSON, texts)


def json_objects(column: pa.Array) -> list[Any]:
    return [None if text is None else json_object(text) for text in column.storage.to_pylist()]


def json_object(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise DataException("the value is JSON with too many levels") from None


def read_json(values: pa.Array) -> JsonTexts:
    """Return the JSON texts of a ``binary`` column. Valid JSON is not copied."""
    verdicts = scan(values)
    worst = int(verdicts.max(initial=Verdict.JSON))
    if worst <= Verdict.MAYBE_ENVELOPE:
        return JsonTexts(json_column(values), verdicts == Verdict.MAYBE_ENVELOPE, {}, [])
    failed: dict[int, str] = {}
    normal: dict[int, bytes] = {}
    if worst >= Verdict.ODD:
        verdicts = verdicts.copy()
        rows = np.flatnonzero(verdicts >= Verdict.ODD)
        for row, data in zip(rows.tolist(), values.take(rows_to_take(rows)).to_pylist(), strict=True):
            if verdicts[row] == Verdict.ODD:
                verdicts[row], normal[row] = _normal(data)
            if verdicts[row] == Verdict.BAD:
                failed[row] = why_not_json(data)
    are_null = verdicts == Verdict.NULL
    if values.null_count:
        are_null &= valid_flags(values)
    nulls: list[int] = np.flatnonzero(are_null).tolist()
    texts = values if not normal else _with_texts(values, normal)
    column = json_column(valid_only(texts, verdicts <= Verdict.MAYBE_ENVELOPE))
    return JsonTexts(column, verdicts == Verdict.MAYBE_ENVELOPE, failed, nulls)


def _with_texts(values: pa.Array, texts: Mapping[int, bytes]) -> pa.Array:
    places = np.arange(len(values))
    places[list(texts)] = len(values) + np.arange(len(texts))
    both = pa.concat_arrays([values, pa.array(list(texts.values()), pa.binary())])
    return both.take(rows_to_take(places))


def scan(values: pa.Array) -> Verdicts:
    if not len(values):
        return np.empty(0, np.uint8)
    if values.type not in (pa.binary(), pa.large_binary(), pa.string(), pa.large_string()):
        values = values.cast(pa.binary())
    found = _SCAN(values)
    if values.null_count:
        found = np.where(valid_flags(values), found, np.uint8(Verdict.NULL))
    return found


def bad_json(texts: pa.Array) -> dict[int, str]:
    """Return the rows of a column of bytes or text, such as lines of a file, that are not JSON, with reasons.

    JSON is RFC 8259 in UTF-8, of at most 1,000 levels. Empty texts and nulls are not JSON.
    """
    verdicts = scan(texts)
    found: dict[int, str] = {}
    for row in np.flatnonzero(verdicts > Verdict.MAYBE_ENVELOPE).tolist():
        data = texts[row].as_buffer().to_pybytes() if texts[row].is_valid else None
        if data is None:
            found[row] = "it is null"
        elif verdicts[row] != Verdict.ODD or not _is_json_of_long_numbers(data):
            found[row] = why_not_json(data)
    return found


def _is_json_of_long_numbers(data: bytes) -> bool:
    # Jackson refuses long numbers, but a decimal in NUMERIC format may be one.
    is_json_in_utf8 = _verdict(data, decides=True) <= Verdict.MAYBE_ENVELOPE
    return is_json_in_utf8 and not any(map(_has_zeros_before, _tokens(data)))


def why_not_json(data: bytes) -> str:
    # The reason is logged, so it does not quote the value.
    try:
        text = data.decode(encoding_of(data) or ("utf-8-sig" if data[:1] == b"\xef" else "utf-8"))
        end = _DECODER.raw_decode(text, len(text) - len(text.lstrip(_SPACE)))[1]
    except UnicodeDecodeError as error:
        return f"it is not UTF-8 ({error.reason} at byte {error.start})"
    except json.JSONDecodeError as error:
        return str(error)
    except ValueError as error:
        return str(error)
    except RecursionError:
        return f"it has more than {_MOST_DEPTH:,} levels"
    if text[end:].strip(_SPACE):
        return f"text follows its first JSON value, from character {end} on"
    return f"it has more than {_MOST_DEPTH:,} levels, or a number of more than {_MOST_DIGITS:,} digits"


def payload_text(envelope: str) -> str:
    found, at = "", envelope.index("{") + 1
    while True:
        name, at = _DECODER.raw_decode(envelope, _after_space(envelope, at))
        begin = _after_space(envelope, _after_space(envelope, at) + 1)  # begins after the colon
        _, at = _DECODER.raw_decode(envelope, begin)
        if name == "payload":
            found = envelope[begin:at]
        at = _after_space(envelope, at)
        if envelope[at] == "}":
            return found
        at += 1  # continue after the comma


_SPACE: Final = " \t\n\r"


def _after_space(text: str, at: int) -> int:
    while text[at] in _SPACE:
        at += 1
    return at


def _refuse(constant: str) -> Any:
    raise ValueError(f"it contains {constant}, which is not a number in JSON")


def _nothing(_: str) -> int:
    return 0


# Numbers are not parsed, because Python refuses more than 4,300 digits.
_DECODER: Final = json.JSONDecoder(parse_int=_nothing, parse_float=_nothing, parse_constant=_refuse)


_LEAST_MARKED: Final = 4  # bytes: Jackson searches four for a byte order mark


def encoding_of(data: bytes) -> str | None:
    # Jackson detects the encoding in the first four bytes.
    first = data[:4]
    if len(first) == _LEAST_MARKED:
        for mark, encoding in _MARKS.items():
            if first.startswith(mark):
                return encoding
        zeros = tuple(octet == 0 for octet in first)
        if zeros in _WIDE:
            return _WIDE[zeros]
    if len(first) > 1 and 0 in first[:2]:
        return "utf-16-be" if first[0] == 0 else "utf-16-le"
    return None


_MARKS: Final[Mapping[bytes, str]] = {
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF16_BE: "utf-16",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF8: "utf-8-sig",
}
_WIDE: Final[Mapping[tuple[bool, ...], str]] = {
    (True, True, True, False): "utf-32-be",
    (False, True, True, True): "utf-32-le",
}

_NUMBER: Final = re.compile(r"(-?)(0*)(\d+)(?:\.(\d+))?(?:[eE]([+-]?)(\d+))?")
_TEXT_OR_NUMBER: Final = re.compile(r'"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*')


class _TooLong(Exception):
    pass


def _normal(data: bytes) -> tuple[Verdict, bytes]:
    try:
        encoding = encoding_of(data)
        text = data.decode(encoding or "utf-8")
        normal = _TEXT_OR_NUMBER.sub(_normal_number, text).encode()
    except (UnicodeError, _TooLong):
        return Verdict.BAD, data
    return _verdict(normal, decides=True), normal


def _normal_number(found: re.Match[str]) -> str:
    if found[0].startswith('"') or (number := _NUMBER.fullmatch(found[0])) is None:
        return found[0]
    sign, zeros, digits, fraction, _, exponent = number.groups()
    counted = len(digits) + len(fraction or "") + len(exponent or "")
    if counted > _MOST_DIGITS or int(exponent or 0) > _MOST_EXPONENT:
        raise _TooLong
    return f"{sign}{found[0][len(sign) + len(zeros) :]}"


_TOKEN: Final = re.compile(
    rb'[ \t\n\r]*(?:(?P<text>"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*")'
    rb"|(?P<number>-?(?P<whole>[0-9]+)(?:\.(?P<fraction>[0-9]+))?(?:[eE][+-]?(?P<exponent>[0-9]+))?)"
    rb"|(?P<word>true|false|null)|(?P<mark>[{}\[\],:]))"
)
_MOST_SURE: Final = 9  # digits of an exponent that certainly has at most 32 bits


def plain_scan(values: pa.Array) -> Verdicts:
    listed = values.cast(pa.large_binary()).to_pylist()
    return np.array([_verdict(value or b"") for value in listed], np.uint8)


def _verdict(data: bytes, *, decides: bool = False) -> Verdict:
    if not decides and len(data) > 1 and (0 in data[:4] or data[0] in (0xEF, 0xFE, 0xFF)):
        return Verdict.ODD
    if data.strip(_SPACE.encode()) in (b"", b"null"):
        return Verdict.NULL
    try:
        data.decode()
        tokens = list(_tokens(data))
    except ValueError:
        return Verdict.BAD
    if not _is_one_value([token.lastgroup or "" for token in tokens], [token[0].strip() for token in tokens]):
        return Verdict.BAD
    if not decides and any(map(_is_odd, tokens)):
        return Verdict.ODD
    name = tokens[1]["text"] if len(tokens) > 1 and tokens[0]["mark"] == b"{" else None
    is_envelope = name is not None and (name in (b'"schema"', b'"payload"') or b"\\" in name)
    return Verdict.MAYBE_ENVELOPE if is_envelope else Verdict.JSON


def _tokens(data: bytes) -> Iterator[re.Match[bytes]]:
    at, end = 0, len(data.rstrip(_SPACE.encode()))
    while at < end:
        found = _TOKEN.match(data, at, end)
        if found is None:
            raise ValueError(at)
        yield found
        at = found.end()


def _is_odd(token: re.Match[bytes]) -> bool:
    whole, fraction, exponent = token["whole"] or b"", token["fraction"] or b"", token["exponent"] or b""
    is_long = len(whole) + len(fraction) + len(exponent) > _MOST_DIGITS or len(exponent) > _MOST_SURE
    return is_long or _has_zeros_before(token)


def _has_zeros_before(token: re.Match[bytes]) -> bool:
    whole = token["whole"] or b""
    return len(whole) > 1 and whole.startswith(b"0")


def _is_one_value(groups: list[str], texts: list[bytes]) -> bool:
    open_ones: list[bytes] = []
    expected = "value"  # other states: first value, first name, name, colon, end
    for group, text in zip(groups, texts, strict=True):
        if expected in ("value", "first value") and group != "mark":
            expected = "end"
        elif expected in ("value", "first value") and text in (b"{", b"["):
            open_ones.append(text)
            if len(open_ones) > _MOST_DEPTH:
                return False
            expected = "first name" if text == b"{" else "first value"
        elif expected in ("name", "first name") and group == "text":
            expected = "colon"
        elif expected == "colon" and text == b":" and group == "mark":
            expected = "value"
        elif group == "mark" and open_ones and text == _ENDS[open_ones[-1]] and expected in _MAY_END:
            open_ones.pop()
            expected = "end"
        elif group == "mark" and expected == "end" and open_ones and text == b",":
            expected = "name" if open_ones[-1] == b"{" else "value"
        else:
            return False
    return expected == "end" and not open_ones


_ENDS: Final = {b"{": b"}", b"[": b"]"}
_MAY_END: Final = ("end", "first name", "first value")


Scan = Callable[[pa.Array], Verdicts]

compiled_scan: Scan | None
try:
    from sinksdk.values import _json
except ImportError:
    compiled_scan = None
else:

    def compiled_scan(values: pa.Array) -> Verdicts:
        _, offsets, data = values.buffers()
        width = 4 if values.type in (pa.binary(), pa.string()) else 8
        order = (values.offset, len(values), width, offsets, b"" if data is None else data)
        return np.frombuffer(_json.scan(order), np.uint8)


_SCAN: Final[Scan] = compiled_scan or plain_scan
