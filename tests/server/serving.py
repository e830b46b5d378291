"""The REST interface as ``sinksdk server`` starts it, on a port of this machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from sinksdk import OffsetAndMetadata, TopicPartition
from sinksdk.control.status import StatusKeeper
from sinksdk.engine.clock import SystemWallClock
from sinksdk.launch.idle import sink_to_alter, source_target
from sinksdk.launch.topics import TopicDirectory
from sinksdk.model.plan import PlannerState, RangePlan
from sinksdk.server.app import create_app
from sinksdk.server.rest import RestServer
from sinksdk.settings.references import ConfigProviders
from sinksdk.store import Store, take_over
from sinksdk.store.generations import Generations
from sinksdk.store.records import TaskPlan
from tests.helpers.ports import free_port

T0 = TopicPartition("orders", 0)
CONFIG = {
    "connector.class": "s3-archiver",
    "topics": "orders",
    "s3.bucket.name": "bucket",
    "flush.size": "1000",
    "aws.access.key.id": "key",
    "aws.secret.access.key": "do not tell",
}


@contextmanager
def serving(
    store: Store,
    *,
    credentials: Path | None = None,
    allowed_hosts: Sequence[str] = (),
    config_env: Sequence[str] = (),
    config_files: Sequence[Path] = (),
    **limits: Any,
) -> Iterator[str]:
    """Serve this store, without running connectors, until the block's end."""
    port = free_port()
    topics, providers = TopicDirectory("topics"), ConfigProviders(config_env, config_files, "not allowed")
    rest = RestServer("127.0.0.1", port, credentials, allowed_hosts, **limits)
    rest.serve(
        lambda credentials, hosts: create_app(
            store,
            credentials,
            hosts=hosts,
            providers=providers,
            targets=partial(source_target, topics, providers=providers),
            sinks=partial(sink_to_alter, topics, providers=providers),
        )
    )
    with rest:
        yield f"http://127.0.0.1:{port}"


def run_a_little(store: Store, connector: str = "archive", *, failures: int = 0) -> None:
    """Store the records of a driver whose task has committed something."""
    generations = Generations(store, connector)
    ranges = (RangePlan(topic="orders", partition=0, start=0, end=100),)
    generations.plan(generations.claim(), [TaskPlan(ranges=ranges)], 1)
    taken = take_over(store, connector, 1, 0)
    assert taken is not None
    taken.ledger.commit({T0: OffsetAndMetadata(60)})
    keeper = StatusKeeper(store, connector, "elsewhere:7#1", SystemWallClock())
    error = "S3 says no" if failures else None
    keeper.update([PlannerState(topic="orders", partition=0, end=100, failures=failures, error=error)])
    keeper.become("RUNNING")


def has_stopped(store: Store, connector: str = "archive") -> None:
    """Store the records of a driver that has closed."""
    StatusKeeper(store, connector, "elsewhere:7#1", SystemWallClock()).become("STOPPED")
