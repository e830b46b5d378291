"""Let Hypothesis choose the steps of trials; the only module that needs Hypothesis."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any, ClassVar, Final

from hypothesis import HealthCheck, Phase, Verbosity, core, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from sinksdk.testing.contract import HIDDEN, KitError, SinkContractError, Subject
from sinksdk.testing.faults import POSSIBLE
from sinksdk.testing.judge import TRANSFORMS
from sinksdk.testing.trial import Trial

__tracebackhide__ = HIDDEN

DEFAULTS = settings(
    max_examples=200,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.generate,),
)

# Hypothesis varies earlier cases of a run, so that some faults happen too rarely in a long run. Each seed
# gets this many cases.
_ROUND: Final = 50

# integers() would also draw constants of loaded modules, so that another program would run other cases.
_which = st.sampled_from(range(6))  # a multiple of two and three, so that no partition comes more often
_counts = st.sampled_from([1, 2, 3, 4, 8])  # the larger batches are put in several portions
_around = st.sampled_from([0, 0, 1])
_batches = st.lists(st.tuples(_which, _counts), min_size=1, max_size=3)
_then = st.sampled_from(["commit", "commit", "rebalance", "tick", ""])
_FAULTS: Final = [(where, kind) for where, kinds in POSSIBLE.items() for kind in kinds]
_seconds = st.sampled_from([1, 60])
_transforms = st.sampled_from([0] * (len(TRANSFORMS) - 1) + list(range(1, len(TRANSFORMS))))


def _rule(name: str, **arguments: st.SearchStrategy[int]) -> Any:
    def do(self: SinkTaskMachine, **drawn: int) -> None:
        self.step(name, *(drawn[argument] for argument in arguments))

    do.__name__, do.__doc__ = name, getattr(Trial, name).__doc__
    return rule(**arguments)(do)  # type: ignore[call-overload]  # no argument is called target


_if_fenced = precondition(lambda self: self.subject.capabilities.fences_zombies)
_if_there_is_a_zombie = precondition(lambda self: self.trial.zombies)


class SinkTaskMachine(RuleBasedStateMachine):
    """Runs deliveries, commits, rebalances, losses, zombies, crashes and faults in any order.

    Subclass the result of :func:`sink_machine` for rules of your own. A rule calls :meth:`step`, which adds
    the step to the story and the replay.
    """

    subject: ClassVar[Subject[Any]]
    exercised: ClassVar[Counter[str]]

    deliver = _rule("deliver", which=_which, count=_counts)
    read_range = _rule("read_range", which=_which, count=_counts)
    skip = _rule("skip", which=_which, count=st.sampled_from([1, 2, 3]))
    poison = precondition(lambda self: self.subject.capabilities.dead_letters)(
        _rule("poison", which=_which, before=_around, after=_around)
    )
    commit = _rule("commit")
    tick = _rule("tick", seconds=_seconds)
    rebalance = _rule("rebalance")
    revoke = _rule("revoke", which=_which)
    lose = _rule("lose", which=_which)
    alter = _rule("alter", which=_which, to=st.sampled_from([0, 1, 2, 4, 7]))
    reset = _rule("reset", which=_which)
    crash = _rule("crash")
    fence = _if_fenced(_rule("fence"))
    freeze = _if_fenced(_rule("freeze", dies=st.sampled_from([0, 1])))
    zombie_deliver = _if_there_is_a_zombie(_rule("zombie_deliver", which=_which, count=_counts))
    zombie_commit = _if_there_is_a_zombie(_rule("zombie_commit"))
    zombie_tick = _if_there_is_a_zombie(_rule("zombie_tick", seconds=_seconds))
    zombie_close = _if_there_is_a_zombie(_rule("zombie_close"))

    def __init__(self) -> None:
        super().__init__()
        self.trial: Trial[Any] = Trial(self.subject, self.exercised)

    def step(self, name: str, *arguments: Any) -> None:
        """Run a step of a trial: one of the kit's, or one of ``steps``."""
        self.trial.step(name, *arguments)

    @initialize(number=_transforms)
    def transform(self, number: int) -> None:
        """Run a transform before the sink in half of the cases."""
        if number and self.subject.transforms:
            self.step("transform", number)

    @rule(batches=_batches, then=_then)
    def work(self, batches: list[tuple[int, int]], then: str) -> None:
        """Deliver batches, then commit, rebalance or let time pass."""
        for which, count in batches:
            self.step("deliver", which, count)
        if then:
            self.step(then, *([60] if then == "tick" else []))

    @rule(batches=_batches)
    def read_on(self, batches: list[tuple[int, int]]) -> None:
        """Deliver batches only, which is most of what a task does."""
        self.work(batches, "")

    @rule(
        at=st.sampled_from([0, 1, 2]),
        fault=st.sampled_from(range(len(_FAULTS))),
        batches=_batches,
        then=_then,
    )
    def fault(self, at: int, fault: int, batches: list[tuple[int, int]], then: str) -> None:
        """Inject a fault into the work that follows."""
        # Hypothesis varies earlier cases, and prefers numbers that loaded modules have as constants: the
        # drawn number alone would hardly ever choose some faults.
        where, kind = Random(f"{fault} {self.trial.steps}").choice(_FAULTS)  # noqa: S311 - no secrets
        self.step("fault", where, at, kind.value)
        self.work(batches, then)

    def teardown(self) -> None:
        """Recover without faults; check that everything arrived and nothing is left over."""
        self.trial.finish()


def generating(chosen: settings | None) -> settings:
    """Return settings without Hypothesis's own shrinking: the kit's is faster and finds shorter schedules."""
    return settings(
        chosen or DEFAULTS,
        verbosity=Verbosity.quiet,
        phases=(Phase.generate,),
        report_multiple_bugs=False,
        print_blob=False,
    )


def explore(machine: type[SinkTaskMachine], chosen: settings) -> SinkContractError | None:
    """Search for a schedule that breaks the sink. Raises KitError for varying results of a schedule."""
    # With pytest's --hypothesis-seed each round would begin alike, so that only the first would try anything
    # new.
    first = 0 if chosen.derandomize else core.global_force_seed
    try:
        for number, start in enumerate(range(0, chosen.max_examples, _ROUND)):
            if first is not None:
                seed(first + number)(machine)
            cases = min(_ROUND, chosen.max_examples - start)
            run_state_machine_as_test(machine, settings=settings(chosen, max_examples=cases))
    except SinkContractError as failure:
        return failure
    except Flaky as error:
        raise KitError(
            "the same steps led to different results: remove clocks, random numbers and threads from the "
            "sink under test, or pass them in"
        ) from error
    return None
