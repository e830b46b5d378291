"""Where transactions end, which records they contain, and the order of the callbacks."""

from __future__ import annotations

import pytest

from sinksdk.engine.options import SourceOptions
from sinksdk.engine.retry import RetryPolicy
from sinksdk.model.outcome import End
from sinksdk.source import RecordMetadata, SourceConnectorConfig
from tests.engine.sources import Script, lines, scene

INTERVAL = SourceOptions("interval", interval=10.0)
CONNECTOR = SourceOptions("connector")


def test_each_poll_is_a_transaction() -> None:
    task = Script(lines(0, 1), None, [], lines(2))
    its = scene(task)
    task.steps.insert(1, lambda: its.values == [b"a0", b"a1"] or pytest.fail("not committed"))
    outcome = its.worker.run()
    assert (outcome.records, outcome.transactions) == (3, 2)
    assert task.calls.count("commit") == 2


def test_commit_record_is_called_in_order_before_commit() -> None:
    task = Script([*lines(0, 1), *lines(0, file="b", topic="other")])
    its = scene(task)
    its.worker.run()

    assert task.acknowledged == [
        (b"a0", RecordMetadata("lines", 0, 0)),
        (b"a1", RecordMetadata("lines", 0, 1)),
        (b"b0", RecordMetadata("other", 0, 0)),
    ]
    assert task.calls[2:8] == ["poll", "commit_record", "commit_record", "commit_record", "commit", "poll"]


def test_offsets_are_those_of_the_last_record_of_each_source_partition() -> None:
    task = Script([*lines(0, 1), *lines(5, file="b"), *lines(2)], lines(6, file="b"), OSError("gone"))
    its = scene(task)
    its.worker.run()
    assert (its.offset("a"), its.offset("b")) == ({"line": 3}, {"line": 7})


def test_later_changes_of_an_offset_mapping_have_no_effect() -> None:
    offset = {"line": 1}
    record = lines(0)[0]
    object.__setattr__(record, "source_offset", offset)
    task = Script([record], lambda: offset.update(line=99))
    its = scene(task)
    its.worker.run()
    assert its.offset() == {"line": 1}


def test_a_failure_aborts_the_open_transaction() -> None:
    bad = lines(1)[0]
    object.__setattr__(bad, "source_offset", {"line": [1]})
    its = scene(Script(lines(0), [*lines(1), bad]))
    outcome = its.worker.run()
    assert outcome.end is End.FAILED
    assert outcome.failure is not None
    assert (
        "a record for topic lines: the source offset {'line': [1]} has a list as 'line'"
        in outcome.failure.message
    )
    assert (its.values, its.offset()) == ([b"a0"], {"line": 1})


@pytest.mark.parametrize("field", ["key", "value"])
def test_keys_and_values_are_bytes(field: str) -> None:
    record = lines(0)[0]
    object.__setattr__(record, field, "text")
    outcome = scene(Script([record])).worker.run()
    assert outcome.failure is not None
    assert (
        f"a record for topic lines: its {field} is of type str; encode it to bytes" in outcome.failure.message
    )


# -- interval ----------------------------------------------------------------------------------------


def test_an_interval_contains_several_polls() -> None:
    task = Script(lines(0), lines(1))
    its = scene(task, options=INTERVAL)
    seen = []
    task.steps.append(lambda: seen.append(list(its.values)) or its.clock.advance(10))
    task.steps.append(lambda: seen.append(list(its.values)) or lines(2))
    outcome = its.worker.run()

    assert seen == [[], [b"a0", b"a1"]]
    assert its.values == [b"a0", b"a1", b"a2"]
    assert outcome.transactions == 2


def test_a_transaction_that_is_due_does_not_wait_for_poll() -> None:
    task = Script(lines(0))
    its = scene(task, options=INTERVAL)
    seen = []

    def waiting() -> None:
        its.clock.advance(9.9)
        its.worker.tick()
        seen.append(list(its.values))
        its.clock.advance(0.1)
        its.worker.tick()
        seen.append(list(its.values))

    task.steps.append(waiting)
    its.worker.run()
    assert seen == [[], [b"a0"]]
    assert task.calls == [
        *("initialize", "start", "poll", "poll", "commit_record", "commit", "poll", "stop", "stopped"),
    ]


def test_a_commit_failure_during_poll_fails_the_task() -> None:
    task = Script(lines(0))
    its = scene(task, options=INTERVAL)
    task.faults["commit"].append(OSError("disk full"))

    def waiting() -> list[object]:
        its.clock.advance(10)
        its.worker.tick()
        assert task.calls[-1] == "stop"
        return lines(1)

    task.steps.append(waiting)
    outcome = its.worker.run()
    assert outcome.end is End.FAILED
    assert outcome.failure is not None
    assert "commit raised OSError: disk full" in outcome.failure.message
    assert its.values == [b"a0"]


def test_a_tick_before_or_after_the_run_has_no_effect() -> None:
    its = scene(Script(lines(0)), options=INTERVAL)
    its.clock.advance(100)
    its.worker.tick()
    its.worker.run()
    its.worker.tick()
    assert its.task.calls.count("commit") == 1


# -- connector ---------------------------------------------------------------------------------------


def requesting(task: Script, ask: str, *batches: list[object], at: int | None = None) -> None:
    """Let a poll request the end of its transaction, after one of its records or after all of them."""

    def poll() -> list[object]:
        context = task.context.transaction_context()
        batch = batches[0]
        getattr(context, f"{ask}_transaction")(*([] if at is None else [batch[at]]))
        return batch

    task.steps.append(poll)


def test_the_task_defines_transaction_boundaries() -> None:
    task = Script(lines(0))
    its = scene(task, options=CONNECTOR)
    seen = []
    task.steps.append(lambda: seen.append(list(its.values)))
    requesting(task, "commit", lines(1, 2), at=0)
    task.steps.append(lambda: seen.append(list(its.values)))
    requesting(task, "commit", lines(3))
    task.steps.append(lambda: seen.append(list(its.values)))
    its.worker.run()
    assert seen == [[], [b"a0", b"a1"], [b"a0", b"a1", b"a2", b"a3"]]


def test_an_open_transaction_of_the_task_is_aborted_at_the_end() -> None:
    task = Script()
    its = scene(task, options=CONNECTOR)
    requesting(task, "commit", lines(0))
    task.steps.append(lines(1))
    outcome = its.worker.run()
    assert outcome.end is End.STOPPED
    assert (its.values, its.offset()) == ([b"a0"], {"line": 1})


@pytest.mark.parametrize("at", [1, None], ids=["record", "batch"])
def test_aborted_records_are_neither_visible_nor_read_again(at: int | None) -> None:
    task = Script()
    its = scene(task, options=CONNECTOR)
    requesting(task, "abort", lines(0, 1), at=at)
    requesting(task, "commit", lines(2))
    its.worker.run()
    assert its.values == [b"a2"]
    assert its.offset() == {"line": 3}
    assert task.acknowledged == [(b"a0", None), (b"a1", None), (b"a2", RecordMetadata("lines", 0, 0))]


def test_the_offsets_of_aborted_records_are_durable_at_once() -> None:
    task = Script()
    its = scene(task, options=CONNECTOR)
    requesting(task, "abort", lines(0, 1))
    task.steps.append(OSError("crash"))
    its.worker.run()
    assert (its.values, its.offset()) == ([], {"line": 2})


def test_a_request_for_a_record_takes_precedence_over_one_for_the_batch() -> None:
    task = Script()
    its = scene(task, options=CONNECTOR)

    def poll() -> list[object]:
        context, batch = task.context.transaction_context(), lines(0, 1)
        context.commit_transaction(batch[0])
        context.abort_transaction()
        return batch

    task.steps.append(poll)
    its.worker.run()
    assert its.values == [b"a0"]
    assert its.offset() == {"line": 2}


@pytest.mark.parametrize("of_record", [True, False])
def test_requesting_commit_and_abort_at_once_is_refused(of_record: bool) -> None:
    task = Script()
    its = scene(task, options=CONNECTOR)

    def poll() -> list[object]:
        context, batch = task.context.transaction_context(), lines(0)
        arguments = [batch[0]] if of_record else []
        context.commit_transaction(*arguments)
        context.commit_transaction(*arguments)
        context.abort_transaction(*arguments)
        return batch

    task.steps.append(poll)
    outcome = its.worker.run()
    assert outcome.failure is not None
    assert "requested both a commit and an abort of the transaction" in outcome.failure.message
    assert its.values == []


def test_aborting_an_empty_transaction_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    task = Script()
    its = scene(task, options=CONNECTOR)
    requesting(task, "abort", [])
    task.steps.append(lambda: task.context.transaction_context().commit_transaction(lines(9)[0]))
    assert its.worker.run().end is End.STOPPED
    assert "requested to abort a transaction without records; ignored" in caplog.text
    assert "after a record of {'file': 'a'} that the next poll did not return; ignored" in caplog.text


# -- options -----------------------------------------------------------------------------------------


def test_source_options_follow_the_configuration() -> None:
    base = {"name": "files", "transaction.boundary": "interval"}
    assert SourceOptions.of(SourceConnectorConfig.parse(base)) == SourceOptions(
        "interval", 60.0, RetryPolicy()
    )
    own = {**base, "transaction.boundary.interval.ms": "250", "errors.retry.timeout": "-1"}
    assert SourceOptions.of(SourceConnectorConfig.parse(own)) == SourceOptions(
        "interval", 0.25, RetryPolicy(None)
    )
