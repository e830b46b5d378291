"""Applies the converters to a batch; what cannot be converted is reported and left out."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from sinksdk.engine.converters import Converter
from sinksdk.engine.errant import Stage, WorkerErrantRecordReporter
from sinksdk.engine.options import EngineOptions
from sinksdk.errors import DataException
from sinksdk.records import SinkRecord, SinkRecords


class Conversion:
    """Key and value converters over batches. Bytes stay Arrow: then no record is touched."""

    def __init__(self, options: EngineOptions, reporter: WorkerErrantRecordReporter) -> None:
        self._key = options.key_converter
        self._value = options.value_converter
        self._reporter = reporter

    def __call__(self, records: SinkRecords) -> SinkRecords:
        """The batch as the task shall see it.

        Raises:
            ConnectException: a record cannot be converted and ``errors.tolerance`` is none.
            RetriableException: a converter asks for another attempt.
        """
        if self._key is None and self._value is None:
            return records
        kept, keys, values = [], [], []
        for row, record in enumerate(records):
            converted = self._convert(record)
            if converted is not None:
                kept.append(row)
                keys.append(converted[0])
                values.append(converted[1])
        arrow = records.arrow if len(kept) == len(records) else records.arrow.take(pa.array(kept, pa.int64()))
        return SinkRecords(records.partition, arrow, keys, values)

    def _convert(self, record: SinkRecord) -> tuple[Any, Any] | None:
        stage: Stage = "KEY_CONVERTER"
        try:
            key = _apply(self._key, record.topic, record.key)
            stage = "VALUE_CONVERTER"
            return key, _apply(self._value, record.topic, record.value)
        except DataException as error:
            self._reporter.report_from(stage, record, error)
            return None


def _apply(converter: Converter | None, topic: str, data: bytes | None) -> Any:
    return data if converter is None else converter(topic, data)
