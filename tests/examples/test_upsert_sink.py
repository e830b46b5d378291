"""The database sink on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import json
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
import sqlalchemy as sa

from examples import test_sinks, upsert_sink
from examples.upsert_sink import UpsertConfig, UpsertSink, UpsertTask
from sinksdk import (
    ConfigException,
    OffsetRange,
    RetriableException,
    SinkRecord,
    SinkRecords,
    TopicPartition,
)
from sinksdk.connector import ConnectorIdentity
from sinksdk.model.plan import RangePlan
from sinksdk.plugins.checks import check_file
from sinksdk.testing import FaultPlan, SinkTaskHarness, check_sink
from tests.engine.sinks import Letters
from tests.store.postgres_server import PostgresServer

P0, P1 = TopicPartition("readings", 0), TopicPartition("readings", 1)


@dataclass
class Database:
    """A database with an empty table of readings."""

    url: str
    tasks: list[UpsertTask] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.run(
            "CREATE TABLE readings (sensor VARCHAR(20) PRIMARY KEY, celsius INTEGER NOT NULL, note TEXT)"
        )
        self.connector()

    def config(self, **others: str) -> UpsertConfig:
        keys = {"name": "test", "topics": "readings", "key.converter": "json", "value.converter": "json"}
        keys |= {"database.url": self.url, "table": "readings", "key.columns": "sensor"}
        others = {name.replace("_", "."): value for name, value in others.items()}
        return UpsertConfig.parse({**keys, "value.columns": "celsius, note", "incarnation": "mine", **others})

    def connector(self, incarnation: str = "mine", **others: str) -> UpsertSink:
        connector = UpsertSink()
        connector.identity = ConnectorIdentity("store", "test", incarnation)
        connector.start(self.config(**others))
        return connector

    def run(self, statement: str) -> list[Any]:
        engine = sa.create_engine(self.url)
        try:
            with engine.begin() as connection:
                answer = connection.execute(sa.text(statement))
                return [tuple(row) for row in answer] if answer.returns_rows else []
        finally:
            engine.dispose()

    def rows(self) -> list[Any]:
        return self.run("SELECT sensor, celsius, note FROM readings ORDER BY sensor")

    def watermarks(self) -> dict[tuple[str, int], int]:
        found = self.run("SELECT incarnation, partition, next_offset FROM sinksdk_watermarks")
        return {(incarnation, partition): offset for incarnation, partition, offset in found}

    def task(self) -> UpsertTask:
        self.tasks.append(UpsertTask())
        return self.tasks[-1]

    def close(self) -> None:
        for task in self.tasks:
            task.stop()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    if request.param == "postgresql":
        yield request.getfixturevalue("in_postgres")
        return
    with closing(Database(f"sqlite:///{tmp_path / 'readings.sqlite'}")) as made:
        yield made


@pytest.fixture
def in_postgres(postgres: PostgresServer) -> Iterator[Database]:
    url = postgres.url(f"upsert_{uuid.uuid4().hex}").replace("postgresql://", "postgresql+psycopg://")
    with closing(Database(url)) as made:
        yield made


def harness_of(database: Database, **others: Any) -> SinkTaskHarness:
    harness = SinkTaskHarness(database.task, database.config(errors_tolerance="all"), **others)
    harness.start()
    return harness


@pytest.fixture
def letters() -> Letters:
    return Letters()


@pytest.fixture
def harness(database: Database, letters: Letters) -> SinkTaskHarness:
    harness = harness_of(database, dead_letters=letters)
    harness.assign(P0)
    return harness


def record(offset: int, sensor: Any, value: Any, partition: TopicPartition = P0) -> SinkRecord:
    key, data = (None if item is None else json.dumps(item).encode() for item in (sensor, value))
    return SinkRecord(*partition, offset, key, data)


def reading(offset: int, sensor: str, celsius: object, **others: Any) -> SinkRecord:
    return record(offset, sensor, {"celsius": celsius, **others})


# -- what is written -----------------------------------------------------------------------------------


def test_the_newest_record_of_a_key_is_its_row(database: Database, harness: SinkTaskHarness) -> None:
    harness.deliver(P0, [reading(0, "a", 1, note="x"), reading(1, "b", 2), reading(2, "a", 3)])
    assert database.rows() == [("a", 3, None), ("b", 2, None)]
    harness.deliver(P0, [record(3, "a", None), reading(4, "c", 4), record(5, "b", None), reading(6, "b", 5)])
    harness.deliver(P0, [record(7, "nobody", None)])
    assert database.rows() == [("b", 5, None), ("c", 4, None)]
    harness.commit()
    assert harness.committed[P0].offset == 8


def test_nested_values_are_json_and_keys_may_be_objects(database: Database, harness: SinkTaskHarness) -> None:
    harness.deliver(P0, [record(0, {"sensor": "a"}, {"celsius": 1, "note": {"by": ["me"]}, "unknown": 1})])
    assert database.rows() == [("a", 1, '{"by": ["me"]}')]


def test_the_table_equals_that_of_a_plain_program(database: Database, harness: SinkTaskHarness) -> None:
    choice = random.Random(7)  # noqa: S311 - no secret
    topic = [
        reading(offset, choice.choice("abcdefgh"), offset) if choice.random() < 0.7
        else record(offset, choice.choice("abcdefgh"), None)
        for offset in range(1_500)
    ]  # fmt: skip
    expected: dict[str, int] = {}
    written = 0
    while written < len(topic):
        again, written = (
            max(written - choice.randrange(90), 0),
            min(written + choice.randrange(1, 200), 1_500),
        )
        for item in topic[again:written]:
            key, value = json.loads(item.key), item.value and json.loads(item.value)
            expected.pop(key, None)
            if value:
                expected[key] = value["celsius"]
        attempt = harness_of(database, committed={P0: again})
        attempt.worker.open([RangePlan.of(P0, again, written)])
        attempt.deliver(P0, SinkRecords.of(P0, topic[again:written]))
        attempt.lose()  # the attempt loses its partitions before they are committed
        assert {sensor: celsius for sensor, celsius, _ in database.rows()} == expected


def test_records_of_one_offset_are_all_written(database: Database) -> None:
    harness = harness_of(database)
    harness.assign(P0)
    single = SinkRecords.of(P0, [reading(0, "a", 1), reading(1, "b", 2)])
    made = single.arrow.take([0, 1, 1]).set_column(
        single.arrow.schema.get_field_index("key"), "key", pa.array([b'"a"', b'"b"', b'"c"'])
    )
    task = harness.task
    values = [{"celsius": 1}, {"celsius": 2}, {"celsius": 3}]
    multiplied = SinkRecords(P0, made, ["a", "b", "c"], values)
    for _ in range(2):  # the second application changes nothing
        task.put(multiplied)
        assert database.rows() == [("a", 1, None), ("b", 2, None), ("c", 3, None)]
        assert database.watermarks() == {("mine", 0): 2}
        values[:] = [{"celsius": 9}] * 3
    harness.lose()


# -- bad records ---------------------------------------------------------------------------------------


def test_a_record_that_the_table_refuses_is_a_dead_letter(
    database: Database, harness: SinkTaskHarness, letters: Letters
) -> None:
    harness.deliver(
        P0,
        [
            reading(0, "a", 1),
            record(1, "a", {"note": "celsius is NOT NULL"}),
            record(2, None, {"celsius": 2}),
            record(3, "b", 7),
            reading(4, "b", 2**70),
            reading(5, "a", 5),
            record(6, "a", {}),
            reading(7, "c", 7, note="\ud800"),
        ],
    )
    assert [letter.offset for letter in letters.records] == [1, 2, 3, 4, 6, 7]
    assert database.rows() == [("a", 5, None)]
    harness.stop()
    assert harness.committed[P0].offset == 8


@pytest.mark.slow
def test_a_value_of_another_type_is_a_dead_letter_on_postgresql(in_postgres: Database) -> None:
    letters = Letters()
    harness = harness_of(in_postgres, dead_letters=letters)
    harness.assign(P0)
    bad = [
        reading(0, "a", "warm"),
        reading(1, "a", True),
        reading(2, "x" * 21, 1),
        reading(3, "a", 1, note="\0"),
    ]
    harness.deliver(P0, [*bad, reading(4, "a", 4)])
    assert letters.records == bad
    assert in_postgres.rows() == [("a", 4, None)]
    harness.stop()


def test_a_bad_record_prevents_its_batch_if_not_tolerated(database: Database) -> None:
    harness = SinkTaskHarness(database.task, database.config())
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, [reading(0, "a", 1)])
    harness.deliver(P0, [reading(1, "a", 2), record(2, "b", {})])
    failure = harness.outcome(P0).failure
    assert "readings-0 at offset 2 failed in TASK_PUT" in failure.message
    assert "null" in failure.message.lower()
    assert database.rows() == [("a", 1, None)]
    assert harness.committed[P0].offset == 1
    harness.stop()


def test_a_missing_table_does_not_fill_the_dead_letters(
    database: Database, harness: SinkTaskHarness, letters: Letters
) -> None:
    database.run("DROP TABLE readings")
    harness.deliver(P0, [reading(0, "a", 1)])
    assert letters.records == []
    assert harness.committed == {}


# -- attempts, zombies, outages ------------------------------------------------------------------------


def test_a_new_attempt_continues_from_the_watermark(database: Database) -> None:
    first = harness_of(database)
    first.assign(P0)
    first.deliver(P0, [reading(0, "a", 1), reading(1, "b", 2)])
    second = harness_of(database)
    second.worker.open([RangePlan.of(P0, 0, 3)])
    second.deliver(P0, SinkRecords.of(P0, [reading(0, "a", 9), reading(1, "b", 9), reading(2, "c", 3)]))
    assert [len(call.arguments[0]) for call in second.called("put")] == [1]
    assert database.rows() == [("a", 1, None), ("b", 2, None), ("c", 3, None)]
    first.lose()
    second.stop()


def test_a_zombie_of_an_older_generation_writes_nothing(database: Database) -> None:
    zombie = harness_of(database, generation=1)
    zombie.assign(P0)
    harness_of(database, generation=2).assign(P0)
    zombie.deliver(P0, [reading(0, "a", 1)])
    assert "generation 1 no longer owns the watermark" in zombie.outcome(P0).failure.message
    late = harness_of(database, generation=1)
    late.assign(P0)
    assert "no longer owns" in late.outcome(P0).failure.message
    assert database.rows() == []


def test_a_zombie_of_the_same_generation_repeats_nothing(database: Database) -> None:
    one, other = harness_of(database), harness_of(database)
    for harness in (one, other):
        harness.assign(P0)
    one.deliver(P0, [reading(0, "a", 1), reading(1, "a", 2)])
    other.deliver(P0, [reading(0, "a", 1), reading(1, "a", 2), reading(2, "a", 3)])
    one.deliver(P0, [reading(2, "a", 3), reading(3, "a", 4)])
    assert database.rows() == [("a", 4, None)]
    assert database.watermarks() == {("mine", 0): 4}


def losing(task: UpsertTask, *, takes_effect: bool) -> None:
    dialect: Any = task.engine.dialect

    def do_commit(connection: Any) -> None:
        del dialect.do_commit
        if takes_effect:
            connection.commit()
        connection.dbapi_connection.close()
        raise dialect.dbapi.OperationalError("server closed the connection unexpectedly")

    dialect.do_commit = do_commit


@pytest.mark.parametrize("takes_effect", [True, False])
def test_a_connection_that_dies_at_commit(
    database: Database, harness: SinkTaskHarness, *, takes_effect: bool
) -> None:
    losing(harness.task, takes_effect=takes_effect)
    harness.deliver(P0, [reading(0, "a", 1), reading(1, "a", 2)])
    assert bool(database.rows()) is takes_effect
    assert harness.worker.is_put_off
    database.run("DELETE FROM readings")  # a row that is applied twice would come back
    harness.advance(1.0)
    assert database.rows() == ([] if takes_effect else [("a", 2, None)])
    harness.commit()
    assert harness.committed[P0].offset == 2


def test_an_outage_is_retried(database: Database, harness: SinkTaskHarness) -> None:
    original, harness.task.engine = harness.task.engine, sa.create_engine(
        "postgresql+psycopg://user:secret@127.0.0.1:1/nowhere"
    )  # fmt: skip
    with pytest.raises(RetriableException) as caught:
        harness.task.put(SinkRecords.of(P0, [reading(0, "a", 1)]))
    assert "user:***@127.0.0.1:1" in str(caught.value)
    assert "secret" not in str(caught.value)
    harness.task.engine = original


@pytest.mark.slow
def test_a_deadlock_is_resolved(in_postgres: Database, postgres: PostgresServer) -> None:
    database = in_postgres
    harness = harness_of(database)
    harness.assign(P0)
    harness.deliver(P0, [reading(0, "a", 0), reading(1, "b", 0)])
    schema = database.url.partition("search_path%3D")[2]
    with (
        closing(postgres.connect()) as looking,
        closing(postgres.connect(schema)) as other,
        other.transaction(),
    ):
        # The task's session must be the one that detects the deadlock.
        other.execute("SET LOCAL deadlock_timeout = '30s'")
        other.execute("UPDATE readings SET celsius = 7 WHERE sensor = 'b'")
        putting = threading.Thread(
            target=harness.deliver, args=(P0, [reading(2, "a", 1), reading(3, "b", 1)])
        )
        putting.start()
        soon(lambda: waiting(looking), "the task waits for row b")
        other.execute("UPDATE readings SET celsius = 7 WHERE sensor = 'a'")
    putting.join(60)
    assert harness.worker.is_put_off
    harness.advance(1.0)
    assert database.rows() == [("a", 1, None), ("b", 1, None)]
    harness.stop()
    assert harness.committed[P0].offset == 4


def waiting(looking: psycopg.Connection) -> bool:
    return bool(looking.execute("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'").fetchall())


def soon(condition: Callable[[], bool], what: str) -> None:
    give_up = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < give_up, what
        time.sleep(0.02)


@pytest.mark.slow
def test_a_successor_waits_for_a_zombies_open_transaction(
    in_postgres: Database, postgres: PostgresServer
) -> None:
    database = in_postgres
    zombie = harness_of(database, generation=1)
    zombie.assign(P0)
    released, writing = threading.Event(), threading.Event()
    write = zombie.task.write

    def slow(*arguments: Any) -> None:
        write(*arguments)
        writing.set()
        assert released.wait(60)

    zombie.task.write = slow
    frozen = threading.Thread(target=zombie.deliver, args=(P0, [reading(0, "a", 1)]))
    frozen.start()
    assert writing.wait(60)
    successor = harness_of(database, generation=2)
    opening = threading.Thread(target=successor.assign, args=(P0,))
    opening.start()
    with closing(postgres.connect()) as looking:
        soon(lambda: waiting(looking), "the successor waits for the watermark")
    released.set()
    frozen.join(60)
    opening.join(60)
    assert successor.task.watermarks == {P0: 1}
    zombie.task.write = write
    zombie.deliver(P0, [reading(1, "a", 2)])
    assert "no longer owns" in zombie.outcome(P0).failure.message
    assert database.rows() == [("a", 1, None)]
    successor.lose()


def test_a_restored_backup_receives_its_lost_records_again(database: Database) -> None:
    harness = harness_of(database)
    harness.assign(P0)
    harness.deliver(P0, [reading(0, "a", 1)])
    harness.commit()
    harness.deliver(P0, [reading(1, "b", 2)])
    harness.stop()
    database.run("DELETE FROM readings WHERE sensor = 'b'")
    database.run("UPDATE sinksdk_watermarks SET next_offset = 1")
    restarted = harness_of(database, log=harness.log, generation=2)
    restarted.assign(P0)
    assert restarted.committed[P0].offset == 1


def test_a_commit_ahead_of_the_watermark_is_not_withdrawn(database: Database) -> None:
    harness = harness_of(database)
    harness.assign(P0, limits=OffsetRange(0, 9))
    harness.deliver(P0, [reading(0, "a", 1)])
    harness.finish(P0)
    assert harness.committed[P0].offset == 9
    again = harness_of(database, log=harness.log, generation=2)
    again.assign(P0)
    assert again.committed[P0].offset == 9
    assert again.worker.assignment() == {P0}
    again.lose()


TABLES = """
CREATE TABLE records (
    id TEXT PRIMARY KEY, topic TEXT NOT NULL, partition INTEGER NOT NULL, "offset" INTEGER NOT NULL
);
CREATE TABLE history (number SERIAL, topic TEXT, partition INTEGER, "offset" INTEGER);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO history (topic, partition, "offset") VALUES (new.topic, new.partition, new."offset");
    RETURN new;
END $$;
CREATE TRIGGER noted AFTER INSERT OR UPDATE ON records FOR EACH ROW EXECUTE FUNCTION note();
"""


@pytest.mark.extended
@pytest.mark.slow
def test_each_record_is_applied_once_on_postgresql(postgres: PostgresServer) -> None:
    def new_database(faults: FaultPlan) -> test_sinks.Database:
        schema = f"kit_{uuid.uuid4().hex}"
        url = postgres.url(schema).replace("postgresql://", "postgresql+psycopg://")
        with closing(postgres.connect(schema)) as connection:
            connection.execute(TABLES)
        return test_sinks.Database(faults, url)

    report = check_sink(
        test_sinks.UpsertTask,
        read_back=test_sinks.Database.history,
        settings=test_sinks.FEW,
        **{**test_sinks.HISTORY, "destination": new_database},
    )
    assert report.exercised["destination: lost response"]
    assert report.exercised["destination: crash after"]
    assert report.exercised["poison"]


# -- the connector -------------------------------------------------------------------------------------


def test_altered_offsets_move_the_watermark(database: Database, harness: SinkTaskHarness) -> None:
    harness.deliver(P0, [reading(0, "a", 1), reading(1, "a", 2)])
    connector = database.connector()
    for _ in range(2):
        assert connector.alter_offsets(database.config(), {P0: 1, P1: 5}) is True
        assert database.watermarks() == {("mine", 0): 1, ("mine", 1): 5}
    harness.deliver(P0, [reading(2, "a", 3)])
    assert "offsets were altered" in harness.outcome(P0).failure.message
    again = harness_of(database, committed={P0: 1}, generation=2)
    again.assign(P0)
    again.deliver(P0, [reading(1, "a", 7)])
    assert database.rows() == [("a", 7, None)]
    again.lose()
    assert connector.alter_offsets(database.config(), {P0: None, P1: None}) is True
    assert database.watermarks() == {}


def test_a_connector_created_again_starts_from_scratch(database: Database, harness: SinkTaskHarness) -> None:
    harness.deliver(P0, [reading(0, "a", 1)])
    old, new = database.connector(), database.connector("new")
    assert new.task_configs(2) == [{"incarnation": "new"}] * 2
    task = SinkTaskHarness(database.task, database.config(incarnation="new"))
    task.start()
    task.assign(P0)
    task.deliver(P0, [reading(0, "a", 7)])
    assert database.rows() == [("a", 7, None)]
    for _ in range(2):
        old.stop(is_deleted=True)
        assert database.watermarks() == {("new", 0): 1}
    new.stop()
    assert database.watermarks() == {("new", 0): 1}
    harness.deliver(P0, [reading(1, "a", 8)])
    assert "the connector was deleted" in harness.outcome(P0).failure.message
    assert database.rows() == [("a", 7, None)]
    task.stop()


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("table", "nothing", "there is no table 'nothing' in the database; create it"),
        ("value_columns", "celsius, fahrenheit", "no column fahrenheit; it has sensor, celsius, note"),
        (
            "key_columns",
            "celsius",
            "'key.columns' must be the primary key of the table 'readings', or unique",
        ),
    ],
)
def test_invalid_configurations_are_refused_before_the_start(
    database: Database, key: str, value: str, problem: str
) -> None:
    with pytest.raises(ConfigException, match=problem):
        database.connector(**{key: value})


@pytest.mark.parametrize(
    ("url", "problem"),
    [("mssql+pymssql://h/d", "pymssql"), ("oops", "Could not parse"), ("oracle+nothing://h/d", "oracle")],
)
def test_an_invalid_address_is_reported_without_connecting(url: str, problem: str) -> None:
    keys = {"name": "n", "topics": "t", "table": "t", "key.columns": "k", "value.columns": "v"}
    (found,) = UpsertSink().validate(UpsertConfig.parse({**keys, "database.url": url}))
    assert problem in found


def test_a_database_that_is_unavailable_at_the_start_is_retried(tmp_path: Path) -> None:
    (tmp_path / "readings.sqlite").mkdir()
    with pytest.raises(RetriableException, match="unable to open"):
        Database(f"sqlite:///{tmp_path / 'other.sqlite'}").connector(
            database_url=f"sqlite:///{tmp_path / 'readings.sqlite'}"
        )


def test_the_example_configuration_is_startable() -> None:
    checked = check_file(Path(upsert_sink.__file__).with_suffix(".json"))
    assert (checked.problems, checked.warnings) == ([], [])
