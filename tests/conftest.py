from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

EXISTING_BROKER = "SINKSDK_TEST_BOOTSTRAP_SERVERS"

# Most of what a short-lived JVM computes is its own optimization: without the second compiler, starting Spark
# and a few small jobs takes 12 instead of 21 CPU seconds.
for options in ("SPARK_SUBMIT_OPTS", "SPARK_DAEMON_JAVA_OPTS"):
    os.environ.setdefault(options, "-XX:TieredStopAtLevel=1")


@pytest.fixture(scope="session")
def bootstrap() -> Iterator[str]:
    """``bootstrap.servers`` of a broker for all tests of this process: their own, or the one that is named."""
    if existing := os.environ.get(EXISTING_BROKER):
        yield existing
        return
    from tests.kafka.broker import serving  # noqa: PLC0415 - most tests need no Kafka

    with serving() as broker:
        yield broker.bootstrap
