"""Source partitions and offsets as they are stored: JSON objects of scalars, equal if their content is."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from sinksdk.errors import DataException
from sinksdk.source.records import SourceOffset, SourcePartition

_SCALARS: Final = (str, int, float, bool, type(None))
_ENCODER: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)


class SourcePosition(NamedTuple):
    """The offset up to which a part of the source was read."""

    partition: SourcePartition
    offset: SourceOffset

    @classmethod
    def of(cls, partition: Any, offset: Any) -> SourcePosition:
        """Check and copy both: the author may change his own mappings afterwards.

        Raises:
            DataException: one of the two cannot be stored.
        """
        return cls(_checked("partition", partition), _checked("offset", offset))


def partition_key(partition: Any) -> str:
    """Text by which equal partitions are recognised, whatever the order of their fields.

    Raises:
        DataException: this cannot be a source partition.
    """
    return as_json(_checked("partition", partition))


def as_json(value: Mapping[str, Any]) -> str:
    """Compact JSON with sorted fields: Kafka compacts source offsets by the bytes of their keys."""
    return _ENCODER.encode(value)


def _checked(what: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, (dict, Mapping)):  # dict first: the check of an abstract class is slower
        raise DataException(
            f"a source {what} must be a mapping of names to values, not {_kind(value)}: {value!r}"
        )
    for name, field in value.items():
        if not isinstance(name, str):
            raise DataException(f"the source {what} {value!r} has {_kind(name)} as a name; use a string")
        if type(field) not in _SCALARS:
            raise DataException(
                f"the source {what} {value!r} has {_kind(field)} as {name!r}; only str, int, float, bool "
                f"and None can be stored"
            )
        if type(field) is float and not math.isfinite(field):
            raise DataException(
                f"the source {what} {value!r} has {field} as {name!r}, which JSON cannot hold"
            )
        # Python parses no integers of more than 4,300 digits.
        if type(field) is int and not -(2**63) <= field < 2**63:
            raise DataException(
                f"the source {what} has a number of more than 64 bits as {name!r}; use a string"
            )
        if not is_utf8(name) or (type(field) is str and not is_utf8(field)):
            raise DataException(
                f"the source {what} {value!r} has a lone surrogate at {name!r}, which UTF-8 cannot hold; "
                f"decode file names and the like without 'surrogateescape', or keep them as hexadecimal text"
            )
    return dict(value)


def is_utf8(text: str) -> bool:
    """Whether a text can be stored as UTF-8: lone surrogates cannot."""
    if text.isascii():  # the common case: isascii() creates no copy
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _kind(value: object) -> str:
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
