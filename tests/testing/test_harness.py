from __future__ import annotations

import functools

import pytest
from pydantic import Field

from sinksdk import (
    ClosingReason,
    ConnectException,
    ConnectorConfig,
    FencedException,
    OffsetAndMetadata,
    OffsetRange,
    RetriableException,
    SinkRecord,
    SinkRecords,
    SinkTask,
    Token,
)
from sinksdk.engine import EngineOptions
from sinksdk.testing import Call, ManualClock, MemoryCommitLog, SinkTaskHarness
from tests.engine.sinks import P0, P1, BufferingSink, Sink, TwoPhaseSink, World, rows


def started(sink: object = Sink, **options: object) -> SinkTaskHarness:
    harness = SinkTaskHarness(sink, **options)
    harness.start()
    return harness


# -- the example -------------------------------------------------------------------------------------


def test_harness_docstring_example_works() -> None:
    harness = SinkTaskHarness(Sink, None)
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, [b"one", b"two"])
    harness.revoke(P0)
    assert harness.committed == {P0: OffsetAndMetadata(2)}


def test_retries_use_the_manual_clock() -> None:
    harness = started(options=EngineOptions(commit_interval=60))
    harness.assign(P0)
    harness.task.faults["put"].extend([RetriableException("busy")] * 8)
    harness.deliver(P0, ["a"])
    while harness.worker.pending:
        harness.advance(harness.worker.wait())
    harness.advance(60)
    assert harness.committed == {P0: OffsetAndMetadata(1)}


# -- making it ---------------------------------------------------------------------------------------


def test_the_task_may_be_a_class_a_function_or_an_instance() -> None:
    world = World()
    for make in (TwoPhaseSink, functools.partial(TwoPhaseSink, world), TwoPhaseSink(world)):
        harness = started(make)
        assert isinstance(harness.task, TwoPhaseSink)
    with pytest.raises(
        TypeError, match="the task's class or a function that creates a task to the harness, not an instance"
    ):
        harness.crash()


def test_configuration_sets_the_engines_options() -> None:
    config = ConnectorConfig.parse(
        {"name": "c", "topics": "t", "offset.flush.interval.ms": "5000", "value.converter": "json"}
    )
    harness = started(config=config)
    harness.assign(P0)
    harness.deliver(P0, ["[1, 2]"])
    assert harness.called("start")[0].arguments == (config,)
    assert harness.called("put")[0].arguments[0][0].value == [1, 2]
    harness.advance(5)
    assert harness.committed == {P0: OffsetAndMetadata(1)}


def test_initial_commits_are_positions_and_published() -> None:
    harness = started(committed={P0: 5, P1: OffsetAndMetadata(7, "m", ["upload-9"])})
    harness.assign(P0, P1)
    assert harness.called("publish")[0].arguments == (P1, (Token("upload-9"),))
    assert (harness.position(P0), harness.position(P1)) == (5, 7)


def test_successor_takes_over_and_fences_the_first_harness() -> None:
    first = started()
    first.assign(P0)
    first.deliver(P0, ["a"])
    first.commit()
    first.deliver(P0, ["b"])
    second = first.successor()
    second.start()
    second.assign(P0)
    assert second.position(P0) == 1
    with pytest.raises(FencedException):
        first.commit()
    second.deliver(P0, ["b"])
    second.stop()
    assert second.committed == {P0: OffsetAndMetadata(2)}
    assert (first.names()[-1], second.names()[0]) == ("close", "initialize")
    assert first.clock is second.clock


def test_harness_of_a_task_instance_has_no_successor() -> None:
    with pytest.raises(
        TypeError, match="the task's class or a function that creates a task to the harness, not an instance"
    ):
        SinkTaskHarness(Sink()).successor()


def test_log_and_clock_may_be_shared() -> None:
    log, clock = MemoryCommitLog({P0: OffsetAndMetadata(4)}), ManualClock()
    harness = started(log=log, clock=clock)
    harness.assign(P0)
    harness.advance(1)
    assert (harness.position(P0), clock.now(), harness.log) == (4, harness.clock.now(), log)


# -- calls -------------------------------------------------------------------------------------------


def test_method_calls_are_recorded_with_arguments_and_errors() -> None:
    harness = started()
    harness.assign(P0)
    error = ConnectException("no")
    harness.task.faults["pre_commit"].append(error)
    harness.deliver(P0, ["a"])
    harness.revoke()
    harness.stop()
    assert harness.names() == ["initialize", "start", "open", "put", "pre_commit", "close", "stop"]
    assert harness.called("pre_commit") == [
        Call("pre_commit", ({P0: OffsetAndMetadata(1)},), is_closing=True)
    ]
    assert harness.called("pre_commit")[0].raised is error
    assert all(call.raised is None for call in harness.calls if call.name != "pre_commit")


def test_recorded_arguments_are_copies() -> None:
    class Greedy(Sink):
        def pre_commit(self, offsets: dict[object, object]) -> dict[object, object]:
            offsets.clear()
            return {}

        def close(self, partitions: list[object]) -> None:
            partitions.clear()

    harness = started(Greedy)
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    harness.revoke()
    assert harness.called("pre_commit")[0].arguments == ({P0: OffsetAndMetadata(1)},)
    assert harness.called("close")[0].arguments == ([P0],)


# -- deliver -----------------------------------------------------------------------------------------


def test_values_get_the_next_offsets() -> None:
    harness = started()
    harness.assign(P0)
    harness.deliver(P0, [b"bytes", "text", None])
    harness.deliver(P0, [SinkRecord(*P0, offset=10), "after it"])
    harness.deliver(P0, rows(P0, 20, 22))
    harness.deliver(P0, ["last"])
    assert harness.task.taken == {P0: [0, 1, 2, 10, 11, 20, 22, 23]}
    assert [record.value for record in harness.called("put")[0].arguments[0]] == [b"bytes", b"text", None]
    assert harness.position(P0) == 24


def test_records_of_a_closed_partition_are_not_put() -> None:
    harness = started()
    harness.deliver(P0, ["a"])
    harness.assign(P0)
    harness.revoke()
    harness.deliver(P0, ["a"])
    assert harness.called("put") == []


def test_requested_commit_follows_put() -> None:
    class Eager(Sink):
        def put(self, records: object) -> None:
            self.context.request_commit()

    harness = started(Eager)
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    assert harness.committed == {P0: OffsetAndMetadata(1)}


# -- the clock ---------------------------------------------------------------------------------------


def test_tick_commits_after_the_clock_is_advanced() -> None:
    harness = started(options=EngineOptions(commit_interval=10))
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    harness.clock.advance(100)
    assert harness.committed == {}
    harness.tick()
    assert harness.committed == {P0: OffsetAndMetadata(1)}


def test_manual_clock_refuses_negative_seconds() -> None:
    clock = ManualClock(start=5.0)
    clock.sleep(1.5)
    assert clock.now() == 6.5
    with pytest.raises(ValueError, match="cannot advance the clock by -1 seconds"):
        clock.advance(-1)


# -- partitions --------------------------------------------------------------------------------------


def test_assign_keeps_open_partitions() -> None:
    harness = started(committed={P1: 3})
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    harness.assign(P1)
    assert (harness.position(P0), harness.position(P1)) == (1, 3)
    assert harness.task.context.assignment() == {P0, P1}


def test_assigned_range_ends_at_its_end_offset() -> None:
    harness = started(committed={P1: 30})
    harness.assign(P0, P1, limits=OffsetRange(20, 40))
    assert (harness.position(P0), harness.position(P1)) == (20, 30)
    harness.deliver(P0, ["a"])
    harness.finish(P0)
    harness.finish(P1, ClosingReason.DUE)
    assert harness.committed == {P0: OffsetAndMetadata(40), P1: OffsetAndMetadata(40)}


def test_revoke_closes_the_given_partitions_or_all() -> None:
    seen = []

    class Asking(Sink):
        def pre_commit(self, offsets: dict[object, object]) -> dict[object, object]:
            seen.append((set(offsets), self.context.closing_reason(), self.context.deadline()))
            return offsets

    harness = started(Asking)
    harness.assign(P0, P1)
    harness.deliver(P0, ["a"])
    harness.deliver(P1, ["x"])
    harness.revoke(P0, reason=ClosingReason.PAUSE, timeout=5)
    harness.revoke()
    assert seen == [({P0}, ClosingReason.PAUSE, 5.0), ({P1}, ClosingReason.REBALANCE, None)]


def test_lose_closes_the_given_partitions_or_all() -> None:
    harness = started()
    harness.assign(P0, P1)
    harness.deliver(P0, ["a"])
    harness.lose(P0)
    harness.lose()
    assert [call.arguments for call in harness.called("close")] == [([P0],), ([P1],)]
    assert harness.committed == {}


def test_revoke_and_finish_publish_and_commit() -> None:
    harness = started(TwoPhaseSink)
    harness.assign(P0)
    harness.assign(P1, limits=OffsetRange(0, 9))
    for partition in (P0, P1):
        harness.deliver(partition, ["a"])
    harness.finish(P1)
    harness.revoke(P0)
    assert harness.committed == {P0: OffsetAndMetadata(1), P1: OffsetAndMetadata(9)}


# -- ends --------------------------------------------------------------------------------------------


def test_stop_closes_with_reason_shutdown() -> None:
    reasons = []

    class Asking(BufferingSink):
        def pre_commit(self, offsets: dict[object, object]) -> dict[object, object]:
            reasons.append(self.context.closing_reason())
            return super().pre_commit(offsets)

    harness = started(Asking)
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    harness.stop()
    assert reasons == [ClosingReason.SHUTDOWN]
    assert harness.names()[-2:] == ["close", "stop"]


def test_stop_of_a_fenced_task_calls_close_and_stop() -> None:
    harness = started()
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    harness.fence()
    with pytest.raises(FencedException):
        harness.stop()
    assert harness.names()[-2:] == ["close", "stop"]


@pytest.mark.parametrize("step", ["commit", "revoke", "tick", "finish"])
def test_fenced_task_loses_all_partitions(step: str) -> None:
    harness = started(TwoPhaseSink, options=EngineOptions(commit_interval=10))
    harness.assign(P0, P1)
    harness.deliver(P0, ["a"])
    harness.fence()
    harness.clock.advance(10)
    with pytest.raises(FencedException):
        getattr(harness, step)(*([P0] if step == "finish" else []))
    assert harness.names()[-1] == "close"
    assert harness.task.context.assignment() == frozenset()
    assert harness.committed == {}
    assert harness.task.world.undone == []


def test_task_fenced_in_a_closing_commit_loses_all_partitions() -> None:
    harness = started(TwoPhaseSink)
    harness.assign(P0, P1)
    harness.deliver(P0, ["a"])
    harness.commit()
    harness.fence()
    with pytest.raises(FencedException):
        harness.revoke(P0)
    assert harness.task.context.assignment() == frozenset()


def test_after_a_crash_a_new_task_resumes_from_the_durable_state() -> None:
    world = World()
    harness = started(functools.partial(TwoPhaseSink, world))
    harness.assign(P0, P1)
    harness.task.faults["publish"].append(ConnectException("down"))
    harness.deliver(P0, ["a"])
    harness.commit()
    harness.deliver(P1, ["x"])
    first = harness.task
    harness.calls.clear()
    harness.crash()
    assert harness.calls == []
    assert harness.task is not first
    with pytest.raises(KeyError):
        harness.position(P0)

    harness.start()
    harness.assign(P0, P1)
    assert harness.names() == ["initialize", "start", "publish", "discard", "open"]
    assert world.visible == ["upload-0"]
    assert world.undone == ["upload-1"]
    assert (harness.position(P0), harness.position(P1)) == (1, 0)


def test_crashed_task_is_fenced() -> None:
    harness = started()
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    zombie = harness.worker
    harness.crash()
    with pytest.raises(FencedException):
        zombie.commit()
    assert harness.committed == {}


def test_outcome_has_commit_position_and_tail() -> None:
    harness = started(BufferingSink)
    harness.assign(P0)
    harness.deliver(P0, ["a", "b", "c", "d"])
    harness.commit()
    outcome = harness.outcome(P0)
    assert (outcome.committed, outcome.position, outcome.records, outcome.tail, outcome.failure) == (
        3,
        4,
        4,
        1,
        None,
    )
    with pytest.raises(KeyError):
        harness.outcome(P1)


# -- the commit log ----------------------------------------------------------------------------------


def test_memory_commit_log_stores_tokens_as_json() -> None:
    log = MemoryCommitLog()
    log.prepare({P0: [Token("a", {"range": (0, 5)})]})
    assert log.noted == {P0: ["a"]}
    (token,) = log.succeed().stale(P0)
    assert token == Token("a", {"range": [0, 5]})


def test_memory_commit_log_refuses_token_data_that_is_not_json() -> None:
    log = MemoryCommitLog()
    with pytest.raises(ValueError, match="ManualClock"):
        log.prepare({P0: [Token("a", {"clock": ManualClock()})]})
    assert log.noted == {}
    assert log.prepared(P0) == ()


def test_memory_commit_log_is_fenced_by_its_successor() -> None:
    log = MemoryCommitLog({P0: OffsetAndMetadata(3)})
    successor = log.succeed()
    assert successor.attempt == log.attempt + 1
    assert successor.offsets == {P0: OffsetAndMetadata(3)}
    with pytest.raises(FencedException):
        log.commit({P0: OffsetAndMetadata(4)})
    assert log.offsets == {P0: OffsetAndMetadata(3)}
    successor.commit({P0: OffsetAndMetadata(5)})


def test_task_that_overrides_initialize_can_be_recorded() -> None:
    class Elsewhere(SinkTask):
        def initialize(self, context: object) -> None:
            self.mine = context

        def put(self, records: object) -> None: ...

    harness = started(Elsewhere)
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    harness.stop()
    assert harness.committed == {P0: OffsetAndMetadata(1)}


def test_task_config_reaches_start_and_context_configs() -> None:
    seen = []

    class Config(ConnectorConfig):
        incarnation: str = Field(default="")

    class Telling(SinkTask):
        def start(self, config: Config) -> None:
            seen.append((config.incarnation, dict(self.context.configs())))

        def put(self, records: SinkRecords) -> None:
            pass

    raw = {"name": "c", "topics": "t"}
    SinkTaskHarness(Telling, Config.parse(raw)).start()
    SinkTaskHarness(Telling, Config.parse(raw), task_config={"incarnation": "a1"}).start()
    assert seen == [("", raw), ("a1", {**raw, "incarnation": "a1"})]
