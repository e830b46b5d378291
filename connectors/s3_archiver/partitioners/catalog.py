"""List the known partitioners, and the folders that they create."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from sinksdk.connectors.s3_archiver.partitioners.path_format import HOUR
from sinksdk.values.calendar import DAY


class Partitioner(NamedTuple):
    name: str
    has_fields: bool = False
    has_time: bool = False
    pattern: str | None = None  # None: as configured
    duration: int | None = None  # milliseconds; None: as configured

    @property
    def is_default(self) -> bool:
        return not self.has_fields and not self.has_time


_DAILY: Final = "'year'=YYYY/'month'=MM/'day'=dd"

_PARTITIONERS: Final[Mapping[str, Partitioner]] = {
    each.name: each
    for each in (
        Partitioner("DefaultPartitioner"),
        Partitioner("DailyPartitioner", has_time=True, pattern=_DAILY, duration=DAY),
        Partitioner("HourlyPartitioner", has_time=True, pattern=f"{_DAILY}/'hour'=HH", duration=HOUR),
        Partitioner("TimeBasedPartitioner", has_time=True),
        Partitioner("FieldPartitioner", has_fields=True),
        Partitioner("FieldAndTimeBasedPartitioner", has_fields=True, has_time=True),
    )
}

EXTRACTORS: Final = ("Wallclock", "Record", "RecordField")


def partitioner(name: str) -> Partitioner | None:
    return _PARTITIONERS.get(name.rpartition(".")[2])


def unknown_partitioner(name: str) -> str:
    if name.rpartition(".")[2] == "TimeAndFieldBasedPartitioner":
        return (
            f"'partitioner.class' is '{name}': take FieldAndTimeBasedPartitioner with the field as "
            f"'partition.field.name' and 'partition.field.format.path' = false, which makes the same folders"
        )
    return (
        f"'partitioner.class' is '{name}': take one of {', '.join(_PARTITIONERS)} (or Confluent's class "
        f"name); a class of one's own in Java cannot run here"
    )


# The former name, whose folders do not name fields, and the present one.
OLDER_PARTITIONER: Final = "TimeAndFieldBasedPartitioner", "FieldAndTimeBasedPartitioner"
