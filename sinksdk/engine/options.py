"""The name of a task, and its options for the engine."""

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

_LEAST: Final = 100  # records: a share of fewer records is not significant

CONSECUTIVE_KEY: Final = "errors.deadletterqueue.max.consecutive"
SHARE_KEY: Final = "errors.deadletterqueue.max.share"


class TaskName(NamedTuple):
    connector: str
    task: int

    def __str__(self) -> str:
        return f"connector {self.connector}, task {self.task}"


@dataclass(frozen=True, slots=True)
class ErrorLimit:
    """The engine limits the failed records of one partition in one generation."""

    max_consecutive: int | None = 1_000  # failures in a row; None: no limit
    max_share: float = 0.5  # checked from the 100th record on; 1: no limit

    def excess(self, *, in_a_row: int, failed: int, of: int) -> str | None:
        if self.max_consecutive is not None and in_a_row > self.max_consecutive:
            return f"{in_a_row:,} in a row, and {CONSECUTIVE_KEY} allows {self.max_consecutive:,}"
        if of >= _LEAST and failed > self.max_share * of:
            return f"a larger share than the {self.max_share:g} that {SHARE_KEY} allows"
        return None


@dataclass(frozen=True, slots=True)
class EngineOptions:
    commit_interval: float = 60.0  # seconds
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    tolerate_errors: bool = False
    log_errors: bool = False
    log_messages: bool = False
    context_headers: bool = False  # dead letters get headers with origin and error
    error_limit: ErrorLimit = field(default_factory=ErrorLimit)
    key_converter: Converter | None = None  # None: bytes are not converted
    value_converter: Converter | None = None
    max_poll_records: int | None = None  # None: the class attribute of the task applies
    chain: Chain | None = None
    is_transformed: bool = False  # Spark may drop and multiply records
    skip_lost: bool = False  # skip records that the source no longer has
    with_framing: tuple[Part, ...] = ()  # keys or values whose schema id may be in a header

    @classmethod
    def of(
        cls,
        config: ConnectorConfig,
        registry: Callable[[RegistryAddress], SchemaOf] | None = None,
        *,
        patience: float | None = None,
    ) -> EngineOptions:
        """Read a connector's configuration; ``registry`` connects to a schema registry, which Avro needs."""
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
    boundary: Literal["poll", "interval", "connector"] = "poll"
    interval: float = 60.0  # seconds
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
        # Connect, too, retries ``poll`` without a time-out.
        return RetryPolicy(None, self.retry.max_delay)
