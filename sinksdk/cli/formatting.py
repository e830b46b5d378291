"""Numbers as people read them."""

from __future__ import annotations

from datetime import datetime

_STEP = 1000
_TENTHS_BELOW = 100
_SECONDS_BELOW = 120


def number(value: float | None) -> str:
    """``1234567`` as ``1,234,567``; None as a dash."""
    return "–" if value is None else f"{value:,.0f}"


def size(value: float | None) -> str:
    """Bytes in decimal units: ``12.3 MB``; None as a dash."""
    if value is None:
        return "–"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < _STEP or unit == "TB":
            break
        value /= _STEP
    digits = 1 if unit != "B" and value < _TENTHS_BELOW else 0
    return f"{value:,.{digits}f} {unit}"


def duration(seconds: float) -> str:
    """``8.4 s``, ``2:05 min``, ``1:00:00 h``."""
    if seconds < _SECONDS_BELOW:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02} h" if hours else f"{minutes}:{rest:02} min"


def moment(seconds: float | None) -> str:
    """Day and time where the reader is, from seconds since the epoch; None as a dash."""
    return "–" if seconds is None else f"{datetime.fromtimestamp(seconds).astimezone():%Y-%m-%d %H:%M:%S}"


def counted(value: int, noun: str) -> str:
    """``1 file``, ``2 files``."""
    return f"{value:,} {noun}" + ("" if value == 1 else "s")
