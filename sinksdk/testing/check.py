"""check_sink: the whole contract of a sink in one line of an author's test module."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from sinksdk.records import SinkRecord, TopicPartition
from sinksdk.task import SinkTask
from sinksdk.testing.contract import Capabilities, KitError, Row, SinkContractError, Step, Subject
from sinksdk.testing.faults import DESTINATION, POSSIBLE, FaultPlan
from sinksdk.testing.quiet import quiet
from sinksdk.testing.report import Report
from sinksdk.testing.shorten import shorten
from sinksdk.testing.sweep import run
from sinksdk.testing.trial import Trial

if TYPE_CHECKING:
    import hypothesis

    from sinksdk.testing.machine import SinkTaskMachine

_ENOUGH_CASES = 200
"""From so many cases on, every fault must have been met now and then."""


class SinkOptions(TypedDict, total=False):
    """What :func:`check_sink`, :func:`sink_machine` and :func:`replay` need to know of a sink.

    Args:
        destination: makes an empty destination for each case, given the fault plan that it (or the client
            in front of it) should ask before each operation. :class:`MemoryDestination` by default.
        config: what ``start`` is given, or a function that makes it of the destination.
        capabilities: what the sink promises; by default only that nothing is lost.
        partitions: at least two topic partitions; by default three, of two topics.
        record: makes the record of a partition at an offset; by default its value is a JSON object, some
            records have no value (tombstones), some no key, some neither.
        poison: value of records that cannot be delivered, put when ``dead_letters`` is declared.
        leftovers: names what a destination holds with data in it that readers will never see. By default its
            own method of this name is asked, if it has one.
        clean_up: called with the destination when a case is over.
        steps: an author's own steps by name: functions of the trial and of the step's arguments.
    """

    destination: Callable[[FaultPlan], Any]
    config: Any
    capabilities: Capabilities
    partitions: Sequence[TopicPartition]
    record: Callable[[TopicPartition, int], SinkRecord]
    poison: bytes
    leftovers: Callable[[Any], Iterable[str]]
    clean_up: Callable[[Any], object]
    steps: Mapping[str, Callable[..., object]]


def check_sink(
    make_task: Callable[[Any], SinkTask],
    *,
    read_back: Callable[[Any], Iterable[Row]],
    settings: hypothesis.settings | None = None,
    **options: Unpack[SinkOptions],
) -> Report:
    """Try a sink under deliveries, commits, rebalances, crashes, zombies and faults in random order.

    ::

        def test_my_sink() -> None:
            check_sink(MyTask, read_back=lambda destination: destination.read_back())

    Args:
        make_task: makes a fresh task, as in a fresh process, that writes to the given destination.
        read_back: topic, partition and offset (and value, if you like) of every record that a reader of
            the destination sees now. It must not fail, and not depend on any task.
        settings: how many cases, how many steps; by default the same 200 cases of up to 30 steps each time.

    Returns:
        What was shown, and how often each fault was met. It is also printed.

    Raises:
        SinkContractError: the sink does not keep its promise; with a short story, and how to replay it.
        KitError: nothing can be shown: ``read_back`` sees nothing, the sink does not start, faults were
            hardly met.
    """
    return check_machine(sink_machine(make_task, read_back=read_back, **options), settings=settings)


def sink_machine(
    make_task: Callable[[Any], SinkTask],
    *,
    read_back: Callable[[Any], Iterable[Row]],
    **options: Unpack[SinkOptions],
) -> type[SinkTaskMachine]:
    """The state machine behind :func:`check_sink`, to subclass for rules of your own.

    ::

        class Machine(sink_machine(MyTask, read_back=read_back, steps={"vacuum": vacuum})):
            @rule()
            def vacuum(self) -> None:
                self.step("vacuum")

        check_machine(Machine)
    """
    from sinksdk.testing.machine import machine_of  # noqa: PLC0415 - the doubles work without Hypothesis

    return machine_of(Subject(make_task, read_back, **options))


def check_machine(machine: type[SinkTaskMachine], *, settings: hypothesis.settings | None = None) -> Report:
    """Run a machine as :func:`check_sink` does. Raises what that raises."""
    from sinksdk.testing.machine import explore  # noqa: PLC0415 - as above

    machine.exercised.clear()
    with quiet():
        try:
            _see_something(machine.subject)
        except SinkContractError as failure:
            raise shorten(failure, partial(run, machine.subject)) from None
        machine.exercised.clear()
        explore(machine, settings)
    report = Report(machine.subject.capabilities, machine.exercised)
    if report.cases >= _ENOUGH_CASES:
        _insist_on_faults(report)
    sys.stdout.write(f"{report}\n")
    return report


def replay(
    schedule: Iterable[Step],
    make_task: Callable[[Any], SinkTask],
    *,
    read_back: Callable[[Any], Iterable[Row]],
    **options: Unpack[SinkOptions],
) -> None:
    """Do the steps of a failure again, without Hypothesis: for debugging, and as a regression test.

    Args:
        schedule: steps, as printed with the failure.
        make_task: as for :func:`check_sink`.
        read_back: as for :func:`check_sink`.

    Raises:
        SinkContractError: the sink still does not keep its promise.
    """
    with quiet():
        trial = Trial(Subject(make_task, read_back, **options))
        for step in schedule:
            trial.step(*step)
        trial.finish()


def _see_something(subject: Subject[Any]) -> None:
    """Before anything goes wrong: what is written must be seen, and nothing else."""
    trial = Trial(subject, Counter())
    before = list(subject.read_back(trial.destination))
    if before:
        message = (
            f"read_back sees {before[:3]} in a destination that nothing was written to: let `destination` "
            f"make a new, empty one at every call, and let read_back look at nothing else"
        )
        raise KitError(message)
    try:
        for step in (("deliver", 0, 3), ("commit",), ("deliver", 1, 2), ("rebalance",)):
            trial.step(*step)
        if not trial.has_seen_rows:
            raise KitError(_nothing_seen(trial))
        trial.finish()
    except SinkContractError:
        # The destination may be cleaned up by now: what was seen before is what counts.
        if trial.live.log.offsets and not trial.has_seen_rows:
            raise KitError(_nothing_seen(trial)) from None
        raise
    finally:
        trial.end()


def _nothing_seen(trial: Trial[Any]) -> str:
    return (
        "read_back sees nothing after records were put and committed without any fault: "
        f"either it does not look where the sink writes, or the sink wrote nothing (committed: "
        f"{ {str(p): commit.offset for p, commit in trial.live.log.offsets.items()} }). What happened: "
        f"{'. '.join(trial.story)}"
    )


def _insist_on_faults(report: Report) -> None:
    """A green run must not be an empty run."""
    reachable = [
        where for where in POSSIBLE if where != DESTINATION or report.exercised["destination operations"]
    ]
    rare = [
        f"{where}: {kind}"
        for where in reachable
        for kind in POSSIBLE[where]
        if report.exercised[f"{where}: {kind}"] < report.cases // 100
    ]
    if rare:
        message = (
            f"{report.cases} cases hardly ever met these faults, so they show little: {', '.join(rare)}; "
            f"try more cases with settings=settings(max_examples=…)"
        )
        raise KitError(message)
