"""A chain of transforms, each with an optional predicate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sinksdk.errors import ConfigException, ConnectException, RetriableException
from sinksdk.records import RECORD_COLUMNS, SinkRecords
from sinksdk.transforms.base import BuiltIn, Predicate, Transformation
from sinksdk.transforms.parts import are_alike, joined
from sinksdk.values.rows import rows_to_take

Offsets: TypeAlias = npt.NDArray[np.int64]

_KEPT: Final[Mapping[str, pa.DataType]] = {
    name: kind for name, kind in RECORD_COLUMNS.items() if name not in ("key", "value")
}


class TransformFailed(Exception):
    def __init__(self, failed: object, error: Exception, where: str) -> None:
        super().__init__(str(error))
        self.failed = failed
        self.error = error
        self.where = where


class TypesDiffer(Exception):
    """A transform changes the type of the chosen records only; they alternate with others at ``offsets``."""

    # Kafka Connect transforms each record alone; a batch has one type, so it must be divided.
    def __init__(self, offsets: Offsets) -> None:
        super().__init__(f"the type of keys or values changes at {len(offsets)} offsets")
        self.offsets = offsets


@dataclass(frozen=True, slots=True)
class Step:
    """One transform; ``negate`` applies it to the records that its predicate does not choose."""

    name: str
    transformation: Transformation
    predicate: Predicate | None = None
    negate: bool = False

    def __call__(self, records: SinkRecords) -> SinkRecords:
        chosen = self._chosen(records)
        if chosen is None or chosen.all():
            return self._applied(records)
        if not chosen.any():
            return records
        rows, others = np.flatnonzero(chosen), np.flatnonzero(~chosen)
        given = records.take(rows)
        made = self._applied(given)
        pieces = [records.take(others), made]
        if not are_alike(pieces):
            raise TypesDiffer(records.offsets[1:][np.diff(chosen)])
        return in_order(pieces, [others, rows[rows_left(made.offsets, given.offsets)]])

    def _chosen(self, records: SinkRecords) -> npt.NDArray[np.bool_] | None:
        if self.predicate is None:
            return None
        with self._attributed(self.predicate, "test"):
            chosen = np.array(self.predicate.test(records))
        if chosen.shape != (len(records),) or chosen.dtype != np.bool_:
            raise ConnectException(
                f"the predicate of transform '{self.name}' did not return true or false for each of "
                f"{len(records)} records"
            )
        return np.logical_not(chosen) if self.negate else chosen

    def _applied(self, records: SinkRecords) -> SinkRecords:
        with self._attributed(self.transformation, "apply"):
            made = self.transformation.apply(records)
        return made if isinstance(self.transformation, BuiltIn) else self._checked(records, made)

    @contextmanager
    def _attributed(self, called: object, method: str) -> Iterator[None]:
        of = "predicate of " if called is self.predicate else ""
        where = f"{of}transform '{self.name}', {type(called).__qualname__}.{method}"
        try:
            yield
        except RetriableException as error:  # the record is not bad
            raise RetriableException(f"{where}: {error}", retry_after=error.retry_after) from error
        except ConfigException:
            raise
        except SystemExit as error:  # would end Spark's Python worker, and Spark would repeat the task
            raise ConnectException(f"{where} raised SystemExit: {error}") from error
        except Exception as error:
            raise TransformFailed(called, error, where) from error

    def _checked(self, given: SinkRecords, made: SinkRecords) -> SinkRecords:
        who = f"transform '{self.name}' ({type(self.transformation).__qualname__})"
        if not isinstance(made, SinkRecords):
            raise ConnectException(f"{who} returned {type(made).__name__}, not SinkRecords")
        if made.partition != given.partition:
            raise ConnectException(
                f"{who} received records of {given.partition} and returned records of {made.partition}: a "
                f"transform must keep topic and partition, because their offsets are committed"
            )
        for problem in _problems(made, given):
            raise ConnectException(f"{who} returned records of {given.partition} {problem}")
        if made.arrow is given.arrow:
            return made
        rows = rows_left(made.offsets, given.offsets)
        read = given.arrow if given.read is None else given.read
        # Dead letters are the rows as they were read.
        return replace(made, read=read.take(rows_to_take(rows)))


def _problems(made: SinkRecords, given: SinkRecords) -> Iterator[str]:
    for field in made.arrow.schema:
        wanted = _KEPT.get(field.name)
        if wanted is not None and field.type != wanted:
            yield f"whose column '{field.name}' is of type {field.type}, not {wanted}"
    if "offset" not in made.arrow.schema.names or made.arrow.column("offset").null_count:
        yield "without offsets: return rows of the records that the transform received"
    for name, objects in (("keys", made.key_objects), ("values", made.value_objects)):
        if objects is not None and len(objects) != len(made):
            yield f"with {len(objects)} {name} for {len(made)} rows"
    try:
        rows_left(made.offsets, given.offsets)
    except ValueError:
        yield (
            "with offsets that it did not receive, more rows than it received, or in another order: a "
            "transform may only drop and change records"
        )


def in_order(pieces: Sequence[SinkRecords], rows: Sequence[npt.NDArray[np.intp]]) -> SinkRecords:
    # Several rows may share an offset.
    return joined(pieces).take(np.argsort(np.concatenate(rows), kind="stable"))


def rows_left(left: Offsets, given: Offsets) -> npt.NDArray[np.intp]:
    """Return the numbers of the rows that are left; of several rows with one offset, the first ones."""
    rows = np.searchsorted(given, left) + np.arange(len(left)) - np.searchsorted(left, left)
    if (np.diff(left) < 0).any() or (rows >= len(given)).any() or (given[rows] != left).any():
        raise ValueError("offsets that are not those given")
    return rows


class Chain:
    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = tuple(steps)
        # An author's transform may change keys and values in place.
        self.has_authors = any(not isinstance(step.transformation, BuiltIn) for step in self.steps)

    def __call__(self, records: SinkRecords) -> SinkRecords:
        for step in self.steps:
            if not len(records):
                break
            records = step(records)
        return records
