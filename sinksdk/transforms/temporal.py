"""Timestamps, dates and times, as Connect's logical types ``Timestamp``, ``Date`` and ``Time``."""

from __future__ import annotations

import datetime as dt
from typing import Any, Final, TypeAlias

import pyarrow as pa

from sinksdk.errors import DataException
from sinksdk.values.calendar import DAY

Temporal: TypeAlias = dt.date | dt.time
TIMESTAMP: Final = pa.timestamp("ms", tz="UTC")
TYPES: Final = {"Timestamp": TIMESTAMP, "Date": pa.date32(), "Time": pa.time32("ms")}

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_FIRST_DAY: Final = _EPOCH.date()
# All conversions go through milliseconds since the epoch, as in java.util.Date.
_MILLISECOND: Final = dt.timedelta(milliseconds=1)


def is_temporal_value(value: object) -> bool:
    return isinstance(value, dt.date | dt.time)


def is_temporal(kind: pa.DataType) -> bool:
    return pa.types.is_temporal(kind) and not pa.types.is_duration(kind)


def to_millis(value: Temporal) -> int:
    if isinstance(value, dt.datetime):
        in_zone = value if value.tzinfo else value.replace(tzinfo=dt.UTC)
        return (in_zone - _EPOCH) // _MILLISECOND
    if isinstance(value, dt.time):
        seconds = (value.hour * 60 + value.minute) * 60 + value.second
        return seconds * 1000 + value.microsecond // 1000
    return (value - _FIRST_DAY).days * DAY


def to_number(value: Temporal) -> int:
    """Return the number of Connect's logical type: milliseconds, or days of a ``date``."""
    is_day = isinstance(value, dt.date) and not isinstance(value, dt.datetime)
    return to_millis(value) // DAY if is_day else to_millis(value)


def of_millis(millis: int, kind: str) -> Temporal:
    try:
        timestamp = _EPOCH + millis * _MILLISECOND
    except OverflowError:
        raise DataException("a timestamp is outside the years 1 to 9999") from None
    if kind == "Date":
        return timestamp.date()
    return timestamp.time() if kind == "Time" else timestamp


def from_column(column: pa.Array) -> list[Temporal | None]:
    kind = column.type
    if pa.types.is_date(kind):
        numbers, name, unit = column.cast(pa.date32()).cast(pa.int32()), "Date", DAY
    elif pa.types.is_time(kind):
        numbers = column.cast(pa.time64("us"), safe=False).cast(pa.int64())
        return [None if n is None else of_millis(n // 1000, "Time") for n in numbers.to_pylist()]
    else:
        numbers, name, unit = column.cast(TIMESTAMP, safe=False).cast(pa.int64()), "Timestamp", 1
    return [None if n is None else of_millis(n * unit, name) for n in numbers.to_pylist()]


def to_text(value: Any) -> str:
    """Format a value as Connect's ``Values``: before 1970-01-02 the time only, at midnight the date only."""
    millis = to_millis(value)
    day, rest = divmod(millis, DAY)
    clock = f"{of_millis(rest, 'Time'):%H:%M:%S}.{rest % 1000:03}Z"
    if day <= 0:
        return clock
    date = of_millis(millis, "Date").isoformat()
    return f"{date}T{clock}" if rest else date
