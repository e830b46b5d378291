"""The contract of every store: compare-and-set without doubtful outcomes."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from sinksdk.errors import ConnectException
from sinksdk.store import Conflict, Store, StoreRefused, StoreUnavailable, base, open_store, table
from sinksdk.store.base import NEWEST_FORMAT, Lost, Stored
from sinksdk.store.reports import ConnectorStatus
from sinksdk.testing import ManualClock
from tests.helpers.memory_store import MemoryStore
from tests.helpers.ports import closed_port
from tests.helpers.stores import sql_store
from tests.helpers.tiers import extended_after
from tests.store.backends import BACKENDS, OF_ANY_KEY, SHARED, LossyStore, Primitive


@pytest.fixture(params=extended_after(2, BACKENDS))
def store(request: pytest.FixtureRequest, new_store: Callable[[str], Store]) -> Store:
    return new_store(request.param)


@pytest.fixture(params=extended_after(2, OF_ANY_KEY))
def of_any_key(request: pytest.FixtureRequest, new_store: Callable[[str], Store]) -> Store:
    return new_store(request.param)


@pytest.fixture(params=extended_after(1, SHARED))
def shared(request: pytest.FixtureRequest, new_store: Callable[[str], Store]) -> Store:
    return new_store(request.param)


@pytest.fixture
def lossy(store: Store) -> LossyStore:
    return LossyStore(store)


# -- compare and set ---------------------------------------------------------------------------------


def test_a_missing_key_has_no_value(store: Store) -> None:
    assert store.get("k") is None


def test_a_written_value_is_read(store: Store) -> None:
    value = {"number": 7, "text": "Zürich \u0000 ☂", "list": [1, None, {"deep": [True, 1.5]}], "empty": {}}
    version = store.put("k", value, None)
    assert store.get("k") == (value, version)


def test_a_large_value_is_stored(store: Store) -> None:
    value = {"text": "x" * 1_000_000}
    store.put("k", value, None)
    assert store.get("k").value == value


def test_a_version_is_read_without_its_value(store: Store) -> None:
    assert store.version("k") is None
    first = store.put("k", {"x": 1}, None)
    assert store.version("k") == first
    second = store.put("k", {"x": 2}, first)
    assert store.version("k") == second
    store.delete("k", second)
    assert store.version("k") is None


def test_a_version_written_by_another_process_is_read(shared: Store) -> None:
    first = shared.put("k", {"x": 1}, None)
    other = open_store(shared.url)
    second = other.put("k", {"x": 2}, first)
    other.close()
    assert shared.version("k") == second


def test_concurrent_requests_return_results_in_order(store: Store) -> None:
    assert store.at_once(lambda n: store.put(f"k{n}", {"n": n}, None), range(30)) == [
        store.version(f"k{n}") for n in range(30)
    ]
    with pytest.raises(Conflict, match="k3 was"):
        store.at_once(lambda n: store.put(f"k{n}", {"n": n}, None), [33, 3, 32])


@pytest.mark.parametrize("key", ["a/b", "a b", "100%", "a_b", "'; drop table x; --", "Ünïcode/☂", "a" * 250])
def test_any_text_may_be_a_key(store: Store, key: str) -> None:
    is_a_key(store, key)


def test_a_long_text_may_be_a_key(of_any_key: Store) -> None:
    is_a_key(of_any_key, "a" * 500)


def is_a_key(store: Store, key: str) -> None:
    version = store.put(key, {"x": 1}, None)
    assert store.get(key).value == {"x": 1}
    assert store.list(key) == [key]
    store.delete(key, version)
    assert store.get(key) is None


def test_creating_an_existing_key_is_a_conflict(store: Store) -> None:
    store.put("k", {"x": 1}, None)
    with pytest.raises(Conflict, match="k was written by another process"):
        store.put("k", {"x": 1}, None)
    assert store.get("k").value == {"x": 1}


def test_the_last_version_can_be_replaced(store: Store) -> None:
    first = store.put("k", {"x": 1}, None)
    second = store.put("k", {"x": 2}, first)
    assert store.get("k") == ({"x": 2}, second)


def test_replacing_an_older_version_is_a_conflict(store: Store) -> None:
    first = store.put("k", {"x": 1}, None)
    second = store.put("k", {"x": 2}, first)
    for version in (first, "made up", ""):
        with pytest.raises(Conflict):
            store.put("k", {"x": 3}, version)
    assert store.get("k") == ({"x": 2}, second)


def test_replacing_a_missing_key_is_a_conflict(store: Store) -> None:
    with pytest.raises(Conflict):
        store.put("k", {"x": 1}, "made up")
    assert store.get("k") is None


def test_versions_never_repeat(store: Store) -> None:
    versions = set()
    version = store.put("k", {"x": 1}, None)
    for _ in range(5):
        versions.add(version)
        version = store.put("k", {"x": 1}, version)
        versions.add(version)
        store.delete("k", version)
        version = store.put("k", {"x": 1}, None)
    versions.add(version)
    versions.add(store.put("other", {"x": 1}, None))
    assert len(versions) == 12


def test_a_version_from_before_a_delete_is_a_conflict(store: Store) -> None:
    old = store.put("k", {"x": 1}, None)
    store.delete("k", old)
    new = store.put("k", {"x": 1}, None)
    with pytest.raises(Conflict):
        store.put("k", {"x": 2}, old)
    with pytest.raises(Conflict):
        store.delete("k", old)
    assert store.get("k") == ({"x": 1}, new)


def test_a_deleted_key_has_no_value(store: Store) -> None:
    version = store.put("k", {"x": 1}, None)
    store.delete("k", version)
    assert store.get("k") is None
    store.delete("k", version)


def test_deleting_another_version_is_a_conflict(store: Store) -> None:
    first = store.put("k", {"x": 1}, None)
    second = store.put("k", {"x": 2}, first)
    with pytest.raises(Conflict):
        store.delete("k", first)
    assert store.get("k") == ({"x": 2}, second)


def test_keys_are_listed_by_prefix(store: Store) -> None:
    keys = ("a/2", "a/10", "ab/1", "A/1", "b/1", "a_/1", "a%/1")
    for key in keys:
        store.put(key, {}, None)
    assert store.list("a/") == ["a/10", "a/2"]
    assert store.list("A/") == ["A/1"]
    assert store.list("a_") == ["a_/1"]
    assert store.list("a%") == ["a%/1"]
    assert store.list("nothing") == []
    assert store.list("") == sorted(keys)


def test_a_key_may_be_a_prefix_of_other_keys(of_any_key: Store) -> None:
    for key in ("a/2", "a/10", "a"):
        of_any_key.put(key, {}, None)
    assert of_any_key.list("a/") == ["a/10", "a/2"]
    assert of_any_key.list("") == ["a", "a/10", "a/2"]


def test_a_snapshot_has_the_keys_below_its_prefix(store: Store) -> None:
    for key in ("a/1", "a/2", "A/1", "a_/1"):
        store.put(key, {"key": key}, None)
    seen = store.snapshot("a/")
    assert seen.get("a/1") == store.get("a/1")
    assert seen.list("a/") == ["a/1", "a/2"]


def test_a_snapshot_is_consistent_and_read_only(store: Store) -> None:
    version = store.put("a/1", {"x": 1}, None)
    seen = store.snapshot("a/")
    if seen is store:
        assert store.url.startswith("s3://")
        return
    store.put("a/1", {"x": 2}, version)
    assert seen.get("a/1") == ({"x": 1}, version)
    assert seen.url == store.url
    with pytest.raises(StoreRefused, match="a/1 is not written: this is a snapshot"):
        seen.put("a/1", {"x": 3}, version)
    with pytest.raises(StoreRefused):
        seen.delete("a/1", version)


def test_read_values_are_independent_copies(store: Store) -> None:
    value = {"list": [1]}
    store.put("k", value, None)
    value["list"].append(2)
    store.get("k").value["list"].append(3)
    assert store.get("k").value == {"list": [1]}


@pytest.mark.parametrize("name", ["format", "nonce"])
def test_reserved_fields_are_refused(store: Store, name: str) -> None:
    # Without a nonce, the store could not recognise its own write after the response was lost.
    with pytest.raises(ValueError, match=name):
        store.put("k", {name: "mine"}, None)
    assert store.get("k") is None


@pytest.mark.parametrize("written", [NEWEST_FORMAT + 1, 0, None, "1"])
def test_a_value_of_another_format_is_refused(store: Store, written: object) -> None:
    # The error tells the user to upgrade.
    body = json.dumps({"format": written, "nonce": "n", "x": 1})
    assert store._write("k", Stored(body, "n"), None)
    with pytest.raises(
        ConnectException, match="k has a format that this version of sinksdk does not know; upgrade"
    ):
        store.get("k")


@pytest.mark.parametrize(
    "body", ["no JSON", '{"format": 1, "nonce": "n", "heartbeat": "NONSENSE"}', '{"format": 1}']
)
def test_a_damaged_value_is_an_error_that_names_its_key(store: Store, body: str) -> None:
    assert store._write("k", Stored(body, "n"), None)
    with pytest.raises(
        ConnectException, match=r"k (is damaged|was not written by sinksdk).* restore the store"
    ):
        table.read(store, "k", ConnectorStatus)


def test_an_error_of_the_backend_is_not_reported_as_damage(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Regression: the message for a driver's KeyError was "is damaged; restore the store from a backup".

    def read(key: str) -> Stored | None:
        raise KeyError(key)

    monkeypatch.setattr(store, "_read", read)
    with pytest.raises(KeyError):
        table.read(store, "k", ConnectorStatus)


# -- at the same time --------------------------------------------------------------------------------


def increment(store: Store, times: int) -> None:
    # All users of a store write by compare-and-set.
    done = 0
    while done < times:
        found = store.get("counter")
        count = found.value["count"] if found else 0
        try:
            store.put("counter", {"count": count + 1}, found.version if found else None)
        except Conflict:
            continue
        done += 1


def test_concurrent_threads_lose_no_write(store: Store) -> None:
    threads = [threading.Thread(target=increment, args=(store, 10)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.get("counter").value == {"count": 80}


INCREMENT = """
import multiprocessing, sys
from sinksdk.store import open_store
from tests.store.test_store_contract import increment
fork = multiprocessing.get_context("fork")
store = open_store(sys.argv[1])  # inherited: as in Spark's workers, which are forked
running = [fork.Process(target=increment, args=(store, 25)) for _ in range(4)]
[process.start() for process in running]
[process.join() for process in running]
sys.exit(max(process.exitcode for process in running))
"""


@pytest.mark.slow
def test_concurrent_processes_lose_no_write(shared: Store) -> None:
    # This process opened the store before the writing processes did.
    subprocess.run([sys.executable, "-c", INCREMENT, shared.url], check=True, timeout=120)
    assert shared.get("counter").value == {"count": 100}


# -- unknown outcomes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "lost", [["before"], ["after"], ["before", "before", "after"], ["after", "before", "after"]]
)
def test_a_lost_response_to_a_first_write_is_resolved(lost: list[str], lossy: LossyStore) -> None:
    # The nonce resolves a response that was lost before or after the effect.
    lossy.faults["write"].extend(lost)
    version = lossy.put("k", {"x": 1}, None)
    assert lossy.inner.get("k") == ({"x": 1}, version)


@pytest.mark.parametrize(
    "lost", [["before"], ["after"], ["before", "before", "after"], ["after", "before", "after"]]
)
def test_a_lost_response_to_a_replacement_is_resolved(lost: list[str], lossy: LossyStore) -> None:
    first = lossy.put("k", {"x": 1}, None)
    lossy.faults["write"].extend(lost)
    version = lossy.put("k", {"x": 1}, first)
    assert version != first
    assert lossy.inner.get("k") == ({"x": 1}, version)
    assert lossy.put("k", {"x": 2}, version)


@pytest.mark.parametrize("lost", [["before"], ["after"], ["after", "after", "before"]])
def test_a_lost_response_to_a_delete_is_resolved(lost: list[str], lossy: LossyStore) -> None:
    version = lossy.put("k", {"x": 1}, None)
    lossy.faults["remove"].extend(lost)
    lossy.delete("k", version)
    assert lossy.inner.get("k") is None


@pytest.mark.parametrize("lost", ["before", "after"])
def test_a_lost_response_to_a_read_is_retried(lost: str, lossy: LossyStore) -> None:
    version = lossy.put("k", {"x": 1}, None)
    lossy.faults["read"].append(lost)
    lossy.faults["keys"].extend([lost, lost])
    assert lossy.get("k") == ({"x": 1}, version)
    assert lossy.list("") == ["k"]


def test_the_response_to_the_resolving_read_may_be_lost(lossy: LossyStore) -> None:
    lossy.faults["write"].append("after")
    lossy.faults["read"].extend(["before", "after"])
    version = lossy.put("k", {"x": 1}, None)
    assert lossy.requests == ["write", "write", "read", "read", "read"]
    assert lossy.inner.get("k").version == version


@pytest.mark.parametrize("effect", [False, True], ids=["before the effect", "after the effect"])
def test_a_write_of_another_process_during_a_retry_is_a_conflict(effect: bool, lossy: LossyStore) -> None:
    # Another process has written since.
    first = lossy.put("k", {"by": "us"}, None)

    def somebody_else() -> None:
        lossy.inner.put("k", {"by": "them"}, lossy.inner.get("k").version)

    if effect:
        lossy.faults["write"].append(somebody_else)
    else:
        somebody_else()
        lossy.faults["write"].append("before")
    with pytest.raises(Conflict):
        lossy.put("k", {"by": "us again"}, first)
    assert lossy.inner.get("k").value == {"by": "them"}


def test_a_creation_by_another_process_during_a_retry_is_a_conflict(lossy: LossyStore) -> None:
    def made_anew() -> None:
        lossy.inner.delete("k", lossy.inner.get("k").version)
        lossy.inner.put("k", {"by": "them"}, None)

    lossy.faults["write"].append(made_anew)
    with pytest.raises(Conflict):
        lossy.put("k", {"by": "us"}, None)
    assert lossy.inner.get("k").value == {"by": "them"}


def test_a_recreation_by_another_process_during_a_deletion_is_a_conflict(lossy: LossyStore) -> None:
    # Another process has created the key again since.
    version = lossy.put("k", {"by": "us"}, None)
    lossy.faults["remove"].append(lambda: lossy.inner.put("k", {"by": "them"}, None))
    with pytest.raises(Conflict):
        lossy.delete("k", version)
    assert lossy.inner.get("k").value == {"by": "them"}


def test_a_write_without_faults_is_one_request(lossy: LossyStore) -> None:
    version = lossy.put("k", {"x": 1}, None)
    version = lossy.put("k", {"x": 2}, version)
    lossy.delete("k", version)
    assert lossy.requests == ["write", "write", "remove"]


def test_a_conflict_without_faults_takes_one_read(lossy: LossyStore) -> None:
    lossy.put("k", {"x": 1}, None)
    lossy.requests.clear()
    with pytest.raises(Conflict):
        lossy.put("k", {"x": 2}, None)
    assert lossy.requests == ["write", "read"]


@pytest.mark.parametrize("primitive", ["read", "write", "remove", "keys"])
def test_a_lasting_outage_raises_store_unavailable(
    primitive: Primitive, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    lossy = LossyStore(store, patience=10.0)
    lossy._pause = 0.5
    version = lossy.put("k", {"x": 1}, None)
    lossy.is_down = True
    clock = ManualClock(0.0)
    monkeypatch.setattr(base, "time", SimpleNamespace(monotonic=clock.now, sleep=clock.advance))
    asked = {
        "read": lambda: lossy.get("k"),
        "write": lambda: lossy.put("k", {"x": 2}, version),
        "remove": lambda: lossy.delete("k", version),
        "keys": lambda: lossy.list("k"),
    }
    with pytest.raises(StoreUnavailable, match="k got no response for 10 s: down"):
        asked[primitive]()
    assert 5.0 < clock.now() <= 10.0
    lossy.is_down = False
    assert lossy.get("k").value == {"x": 1}


def test_an_outage_after_a_write_took_effect_raises_store_unavailable(store: Store) -> None:
    lossy = LossyStore(store, patience=0.05)

    def goes_down() -> None:
        lossy.is_down = True

    lossy.faults["write"].append(goes_down)
    with pytest.raises(StoreUnavailable):
        lossy.put("k", {"x": 1}, None)
    assert store.get("k").value == {"x": 1}


def test_an_object_copied_in_place_is_not_a_conflict() -> None:
    # Regression: an object copied in place has another ETag and the same value; its owner saw a conflict.

    class Touched(MemoryStore):
        refusals = 0

        def _write(self, key: str, stored: Stored, if_version: str | None) -> bool:
            if self.refusals:
                self.refusals -= 1
                return False
            return super()._write(key, stored, if_version)

    store = Touched()
    version = store.put("key", {"n": 1}, None)
    store.refusals = 1
    assert store.get("key") is not None
    again = store.put("key", {"n": 2}, version)

    assert store.get("key") == ({"n": 2}, again)
    store.refusals = 100
    with pytest.raises(Conflict):
        store.put("key", {"n": 3}, again)


def test_an_outage_of_a_repeatedly_opened_store_is_logged_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "_LOGGED_AFTER", 0.0)
    with closed_port() as port:
        for _ in range(3):
            with pytest.raises(StoreUnavailable):
                sql_store(f"postgresql://somebody@127.0.0.1:{port}/nowhere", patience=0.1)

    (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert "does not respond, retrying: opening it failed once: " in line


@pytest.mark.slow
def test_an_outage_is_logged_in_two_lines(caplog: pytest.LogCaptureFixture) -> None:
    class Away(MemoryStore):
        answers_at = time.monotonic() + 1.5

        def _read(self, key: str) -> Stored | None:
            # The first line has been logged by then.
            if time.monotonic() < self.answers_at or not caplog.records:
                message = "connection refused"
                raise Lost(message)
            return super()._read(key)

    store = Away(pause=0.02)
    assert store.get("a/b") is None

    first, last = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert re.fullmatch(
        r"store memory: does not respond, retrying: reading a/b failed \d+ times: connection refused",
        first,
    )
    assert re.fullmatch(r"store memory: works again after \d+\.\d s \(\d+ failures\)", last)
