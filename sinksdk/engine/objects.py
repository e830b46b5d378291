"""Write objects without a schema as JSON, as Jackson writes Java's."""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
from contextlib import suppress
from decimal import Decimal
from typing import Any

from sinksdk.transforms import temporal


def json_of(value: Any) -> str:
    """Return JSON; bytes are base64, timestamps milliseconds, decimals numbers where a double holds them."""
    text = _text(value, is_ascii=False)
    with suppress(UnicodeEncodeError):
        text.encode()
        return text
    return _text(value, is_ascii=True)  # lone surrogates have no UTF-8, and stay escapes


def _text(value: Any, *, is_ascii: bool) -> str:
    how: dict[str, Any] = {"separators": (",", ":"), "ensure_ascii": is_ascii, "allow_nan": False}
    try:
        return json.dumps(value, default=_as_json, **how)
    except ValueError:  # not a number, or infinite
        return json.dumps(_without_infinity(value), default=_as_json, **how)


def _without_infinity(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_infinity(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_infinity(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _as_json(value: object) -> object:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dt.date | dt.time):
        return temporal.to_millis(value)
    if isinstance(value, Decimal) and value.is_finite():
        number = int(value) if value == value.to_integral_value() else float(value)
        return number if Decimal(repr(number)) == value else str(value)
    return str(value)
