"""Produces to topics at a steady pace, as a program: ``python -m tests.kafka.producing``.

Every record has its own value, so that lost and repeated records are detected. At the end it prints the
acknowledged records as JSON.
"""

from __future__ import annotations

import argparse
import json
import time

from confluent_kafka import KafkaException, Producer

_TRANSACTION = 5_000  # records
_ABORTED = 7  # one of this many transactions is aborted
_TIMEOUT = 120.0  # seconds; the broker may be restarted meanwhile


class _Topic:
    def __init__(self, bootstrap: str, name: str, partitions: int, *, transactional: bool) -> None:
        settings: dict[str, object] = {
            "bootstrap.servers": bootstrap,
            "linger.ms": 20,
            "enable.idempotence": True,
            "message.timeout.ms": int(_TIMEOUT * 1000),
            "queue.buffering.max.messages": 500_000,
            "log_level": 2,
        }
        if transactional:
            settings |= {
                "transactional.id": f"{name}-producer",
                "transaction.timeout.ms": int(_TIMEOUT * 1000),
            }
        self.name = name
        self.sent = 0
        self.kept = 0
        self._partitions = partitions
        self._is_transactional = transactional
        self._producer = Producer(settings)
        if transactional:
            self._producer.init_transactions(_TIMEOUT)

    def produce(self, count: int) -> None:
        is_aborted = self._is_transactional and (self.sent // _TRANSACTION) % _ABORTED == _ABORTED - 1
        while True:
            try:
                self._send(count, abort=is_aborted)
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                self._decide(
                    abort=True
                )  # Kafka requires this: repeat the transaction that a broker restart aborted
            else:
                break
        self.sent += count
        self.kept += 0 if is_aborted else count

    def _send(self, count: int, *, abort: bool) -> None:
        if self._is_transactional:
            self._producer.begin_transaction()
        for number in range(self.sent, self.sent + count):
            self._append(number)
        assert self._producer.flush(_TIMEOUT) == 0, "the broker did not take everything"
        if self._is_transactional:
            self._decide(abort=abort)

    def _append(self, number: int) -> None:
        value = b'{"topic":"%s","number":%d,"filler":"%060d"}' % (self.name.encode(), number, number * number)
        while True:
            try:
                self._producer.produce(
                    self.name, value, b"key-%d" % (number % 5_000), partition=number % self._partitions
                )
            except BufferError:
                self._producer.poll(0.1)
            else:
                return

    def _decide(self, *, abort: bool) -> None:
        while True:
            try:
                (self._producer.abort_transaction if abort else self._producer.commit_transaction)(_TIMEOUT)
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
            else:
                return


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("bootstrap")
    parser.add_argument("--plain", required=True)
    parser.add_argument("--transactional", required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--records", type=int, required=True, help="of each topic")
    parser.add_argument("--seconds", type=float, required=True, help="over which they are spread")
    options = parser.parse_args()
    topics = [
        _Topic(options.bootstrap, options.plain, options.partitions, transactional=False),
        _Topic(options.bootstrap, options.transactional, options.partitions, transactional=True),
    ]
    started = time.monotonic()
    for done in range(0, options.records, _TRANSACTION):
        for topic in topics:
            topic.produce(min(_TRANSACTION, options.records - done))
        due = started + options.seconds * (done + _TRANSACTION) / options.records
        time.sleep(max(due - time.monotonic(), 0))
    print(json.dumps({topic.name: topic.kept for topic in topics}))


if __name__ == "__main__":
    main()
