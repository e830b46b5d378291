"""From what was read to what a task is given: converters, then transforms."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa

from sinksdk.engine.converters import Converter
from sinksdk.engine.encoding import BytesRead, as_bytes
from sinksdk.engine.errant import Stage, WorkerErrantRecordReporter
from sinksdk.engine.options import EngineOptions
from sinksdk.errors import ConfigException, RetriableException
from sinksdk.records import SinkRecord, SinkRecords
from sinksdk.transforms.chain import Chain, TransformFailed
from sinksdk.transforms.parts import joined


class Conversion:
    """Key and value converters and transforms over batches. Without them no record is touched.

    Args:
        as_bytes: what transforms have changed becomes bytes again.
    """

    def __init__(
        self, options: EngineOptions, reporter: WorkerErrantRecordReporter, *, as_bytes: bool
    ) -> None:
        self._key = options.key_converter
        self._value = options.value_converter
        self._chain = options.chain
        self._as_bytes = as_bytes
        self._reporter = reporter

    def __call__(self, records: SinkRecords) -> SinkRecords:
        """The batch as the task gets it.

        Raises:
            ConnectException: a record cannot be converted or transformed and ``errors.tolerance`` is none.
            RetriableException: a converter or transform requests another attempt.
            ConfigException: a converter or transform cannot work as it is configured.
        """
        if self._key is None and self._value is None and self._chain is None:
            return records
        failed: list[_Failed] = []
        converted = self._converted(records, failed)
        made = converted if self._chain is None else self._transformed(self._chain, converted, failed)
        letters = []
        # Not before nothing requests another attempt at the batch: each is reported once.
        for stage, record, error, failed_in in sorted(failed, key=lambda one: one.record.offset):
            letters.append(self._reporter.report_from(stage, record, error, failed_in))
        for letter in letters:
            letter.result()  # a task that keeps its own offsets passes over these records in ``put``
        return made

    def _converted(self, records: SinkRecords, failed: list[_Failed]) -> SinkRecords:
        if self._key is None and self._value is None:
            return records
        kept, keys, values = [], [], []
        before = len(failed)
        for row, record in enumerate(records):
            converted = self._convert(record)
            if isinstance(converted, _Failed):
                failed.append(converted)
            else:
                kept.append(row)
                keys.append(converted[0])
                values.append(converted[1])
        is_whole = len(failed) == before
        arrow = records.arrow if is_whole else records.arrow.take(pa.array(kept, pa.int64()))
        return SinkRecords(records.partition, arrow, keys, values)

    def _convert(self, record: SinkRecord) -> tuple[Any, Any] | _Failed:
        stage: Stage = "KEY_CONVERTER"
        try:
            key = _apply(self._key, record.topic, record.key)
            stage = "VALUE_CONVERTER"
            return key, _apply(self._value, record.topic, record.value)
        except (RetriableException, ConfigException):
            raise  # not the record's fault: an outage would otherwise drain the topic into its dead letters
        except Exception as error:  # noqa: BLE001 - a converter may raise anything; Connect tolerates it
            return _Failed(stage, record, error, self._key if stage == "KEY_CONVERTER" else self._value)

    def _transformed(self, chain: Chain, records: SinkRecords, failed: list[_Failed]) -> SinkRecords:
        read = BytesRead(records, by_content=chain.has_authors) if self._as_bytes else None
        pieces = self._pieces(chain, records, failed)
        made = joined(pieces) if pieces else records[:0]
        return made if read is None else as_bytes(made, read)

    def _pieces(self, chain: Chain, records: SinkRecords, failed: list[_Failed]) -> list[SinkRecords]:
        """What the chain makes of a batch: in halves where it fails, down to the bad records."""
        try:
            return [chain(records)]
        except TransformFailed as failure:
            if len(records) == 1:
                failed.append(_Failed("TRANSFORMATION", records[0], failure.error, failure.failed))
                return []
        if chain.has_authors:  # it may have changed objects of this batch before it failed
            records = self._converted(SinkRecords(records.partition, records.arrow), [])
        half = len(records) // 2
        first, second = records[:half], records[half:]
        return [*self._pieces(chain, first, failed), *self._pieces(chain, second, failed)]


class _Failed(NamedTuple):
    """A record that cannot be converted or transformed, and by what."""

    stage: Stage
    record: SinkRecord
    error: Exception
    failed_in: object


def _apply(converter: Converter | None, topic: str, data: bytes | None) -> Any:
    return data if converter is None else converter(topic, data)
