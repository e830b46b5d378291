from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sinksdk.control.herder import Herder
from sinksdk.testing.faults import ManualClock
from tests.helpers.depth import in_words, load_profile
from tests.helpers.memory_store import MemoryStore
from tests.store import postgres_server
from tests.store.postgres_server import PostgresServer

if TYPE_CHECKING:
    from tests.kafka.broker import Broker

ROOT = Path(__file__).parent.parent
SLOW = ("tests/integration", "tests/kafka", "property_tests", "examples")
"""Folders whose tests start the real thing, or try hundreds of cases: all of them are marked as slow."""

EXISTING_BROKER = "SINKSDK_TEST_BOOTSTRAP_SERVERS"

# Most of what a short-lived JVM computes is its own optimization: without the second compiler, starting Spark
# and a few small jobs takes 12 instead of 21 CPU seconds; without a collector of many threads 2 to 4 less.
# JDK_JAVA_OPTIONS reaches drivers, executors, brokers, and what launches them.
JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# What it still computes is the loading of classes: python -m tests.helpers.spark_archive, which make test calls.
if (archive := Path(sys.prefix, "spark.jsa")).exists():
    JVM_OPTIONS += (
        f" -XX:SharedArchiveFile={archive} -Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
    )
os.environ.setdefault("JDK_JAVA_OPTIONS", JVM_OPTIONS)

load_profile()

EACH_BY_ITSELF = ("property_tests", "tests/testing")
"""Folders whose tests take long and have nothing in common: any process may run any of them, and they come first."""

SHARED = {"spark", "bootstrap", "shared_broker"}
"""Fixtures that take seconds to start, and that all tests of a process share: one process runs these tests."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of slow folders, and say which ones one process must run (pytest-xdist's loadgroup)."""
    slow = tuple(ROOT / folder for folder in SLOW)
    items.sort(key=lambda item: not _is_by_itself(item))
    for item in items:
        if any(item.path.is_relative_to(folder) for folder in slow):
            item.add_marker(pytest.mark.slow)
        item.add_marker(pytest.mark.xdist_group(_group(item)))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Where groups are lost, each process would start Spark and Kafka, and run what others have run before it."""
    ungrouped = [item.nodeid for item in session.items if "@" not in item.nodeid]
    if ungrouped and getattr(session.config.option, "loadgroup", False):
        message = f"pytest-xdist does not group tests with pytest {pytest.__version__}: {ungrouped[0]}"
        raise pytest.UsageError(message)


def _group(item: pytest.Item) -> str:
    fixtures = getattr(item, "fixturenames", ())
    if SHARED.intersection(fixtures):
        return "shared"
    if "standalone" in fixtures:
        return "standalone"
    return f"{item.path.stem}.{item.name.rstrip(']')}" if _is_by_itself(item) else item.path.stem


def _is_by_itself(item: pytest.Item) -> bool:
    return any(item.path.is_relative_to(ROOT / folder) for folder in EACH_BY_ITSELF)


def pytest_report_header() -> str:
    """How much this run tries, and how to try the same again."""
    return in_words()


@pytest.fixture(scope="session")
def shared_broker() -> Iterator[Broker]:
    """A broker for all tests of this process; whoever ends or freezes it brings it back."""
    from tests.kafka.broker import serving  # noqa: PLC0415 - most tests need no Kafka

    with serving() as broker:
        yield broker


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> str:
    """``bootstrap.servers`` of a broker for all tests of this process: their own, or the one that is named."""
    if existing := os.environ.get(EXISTING_BROKER):
        return existing
    broker: Broker = request.getfixturevalue("shared_broker")
    return broker.bootstrap


@pytest.fixture
def store() -> MemoryStore:
    """An empty store."""
    return MemoryStore()


@pytest.fixture
def herder(store: MemoryStore) -> Herder:
    return Herder(store)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One server for all tests of this process."""
    with postgres_server.serving() as server:
        yield server


@pytest.fixture(scope="session")
def minio_url() -> Iterator[str]:
    """Address of a MinIO for all tests of this process."""
    from tests.helpers import minio  # noqa: PLC0415 - loads boto3

    with minio.serving() as url:
        yield url
