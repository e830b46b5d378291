"""Moments, days and times of day, as Connect's logical types ``Timestamp``, ``Date`` and ``Time``.

In between each is a number of milliseconds since the epoch, as in Java's ``java.util.Date``.
"""

from __future__ import annotations

import datetime as dt
from typing import Any, Final, TypeAlias

import pyarrow as pa

from sinksdk.errors import DataException

Moment: TypeAlias = dt.date | dt.time
"""A ``datetime``, a ``date`` or a ``time``."""
DAY: Final = 86_400_000
"""Milliseconds."""
TIMESTAMP: Final = pa.timestamp("ms", tz="UTC")
TYPES: Final = {"Timestamp": TIMESTAMP, "Date": pa.date32(), "Time": pa.time32("ms")}

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_FIRST_DAY: Final = _EPOCH.date()
_MILLISECOND: Final = dt.timedelta(milliseconds=1)


def is_one(value: object) -> bool:
    """Whether a Python object is one of the three."""
    return isinstance(value, dt.date | dt.time)


def is_moment(kind: pa.DataType) -> bool:
    """Whether an Arrow column holds one of the three."""
    return pa.types.is_temporal(kind) and not pa.types.is_duration(kind)


def to_millis(value: Moment) -> int:
    """Milliseconds since the epoch; without a time zone it is UTC."""
    if isinstance(value, dt.datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=dt.UTC)
        return (moment - _EPOCH) // _MILLISECOND
    if isinstance(value, dt.time):
        seconds = (value.hour * 60 + value.minute) * 60 + value.second
        return seconds * 1000 + value.microsecond // 1000
    return (value - _FIRST_DAY).days * DAY


def to_number(value: Moment) -> int:
    """What Connect's logical types hold: milliseconds, or days of a ``date``."""
    is_day = isinstance(value, dt.date) and not isinstance(value, dt.datetime)
    return to_millis(value) // DAY if is_day else to_millis(value)


def of_millis(millis: int, kind: str) -> Moment:
    """A ``Timestamp``, the ``Date`` of it, or the ``Time`` of day of it.

    Raises:
        DataException: it is outside of the years 1 to 9999.
    """
    try:
        moment = _EPOCH + millis * _MILLISECOND
    except OverflowError:
        message = "a timestamp is outside of the years 1 to 9999"
        raise DataException(message) from None
    if kind == "Date":
        return moment.date()
    return moment.time() if kind == "Time" else moment


def from_column(column: pa.Array) -> list[Moment | None]:
    """A column of one of the three as Python objects."""
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
    """As Connect's ``Values``: a time on the first day and before it, a date at midnight, else both."""
    millis = to_millis(value)
    day, rest = divmod(millis, DAY)
    clock = f"{of_millis(rest, 'Time'):%H:%M:%S}.{rest % 1000:03}Z"
    if day <= 0:
        return clock
    date = of_millis(millis, "Date").isoformat()
    return f"{date}T{clock}" if rest else date
