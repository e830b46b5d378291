"""Schedule DataFrame writes at random: queries start, crash and restart; then check the result."""

from __future__ import annotations

import random
from collections import Counter

from property_tests.simulation.frames import CONFIG, NAME, TOPIC, Query, Spark
from property_tests.simulation.seeds import ENOUGH, told
from property_tests.simulation.sink_cluster import Log, SinkCluster
from property_tests.simulation.store import Bystander
from property_tests.simulation.world import Chaos, Process, World
from sinksdk import ConnectorConfig, SinkConnector, SinkRecords, SinkTask
from sinksdk.control import registry

_MOST = 5  # queries


def run(seed: int) -> Counter[str]:
    def whole(world: World) -> None:
        spark = Spark(world)
        _live(spark)
        _calm_down(spark)
        world.happened["rows written"] += sum(spark.destination.visible().values())

    return told(seed, whole, f"python -m property_tests.simulation --frames --seed {seed}")


class _Reader(SinkTask):
    def put(self, records: SinkRecords) -> None: ...


class _Sink(SinkConnector):
    config_class = ConnectorConfig
    task_class = _Reader


class Namesake:
    # A sink connector of the same name, reading a topic of that name, must be refused.
    def __init__(self, spark: Spark) -> None:
        self._world = spark.world
        log = Log(5, spark.world.seed, topic=TOPIC)
        for partition in log.records:
            log.produce(partition, 20)
        config = {**CONFIG, "connector.class": f"{__name__}:{_Sink.__name__}"}
        self._cluster = SinkCluster(spark.world, NAME, _Sink, config, partitions=5, log=log)
        self._cluster.records = spark.records
        record = registry.created(CONFIG, "STOPPED", kind="dataframe")
        registry.change(Bystander(spark.records.stored), NAME, lambda known: known, otherwise=lambda: record)

    def start(self) -> None:
        self._world.happened["sink under the name of DataFrames"] += 1
        self._cluster.start_driver(until_caught_up=True)


def _live(spark: Spark) -> None:
    world, dice = spark.world, spark.world.dice
    world.chaos = Chaos.drawn(dice)
    chance = random.Random(f"{world.seed} checkpoints")  # noqa: S311 - chance, not secrets
    restores = chance.random() < 0.4
    namesake = Namesake(spark) if chance.random() < 0.15 else None
    for _ in range(dice.randint(4, 14)):
        _something_happens(spark)
        if restores and chance.random() < 0.3:
            _restore_a_checkpoint(spark, chance)
        if namesake is not None and chance.random() < 0.3:
            namesake.start()
        for _ in range(dice.randint(5, 120)):
            world.step()


def _something_happens(spark: Spark) -> None:
    world, dice = spark.world, spark.world.dice
    streams = [query for query in spark.queries if query.is_stream]
    what = dice.randrange(10)
    if not spark.queries or (what == 0 and len(spark.queries) < _MOST):
        is_stream = not streams or dice.random() < 0.4
        query = spark.new_query(is_stream=is_stream)
        spark.arrive(query, dice.randint(1, 16))
        world.happened["another checkpoint"] += bool(is_stream and streams)
        world.happened["batch write"] += not is_stream
        spark.start(query)
    elif what == 1 and world.processes:
        process = dice.choice(world.processes)
        world.tell(f"{process.name} is killed")
        world.happened["killed"] += 1
        world.kill(process)
    elif what == 2 and spark.running:
        process = dice.choice(list(spark.running.values()))
        if process.is_alive:
            world.happened["driver killed"] += 1
            world.tell(f"{process.name} is killed")
            world.kill(process)
    elif what == 3 and world.processes:
        world.happened["frozen for long"] += 1
        world.freeze(dice.choice(world.processes), dice.choice((20.0, 300.0)))
    elif streams:
        query = dice.choice(streams)
        if what < 7:
            spark.arrive(query, dice.randint(0, 12))
        process = spark.running[query.name]
        if not process.is_alive or dice.random() < 0.05:
            world.happened["query started again"] += 1
            spark.start(query)


def _restore_a_checkpoint(spark: Spark, chance: random.Random) -> None:
    streams = [query for query in spark.queries if query.is_stream and query.done]
    if streams:
        query = chance.choice(streams)
        if query.done < query.right:
            spark.come_right(query)
        else:
            spark.go_back(query, chance.choice((query.done - 1, chance.randrange(query.done))))
            spark.start(query)


def _calm_down(spark: Spark) -> None:
    world = spark.world
    world.chaos = Chaos(switch=0.3)
    world.tell("from here on nothing goes wrong any more")
    _wait(world, *spark.running.values())
    for query in spark.queries:
        spark.come_right(query)
        # Tasks of a dead driver may still take the connector over: each run that has not written may do so
        # once.
        for _ in range(3 + spark.runs_yet_to_write()):
            if query.is_stream and query.done < len(query.batches):
                _wait(world, spark.start(query))
        if query.is_stream and query.done < len(query.batches):
            world.violation(f"{query.name} does not come to its end")
    world.run(lambda: not world.processes, at_most=ENOUGH)
    _settle(spark)
    world.run(lambda: not world.processes, at_most=ENOUGH)
    _check(spark)


def _settle(spark: Spark) -> None:
    # Second attempts at the write's own tasks may overtake its driver's commit.
    for _ in range(_MOST):
        last = spark.new_query(is_stream=False)
        spark.arrive(last, 4)
        _wait(spark.world, spark.start(last))
        spark.world.run(lambda: not spark.world.processes, at_most=ENOUGH)
        if last.done == 1:
            return
        spark.world.happened["last write that was made again"] += 1
    spark.world.violation("no last write comes to its end, though nothing goes wrong any more")


def _wait(world: World, *processes: Process) -> None:
    world.run(lambda: not any(process.is_alive for process in processes), at_most=ENOUGH)


def _check(spark: Spark) -> None:
    world, visible = spark.world, spark.destination.visible()
    world.happened["table that keeps offsets"] += spark.is_table
    # If another write came between two attempts at a micro-batch, the second attempt may repeat its rows.
    is_alone = len(spark.queries) <= 2
    world.happened["query alone with a table"] += spark.is_table and is_alone
    if spark.is_table and is_alone and spark.destination.repeated:
        world.violation(f"{spark.destination.repeated} rows were inserted twice")
    for query in spark.queries:
        seen = [row for row in query.rows() if visible[row]]
        if len(seen) < len(query.rows()) and (_must_be_whole(query) or (seen and not spark.is_table)):
            world.violation(f"of {query.name} {len(seen)} of {len(query.rows())} rows are visible")
    if left := [one for one in spark.unpublished() if spark.destination.files[one].rows]:
        world.violation(f"{left[0]} is neither published nor discarded")
    if problem := None if spark.is_table else spark.gaps():
        world.violation(problem)


def _must_be_whole(query: Query) -> bool:
    return query.is_stream or query.done == 1
