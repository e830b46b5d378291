"""librdkafka's own mock of a Kafka cluster: brokers in threads of this process."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Producer, cimpl

FETCH = 1

_PRODUCER = 0
_LIBRARY = ctypes.CDLL(cimpl.__file__)  # confluent-kafka has loaded librdkafka


class MockCluster:
    def __init__(self, client: int) -> None:
        self._library: Any = ctypes.CDLL(_LIBRARY._name)
        self._function("cluster_new", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
        self._function("cluster_bootstraps", ctypes.c_char_p, ctypes.c_void_p)
        self._function("cluster_destroy", None, ctypes.c_void_p)
        self._function(
            *("topic_create", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p),
            *(ctypes.c_int, ctypes.c_int),
        )
        self._function(
            *("push_request_errors_array", None, ctypes.c_void_p, ctypes.c_int16),
            *(ctypes.c_size_t, ctypes.POINTER(ctypes.c_int)),
        )
        self._cluster = self._library.rd_kafka_mock_cluster_new(client, 1)
        self.bootstrap: str = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def _function(self, name: str, result: Any, *arguments: Any) -> None:
        function = self._library[f"rd_kafka_mock_{name}"]
        function.restype, function.argtypes = result, arguments
        setattr(self._library, f"rd_kafka_mock_{name}", function)

    def create(self, topic: str, partitions: int) -> None:
        assert self._library.rd_kafka_mock_topic_create(self._cluster, topic.encode(), partitions, 1) == 0

    def fail(self, request: int, errors: list[int]) -> None:
        codes = (ctypes.c_int * len(errors))(*errors)
        self._library.rd_kafka_mock_push_request_errors_array(self._cluster, request, len(errors), codes)

    def produce(self, topic: str, partition: int, records: Iterable[dict[str, Any]]) -> None:
        settings = {"bootstrap.servers": self.bootstrap, "linger.ms": 2, "log_level": 2}
        producer = Producer(settings | {"message.max.bytes": 100_000_000})
        for record in records:
            producer.produce(topic, partition=partition, **record)
        assert producer.flush(30) == 0

    def close(self) -> None:
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)


@contextmanager
def mock_cluster() -> Iterator[MockCluster]:
    pointer, text = ctypes.c_void_p, ctypes.c_char_p
    for name, result, *arguments in (
        ("conf_new", pointer),
        ("conf_set", ctypes.c_int, pointer, text, text, text, ctypes.c_size_t),
        ("new", pointer, ctypes.c_int, pointer, text, ctypes.c_size_t),
        ("destroy_flags", None, pointer, ctypes.c_int),
    ):
        function: Any = getattr(_LIBRARY, f"rd_kafka_{name}")
        function.restype, function.argtypes = result, arguments
    settings, reason = _LIBRARY.rd_kafka_conf_new(), ctypes.create_string_buffer(512)
    _LIBRARY.rd_kafka_conf_set(settings, b"log_level", b"2", reason, 512)
    client = _LIBRARY.rd_kafka_new(_PRODUCER, settings, reason, 512)
    assert client, reason.value
    cluster = MockCluster(client)
    try:
        yield cluster
    finally:
        cluster.close()
        _LIBRARY.rd_kafka_destroy_flags(client, 0)
