"""Applies the converters to a batch; what cannot be converted is reported and left out."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa

from sinksdk.engine.converters import Converter
from sinksdk.engine.errant import Stage, WorkerErrantRecordReporter
from sinksdk.engine.options import EngineOptions
from sinksdk.errors import ConfigException, RetriableException
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
            ConfigException: a converter cannot work as it is configured.
        """
        if self._key is None and self._value is None:
            return records
        kept, keys, values = [], [], []
        failed: list[_Failed] = []
        for row, record in enumerate(records):
            converted = self._convert(record)
            if isinstance(converted, _Failed):
                failed.append(converted)
            else:
                kept.append(row)
                keys.append(converted[0])
                values.append(converted[1])
        for stage, record, error in failed:  # now that no converter asks for another attempt at the batch
            converter = self._key if stage == "KEY_CONVERTER" else self._value
            self._reporter.report_from(stage, record, error, converter)
        arrow = records.arrow.take(pa.array(kept, pa.int64())) if failed else records.arrow
        return SinkRecords(records.partition, arrow, keys, values)

    def _convert(self, record: SinkRecord) -> tuple[Any, Any] | _Failed:
        stage: Stage = "KEY_CONVERTER"
        try:
            key = _apply(self._key, record.topic, record.key)
            stage = "VALUE_CONVERTER"
            return key, _apply(self._value, record.topic, record.value)
        except (RetriableException, ConfigException):
            raise  # no record's fault: with these, an outage would drain the topic into its dead letters
        except Exception as error:  # noqa: BLE001 - a converter may be anybody's; Connect tolerates any error
            return _Failed(stage, record, error)


class _Failed(NamedTuple):
    """A record that cannot be converted."""

    stage: Stage
    record: SinkRecord
    error: Exception


def _apply(converter: Converter | None, topic: str, data: bytes | None) -> Any:
    return data if converter is None else converter(topic, data)
