"""check_sink: the whole contract of a sink in one line of an author's test module."""

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
_ENOUGH_CASES = 200  # with so many, every fault must have been met now and then
_OF_TRANSFORMS = ("transform: dropped", "transform: multiplied", "transform: dropped all of a range")
_NOT_FAULTS = ("cases", "steps", "destination operations", "duplicates seen", "leftovers looked at")


@dataclass(frozen=True)
class Report:
    """A run in which the sink kept its promise. Its text lists the checks.

    Args:
        exercised: how often each step was done and each fault was met.
    """

    capabilities: Capabilities
    exercised: Counter[str]

    @property
    def guarantee(self) -> Guarantee:
        """How often readers see a record."""
        return self.capabilities.guarantee

    @property
    def cases(self) -> int:
        """How many schedules were tried."""
        return self.exercised["cases"]

    def __str__(self) -> str:
        promise, counts = self.capabilities, self.exercised
        held = "" if promise.fences_zombies else ", as long as no task goes on that was replaced"
        shown = [f"{self.guarantee}{held}: {_MEANINGS[self.guarantee]}"]
        if promise.ordered:
            shown.append("ordered: each partition was read back in the order of its offsets")
        if counts["key looked at"]:
            shown.append(
                "the last write wins: each key had the value of its last record, or was deleted by it"
            )
        if promise.dead_letters:
            shown.append("dead letters: what could not be delivered was reported before it was committed")
        if promise.commits_on_close:
            shown.append("commit on close: no closing commit kept anything back")
        if counts["leftovers looked at"]:
            shown.append("leftovers: nothing with data in it was left behind")
        lines = [f"shown in {self.cases:,} cases of {counts['steps']:,} steps in all:"]
        lines += [f"  {what}" for what in shown]
        if promise.guarantee is Guarantee.AT_LEAST_ONCE:
            lines.append(f"  duplicates seen: {counts['duplicates seen']:,}")
        if not counts["leftovers looked at"]:
            lines.append(
                "  not looked at: leftovers; `leftovers` says how to find what nobody will ever discard"
            )
        if not promise.fences_zombies:
            lines.append(
                "  not tried: zombies, since fences_zombies=False is declared; one may write what its "
                "successor has written, or undo it"
            )
        lines.append("met on the way:")
        lines += [f"{count:>9,}  {what}" for what, count in sorted(counts.items()) if what not in _NOT_FAULTS]
        if not counts["destination operations"]:
            lines.append("  the destination asks no fault plan: nothing ever went wrong inside of it")
        return "\n".join(lines)


class SinkOptions(TypedDict, total=False):
    """What :func:`check_sink`, :func:`sink_machine` and :func:`replay` need to know of a sink.

    Args:
        destination: makes an empty destination for each case, given the fault plan that it (or the client
            in front of it) should ask before each operation. Use it to try the sink with what it writes to,
            or with a double of that.
        config: what ``start`` is given, or a function that makes it of the destination. Use it for a task
            that reads its configuration; converters in it are applied, and with ``dead_letters`` bad
            records are tolerated as with ``errors.tolerance=all``.
        capabilities: what the sink promises; by default only that nothing is lost. Use it as soon as the sink
            promises more, or less: the kit judges what is declared.
        partitions: at least two topic partitions. Use it for a sink whose behaviour depends on their names.
        record: makes the record of a partition at an offset, the same each time; by default its value is a
            JSON object, some records have no value (tombstones), some no key, some neither, and some keys are
            in several partitions. Use it for a sink that can read only certain records, or a configuration
            with a schema for values; and :func:`bytes_record` for one that takes any bytes, also none.
        poison: value of records that cannot be delivered, put when ``dead_letters`` is declared, or several
            such values, put in turn. Everything else of such a record is what ``record`` makes. Use it where
            the sink refuses other values than such as are no JSON, or refuses values for several reasons.
        leftovers: names what a destination holds with data in it that readers will never see. By default its
            own method of this name is called, if it has one. Use it for a sink with ``discard``.
        clean_up: called with the destination when a case is over; by default nothing is done. Use it for
            files, schemas and connections.
        steps: an author's own steps by name: functions of the trial and of the step's arguments. Use it with
            ``sink_machine``, for events that the kit does not know.
        transforms: half of the cases have a transform before the sink, which drops records and makes up to
            five, with the same offset, of others. Use it, as False, for a sink that never runs with one that
            multiplies records, such as one whose table has the offset as its key.
        row: key and value that a record leaves in the mapping that ``read_back`` gives; None as the value: it
            is deleted. It is given the record as it is in the topic, before converters. By default they are
            the record's own key and value, which are bytes. Use it where a row is more, or less, than these
            bytes: with converters, always. None instead of both: the sink refuses the record (one without a
            key, say), and must report it.
        alter: what the connector's ``alter_offsets`` does at a destination: it is given the destination, a
            partition, and the offset that an operator sets, or None where he removes it. Use it for a sink
            that keeps offsets of its own; it is called again when it raises.
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
    """Try a sink under deliveries, commits, rebalances, crashes, zombies and faults in random order.

    ::

        def test_my_sink() -> None:
            check_sink(MyTask, read_back=lambda destination: destination.read_back())

    Args:
        make_task: makes a fresh task, as in a fresh process, that writes to the given destination.
        read_back: topic, partition and offset (and value, if you like) of every record that a reader of
            the destination sees now; or a mapping of value by key, where the last record of a key wins. It
            must not fail, and not depend on any task.
        settings: Hypothesis's, of how many cases and how many steps; by default the same 200 cases of up to
            30 steps each time. Use it for fewer cases where the destination is slow, and for more at night.
        options: those of :class:`SinkOptions`.

    Returns:
        The checks, and the number of faults of each kind. It is also printed.

    Raises:
        SinkContractError: the sink does not keep its promise; with a short story, and how to replay it.
        KitError: nothing can be shown: ``read_back`` sees nothing, no record with a value is delivered, the
            sink does not start, faults were hardly met, or ``destination`` never asks its fault plan and more
            than at-least-once is declared.
    """
    __tracebackhide__ = True  # of pytest, which shows the author's test then
    return check_machine(sink_machine(make_task, read_back=read_back, **options), settings=settings)


@spelling_out(SinkOptions, Subject)
def sink_machine(
    make_task: Callable[[Any], SinkTask],
    *,
    read_back: ReadBack[Any],
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
    from sinksdk.testing.machine import SinkTaskMachine  # noqa: PLC0415 - the doubles work without Hypothesis

    subject = Subject(make_task, read_back, **options)
    return type("SinkTaskMachine", (SinkTaskMachine,), {"subject": subject, "exercised": Counter()})


def check_machine(machine: type[SinkTaskMachine], *, settings: hypothesis.settings | None = None) -> Report:
    """Run a machine as :func:`check_sink` does. Raises what that raises."""
    __tracebackhide__ = True
    machine.exercised.clear()
    with quiet():
        failure = _first_failure(machine, settings)
        if failure is not None:
            raise shorten(failure, partial(_play, machine.subject))
    report = Report(machine.subject.capabilities, machine.exercised)
    if report.cases >= _ENOUGH_CASES:
        _insist_on_faults(report, has_transforms=machine.subject.transforms)
    sys.stdout.write(f"{report}\n")
    return report


def _first_failure(
    machine: type[SinkTaskMachine], chosen: hypothesis.settings | None
) -> SinkContractError | None:
    """Without any fault, then one fault at a time (which needs no luck), then steps in random order."""
    from sinksdk.testing.machine import explore, generating  # noqa: PLC0415 - as above

    subject, settings = machine.subject, generating(chosen)
    try:
        _see_something(subject)
        sweep, letters = _sweep(subject), _letters(subject)
    except SinkContractError as found:
        return found
    # A lost letter shows at one operation only: with the default number of cases none is left out.
    most = len(letters) if settings.max_examples >= _ENOUGH_CASES else settings.max_examples
    # Of few cases, those with a transform would be left out: they are the last, and few themselves.
    for schedule in [
        *evenly(letters, min(most, len(letters))),
        *fairly(sweep, settings.max_examples),
        *_transformed(subject),
        *_OPERATED,
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
    """Do the steps of a failure again, without Hypothesis: for debugging, and as a regression test.

    Args:
        schedule: steps, as printed with the failure.
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
"""Of several of these a transform drops all records, so one schedule meets it often enough. How often the
random ones do depends on what other modules are loaded."""
_LATE: Final[Sequence[Step]] = (("zombie_deliver", 0, 3), ("zombie_deliver", 1, 3))
"""What a zombie does when its successor has written what it writes now, and more."""


def _sweep(subject: Subject[Any]) -> list[list[Sequence[Step]]]:
    """The small run with one mishap between its steps, a late or frozen zombie, or a fault: by what it is.

    A sink may ask its destination a thousand times as often as the commit log is written.
    """
    trial = Trial(subject)
    try:
        before = Counter(trial.faults.asked)
        for step in _SMALL_RUN:
            trial.step(*step)
        operations = trial.faults.asked - before
    finally:
        trial.end()
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
"""A bad record alone, as the last one of a put, and amid and before others."""


def _letters(subject: Subject[Any]) -> list[Sequence[Step]]:
    """Each fault at each operation around a bad record: what may be lost is its dead letter.

    A sink that moves its own mark past the record before the letter is durable loses it in one crash.
    """
    if not subject.capabilities.dead_letters:
        return []
    found: list[Sequence[Step]] = []
    for steps in _POISONED:
        trial = Trial(subject)
        try:
            trial.step(*steps[0])
            before = Counter(trial.faults.asked)
            for step in steps[1:]:
                trial.step(*step)
            operations = trial.faults.asked - before
        finally:
            trial.end()
        found += [
            (steps[0], ("fault", where, at, kind.value), *steps[1:])
            for where, kinds in POSSIBLE.items()
            for kind in kinds
            for at in range(operations[where])
        ]
    return found


_OPERATED: Final[Sequence[Sequence[Step]]] = (
    (
        *(("deliver", 0, 2), ("alter", 0, 5), ("deliver", 0, 1), ("alter", 0, 3), ("deliver", 0, 3)),
        *(("commit",), ("reset", 0), ("deliver", 0, 2), ("crash",), ("deliver", 0, 1)),
    ),
)
"""An operator passes over some records, has these and some more read after all, and then everything."""


def _transformed(subject: Subject[Any]) -> list[Sequence[Step]]:
    """Ranges, and the small run, behind each transform."""
    numbers = range(1, len(TRANSFORMS)) if subject.transforms else ()
    return [(("transform", number), *_RANGES, *_SMALL_RUN) for number in numbers]


def _play(
    subject: Subject[Any], steps: Sequence[Step], exercised: Counter[str] | None = None
) -> SinkContractError | None:
    """Do the steps; return the sink's failure."""
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


def _see_something(subject: Subject[Any]) -> None:
    """Without faults: readers see the written records, and nothing else."""
    trial = Trial(subject)
    before = list(subject.read_back(trial.destination))  # of a mapping, its keys
    if before:
        raise KitError(
            f"read_back sees {before[:3]} in a destination that nothing was written to: let `destination` "
            f"make a new, empty one at every call, and let read_back look at nothing else"
        )
    try:
        for step in (("deliver", 0, 3), ("commit",), ("deliver", 1, 2), ("rebalance",)):
            trial.step(*step)
        _insist_on_values(trial)
        if trial.has_seen_rows:
            _expect_questions(trial)
        elif not (_keeps_all_back(trial) and subject.capabilities.commits_on_close):
            raise KitError(_nothing_seen(trial))
        trial.finish()
    except SinkContractError:
        _insist_on_values(trial)
        # The destination may be cleaned up by now: only earlier reads count.
        if trial.live.log.offsets and not trial.has_seen_rows:
            raise KitError(_nothing_seen(trial)) from None
        raise
    finally:
        trial.end()


def _expect_questions(trial: Trial[Any]) -> None:
    """A destination of the author's own must be able to fail where readers may not see a record twice."""
    promise = trial.subject.capabilities.guarantee
    if promise is not Guarantee.AT_LEAST_ONCE and not trial.faults.asked[DESTINATION]:
        raise KitError(
            f"records were written and committed, and the destination never asked its fault plan: nothing "
            f"can go wrong inside of it, and then {promise} is not shown. Let what `destination` makes, or "
            f"the client in front of it, do each operation with faults.run({DESTINATION!r}, operation)"
        )


def _insist_on_values(trial: Trial[Any]) -> None:
    """A run in which only tombstones come through shows nothing."""
    refused = trial.judge.values_refused()
    if refused is not None:
        raise KitError(
            f"no record with a value was ever delivered: {refused}; a run of tombstones alone shows little: "
            f"let `record` make records that `config` and the sink accept"
        ) from None


def _keeps_all_back(trial: Trial[Any]) -> bool:
    """Whether nothing is committed, since closing commits return nothing either."""
    closed = trial.judge.closed.values()
    return bool(closed) and not trial.live.log.offsets and all(offset is None for offset in closed)


def _nothing_seen(trial: Trial[Any]) -> str:
    letters, cause = trial.judge.letters
    if letters:
        return (
            f"read_back sees nothing after records were put and committed without any fault: the sink has "
            f"reported {letters} of {trial.judge.records_put} records as bad, the first one with {cause}. "
            f"Let `record` make records that the sink can write, or set the converters that it needs in "
            f"`config`"
        )
    told = f"What happened: {'. '.join(trial.story)}"
    if _keeps_all_back(trial):
        return (
            f"nothing was committed of what was put, also not on close, so there is nothing to judge: let "
            f"`config` have the sink write smaller files or batches. {told}"
        )
    hint = (
        " What it has prepared is in no commit: return its tokens with the offset, as "
        "OffsetAndMetadata(offset, publish=tokens), also while closing."
        if trial.judge.has_discarded or any(trial.live.log.noted.values())
        else ""
    )
    return (
        f"read_back sees nothing after records were put and committed without any fault: either the sink "
        f"does not show what it commits{_on_close(trial)}, or read_back does not look where the sink writes "
        f"(committed: { {str(p): commit.offset for p, commit in trial.live.log.offsets.items()} })."
        f"{hint} {told}"
    )


def _on_close(trial: Trial[Any]) -> str:
    """What closing commits were answered, where that is all there was."""
    returned = [
        f"{p} up to {offset}" for p, offset in sorted(trial.judge.closed.items()) if offset is not None
    ]
    return f" (on close, pre_commit returned {' and '.join(returned)})" if returned else ""


def _insist_on_faults(report: Report, *, has_transforms: bool) -> None:
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
    rare += [
        what for what in _OF_TRANSFORMS if has_transforms and report.exercised[what] < report.cases // 100
    ]
    if report.exercised["key looked at"] and not report.exercised["key written again"]:
        problem = "no key was ever written twice, so no last write won: let `record` make keys that come back"
        raise KitError(problem)
    if rare:
        raise KitError(
            f"{report.cases} cases hardly ever met these faults, so they show little: {', '.join(rare)}; "
            f"try more cases with settings=settings(max_examples=…)"
        )
