"""What waits to be read of each partition: source, commits, and what is remembered, put together."""

from __future__ import annotations

import logging
from collections.abc import Callable

from sinksdk.config import ConnectorConfig
from sinksdk.control.progress import LOST, Views
from sinksdk.control.status import StatusKeeper
from sinksdk.engine.clock import WallClock
from sinksdk.records import OffsetRange, TopicPartition
from sinksdk.runtime.pacing import Pacing
from sinksdk.runtime.planner import Backlog, observe
from sinksdk.store.generations import Claim
from sinksdk.store.records import Entry

log = logging.getLogger(__name__)

_SHOWN = 3  # tokens named in a status


class Backlogs:
    """One connector's partitions as the planner wants to know them.

    Args:
        config: the connector's.
        subscribed: tells the connector of topics it has not heard of.
        status: remembers when records were first seen.
        pacing: knows what may be discarded again.
        views: told of ends, and of what was lost.
        clock: time.
        is_fixed: whether only what was there at the start is read.
    """

    def __init__(
        self,
        config: ConnectorConfig,
        subscribed: Callable[[list[str]], None],
        *,
        status: StatusKeeper,
        pacing: Pacing,
        views: Views,
        clock: WallClock,
        is_fixed: bool,
    ) -> None:
        self._config = config
        self._subscribed = subscribed
        self._status = status
        self._pacing = pacing
        self._views = views
        self._clock = clock
        self._is_fixed = is_fixed
        self._topics: set[str] = set()
        self._skipped: set[TopicPartition] = set()

    def of(self, claim: Claim, available: dict[TopicPartition, OffsetRange]) -> list[Backlog]:
        """What waits, by partition.

        Args:
            claim: what is committed, and what is left to publish or discard.
            available: what may be read.
        """
        self._subscribe({p.topic for p in available})
        if self._is_fixed:
            available = {p: _at_least(offsets, claim.committed.get(p)) for p, offsets in available.items()}
        for partition in claim.all_unsettled() - available.keys():  # no longer subscribed, or missing
            offset = claim.committed[partition].offset if partition in claim.committed else 0
            available[partition] = OffsetRange(offset, offset)
        self._views.ends({p: offsets.end for p, offsets in available.items()})
        return [self._backlog(claim, partition, offsets) for partition, offsets in sorted(available.items())]

    def _backlog(self, claim: Claim, partition: TopicPartition, offsets: OffsetRange) -> Backlog:
        entry = claim.committed.get(partition)
        committed, unsettled = entry.offset if entry else None, self._is_unsettled(partition, claim)
        backlog = Backlog(partition, offsets, committed, unsettled, self._status.of(partition))
        self._tell_of_loss(backlog)
        undiscarded = self._undiscarded(partition, claim)
        status = observe(backlog, self._clock.time())
        if status.undiscarded != undiscarded:
            status = status.model_copy(update={"undiscarded": undiscarded})
        self._status.update([status])
        return Backlog(partition, offsets, committed, unsettled, status)

    def _is_unsettled(self, partition: TopicPartition, claim: Claim) -> bool:
        """Whether a partition is opened though nothing new is there: to publish, or to discard."""
        entry = claim.committed.get(partition)
        if entry and entry.publish:
            return True
        return bool(claim.stale.get(partition)) and self._pacing.may_discard(partition)

    def _undiscarded(self, partition: TopicPartition, claim: Claim) -> str | None:
        """What an operator is to know of tokens that tasks could not discard."""
        tokens, tries = list(claim.stale.get(partition, {})), self._pacing.discards(partition)
        if not tokens or not tries:
            return None
        more = f" and {len(tokens) - _SHOWN} more" if len(tokens) > _SHOWN else ""
        return (
            f"what no commit covers could not be discarded in {tries} generations in a row, and is tried "
            f"again after a growing delay; the task's log has the reason: {', '.join(tokens[:_SHOWN])}{more}"
        )

    def _subscribe(self, topics: set[str]) -> None:
        """Let the connector know of topics it has not heard of."""
        if topics - self._topics:
            self._subscribed(sorted(topics))
            self._topics |= topics

    def _tell_of_loss(self, backlog: Backlog) -> None:
        lost = backlog.start - (backlog.start if backlog.committed is None else backlog.committed)
        if lost > 0 and backlog.partition not in self._skipped and self._config.on_data_loss == "skip":
            self._skipped.add(backlog.partition)
            self._views.note(backlog.partition, LOST, lost)
            log.error(
                "connector %s: %s: %d offsets after the commit at %s are no longer in the source; skipped, "
                "as on.data.loss says",
                self._config.name,
                backlog.partition,
                lost,
                backlog.committed,
            )


def _at_least(limit: OffsetRange, entry: Entry | None) -> OffsetRange:
    """What was there at the start; another driver may have committed beyond it meanwhile."""
    return OffsetRange(limit.start, max(limit.end, entry.offset if entry else 0))
