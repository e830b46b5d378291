"""Producers that continue while their broker is killed: plain records, and transactions, some aborted."""

from __future__ import annotations

import itertools
import random
import threading
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaError, KafkaException, Message, Producer

_TIMEOUT = 60.0  # seconds; a killed broker has restarted within them
_PAUSE = 0.05  # seconds between two groups of records
_HANDFUL = 20
_TRANSACTION = 100  # maximum number of records
_VALUE = 600  # maximum number of bytes


class Production:
    """Two producers, each in a thread, for the duration of the block.

    Args:
        bootstrap: the broker.
        topic: the topic to write to.
        partitions: its number of partitions.
        seed: of the records; their timing depends on the machine.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int, seed: int) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._seed = seed
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._plain, self._transactional)]
        self.happened: Counter[str] = Counter()
        self.acknowledged: set[bytes] = set()
        """Keys of the plain records that the broker has acknowledged: none of these records may be lost."""

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Deliver the pending records; the broker must be running."""
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _plain(self) -> None:
        chance = random.Random(f"plain {self._seed}")  # noqa: S311 - no secret
        producer = Producer(
            {"bootstrap.servers": self._bootstrap, "acks": "all", "linger.ms": 5, "log_level": 2}
        )
        for number in itertools.count():
            self._send(producer, chance, b"plain %d" % number, self._delivered)
            if number % _HANDFUL == 0 and self._ended.wait(_PAUSE):
                break
        assert producer.flush(_TIMEOUT) == 0, "records were not sent"

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged.add(message.key() or b"")
            self.happened["records confirmed"] += 1

    def _transactional(self) -> None:
        chance = random.Random(f"transactions {self._seed}")  # noqa: S311 - the same
        numbers = itertools.count()
        while not self._ended.is_set():
            try:
                producer = self._in_transactions()
                while not self._ended.wait(2 * _PAUSE):
                    self._transaction(producer, chance, next(numbers))
            except KafkaException:  # the broker was killed during the transaction
                self.happened["transactions broken off"] += 1
        self._in_transactions()  # without the abort, readers would stop at the unfinished transaction

    def _in_transactions(self) -> Producer:
        producer = Producer(
            {"bootstrap.servers": self._bootstrap, "transactional.id": "soak", "linger.ms": 5, "log_level": 2}
        )
        producer.init_transactions(_TIMEOUT)
        return producer

    def _transaction(self, producer: Producer, chance: random.Random, number: int) -> None:
        producer.begin_transaction()
        for place in range(chance.randint(1, _TRANSACTION)):
            self._send(producer, chance, b"transaction %d %d" % (number, place))
        if chance.random() < 0.3:
            producer.abort_transaction(_TIMEOUT)
            self.happened["transactions aborted"] += 1
        else:
            producer.commit_transaction(_TIMEOUT)
            self.happened["transactions committed"] += 1

    def _send(
        self,
        producer: Producer,
        chance: random.Random,
        key: bytes,
        delivered: Callable[[KafkaError | None, Message], None] | None = None,
    ) -> None:
        value = None if chance.random() < 0.01 else chance.randbytes(chance.randrange(_VALUE))
        headers: list[tuple[str, str | bytes | None]] = [("n", b"%d" % n) for n in range(chance.randrange(3))]
        partition = chance.randrange(self._partitions)
        while True:
            try:
                producer.produce(
                    self._topic, value, key, partition=partition, headers=headers, on_delivery=delivered
                )
            except BufferError:  # the broker is unavailable
                producer.poll(0.1)
            else:
                producer.poll(0)
                return
