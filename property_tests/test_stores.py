"""Stores against a model: compare-and-set with lost responses and several writers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from property_tests.exercised import EXERCISED
from sinksdk.store import Store
from sinksdk.store.base import Conflict
from tests.conftest import minio_url, postgres
from tests.helpers.tiers import extended_after
from tests.store.backends import BACKENDS, Fault, LossyStore
from tests.store.conftest import minio_server, new_store, places, s3_credentials, s3_server

__all__ = [  # imported as fixtures
    "minio_server",
    "minio_url",
    "new_store",
    "places",
    "postgres",
    "s3_credentials",
    "s3_server",
]

KEYS = st.sampled_from(["a", "a/b", "a/c", "b"])
LOST = st.lists(st.sampled_from(["before", "after"]), max_size=2)


class Stores(RuleBasedStateMachine):
    backend: str
    open: Callable[[str], Store]

    def __init__(self) -> None:
        super().__init__()
        self.store = LossyStore(self.open(self.backend))
        self.values: dict[str, tuple[int, str]] = {}
        self.versions: set[str] = set()
        self.old: dict[str, list[str]] = {}
        self.exercised = EXERCISED[f"the store {self.backend}"]

    def _spelled(self, key: str) -> str:
        """Return a key that MinIO accepts, where an object cannot have the name of other objects' folder."""
        return "a+" if key == "a" and self.backend == "minio" else key

    @rule(key=KEYS, number=st.integers(0, 3), lost=LOST)
    def write(self, key: str, number: int, lost: list[Fault]) -> None:
        key = self._spelled(key)
        before = self.values.get(key)
        self.store.faults["write"].extend(lost)
        version = self.store.put(key, {"number": number}, before[1] if before else None)
        assert version not in self.versions, "versions never repeat"
        self.versions.add(version)
        if before:
            self.old.setdefault(key, []).append(before[1])
        self.values[key] = number, version
        self.exercised["written"] += 1
        self.exercised["answers lost"] += len(lost)

    @rule(key=KEYS, which=st.integers(0, 5), lost=LOST)
    def write_late(self, key: str, which: int, lost: list[Fault]) -> None:
        key = self._spelled(key)
        old = [None, *self.old.get(key, [])] if key in self.values else self.old.get(key, [])
        if not old:
            self.write(key, 0, [])
            old = [None]
        self.store.faults["write"].extend(lost)
        with pytest.raises(Conflict):
            self.store.put(key, {"number": -1}, old[which % len(old)])
        self.store.faults["write"].clear()
        self.exercised["conflicts"] += 1

    @rule(key=KEYS, lost=LOST)
    def delete(self, key: str, lost: list[Fault]) -> None:
        key = self._spelled(key)
        if key not in self.values:
            self.write(key, 0, [])
        if self.old.get(key):
            with pytest.raises(Conflict):
                self.store.delete(key, self.old[key][0])
        self.store.faults["remove"].extend(lost)
        _, version = self.values.pop(key)
        self.store.delete(key, version)
        self.old.setdefault(key, []).append(version)
        self.exercised["deleted"] += 1

    @rule(prefix=st.sampled_from(["", "a", "a/", "b", "c"]))
    def look(self, prefix: str) -> None:
        assert self.store.list(prefix) == sorted(key for key in self.values if key.startswith(prefix))
        for key in map(self._spelled, ("a", "a/b", "a/c", "b")):
            found = self.store.get(key)
            assert (found and (found.value["number"], found.version)) == self.values.get(key)

    def teardown(self) -> None:
        self.look("")
        self.store.inner.close()
        self.exercised["cases"] += 1


@pytest.mark.parametrize("backend", extended_after(1, BACKENDS))
def test_store_matches_compare_and_set_model(backend: str, new_store: Callable[[str], Store]) -> None:
    machine = type(f"Stores_{backend}", (Stores,), {"backend": backend, "open": staticmethod(new_store)})
    is_server = backend in ("postgresql", "s3", "minio")
    few = {"max_examples": 25} if is_server else {}  # each case creates a new store
    run_state_machine_as_test(
        machine, settings=settings(stateful_step_count=20, suppress_health_check=list(HealthCheck), **few)
    )
    counts = EXERCISED[f"the store {backend}"]
    assert (
        min(counts[what] for what in ("written", "conflicts", "deleted", "answers lost"))
        >= counts["cases"] // 4
    )
