"""Configuration of the archiver, with Confluent's names of keys where they exist."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, ClassVar

import pyarrow as pa

from sinksdk import ConfigException, Converted, Verdict
from sinksdk.connectors.s3_archiver.archive.layout import hidden_warning
from sinksdk.connectors.s3_archiver.compatibility.conversion import translate
from sinksdk.connectors.s3_archiver.compatibility.rules import has_rule, other_defaults_for, rules_for
from sinksdk.connectors.s3_archiver.compatibility.verdicts import COMPATIBILITY, ENDPOINTS, OTHER_DEFAULTS
from sinksdk.connectors.s3_archiver.files.settings import FileSettings
from sinksdk.connectors.s3_archiver.formats.settings import unset_converter
from sinksdk.connectors.s3_archiver.partitioners.checks import folder_problems, key_problems, letters_warnings
from sinksdk.connectors.s3_archiver.partitioners.settings import OLDER_PARTITIONER
from sinksdk.connectors.s3_archiver.s3.settings import bucket_warning, region_warning


class S3ArchiverConfig(FileSettings):
    """Configuration of the S3 archiver."""

    compatibility: ClassVar[Mapping[str, Verdict]] = COMPATIBILITY
    other_defaults: ClassVar[Mapping[str, str]] = OTHER_DEFAULTS

    @classmethod
    def _supplemented(cls, applied: dict[str, Any]) -> dict[str, Any]:
        name = str(applied.get("partitioner.class", ""))
        if name.endswith(OLDER_PARTITIONER[0]):
            applied["partitioner.class"] = name.replace(*OLDER_PARTITIONER)
            applied["partition.field.format.path"] = "false"
            applied.setdefault("partition.field.name", applied.get("partition.field", ""))
        for key in ENDPOINTS:
            if applied.get(key):
                applied.setdefault("store.url", applied[key])
        return super()._supplemented(applied)

    @classmethod
    def translated(cls, raw: Mapping[str, str], /) -> Converted:
        return translate(raw)

    @classmethod
    def _rules_for(cls, values: Mapping[str, Any], /) -> tuple[Mapping[str, Verdict], ...]:
        unused, _, *others = super()._rules_for(values)
        known = cls._known(values) | {key for key in values if has_rule(key, unused, *others)}
        return unused, rules_for(values, known), *others

    @classmethod
    def other_defaults_for(cls, values: Mapping[str, Any], /) -> Mapping[str, str]:
        return other_defaults_for(values)

    def problems(self) -> list[str]:
        return [
            *super().problems(),
            *self.access_problems(),
            *self.name_of_key_problems(),
            *([why] if (why := self.topics_dir_problem()) else key_problems(self)),
            *self.upload_problems(),
            *self.rotation_problems(),
            *folder_problems(self),
            *self.format_problems(),
            *self._field_problems(),
        ]

    def warnings(self) -> list[str]:
        kind = self.partitioner
        has_format = kind is not None and kind.has_time and kind.pattern is None
        return [
            *super().warnings(),
            *self._assumptions(),
            *(letters_warnings(self.path_format) if has_format else ()),
            *bucket_warning(self.s3_bucket_name),
            *region_warning(self.s3_bucket_name, self.store_url, self.s3_region),
            *hidden_warning(self.topics),
        ]

    def _assumptions(self) -> Iterator[str]:
        if self.is_transformed:
            return
        untyped = self.untyped()
        is_json = self.reads_fields or (self.holds_values and self.format_name == "JsonFormat")
        if untyped:
            yield from untyped
        elif "value_converter" not in self.model_fields_set and is_json:
            values = "values" if self.holds_values else "values, whose fields name folders,"
            yield (
                f"{unset_converter('value')}: {values} are read as JSON text; set it if they are something "
                f"else"
            )
        if "key_converter" not in self.model_fields_set and self.has_key_files:
            kind = "JSON text" if self.keys_format_class == "JsonFormat" else "bytes"
            yield f"{unset_converter('key')}: keys are read as {kind}; set it if they are something else"

    def _field_problems(self) -> Iterator[str]:
        """Refuse folders by fields of Avro after transforms: some values are framed, others are JSON."""
        with suppress(ConfigException):
            is_mixed = self.has_transforms and self.takes_bytes and self.value_spec().kind == "avro"
            if is_mixed and self.reads_fields:
                yield (
                    "'partitioner.class': whole records changed by 'transforms' cannot be in folders by "
                    "fields of Avro values: set 'archive.content' to value, or remove the transforms"
                )

    @property
    def json_of(self) -> Callable[[pa.Array], pa.Array] | None:
        """The conversion of values to JSON texts; None if files or folders need types."""
        if not self.holds_values or self.format_name != "JsonFormat" or self.reads_fields:
            return None
        from sinksdk.connectors.s3_archiver.formats.lines import JsonLines  # noqa: PLC0415 - slow to load

        return JsonLines(decimals=self.json_decimal_format).texts
