"""Configurations of sinks: Connect's flat dotted names, validated into typed, frozen models."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from pydantic import BaseModel, Field

from sinksdk.compatibility import Rules
from sinksdk.config.converters import ConverterSettings
from sinksdk.config.transforms import ChainSettings, chain_reference, rules_with_chain
from sinksdk.errors import ConfigException
from sinksdk.settings.addresses import address_problem
from sinksdk.settings.converter_keys import NAMESPACE, converter_rules
from sinksdk.settings.job import (
    DEAD_LETTER_DIRECTORY,
    LONGEST_NAME,
    ErrorSettings,
    NameSettings,
    PaceSettings,
    RetrySettings,
)
from sinksdk.settings.model import ConfigKey, ConfigModel, NameList
from sinksdk.support.java_regex import JavaRegexError, java_pattern
from sinksdk.support.zones import time_zone
from sinksdk.transforms.chain import Chain

__all__ = [
    "CONSUMER_OVERRIDES",
    "LONGEST_NAME",
    "ConfigKey",
    "ConnectorConfig",
    "NameList",
    "address_problem",
    "time_zone",
]

CONSUMER_OVERRIDES: Final = "consumer.override."
_DEAD_LETTER_SERVERS: Final = "producer.override.bootstrap.servers"
# The registry's client also has these keys with its namespace.
_LOGIN: Final = ("basic.auth.credentials.source", "basic.auth.user.info")
_CONSUMERS: Final = ("auto.offset.reset", "max.poll.records")


class SubscriptionSettings(BaseModel):
    topics: NameList = Field(default=(), description="Topics to read, separated by commas.")
    topics_regex: str | None = Field(
        default=None,
        alias="topics.regex",
        description="Topics to read, as a regular expression of Java's that matches the whole name.",
    )
    generation_max_ms: int = Field(
        default=60_000,
        ge=0,
        alias="generation.max.ms",
        description="Approximate duration of a generation in milliseconds: a larger backlog is read in "
        "several generations, divided at whole batches, so that other connectors can use Spark's task slots "
        "in between. The driver learns the number of records from earlier generations, but uses at least "
        "200,000 per task. 0: no limit.",
    )
    generation_max_records: int = Field(
        default=50_000_000,
        ge=1,
        alias="generation.max.records",
        description="Maximum number of records (by offsets) that one task reads in one generation; a larger "
        "backlog is read in several generations.",
    )
    max_poll_records: int | None = Field(
        default=None,
        ge=1,
        alias="max.poll.records",
        description="Maximum number of records of one `put` (and of its retry). If not set, the connector's "
        "task decides: usually 500; the archiver's accepts batches of the size in which they are read. "
        "`consumer.override.max.poll.records` is the same.",
    )
    missing_topic_policy: Literal["fail", "wait"] = Field(
        default="fail",
        alias="missing.topic.policy",
        description="If a subscribed topic does not exist, or was deleted and created again: `fail` the "
        "connector, once the others are committed, or `wait` for it and continue with the others.",
    )
    missing_topic_grace_ms: int = Field(
        default=10_000,
        ge=0,
        alias="missing.topic.grace.ms",
        description="Milliseconds for which a topic must be absent in every check before it counts as "
        "missing: right after a topic's creation a broker may respond with outdated metadata.",
    )
    on_data_loss: Literal["fail", "skip"] = Field(
        default="fail",
        alias="on.data.loss",
        description="If the source no longer has the records after the commit: `fail`, or `skip` to its "
        "first record. If the source has lost records before the commit: `fail`, or `skip` the records that "
        "now have their offsets. Skipped offsets are logged and counted.",
    )
    auto_offset_reset: Literal["earliest", "latest", "none"] = Field(
        default="earliest",
        alias="auto.offset.reset",
        description="Where a connector that has never committed anything, or was reset, begins: "
        "at the first record, at the end, or (`none`) not at all. "
        "`consumer.override.auto.offset.reset` is the same. "
        "Partitions added later begin at their first record.",
    )
    offset_source: Literal["store", "group"] = Field(
        default="store",
        alias="offset.source",
        description="`group`: a connector that has never committed anything begins at the offsets of its "
        "Kafka consumer group (`connect-<name>`, or `consumer.override.group.id`), to migrate from Kafka "
        "Connect.",
    )
    offset_mirror: bool = Field(
        default=True,
        alias="offset.mirror",
        description="With Kafka: write each commit's offsets to the consumer group as well, once it is "
        "published; Kafka's tools read the lag there. The store is authoritative.",
    )


class TransformSettings(BaseModel):
    """Transforms that Spark applies before the task receives the records."""

    records_sql: str | None = Field(
        default=None,
        alias="records.sql",
        description="One SELECT over the view `records`, which has the columns `topic`, `partition`, "
        "`offset`, `timestamp`, `timestampType`, `key`, `value` and `headers`. Records may be dropped, "
        "changed and multiplied; `topic`, `partition` and `offset` must stay as they are, in their order. "
        "A text as `key` or `value` becomes its UTF-8 bytes.",
    )
    records_transform: str | None = Field(
        default=None,
        alias="records.transform",
        description="The same as a function, `package.module:function`: it receives the DataFrame `records` "
        "and returns another one. At most one of the two can be set.",
    )

    @property
    def is_transformed(self) -> bool:
        """Whether Spark transforms the records before the task receives them."""
        return self.records_sql is not None or self.records_transform is not None

    def transform_problems(self) -> list[str]:
        """Return problems of these fields."""
        if self.records_sql is not None and self.records_transform is not None:
            return ["at most one of 'records.sql' and 'records.transform' can be set"]
        if self.records_sql is not None and not self.records_sql.strip():
            return ["'records.sql' is empty: give a SELECT over the view 'records', or leave it out"]
        function = self.records_transform
        if function is not None and not re.fullmatch(r"[\w.]+:\w+", function):
            problem = (
                f"'records.transform' is {function!r}: write it as package.module:function, a function that "
                f"receives a DataFrame and returns one"
            )
            return [problem]
        return []


class ConnectorConfig(
    SubscriptionSettings,
    TransformSettings,
    ChainSettings,
    PaceSettings,
    ErrorSettings,
    ConverterSettings,
    NameSettings,
    ConfigModel,
):
    """Configuration of every sink. Connectors subclass it and add their own fields.

    Fields have Python names with the dotted name as alias: ``flush_size: int = Field(alias="flush.size",
    description="…")``. The description appears on the reference page. A field of type ``list`` (``tuple``,
    ``set``) is written as ``a, b``, one of type ``dict`` as ``a:1, b:2`` or with a key ``field.entry`` for
    each entry; both may be JSON.
    """

    def problems(self) -> list[str]:
        """Return problems between fields; a subclass adds its own to those of ``super()``. No I/O."""
        found = [*super().problems(), *self.name_problems()]
        if bool(self.topics) == bool(self.topics_regex):
            found.append("exactly one of 'topics' and 'topics.regex' must be set")
        if self.topics_regex:
            try:
                java_pattern(self.topics_regex)
            except JavaRegexError as error:
                found.append(f"'topics.regex' is not a regular expression of Java: {error}")
        found += self.transform_problems()
        converter_problems = list(self.converter_problems())
        found += converter_problems or self._read()[1]
        found += self.dead_letter_problems(self.topics, self.topics_regex)
        if self.dead_letter_directory and self.has_dead_letter_cluster:
            found.append(
                f"'{DEAD_LETTER_DIRECTORY}' and '{_DEAD_LETTER_SERVERS}' both name a destination of dead "
                f"letters: keep one"
            )
        return found

    @property
    def has_dead_letter_cluster(self) -> bool:
        """Whether the configuration names a Kafka cluster for dead letters."""
        return _DEAD_LETTER_SERVERS in (self._written or {})

    def chain(self) -> Chain | None:
        """Return the chain of Connect's ``transforms``; None if there are none.

        Raises ConfigException, which :meth:`parse` would have reported.
        """
        chain, problems = self._read()
        if problems:
            raise ConfigException(problems)
        return chain

    def _read(self) -> tuple[Chain | None, list[str]]:
        if self._written is None:
            return None, []  # a configuration that was not parsed from text has only fields
        keys = {
            prefix + key: text
            for prefix in ("transforms.", "predicates.")
            for key, text in self.overrides(prefix).items()
        }
        kinds = {part: self.converter_spec(is_key=part == "key").kind for part in ("key", "value")}
        if self.is_transformed:  # Spark may return typed values
            kinds = {part: kind for part, kind in kinds.items() if kind != "bytes"}
        return self.read_chain(keys, kinds)

    def converter_keys(self, prefix: str, /) -> Mapping[str, str]:
        """Return a converter's keys without prefix, references resolved; none if not parsed from text."""
        return self.overrides(prefix)

    @classmethod
    def _rules_for(cls, values: Mapping[str, Any], /) -> tuple[Rules, ...]:
        return *rules_with_chain(values, *cls._rules()), converter_rules(values)

    @classmethod
    def reference_for(cls, values: Mapping[str, Any], /) -> Iterator[ConfigKey]:
        """Yield every key that has an effect in one configuration, those of its transforms last."""
        yield from cls.reference()
        yield from chain_reference(values)

    @classmethod
    def _supplemented(cls, applied: dict[str, Any]) -> dict[str, Any]:
        for key in _CONSUMERS:  # Connect accepts these keys as consumer properties only
            if CONSUMER_OVERRIDES + key in applied:
                applied.setdefault(key, applied[CONSUMER_OVERRIDES + key])
        for side in ("key.converter", "value.converter"):
            for key in _LOGIN:
                if given := applied.get(f"{side}.{NAMESPACE}{key}"):
                    applied.setdefault(f"{side}.{key}", given)
        return applied

    @classmethod
    def _common(cls) -> Sequence[type[BaseModel]]:
        return (
            NameSettings,
            SubscriptionSettings,
            TransformSettings,
            ChainSettings,
            PaceSettings,
            ConverterSettings,
            RetrySettings,
            ErrorSettings,
            ConnectorConfig,
        )
