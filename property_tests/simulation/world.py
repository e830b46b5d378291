"""A scheduler of simulated processes in one thread; all choices follow from one seed.

Each thread of a process is a greenlet of ordinary code. The scheduler may switch, freeze or kill a process
before an operation of :meth:`World.operate` or after its effect. Time is virtual: operations advance it, and
it jumps when all processes sleep.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from greenlet import getcurrent, greenlet

T = TypeVar("T")

_LATENCIES: Final = (0.0, 0.001, 0.01, 0.05, 0.3)  # seconds an operation takes


class Killed(BaseException):
    # In the clean-up code of a killed process, operations have no effect.
    ...


class Violation(AssertionError):
    pass


@dataclass(frozen=True, slots=True)
class Chaos:
    # These are chances per operation. A crash comes before or after its effect, and a pause is a SIGSTOP. A
    # lost request had no effect, or only its response was lost; a refused one was throttled.
    switch: float = 0.5
    crash: float = 0.0
    pause: float = 0.0
    longest_pause: float = 120.0
    lost_before: float = 0.0
    lost_after: float = 0.0
    refused: float = 0.0

    @classmethod
    def drawn(cls, dice: random.Random) -> Chaos:
        chance = (0.0, 0.0, 0.003, 0.01, 0.03)
        return cls(
            switch=dice.choice((0.1, 0.3, 0.6, 1.0)),
            crash=dice.choice(chance),
            pause=dice.choice(chance),
            longest_pause=dice.choice((5.0, 60.0, 300.0)),
            lost_before=dice.choice(chance),
            lost_after=dice.choice((0.0, 0.01, 0.03, 0.1)),
            refused=dice.choice(chance),
        )


class Process:
    def __init__(
        self, name: str, target: Callable[[], object], scheduler: greenlet, beside: Process | None = None
    ) -> None:
        self.name = name
        # The main thread is the first one. All threads of a process are killed, frozen and cut off together.
        self.threads: list[Process] = beside.threads if beside is not None else []
        self.threads.append(self)
        self.wakes_at = 0.0
        self.is_frozen_until = 0.0
        self.is_cut_off_until = 0.0
        self.is_alive = True
        # True once the store has refused a write of this process to a record that the process had owned.
        self.is_fenced = False
        self.greenlet = greenlet(target, scheduler)


class World:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.dice = random.Random(seed)  # noqa: S311 - chance, not secrets
        self.chaos = Chaos()
        self.story: list[tuple[float, str, str | Callable[[], str]]] = []
        self.happened: Counter[str] = Counter()
        self.processes: list[Process] = []
        self.steps = 0
        self._now = 0.0
        self._violation: str | None = None
        self._scheduler = getcurrent()
        self._running: Process | None = None

    # -- for the code of a process ------------------------------------------------------------------

    def now(self) -> float:
        return self._now

    def time(self) -> float:
        return 1_700_000_000.0 + self._now

    def sleep(self, seconds: float) -> None:
        process = self._alive()
        process.wakes_at = self._now + seconds
        self._yield(process)

    def wake(self, process: Process) -> None:
        process.wakes_at = min(process.wakes_at, max(self._now, process.is_frozen_until))

    @property
    def current(self) -> Process:
        assert self._running is not None, "no process is running"
        return self._running

    def operate(
        self,
        what: str,
        effect: Callable[[], T],
        *,
        lost: Callable[[str], BaseException],
        refused: Callable[[str], BaseException] | None = None,
        tell: bool = True,
    ) -> T:
        # The effect is atomic; ``lost`` and ``refused`` return the errors of a lost and of a throttled
        # request.
        if self._running is None:
            return effect()  # called by a bystander, outside of all processes
        self._point()
        if self.current.is_cut_off_until > self._now:
            self.happened["lost in a network partition"] += 1
            raise lost(what)
        if refused is not None and self._chance("refused", self.chaos.refused):
            self.tell(f"{what}: refused")
            raise refused(what)
        if self._chance("lost before the effect", self.chaos.lost_before):
            self.tell(f"{what}: never arrives")
            raise lost(what)
        result = effect()
        if tell:
            self.tell(what)
        self._point()
        if self._chance("lost after the effect", self.chaos.lost_after):
            self.tell(f"{what}: the answer is lost")
            raise lost(what)
        return result

    def tell(self, what: str | Callable[[], str]) -> None:
        self.story.append((self._now, self._running.name if self._running else "world", what))

    def violation(self, what: str) -> None:
        self._violation = self._violation or what
        self.tell(f"VIOLATION: {what}")

    # -- for who watches over them -------------------------------------------------------------------

    def spawn(self, name: str, target: Callable[[], object], beside: Process | None = None) -> Process:
        def body() -> None:
            try:
                target()
            except Killed:
                pass
            except Violation as error:
                self.violation(str(error))

        process = Process(name, body, self._scheduler, beside)
        process.wakes_at = self._now
        self.processes.append(process)
        return process

    def kill(self, process: Process) -> None:
        # Only the scheduler may call this method, no process.
        alive = [thread for thread in process.threads if thread.is_alive]
        for thread in alive:
            thread.is_alive = False
        for thread in alive:
            self._running = thread
            try:
                if thread.greenlet:
                    thread.greenlet.throw(Killed)
            finally:
                self._running = None
            self.processes.remove(thread)

    def freeze(self, process: Process, seconds: float) -> None:
        for thread in process.threads:
            thread.wakes_at = max(thread.wakes_at, self._now) + seconds
            thread.is_frozen_until = self._now + seconds

    def cut_off(self, process: Process, seconds: float) -> None:
        for thread in process.threads:
            thread.is_cut_off_until = self._now + seconds

    def run(self, until: Callable[[], bool], *, at_most: int) -> None:
        last = self.steps + at_most
        while not until():
            if self.steps >= last:
                message = f"{at_most} steps were not enough; waiting: {[p.name for p in self.processes]}"
                raise Violation(message)
            self.step()

    def step(self) -> None:
        self.steps += 1
        ready = [process for process in self.processes if process.wakes_at <= self._now]
        if not ready:
            if not self.processes:
                self._now += 1.0
                return
            self._now = min(process.wakes_at for process in self.processes)
            if math.isinf(self._now):
                message = f"all wait for each other: {[process.name for process in self.processes]}"
                raise Violation(message)
            return
        process = self.dice.choice(ready)
        if self._chance("crash", self.chaos.crash):
            self.tell(f"{process.name} is killed")
            self.kill(process)
        elif self._chance("pause", self.chaos.pause):
            seconds = self.dice.uniform(1.0, self.chaos.longest_pause)
            self.tell(f"{process.name} is frozen for {seconds:.0f} s")
            self.freeze(process, seconds)
        else:
            self._let_go_on(process)
        self.raise_violation()

    def raise_violation(self) -> None:
        if self._violation is not None:
            raise Violation(self._violation)

    def end(self) -> None:
        self.chaos = Chaos()
        for process in list(self.processes):
            self.kill(process)

    # -- inside --------------------------------------------------------------------------------------

    def _let_go_on(self, process: Process) -> None:
        self._running = process
        try:
            process.greenlet.switch()
        finally:
            self._running = None
        if not process.greenlet and process.is_alive:
            process.is_alive = False
            self.processes.remove(process)

    def _point(self) -> None:
        process = self._alive()
        self._now += self.dice.choice(_LATENCIES)
        if self.dice.random() < self.chaos.switch:
            self._yield(process)

    def _yield(self, process: Process) -> None:
        self._alive()
        self._scheduler.switch()
        if not process.is_alive:
            raise Killed

    def _alive(self) -> Process:
        process = self.current
        if not process.is_alive:
            raise Killed
        return process

    def _chance(self, what: str, chance: float) -> bool:
        if chance <= 0 or self.dice.random() >= chance:
            return False
        self.happened[what] += 1
        return True


def in_words(story: Sequence[tuple[float, str, str | Callable[[], str]]], last: int = 80) -> str:
    left_out = [f"… {len(story) - last} lines before"] if len(story) > last else []
    lines = [
        f"{now:9.2f} s  {name}: {what if isinstance(what, str) else what()}"
        for now, name, what in story[-last:]
    ]
    return "\n".join([*left_out, *lines])
