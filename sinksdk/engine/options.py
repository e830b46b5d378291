"""Who a task is, and how the engine behaves towards it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from sinksdk.config import ConnectorConfig
from sinksdk.engine.converters import Converter, converter_named
from sinksdk.engine.retry import RetryPolicy


class TaskName(NamedTuple):
    """Which task of which connector."""

    connector: str
    task: int

    def __str__(self) -> str:
        return f"connector {self.connector}, task {self.task}"


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How the engine behaves towards one task.

    Args:
        commit_interval: seconds between periodic commits.
        retry: delays and budget of ``put`` and ``publish``.
        tolerate_errors: skip records that cannot be converted or are reported as errant.
        log_errors: log each of them.
        key_converter: what keys become; None leaves the bytes.
        value_converter: what values become; None leaves the bytes.
    """

    commit_interval: float = 60.0
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    tolerate_errors: bool = False
    log_errors: bool = False
    key_converter: Converter | None = None
    value_converter: Converter | None = None

    @classmethod
    def of(cls, config: ConnectorConfig) -> EngineOptions:
        """The options a connector's configuration asks for."""
        timeout = config.errors_retry_timeout
        return cls(
            commit_interval=config.offset_flush_interval_ms / 1000,
            retry=RetryPolicy(
                None if timeout < 0 else timeout / 1000, config.errors_retry_delay_max_ms / 1000
            ),
            tolerate_errors=config.errors_tolerance == "all",
            log_errors=config.errors_log_enable,
            key_converter=converter_named(config.key_converter),
            value_converter=converter_named(config.value_converter),
        )
