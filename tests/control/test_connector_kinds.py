"""A name has one kind of writer, which each operation on a connector checks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from sinksdk import ConfigException, FencedException
from sinksdk.control import registry
from sinksdk.control.herder import Herder
from sinksdk.control.registry import WrongKindException, created
from sinksdk.frames.prepare import prepare_writer
from sinksdk.runtime.environment import Environment
from sinksdk.runtime.session import DriverSession
from sinksdk.server.app import create_app
from sinksdk.store import newest_plan, open_store, table
from sinksdk.store.generations import Generations
from sinksdk.store.keys import config_key
from sinksdk.store.records import ConnectorKind, ConnectorRecord
from tests.frames.test_batches import Outside, Query, committed
from tests.frames.test_prepare import VALUE, options
from tests.helpers.memory_store import MemoryStore
from tests.runtime.running_sinks import P0, RAW, Connector, Source, Task, driver

DATAFRAME_IS = "'c' in store .* is written by DataFrames"


def written(store: MemoryStore, kind: ConnectorKind | None) -> Query:
    # None stands for a record that an older version wrote without a kind.
    registry.change(store, "c", lambda r: r, otherwise=lambda: created(RAW, "STOPPED", kind="dataframe"))
    if kind is None:
        row = table.read(store, config_key("c"), ConnectorRecord)
        assert row is not None
        table.write(store, config_key("c"), row.value.model_copy(update={"kind": None}), row.version)
    query = Query(store, Outside())
    query.commit(0, query.task(0, ["a", "b"]))
    return query


@pytest.fixture(params=["dataframe", None], ids=["recorded", "older record"])
def query(store: MemoryStore, request: pytest.FixtureRequest) -> Query:
    return written(store, request.param)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


REQUESTS: dict[str, Callable[[Herder], object]] = {
    "resume": lambda herder: herder.resume("c"),
    "pause": lambda herder: herder.pause("c"),
    "restart": lambda herder: herder.restart("c"),
    "restart failed": lambda herder: herder.restart("c", only_failed=True),
    "rebalance": lambda herder: herder.rebalance("c"),
    "flush": lambda herder: herder.flush("c"),
    "configure": lambda herder: herder.configure("c", {**RAW, "tasks.max": "2"}),
    "alter offsets": lambda herder: herder.alter_offsets("c", {P0: 1}),
    "reset offsets": lambda herder: herder.reset_offsets("c"),
}


@pytest.mark.parametrize("request_of", REQUESTS.values(), ids=REQUESTS)
def test_requests_to_a_dataframes_name_are_refused(
    store: MemoryStore, query: Query, request_of: Callable[[Herder], object]
) -> None:
    before = registry.find(store, "c")
    with pytest.raises(WrongKindException, match=DATAFRAME_IS):
        request_of(Herder(store))
    query.commit(1, query.task(1, ["c"]))

    assert registry.find(store, "c") == before
    assert committed(store) == {0: 3}
    Herder(store).stop("c")
    Herder(store).delete("c")


@pytest.mark.parametrize("is_of_a_server", [False, True], ids=["run", "server"])
def test_a_driver_of_a_dataframes_name_does_not_start(
    store: MemoryStore, query: Query, *, is_of_a_server: bool
) -> None:
    # A refused driver claims nothing, so that the query continues.
    record = registry.find(store, "c") if is_of_a_server else None
    made, launcher, _ = driver(Source({P0: 20}), Task, store=store)
    made.environment = Environment(store, record=record)
    with pytest.raises(WrongKindException, match=DATAFRAME_IS):
        made.run(until_caught_up=True)
    query.commit(1, query.task(1, ["c"]))

    assert launcher.plans == []
    assert committed(store) == {0: 3}


def test_a_driver_that_claims_a_dataframes_generation_plans_nothing(store: MemoryStore) -> None:
    # The previous generation was a DataFrame's, so its commits are row numbers, although the record says
    # "sink".
    record = created(RAW, kind="sink")
    registry.change(store, "c", lambda r: r, otherwise=lambda: record)
    made, launcher, _ = driver(Source({P0: 20}), Task, store=store)
    registry.change(store, "c", lambda r: r.model_copy(update={"kind": "dataframe"}))
    written(store, "dataframe")
    made.environment = Environment(store, record=record)
    with pytest.raises(WrongKindException, match=DATAFRAME_IS):
        made.run(until_caught_up=True)
    assert launcher.plans == []


@pytest.mark.parametrize("target_state", ["RUNNING", "STOPPED"])
@pytest.mark.parametrize("kind", ["sink", "source"])
def test_a_dataframe_is_not_written_to_a_connectors_name(
    tmp_path: Path, kind: ConnectorKind, target_state: str
) -> None:
    store = open_store(f"sqlite:///{tmp_path}/store.sqlite", create=True)
    record = created({"name": "a"}, kind=kind).model_copy(update={"target_state": target_state})
    registry.change(store, "a", lambda r: r, otherwise=lambda: record)
    with pytest.raises(ConfigException, match=rf"connector a in store .* is a {kind} of 'sinksdk run'"):
        prepare_writer(options(tmp_path), VALUE)
    assert registry.find(store, "a") == record
    store.close()


def test_the_record_of_a_dataframe_has_its_kind(tmp_path: Path) -> None:
    # The next write adds the kind to a record of an older version.
    prepare_writer(options(tmp_path), VALUE)
    store = open_store(f"sqlite:///{tmp_path}/store.sqlite", create=True)
    assert registry.find(store, "a").kind == "dataframe"
    registry.change(store, "a", lambda r: r.model_copy(update={"kind": None}))
    prepare_writer(options(tmp_path), VALUE)
    assert registry.find(store, "a").kind == "dataframe"
    store.close()


def test_a_query_is_fenced_once_a_connector_has_its_name(store: MemoryStore) -> None:
    # The connector's name was deleted and created again by another kind of writer.
    query = written(store, "dataframe")
    share = query.task(1, ["c"])
    Generations(store, "c").forget()
    row = table.read(store, config_key("c"), ConnectorRecord)
    assert row is not None
    table.write(store, config_key("c"), created(RAW, kind="sink"), row.version)
    for call in (lambda: query.task(1, ["c"]), lambda: query.commit(1, share)):
        with pytest.raises(FencedException, match="because it was created again as a sink"):
            call()
    made, _, _ = driver(Source({P0: 20}), Task, store=store)
    made.run(until_caught_up=True)
    for call in (lambda: query.task(1, ["c"]), lambda: query.commit(1, share)):
        with pytest.raises(FencedException, match="a connector of this name has started a generation"):
            call()
    query.abort(1)

    assert committed(store) == {0: 20}


def test_a_sink_cannot_run_or_be_configured_under_a_sources_name(store: MemoryStore) -> None:
    made, _, _ = driver(Source({P0: 3}), Task, store=store)
    made.run(until_caught_up=True)
    assert registry.find(store, "c").kind == "sink"
    registry.change(store, "c", lambda r: r.model_copy(update={"kind": "source"}))
    other = {**RAW, "connector.class": "tests.runtime.running_sinks:OtherConnector"}
    with pytest.raises(WrongKindException, match="is a source connector, and cannot continue as a sink"):
        Herder(store).configure("c", other)
    again, launcher, _ = driver(Source({P0: 9}), Task, store=store)
    with pytest.raises(WrongKindException, match="is a source connector, and cannot continue as a sink"):
        again.run(until_caught_up=True)

    assert launcher.plans == []
    _, plan = newest_plan(store, "c")
    assert plan is not None
    assert committed(store) == {0: 3}


def test_a_sink_with_a_sources_name_does_not_fence_the_source(store: MemoryStore) -> None:
    # The session's constructor refuses the sink before it claims anything.
    registry.change(store, "c", lambda r: r, otherwise=lambda: created(RAW, kind="source"))
    config = Connector.config_class.parse(RAW)
    with pytest.raises(WrongKindException):
        DriverSession(Environment(store), Connector(), config, RAW)
    assert newest_plan(store, "c") == (None, None)


def test_created_connectors_have_the_kind_of_their_class(store: MemoryStore) -> None:
    client = TestClient(create_app(store), base_url="http://localhost")
    assert client.post("/connectors", json={"name": "a", "config": {**RAW, "name": "a"}}).status_code == 201
    assert client.put("/connectors/b/config", json={**RAW, "name": "b"}).status_code == 201
    assert [registry.find(store, name).kind for name in "ab"] == ["sink"] * 2
    Herder(store).create("c", RAW)
    made, _, _ = driver(Source({P0: 3}), Task, store=store)
    made.environment = Environment(store, record=registry.find(store, "c"))
    made.run(until_caught_up=True)
    assert registry.find(store, "c").kind == "sink"


def test_rest_returns_409_for_a_dataframes_name(store: MemoryStore) -> None:
    written(store, "dataframe")
    client = TestClient(create_app(store), base_url="http://localhost")
    responses = [
        client.put("/connectors/c/resume"),
        client.put("/connectors/c/pause"),
        client.post("/connectors/c/restart"),
        client.delete("/connectors/c/offsets"),
    ]

    assert [response.status_code for response in responses] == [409] * 4
    assert all("is written by DataFrames" in response.json()["message"] for response in responses)
