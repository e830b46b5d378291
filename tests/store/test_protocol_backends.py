"""The whole protocol on each store: claims, fencing, plans, take-overs, commits, faults in between."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sinksdk import ClosingReason, FencedException, OffsetAndMetadata
from sinksdk.model.plan import RangePlan
from sinksdk.store import Store, open_store, read_commits, take_over
from sinksdk.store.generations import Generations
from sinksdk.store.keys import plans_prefix
from sinksdk.store.ledger import TaskLedger
from sinksdk.store.records import Closing, PartitionCommit, TaskPlan
from tests.helpers.tiers import extended_after
from tests.integration.fault_proxy import (
    CUT_AFTER,
    CUT_BEFORE,
    DROP_ANSWER,
    DROP_REQUEST,
    PASS,
    Fault,
    FaultProxy,
    serving_tcp,
)
from tests.store.backends import BACKENDS, SHARED, Place
from tests.store.postgres_server import PostgresServer
from tests.store.protocol import P0, P1, A, B, C


def task(*partitions: object) -> TaskPlan:
    return TaskPlan(ranges=tuple(RangePlan.of(p, 0, end=100) for p in partitions))


def taken(store: Store, generation: int, number: int) -> TaskLedger:
    found = take_over(store, "c", generation, number)
    assert found is not None
    return found.ledger


def play(store: Store) -> None:
    old = Generations(store, "c")
    old.plan(old.claim(), [task(P0), task(P1)], 1)
    first, other = taken(store, 1, 0), taken(store, 1, 1)
    first.prepare({P0: [A, B]})
    first.commit({P0: OffsetAndMetadata(10, publish=(A,))})
    other.commit({P1: OffsetAndMetadata(7)})
    copy = taken(store, 1, 0)
    assert copy.committed(P0) == OffsetAndMetadata(10, publish=(A,))
    with pytest.raises(FencedException):
        first.prepare({P0: [C]})
    copy.mark_published(P0)
    copy.flush()
    old.close_running(Closing(reason=ClosingReason.REBALANCE, timeout=60.0))

    old.plan(old.claim(), [task(P0, P1)], 1)
    zombie = taken(store, 2, 0)
    assert zombie.stale(P0) == (B,)
    zombie.commit({P0: OffsetAndMetadata(20)})

    new = Generations(store, "c")
    claim = new.claim()
    with pytest.raises(FencedException):
        zombie.commit({P0: OffsetAndMetadata(30)})
    with pytest.raises(FencedException):
        old.claim()
    new.plan(claim, [task(P1), task(P0)], 1)
    assert take_over(store, "c", 2, 0) is None
    last = taken(store, 3, 1)
    last.mark_discarded(P0, last.stale(P0))
    last.commit({P0: OffsetAndMetadata(30)})

    assert store.list(plans_prefix("c")) == [f"{plans_prefix('c')}{3:012d}"]
    found = read_commits(store, "c")
    assert found.committed == {
        P0: PartitionCommit.of(P0, OffsetAndMetadata(30), 3),
        P1: PartitionCommit.of(P1, OffsetAndMetadata(7), 1),
    }
    assert found.stale == {}
    assert claim.stale == {P0: {B.id: B}}


@pytest.mark.parametrize("backend", BACKENDS)
def test_each_store_runs_the_complete_protocol(backend: str, new_store: Callable[[str], Store]) -> None:
    play(new_store(backend))


# -- with one fault at each request ------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault", extended_after(1, [DROP_REQUEST, DROP_ANSWER]), ids=["request lost", "response lost"]
)
def test_the_protocol_survives_a_fault_at_every_s3_write(
    fault: Fault, places: Callable[[str], Place], s3_server: tuple[str, FaultProxy], tmp_path: Path
) -> None:
    # Each request that changes something fails once.
    proxy, spoiled = s3_server[1], 0
    while True:
        store = open_store(places("s3").url(tmp_path), create=True)
        store._pause = 0.0
        proxy.reset()
        proxy.at_mutation(spoiled + 1, fault)
        play(store)
        mutations = proxy.mutations
        proxy.reset()
        if mutations <= spoiled:
            break
        spoiled += 1
    assert spoiled > 20


@pytest.mark.extended
@pytest.mark.slow
@pytest.mark.parametrize("how", extended_after(1, [CUT_BEFORE, CUT_AFTER]))
def test_the_protocol_survives_a_cut_connection_at_every_statement(
    how: str, postgres: PostgresServer, places: Callable[[str], Place], tmp_path: Path
) -> None:
    # The connection of each write is cut once.
    with serving_tcp(postgres.port) as proxy:
        number = 0
        while True:
            url = places("postgresql").url(tmp_path).replace(f":{postgres.port}/", f":{proxy.port}/")
            store = open_store(url, create=True)
            store._pause = 0.0
            proxy.spoil(rb"(INSERT INTO|UPDATE|DELETE FROM) sinksdk_records", *[PASS] * number, how)
            play(store)
            store.close()
            if not proxy.spoiled:
                break
            proxy.reset()
            number += 1
    assert number > 20


# -- processes that race -----------------------------------------------------------------------------

ROUNDS = 40
RACE = """
import multiprocessing, os, sys
from sinksdk.store import Conflict, open_store
ROUNDS = int(sys.argv[2])
fork = multiprocessing.get_context("fork")
together = fork.Barrier(2)
store = open_store(sys.argv[1])  # inherited: as in Spark's workers, which are forked
def race(me):
    for turn in range(ROUNDS):
        found = store.get("k")
        together.wait()
        try:
            version = store.put("k", {"by": me, "turn": turn}, found.version if found else None)
        except Conflict:
            version = None
        together.wait()
        now = store.get("k")
        assert now.value["turn"] == turn
        assert (now.version == version) == (now.value["by"] == me)
        if version is not None:
            os.write(1, f"{turn} {me}\\n".encode())
        together.wait()
        if turn % 4 == 3 and me == 0:
            store.delete("k", now.version)  # so that creating is raced for too
        together.wait()
running = [fork.Process(target=race, args=(me,)) for me in range(2)]
[process.start() for process in running]
[process.join() for process in running]
sys.exit(max(process.exitcode for process in running))
"""


@pytest.mark.slow
@pytest.mark.parametrize("backend", extended_after(1, SHARED))
def test_two_processes_racing_for_one_key_lose_no_write(
    backend: str, new_store: Callable[[str], Store]
) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", RACE, new_store(backend).url, str(ROUNDS)],
        check=True,
        timeout=120,
        stdout=subprocess.PIPE,
        text=True,
    )
    winners = [line.split() for line in ran.stdout.splitlines()]
    assert sorted(int(turn) for turn, _ in winners) == list(range(ROUNDS))
