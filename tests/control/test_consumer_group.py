from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import pytest

from sinksdk import RetriableException, TopicPartition
from sinksdk.control import consumer_group
from sinksdk.control.consumer_group import BackgroundSync

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Group:
    def __init__(self) -> None:
        self.held = threading.Event()
        self.held.set()
        self.is_down = False
        self.writes: list[dict[TopicPartition, int]] = []

    def __str__(self) -> str:
        return "consumer group connect-c"

    def offsets(self, partitions: object) -> dict[TopicPartition, int]:
        return {}

    def write(self, offsets: dict[TopicPartition, int]) -> None:
        self.held.wait(10)
        if self.is_down:
            message = "no broker answers"
            raise RetriableException(message)
        self.writes.append(dict(offsets))

    def is_in_use(self, offsets: object) -> bool:
        return False


def eventually(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it never came to hold"
        time.sleep(0.002)


def test_only_changed_offsets_are_written_to_the_group() -> None:
    group = Group()
    following = BackgroundSync(group, "c")

    following.follow({P0: 5, P1: 1})
    eventually(lambda: group.writes)
    following.follow({P0: 5, P1: 2})
    eventually(lambda: len(group.writes) == 2)
    following.close()

    assert group.writes == [{P0: 5, P1: 1}, {P1: 2}]


def test_a_hanging_group_does_not_block_commits() -> None:
    group = Group()
    group.held.clear()
    following = BackgroundSync(group, "c")
    started = time.monotonic()

    for offset in range(1, 101):
        following.follow({P0: offset})
    taken = time.monotonic() - started
    group.held.set()
    eventually(lambda: group.writes and group.writes[-1] == {P0: 100})
    following.close()

    assert taken < 1
    assert group.writes[-1] == {P0: 100}
    assert len(group.writes) <= 3


def test_an_outage_of_the_group_is_logged_once_and_its_offsets_are_written_later(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Once the group is available again, it receives all missed commits, and the driver logs that.
    monkeypatch.setattr(consumer_group, "_RETRY", 0.01)
    group = Group()
    group.is_down = True
    following = BackgroundSync(group, "c")

    with caplog.at_level(logging.WARNING):
        for offset in range(1, 20):
            following.follow({P0: offset})
            time.sleep(0.005)
        eventually(lambda: caplog.messages)
        group.is_down = False
        eventually(lambda: len(caplog.messages) > 1)
    following.close()

    assert group.writes == [{P0: 19}]
    first, last = caplog.messages
    assert first.startswith(
        "connector c: cannot write its committed offsets to consumer group connect-c, retrying: no "
    )
    assert last.startswith(
        "connector c: writing its committed offsets to consumer group connect-c works again after"
    )


def test_close_writes_the_last_offsets_to_the_group() -> None:
    group = Group()
    following = BackgroundSync(group, "c")

    following.follow({P0: 7})
    following.close()

    assert group.writes == [{P0: 7}]
