from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from functools import cache
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
EXTENDED = ("examples",)  # connector authors read these tests, so they have no markers

EXISTING_BROKER = "SINKSDK_TEST_BOOTSTRAP_SERVERS"

# A short-lived JVM spends most of its CPU time on its own optimization. Without the second compiler, starting
# Spark and a few small jobs takes 12 instead of 21 CPU seconds; without a collector of many threads 2 to 4
# less. JDK_JAVA_OPTIONS reaches drivers, executors, brokers, and what launches them.
JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# Most of the remaining CPU time is spent on loading classes. A class archive saves that: make test calls
# python -m tests.helpers.spark_archive to create it.
if (archive := Path(sys.prefix, "spark.jsa")).exists():
    JVM_OPTIONS += (
        f" -XX:SharedArchiveFile={archive} -Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
    )
os.environ.setdefault("JDK_JAVA_OPTIONS", JVM_OPTIONS)

load_profile()

INDEPENDENT = ("property_tests", "tests/testing")  # tests that take long and share no fixture

# Words in a test's file or name, by the term with which ``pytest -k`` finds the test: ``-k fencing`` also
# finds "a zombie writes nothing".
TERMS = {
    "backoff": ("delay", "retries", "restarts"),
    "fencing": ("fence", "zombie", "overtaken"),
    "graceful": ("signal", "ctrl_c", "shutdown", "closing_deadline"),
    "handover": ("newer_driver", "two_drivers", "second_driver", "gives_way", "rolling_deploy"),
}

# Fixtures that take seconds to start, by the group of tests that one process must run. No test uses two of the groups.
GROUPS = {"spark": "spark", "standalone": "standalone", "bootstrap": "kafka", "shared_broker": "kafka"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of slow folders, and group the tests that one process must run (pytest-xdist's loadgroup)."""
    _mix(items)
    for item in items:
        if _is_below(item, SLOW):
            item.add_marker(pytest.mark.slow)
        if _is_below(item, EXTENDED):
            item.add_marker(pytest.mark.extended)
        item.extra_keyword_matches.update(_keywords(item))
        item.add_marker(pytest.mark.xdist_group(_group(item)))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Refuse to run without groups: each process would start Spark and Kafka."""
    ungrouped = [item.nodeid for item in session.items if "@" not in item.nodeid]
    if ungrouped and getattr(session.config.option, "loadgroup", False):
        message = f"pytest-xdist does not group tests with pytest {pytest.__version__}: {ungrouped[0]}"
        raise pytest.UsageError(message)


def _group(item: pytest.Item) -> str:
    if shared := _shared_group(item):
        return shared
    file = f"{item.path.parent.name}.{item.path.stem}"
    return f"{file}.{item.name.rstrip(']')}" if _is_below(item, INDEPENDENT) else file


def _shared_group(item: pytest.Item) -> str | None:
    return next((GROUPS[name] for name in getattr(item, "fixturenames", ()) if name in GROUPS), None)


def _keywords(item: pytest.Item) -> set[str]:
    name = f"{item.path.stem}.{getattr(item, 'originalname', item.name)}"
    return {term for term, words in TERMS.items() if any(word in name for word in words)}


def _mix(items: list[pytest.Item]) -> None:
    """Begin with the groups that share a fixture, then mix tests that wait for processes with those that compute."""
    kinds = [dict[str, None](), dict[str, None](), dict[str, None]()]
    for item in items:
        if not _shared_group(item):
            kinds[_kind(item)][_group(item)] = None
    waiting, *computing = kinds
    # If all waiting tests came first, processors would be idle, and later all processes would compute at
    # once. The last tests compute, because a waiting test at the end would keep one process busy alone.
    place = {group: 0.8 * number / len(waiting) for number, group in enumerate(waiting)}
    computed = [group for kind in computing for group in kind]
    place |= {group: number / len(computed) for number, group in enumerate(computed)}
    items.sort(key=lambda item: place.get(_group(item), -1.0))


def _kind(item: pytest.Item) -> int:
    if _is_below(item, ("tests/integration", "tests/kafka")):
        return 0
    return 1 if _is_below(item, INDEPENDENT) else 2


def _is_below(item: pytest.Item, folders: tuple[str, ...]) -> bool:
    return _path(item.path).startswith(folders)


@cache
def _path(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def pytest_report_header() -> str:
    return in_words()


@pytest.fixture(scope="session")
def shared_broker() -> Iterator[Broker]:
    """Yield a broker for all tests of this process. A test that kills or freezes it starts it again."""
    from tests.kafka.broker import serving  # noqa: PLC0415 - most tests need no Kafka

    with serving() as broker:
        yield broker


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> str:
    """``bootstrap.servers`` of a broker for all tests of this process, or of the one that the environment names."""
    if existing := os.environ.get(EXISTING_BROKER):
        return existing
    broker: Broker = request.getfixturevalue("shared_broker")
    return broker.bootstrap


@pytest.fixture(autouse=True)
def log_levels() -> Iterator[None]:
    """Restore the levels that a test has set over REST, for the next tests of this process."""
    yield
    for name, log in logging.root.manager.loggerDict.items():
        if name.startswith("sinksdk") and isinstance(log, logging.Logger):
            log.setLevel(logging.NOTSET)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def herder(store: MemoryStore) -> Herder:
    return Herder(store)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server.serving() as server:
        yield server


@pytest.fixture(scope="session")
def minio_url() -> Iterator[str]:
    from tests.helpers import minio  # noqa: PLC0415 - loads boto3

    with minio.serving() as url:
        yield url
