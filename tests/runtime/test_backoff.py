from __future__ import annotations

import pytest

from sinksdk import TopicPartition
from sinksdk.config import ConnectorConfig
from sinksdk.runtime.backoff import Backoff
from sinksdk.support.delays import DISCARD, HOOK, RESTART, STORE, jitter
from sinksdk.testing import ManualClock

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.mark.parametrize(("failures", "seconds"), [(1, 1), (2, 2), (5, 16), (6, 20), (1000, 20)])
def test_delays_double_up_to_the_maximum(failures: int, seconds: float) -> None:
    assert Backoff(1.0, ManualClock(), longest=20.0, jitter=lambda: 1.0).delay(failures) == seconds


def test_delays_have_jitter() -> None:
    backoff = Backoff(10.0, ManualClock())
    delays = {backoff.delay(1) for _ in range(100)}
    assert len(delays) > 50
    assert all(8.0 <= delay <= 12.0 for delay in delays)
    assert all(0.8 <= jitter() <= 1.2 for _ in range(100))


def test_a_partition_waits_until_its_delay_has_passed() -> None:
    clock = ManualClock()
    backoff = Backoff(1.0, clock, jitter=lambda: 1.0)
    backoff.failed(P0, 2)
    assert (backoff.is_waiting(P0), backoff.is_waiting(P1), backoff.waiting(P0)) == (True, False, 2.0)
    clock.advance(2.0)
    assert (backoff.is_waiting(P0), backoff.delays()) == (False, [])


def test_failed_discards_are_retried_after_growing_delays() -> None:
    # Regression: the partition was opened again each minute without end.
    clock = ManualClock()
    backoff, waits = Backoff(1.0, clock), []
    for _ in range(14):
        backoff.tried_to_discard([P0, P1], [P0])
        begun = clock.now()
        while not backoff.may_discard(P0):
            clock.advance(1.0)
        waits.append(clock.now() - begun)
        assert backoff.may_discard(P1)
    assert waits == [2.0**tries for tries in range(1, 12)] + [3600.0] * 3
    assert (backoff.discards(P0), backoff.discards(P1)) == (14, 0)

    backoff.tried_to_discard([P0], [])
    assert (backoff.discards(P0), backoff.may_discard(P0)) == (0, True)


def test_delays_in_the_table_are_the_defaults_of_the_keys() -> None:
    config = ConnectorConfig.parse({"name": "c", "topics": "t"})
    assert (config.restart_backoff_ms / 1000, config.restart_backoff_max_ms / 1000) == (
        RESTART.first,
        RESTART.cap,
    )
    assert (config.errors_retry_delay_max_ms / 1000, config.errors_retry_timeout / 1000) == (
        HOOK.cap,
        HOOK.total,
    )
    assert DISCARD.first == 2 * RESTART.first


def test_backoff_doubles_up_to_its_cap() -> None:
    assert [STORE.after(failures) for failures in (1, 2, 3, 6, 7, 1_000)] == [0.05, 0.1, 0.2, 1.6, 2.0, 2.0]
    assert [HOOK.after(failures) for failures in (1, 2, 9)] == [0.3, 0.6, 60.0]
