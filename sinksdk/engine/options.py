"""The name of a task, and the engine's options for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from sinksdk.config import ConnectorConfig
from sinksdk.config.converters import RegistryAddress
from sinksdk.engine.converters import Converter, SchemaOf, converter_of
from sinksdk.engine.retry import RetryPolicy
from sinksdk.source.config import SourceConnectorConfig
from sinksdk.transforms.chain import Chain
from sinksdk.transforms.parts import PARTS, Part

_LEAST: Final = 100  # records: a share of fewer means little

CONSECUTIVE_KEY: Final = "errors.deadletterqueue.max.consecutive"
SHARE_KEY: Final = "errors.deadletterqueue.max.share"


class TaskName(NamedTuple):
    connector: str
    task: int

    def __str__(self) -> str:
        return f"connector {self.connector}, task {self.task}"


@dataclass(frozen=True, slots=True)
class ErrorLimit:
    """The limit of failed records of one partition in one generation.

    Args:
        max_consecutive: maximum number in a row; None: no limit.
        max_share: maximum share of all records, checked from the 100th record on; 1: no limit.
    """

    max_consecutive: int | None = 1_000
    max_share: float = 0.5

    def excess(self, *, in_a_row: int, failed: int, of: int) -> str | None:
        if self.max_consecutive is not None and in_a_row > self.max_consecutive:
            return f"{in_a_row:,} in a row, and {CONSECUTIVE_KEY} allows {self.max_consecutive:,}"
        if of >= _LEAST and failed > self.max_share * of:
            return f"a larger share than the {self.max_share:g} that {SHARE_KEY} allows"
        return None


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """The engine's options for one sink task.

    Args:
        commit_interval: seconds between periodic commits.
        retry: delays and time-out of ``put`` and ``publish``.
        tolerate_errors: skip records that cannot be converted or are reported as errant.
        log_errors: log each of them.
        log_messages: log its key and value, too.
        context_headers: add headers with origin and error to dead letters.
        key_converter: None: the bytes stay.
        value_converter: None: the bytes stay.
        max_poll_records: maximum number of records of one ``put``; None: the task class's default.
        chain: Connect's ``transforms``; None: there are none.
        is_transformed: Spark's operators between source and task may drop and multiply records.
        skip_lost: skip to the source's first record if it no longer has those after the commit.
        with_framing: keys or values whose schema id may be in a header.
    """

    commit_interval: float = 60.0
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    tolerate_errors: bool = False
    log_errors: bool = False
    log_messages: bool = False
    context_headers: bool = False
    error_limit: ErrorLimit = field(default_factory=ErrorLimit)
    key_converter: Converter | None = None
    value_converter: Converter | None = None
    max_poll_records: int | None = None
    chain: Chain | None = None
    is_transformed: bool = False
    skip_lost: bool = False
    with_framing: tuple[Part, ...] = ()

    @classmethod
    def of(
        cls,
        config: ConnectorConfig,
        registry: Callable[[RegistryAddress], SchemaOf] | None = None,
        *,
        patience: float | None = None,
    ) -> EngineOptions:
        """The options of a connector's configuration.

        Args:
            registry: connects to a schema registry; needed for Avro only.
            patience: seconds for which a task retries in place; None: all of ``errors.retry.timeout``.

        Raises:
            ConfigException: an unknown converter, or Avro without ``registry``.
        """
        timeout = config.errors_retry_timeout
        in_a_row = config.dead_letter_max_consecutive
        return cls(
            commit_interval=config.offset_flush_interval_ms / 1000,
            retry=RetryPolicy(
                None if timeout < 0 else timeout / 1000, config.errors_retry_delay_max_ms / 1000, patience
            ),
            tolerate_errors=config.errors_tolerance == "all",
            log_errors=config.errors_log_enable,
            log_messages=config.errors_log_include_messages,
            context_headers=config.dead_letter_context_headers,
            error_limit=ErrorLimit(None if in_a_row < 0 else in_a_row, config.dead_letter_max_share),
            key_converter=converter_of(config.converter_spec(is_key=True), registry),
            value_converter=converter_of(config.converter_spec(is_key=False), registry),
            max_poll_records=config.max_poll_records,
            chain=config.chain(),
            is_transformed=config.is_transformed,
            skip_lost=config.on_data_loss == "skip",
            with_framing=tuple(part for part in PARTS if _may_be_framed(config, part)),
        )


def _may_be_framed(config: ConnectorConfig, part: Part) -> bool:
    is_key = part == "key"
    return config.takes_framing(is_key=is_key) and config.named_converter(is_key=is_key).reads_headers


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The engine's options for one source task.

    Args:
        boundary: where its transactions end.
        interval: seconds between two ends, with boundary ``interval``.
        retry: delays and time-out of the writer's retries.
    """

    boundary: Literal["poll", "interval", "connector"] = "poll"
    interval: float = 60.0
    retry: RetryPolicy = field(default_factory=RetryPolicy)

    @classmethod
    def of(cls, config: SourceConnectorConfig) -> SourceOptions:
        timeout = config.errors_retry_timeout
        return cls(
            config.transaction_boundary,
            config.transaction_interval_ms / 1000,
            RetryPolicy(None if timeout < 0 else timeout / 1000, config.errors_retry_delay_max_ms / 1000),
        )

    @property
    def poll_retry(self) -> RetryPolicy:
        # Connect retries ``poll`` without a time-out, too.
        return RetryPolicy(None, self.retry.max_delay)
