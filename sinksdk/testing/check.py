"""Check a sink under faults in one line of an author's test module."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

from sinksdk.offsets import TopicPartition
from sinksdk.records import SinkRecord
from sinksdk.task import SinkTask
from sinksdk.testing.contract import (
    HIDDEN,
    Capabilities,
    Guarantee,
    KitError,
    ReadBack,
    SinkContractError,
    Step,
    Subject,
    evenly,
    fairly,
    quiet,
    shorten,
    spelling_out,
)
from sinksdk.testing.faults import DESTINATION, POSSIBLE, FaultPlan
from sinksdk.testing.judge import TRANSFORMS
from sinksdk.testing.trial import Trial

if TYPE_CHECKING:
    import hypothesis

    from sinksdk.testing.machine import SinkTaskMachine


__tracebackhide__ = HIDDEN

_MEANINGS = {
    Guarantee.AT_LEAST_ONCE: "nothing was lost",
    Guarantee.EFFECTIVELY_ONCE: "nothing was lost, nothing was seen twice",
    Guarantee.EXACTLY_ONCE: "nothing was lost, nothing was seen twice or before its commit",
}
_ENOUGH_CASES = 200  # number of cases from which on every fault must have happened in at least 1 % of them
_OF_TRANSFORMS = ("transform: dropped", "transform: multiplied", "transform: dropped all of a range")
_NOT_LISTED = ("cases", "steps", "destination operations", "duplicates seen", "leftovers checked")


@dataclass(frozen=True)
class Report:
    """The result of a run in which the sink kept its promise; its text lists the checks.

    Args:
        exercised: how often each step and each fault happened.
    """

    capabilities: Capabilities
    exercised: Counter[str]

    @property
    def guarantee(self) -> Guarantee:
        """The delivery guarantee that the sink declared."""
        return self.capabilities.guarantee

    @property
    def cases(self) -> int:
        """The number of schedules that were run."""
        return self.exercised["cases"]

    def __str__(self) -> str:
        promise, counts = self.capabilities, self.exercised
        held = "" if promise.fences_zombies else ", unless a replaced task continues to write"
        shown = [f"{self.guarantee}{held}: {_MEANINGS[self.guarantee]}"]
        if promise.ordered:
            shown.append("ordered: each partition was read back in the order of its offsets")
        if counts["keys checked"]:
            shown.append("last write wins: each key had the value of its last record, or was deleted by it")
        if promise.dead_letters:
            shown.append(
                "dead letters: records that could not be delivered were reported before they were committed"
            )
        if promise.commits_on_close:
            shown.append("commit on close: no closing commit kept records back")
        if counts["leftovers checked"]:
            shown.append("leftovers: no unreachable data was left behind")
        lines = [f"checked in {self.cases:,} cases with {counts['steps']:,} steps:"]
        lines += [f"  {what}" for what in shown]
        if promise.guarantee is Guarantee.AT_LEAST_ONCE:
            lines.append(f"  duplicates seen: {counts['duplicates seen']:,}")
        if not counts["leftovers checked"]:
            lines.append("  not checked: leftovers; set `leftovers` to find data that is never discarded")
        if not promise.fences_zombies:
            lines.append(
                "  not checked: zombies, because fences_zombies=False is declared; a zombie may repeat or "
                "undo writes of its successor"
            )
        lines.append("steps, faults and events:")
        lines += [f"{count:>9,}  {what}" for what, count in sorted(counts.items()) if what not in _NOT_LISTED]
        if not counts["destination operations"]:
            lines.append("  the destination does not use its fault plan: none of its operations failed")
        return "\n".join(lines)


class SinkOptions(TypedDict, total=False):
    """Options of :func:`check_sink`, :func:`sink_machine` and :func:`replay`.

    Args:
        destination: creates an empty destination for each case. The destination, or the client in front of
            it, runs each operation with the fault plan that it is given. Use it to check the sink with its
            system, or with a double of that.
        config: the argument of ``start``, or a function of the destination that creates it. Use it for a task
            that reads its configuration; its converters are applied, and ``dead_letters`` implies
            ``errors.tolerance=all``.
        capabilities: what the sink promises; by default only that nothing is lost. Use it as soon as the sink
            promises more, or less.
        partitions: at least two topic partitions. Use it for a sink whose behaviour depends on their names.
        record: creates the record of a partition at an offset, the same each time; by default its value is a
            JSON object, some records lack value, key or both, and some keys are in several partitions. Use it
            for a sink that reads only certain records; :func:`bytes_record` suits a sink that accepts any
            bytes and null.
        poison: the value, or several values in turn, of records that cannot be delivered, put when
            ``dead_letters`` is declared. The rest of such a record comes from ``record``. Use it if the sink
            refuses other values than invalid JSON.
        leftovers: returns the names of data at a destination that readers will never see; by default the
            destination's own method of this name. Use it for a sink with ``discard``.
        clean_up: called with the destination when a case is finished. Use it for files, schemas and
            connections.
        steps: an author's own steps by name: functions of the trial and of the step's arguments. Use it with
            ``sink_machine``, for events that the kit does not know.
        transforms: whether half of the cases have a transform before the sink, which drops records and turns
            others into up to five with the same offset. Use it, set to False, for a sink that never runs
            after a transform that multiplies records, such as one whose table has the offset as its key.
        row: returns the key and value that a record leaves in the mapping that ``read_back`` returns; None as
            the value deletes the key; None instead of both: the sink refuses the record and must report it.
            The record is given as it is in the topic, before converters; by default its own key and value,
            which are bytes, are returned. Use it if a row is more, or less, than these bytes: with
            converters, always.
        alter: the effect of the connector's ``alter_offsets`` on a destination: a function of the
            destination, a partition, and the offset that an operator sets, or None if the operator removes
            it. Use it for a sink that keeps offsets of its own; it is called again when it raises.
    """

    destination: Callable[[FaultPlan], Any]
    config: Any
    capabilities: Capabilities
    partitions: Sequence[TopicPartition]
    record: Callable[[TopicPartition, int], SinkRecord]
    poison: bytes | Sequence[bytes]
    leftovers: Callable[[Any], Iterable[str]]
    clean_up: Callable[[Any], object]
    steps: Mapping[str, Callable[..., object]]
    transforms: bool
    row: Callable[[SinkRecord], tuple[Any, Any] | None]
    alter: Callable[[Any, TopicPartition, int | None], object]


@spelling_out(SinkOptions, Subject)
def check_sink(
    make_task: Callable[[Any], SinkTask],
    *,
    read_back: ReadBack[Any],
    settings: hypothesis.settings | None = None,
    **options: Unpack[SinkOptions],
) -> Report:
    """Run a sink under deliveries, commits, rebalances, crashes, zombies and faults in random order.

    ::

        def test_my_sink() -> None:
            check_sink(MyTask, read_back=lambda destination: destination.read_back())

    Args:
        make_task: creates a task, as in a new process, that writes to the given destination.
        read_back: returns topic, partition and offset (and, optionally, the value) of every record that a
            reader of the destination sees now; or a mapping of value by key, where the last record of a key
            wins. It must not fail, and not depend on any task.
        settings: Hypothesis's settings: the number of cases and of steps; by default the same 200 cases of up
            to 30 steps each time. Use it for fewer cases if the destination is slow, and for more at night.
        options: those of :class:`SinkOptions`.

    Returns:
        The checks, and the number of faults of each kind; they are also printed.

    Raises:
        SinkContractError: the sink does not keep its promise; with a short story and the steps to replay it.
        KitError: the run shows nothing, because of the options, of a sink that does not start, or of faults
            that hardly ever happened.
    """
    __tracebackhide__ = True  # pytest shows the author's test then
    return check_machine(sink_machine(make_task, read_back=read_back, **options), settings=settings)


@spelling_out(SinkOptions, Subject)
def sink_machine(
    make_task: Callable[[Any], SinkTask],
    *,
    read_back: ReadBack[Any],
    **options: Unpack[SinkOptions],
) -> type[SinkTaskMachine]:
    """Return the state machine behind :func:`check_sink`, to subclass for rules of your own.

    ::

        class Machine(sink_machine(MyTask, read_back=read_back, steps={"vacuum": vacuum})):
            @rule()
            def vacuum(self) -> None:
                self.step("vacuum")

        check_machine(Machine)
    """
    from sinksdk.testing.machine import SinkTaskMachine  # noqa: PLC0415 - the doubles work without Hypothesis

    subject = Subject(make_task, read_back, **options)
    return type("SinkTaskMachine", (SinkTaskMachine,), {"subject": subject, "exercised": Counter()})


def check_machine(machine: type[SinkTaskMachine], *, settings: hypothesis.settings | None = None) -> Report:
    """Run a machine as :func:`check_sink` does, with the same result and errors."""
    __tracebackhide__ = True
    machine.exercised.clear()
    with quiet():
        failure = _first_failure(machine, settings)
        if failure is not None:
            raise shorten(failure, partial(_play, machine.subject))
    report = Report(machine.subject.capabilities, machine.exercised)
    if report.cases >= _ENOUGH_CASES:
        _require_faults(report, has_transforms=machine.subject.transforms)
    sys.stdout.write(f"{report}\n")
    return report


def _first_failure(
    machine: type[SinkTaskMachine], chosen: hypothesis.settings | None
) -> SinkContractError | None:
    from sinksdk.testing.machine import explore, generating  # noqa: PLC0415 - as above

    subject, settings = machine.subject, generating(chosen)
    try:
        _check_without_faults(subject)
        sweep, letters = _sweep(subject), _dead_letter_schedules(subject)
    except SinkContractError as found:
        return found
    # A letter is lost only by a fault at one certain operation: the default number of cases tries all.
    most = len(letters) if settings.max_examples >= _ENOUGH_CASES else settings.max_examples
    # Few schedules have a transform: an even choice among all of them would leave these out.
    for schedule in [
        *evenly(letters, min(most, len(letters))),
        *fairly(sweep, settings.max_examples),
        *_transform_schedules(subject),
        *_OPERATOR_SCHEDULES,
    ]:
        failure = _play(subject, schedule, machine.exercised)
        if failure is not None:
            return failure
    return explore(machine, settings)


@spelling_out(SinkOptions, Subject)
def replay(
    schedule: Iterable[Step],
    make_task: Callable[[Any], SinkTask],
    *,
    read_back: ReadBack[Any],
    **options: Unpack[SinkOptions],
) -> None:
    """Run the steps of a failure again, without Hypothesis: for debugging, and as a regression test.

    Args:
        schedule: the steps, as printed with the failure.
        make_task, read_back, options: as for :func:`check_sink`.

    Raises:
        SinkContractError: the sink still does not keep its promise.
    """
    __tracebackhide__ = True
    with quiet():
        failure = _play(Subject(make_task, read_back, **options), list(schedule))
    if failure is not None:
        raise failure


_SMALL_RUN: Final[Sequence[Step]] = (
    *(("deliver", 0, 2), ("deliver", 1, 3), ("commit",), ("deliver", 0, 3), ("revoke", 0)),
    *(("deliver", 0, 1), ("rebalance",), ("deliver", 1, 1), ("deliver", 2, 5)),
)
_MISHAPS: Final[Sequence[Step]] = (
    *(("crash",), ("fence",), ("lose", 0), ("lose", 1)),
    *(("alter", 0, 1), ("alter", 1, 4), ("reset", 0)),
)
_RANGES: Final[Sequence[Step]] = (*[("read_range", 2, 1)] * 6, ("read_range", 2, 2))
_LATE: Final[Sequence[Step]] = (("zombie_deliver", 0, 3), ("zombie_deliver", 1, 3))


def _sweep(subject: Subject[Any]) -> list[list[Sequence[Step]]]:
    operations = _operations(subject, _SMALL_RUN)
    fences = subject.capabilities.fences_zombies
    mishaps: list[Sequence[Step]] = [
        (*_SMALL_RUN[:at], mishap, *_SMALL_RUN[at:])
        for at in range(1, len(_SMALL_RUN) + 1)
        for mishap in _MISHAPS
        if fences or mishap != ("fence",)
    ]
    late: list[Sequence[Step]] = [
        (*_SMALL_RUN[:at], ("fence",), *_SMALL_RUN[at:], *_LATE) for at in range(1, len(_SMALL_RUN) + 1)
    ]
    faults: list[list[Sequence[Step]]] = [
        [(("fault", where, at, kind.value), *_SMALL_RUN) for at in range(operations[where])]
        for where, kinds in POSSIBLE.items()
        for kind in kinds
    ]
    frozen: list[Sequence[Step]] = [
        (*_SMALL_RUN[:at], ("freeze", dies), ("crash",), *_SMALL_RUN[at:])
        for dies in (1, 0)
        for at in range(1, len(_SMALL_RUN))
    ]
    return [mishaps, *([late, frozen] if fences else []), *faults]


_POISONED: Final[Sequence[Sequence[Step]]] = tuple(
    (("deliver", 0, 1), ("poison", 0, before, after), ("commit",), ("deliver", 0, 1))
    for before, after in ((0, 0), (1, 0), (2, 0), (1, 1), (0, 2))
)


def _dead_letter_schedules(subject: Subject[Any]) -> list[Sequence[Step]]:
    if not subject.capabilities.dead_letters:
        return []
    found: list[Sequence[Step]] = []
    for steps in _POISONED:
        operations = _operations(subject, steps, after=1)
        found += [
            (steps[0], ("fault", where, at, kind.value), *steps[1:])
            for where, kinds in POSSIBLE.items()
            for kind in kinds
            for at in range(operations[where])
        ]
    return found


def _operations(subject: Subject[Any], steps: Sequence[Step], after: int = 0) -> Counter[str]:
    """Run the steps and count the operations of all but the first ``after`` ones."""
    trial = Trial(subject)
    try:
        for step in steps[:after]:
            trial.step(*step)
        before = Counter(trial.faults.operations)
        for step in steps[after:]:
            trial.step(*step)
        return trial.faults.operations - before
    finally:
        trial.end()


_OPERATOR_SCHEDULES: Final[Sequence[Sequence[Step]]] = (
    (
        *(("deliver", 0, 2), ("alter", 0, 5), ("deliver", 0, 1), ("alter", 0, 3), ("deliver", 0, 3)),
        *(("commit",), ("reset", 0), ("deliver", 0, 2), ("crash",), ("deliver", 0, 1)),
    ),
)


def _transform_schedules(subject: Subject[Any]) -> list[Sequence[Step]]:
    numbers = range(1, len(TRANSFORMS)) if subject.transforms else ()
    return [(("transform", number), *_RANGES, *_SMALL_RUN) for number in numbers]


def _play(
    subject: Subject[Any], steps: Sequence[Step], exercised: Counter[str] | None = None
) -> SinkContractError | None:
    trial = Trial(subject, exercised)
    try:
        for step in steps:
            trial.step(*step)
        trial.finish()
    except SinkContractError as error:
        return error
    finally:
        trial.end()
    return None


def _check_without_faults(subject: Subject[Any]) -> None:
    trial = Trial(subject)
    before = list(subject.read_back(trial.destination))  # for a mapping, a list of its keys
    if before:
        raise KitError(
            f"read_back returned {before[:3]} before anything was written: let `destination` create a new, "
            f"empty destination at each call, and let read_back read only that destination"
        )
    try:
        for step in (("deliver", 0, 3), ("commit",), ("deliver", 1, 2), ("rebalance",)):
            trial.step(*step)
        _require_values(trial)
        if trial.has_seen_rows:
            _require_fault_plan(trial)
        elif not (_keeps_all_back(trial) and subject.capabilities.commits_on_close):
            raise KitError(_nothing_seen(trial))
        trial.finish()
    except SinkContractError:
        _require_values(trial)
        # The destination may be cleaned up by now, so only earlier reads count.
        if trial.live.log.offsets and not trial.has_seen_rows:
            raise KitError(_nothing_seen(trial)) from None
        raise
    finally:
        trial.end()


def _require_fault_plan(trial: Trial[Any]) -> None:
    promise = trial.subject.capabilities.guarantee
    if promise is not Guarantee.AT_LEAST_ONCE and not trial.faults.operations[DESTINATION]:
        raise KitError(
            f"records were written and committed, but the destination never used its fault plan, so the kit "
            f"cannot let its operations fail and cannot check '{promise}'. Let the destination, or the "
            f"client in front of it, run each operation with faults.run({DESTINATION!r}, operation)"
        )


def _require_values(trial: Trial[Any]) -> None:
    refused = trial.judge.values_refused()
    if refused is not None:
        raise KitError(
            f"the sink wrote no record with a value: {refused}. Tombstones alone do not check a sink: let "
            f"`record` create values that the sink and the converters and transforms in `config` accept"
        ) from None


def _keeps_all_back(trial: Trial[Any]) -> bool:
    closed = trial.judge.closed.values()
    return bool(closed) and not trial.live.log.offsets and all(offset is None for offset in closed)


def _nothing_seen(trial: Trial[Any]) -> str:
    letters, cause = trial.judge.letters
    if letters:
        return (
            f"read_back returned nothing after a run without faults: the sink reported {letters} of "
            f"{trial.judge.records_put} records as bad, the first one with {cause}. Let `record` create "
            f"records that the sink can write, or set the converters that it needs in `config`"
        )
    story = f"What happened: {'. '.join(trial.story)}"
    if _keeps_all_back(trial):
        return (
            f"the sink committed no record, not even on close, so the kit cannot check anything: let "
            f"`config` make the sink write smaller files or batches. {story}"
        )
    hint = (
        " No commit contains the tokens that the sink prepared: let pre_commit return them with the offset, "
        "as OffsetAndMetadata(offset, publish=tokens), also while closing."
        if trial.judge.has_discarded or any(trial.live.log.noted.values())
        else ""
    )
    return (
        f"read_back returned nothing although records were put and committed without a fault: either the "
        f"sink does not write or publish the records that it commits{_on_close(trial)}, or read_back reads "
        f"another place (committed offsets: "
        f"{ {str(p): commit.offset for p, commit in trial.live.log.offsets.items()} }).{hint} {story}"
    )


def _on_close(trial: Trial[Any]) -> str:
    returned = [
        f"{p} up to {offset}" for p, offset in sorted(trial.judge.closed.items()) if offset is not None
    ]
    return f" (on close, pre_commit returned {' and '.join(returned)})" if returned else ""


def _require_faults(report: Report, *, has_transforms: bool) -> None:
    reachable = [
        where for where in POSSIBLE if where != DESTINATION or report.exercised["destination operations"]
    ]
    rare = [
        f"{where}: {kind}"
        for where in reachable
        for kind in POSSIBLE[where]
        if report.exercised[f"{where}: {kind}"] < report.cases // 100
    ]
    rare += [
        what for what in _OF_TRANSFORMS if has_transforms and report.exercised[what] < report.cases // 100
    ]
    if report.exercised["keys checked"] and not report.exercised["key written again"]:
        raise KitError(
            "no key was written twice, so 'last write wins' was not checked: let `record` repeat keys"
        )
    if rare:
        raise KitError(
            f"these faults happened in fewer than 1 % of the {report.cases} cases: {', '.join(rare)}; run "
            f"more cases with settings=settings(max_examples=…)"
        )
