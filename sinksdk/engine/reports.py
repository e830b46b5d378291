"""What a task reported: dead letters to wait for before a commit, and records that were refused."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future

from sinksdk.errors import ConnectException
from sinksdk.records import TopicPartition


class Reports:
    """Errant records reported since each partition's last commit."""

    def __init__(self) -> None:
        self._letters: dict[TopicPartition, deque[Future[None]]] = {}
        self._refusals: dict[TopicPartition, ConnectException] = {}

    def add(self, partition: TopicPartition, letter: Future[None], refusal: ConnectException | None) -> None:
        """A record was reported; ``refusal`` is set where bad records are not tolerated."""
        letters = self._letters.setdefault(partition, deque())
        while letters and _is_written(letters[0]):
            letters.popleft()
        letters.append(letter)
        if refusal is not None:
            self._refusals.setdefault(partition, refusal)

    def wait(self, partition: TopicPartition) -> None:
        """Wait until a partition's dead letters are durable. Raises what the first lost one raised."""
        for letter in self._letters.pop(partition, ()):
            letter.result()

    def refused(self, partition: TopicPartition) -> bool:
        """Whether a record of the partition was refused."""
        return partition in self._refusals

    def take_refusal(self, partition: TopicPartition) -> ConnectException | None:
        """The refusal of a partition's record, once."""
        return self._refusals.pop(partition, None)

    def take_refusals(self) -> dict[TopicPartition, ConnectException]:
        """All of them, once."""
        refusals, self._refusals = self._refusals, {}
        return refusals

    def forget(self, partition: TopicPartition) -> None:
        """The partition is not ours any more; its successor reports again."""
        self._letters.pop(partition, None)
        self._refusals.pop(partition, None)


def _is_written(letter: Future[None]) -> bool:
    return letter.done() and not letter.cancelled() and letter.exception() is None
