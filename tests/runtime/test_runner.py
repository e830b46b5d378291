from __future__ import annotations

import threading

import pytest

from sinksdk import ClosingReason, MissingSourceTopicException
from sinksdk.runtime.connect_worker import ConnectorRunner


class Driver:
    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error
        self.reasons: list[ClosingReason] = []
        self.closed = threading.Event()
        self.limits: list[bool] = []

    def run(self, *, until_caught_up: bool = False) -> None:
        self.limits.append(until_caught_up)
        assert self.closed.wait(10)
        if self.error is not None:
            raise self.error

    def close(self, reason: ClosingReason = ClosingReason.SHUTDOWN) -> None:
        self.reasons.append(reason)
        self.closed.set()


def test_a_runner_runs_in_the_background_until_it_is_closed() -> None:
    driver = Driver()
    runner = ConnectorRunner(driver, until_caught_up=True)
    assert runner.await_termination(0.01) is False

    runner.close()

    assert runner.await_termination(10) is True
    assert (driver.reasons, driver.limits) == ([ClosingReason.SHUTDOWN], [True])


def test_the_error_of_a_runner_is_raised_to_every_waiter() -> None:
    # KIP-662: each call of the runner names the topics.
    runner = ConnectorRunner(Driver(MissingSourceTopicException(["b", "a"])))
    runner.close()

    for _ in range(2):
        with pytest.raises(MissingSourceTopicException) as caught:
            runner.await_termination(10)
        assert caught.value.topics == ("a", "b")


def test_a_timeout_error_of_a_runner_differs_from_a_wait_timeout() -> None:
    driver = Driver(TimeoutError("the outside world"))
    driver.closed.set()
    runner = ConnectorRunner(driver)

    with pytest.raises(TimeoutError, match="outside world"):
        runner.await_termination(10)
