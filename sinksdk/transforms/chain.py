"""A chain of transforms, each with its predicate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from sinksdk.errors import ConfigException, ConnectException, RetriableException
from sinksdk.records import SinkRecords
from sinksdk.transforms.base import BuiltIn, Predicate, Transformation
from sinksdk.transforms.parts import joined


class TransformFailed(Exception):
    """A transform, or its predicate, cannot be applied to a batch: some of its records are bad.

    Args:
        failed: the transform or predicate.
        error: what it has raised.
    """

    def __init__(self, failed: object, error: Exception) -> None:
        super().__init__(str(error))
        self.failed = failed
        self.error = error


@dataclass(frozen=True, slots=True)
class Step:
    """One transform.

    Args:
        name: its name in ``transforms``.
        predicate: chooses records; None for all.
        negate: the predicate chooses those that are left as they are.
    """

    name: str
    transformation: Transformation
    predicate: Predicate | None = None
    negate: bool = False

    def __call__(self, records: SinkRecords) -> SinkRecords:
        """The records, changed. Raises TransformFailed, RetriableException or ConfigException."""
        chosen = self._chosen(records)
        if chosen is None or chosen.all():
            return self._applied(records)
        if not chosen.any():
            return records
        made = self._applied(records.take(np.flatnonzero(chosen)))
        whole = joined([records.take(np.flatnonzero(~chosen)), made])
        return whole.take(np.argsort(whole.offsets, kind="stable"))

    def _chosen(self, records: SinkRecords) -> np.ndarray[tuple[int], np.dtype[np.bool_]] | None:
        if self.predicate is None:
            return None
        try:
            chosen = np.array(self.predicate.test(records), np.bool_)
        except (RetriableException, ConfigException):
            raise
        except Exception as error:
            raise TransformFailed(self.predicate, error) from error
        if chosen.shape != (len(records),):
            raise ConnectException(
                f"the predicate of transform '{self.name}' was given {len(records)} records and did not say "
                f"true or false for each of them"
            )
        return np.logical_not(chosen) if self.negate else chosen

    def _applied(self, records: SinkRecords) -> SinkRecords:
        try:
            made = self.transformation.apply(records)
        except (RetriableException, ConfigException):
            raise  # not the records' fault
        except Exception as error:
            raise TransformFailed(self.transformation, error) from error
        return made if isinstance(self.transformation, BuiltIn) else self._checked(records, made)

    def _checked(self, given: SinkRecords, made: SinkRecords) -> SinkRecords:
        """What an author's has returned: it may drop records and change them. Offsets say which they are.

        What it has done to columns is not what was read, which dead letters have.
        """
        who = f"transform '{self.name}' ({type(self.transformation).__qualname__})"
        if not isinstance(made, SinkRecords):
            raise ConnectException(f"{who} returned {type(made).__name__}, not SinkRecords")
        if made.partition != given.partition:
            raise ConnectException(
                f"{who} was given records of {given.partition} and returned records of {made.partition}: "
                f"records keep their topic and partition, of which offsets are committed"
            )
        rest = iter(enumerate(given.offsets.tolist()))
        rows = [next((row for row, o in rest if o == offset), None) for offset in made.offsets.tolist()]
        if None in rows:
            raise ConnectException(
                f"{who} returned records of {given.partition} with other offsets than it was given, or in "
                f"another order: it may drop records and change them"
            )
        if made.arrow is given.arrow:
            return made
        read = given.arrow if given.read is None else given.read
        return replace(made, read=read.take(pa.array(rows, pa.int64())))


class Chain:
    """Transforms, applied one after the other."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = tuple(steps)

    def __call__(self, records: SinkRecords) -> SinkRecords:
        """What is left of a batch.

        Raises:
            TransformFailed: some of its records are bad; with fewer of them it may succeed.
            RetriableException: another attempt is requested.
            ConnectException: an author's transform does what it must not.
        """
        for step in self.steps:
            if not len(records):
                break
            records = step(records)
        return records
