"""How the engine behaves towards a source task."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from sinksdk.engine.retry import RetryPolicy
from sinksdk.source.config import SourceConnectorConfig


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """How the engine behaves towards one source task.

    Args:
        boundary: where its transactions end.
        interval: seconds between two ends, with boundary ``interval``.
        retry: delays and budget of what the writer may yet do. ``poll`` has the delays, and no end.
    """

    boundary: Literal["poll", "interval", "connector"] = "poll"
    interval: float = 60.0
    retry: RetryPolicy = field(default_factory=RetryPolicy)

    @classmethod
    def of(cls, config: SourceConnectorConfig) -> SourceOptions:
        """The options a connector's configuration asks for."""
        timeout = config.errors_retry_timeout
        return cls(
            config.transaction_boundary,
            config.transaction_interval_ms / 1000,
            RetryPolicy(None if timeout < 0 else timeout / 1000, config.errors_retry_delay_max_ms / 1000),
        )

    @property
    def poll_retry(self) -> RetryPolicy:
        """Of ``poll``, which Connect calls again for ever too."""
        return RetryPolicy(None, self.retry.max_delay)
