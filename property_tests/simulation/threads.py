"""Simulate the threads of one process (see :class:`sinksdk.engine.clock.Threads`)."""

from __future__ import annotations

import math
from collections.abc import Callable

from property_tests.simulation.world import Process, World


class SimulatedThreads:
    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._name = name

    def lock(self) -> SimulatedLock:
        return SimulatedLock(self._world)

    def signal(self) -> SimulatedFlag:
        return SimulatedFlag(self._world)

    def every(self, seconds: float, run: Callable[[], None]) -> Callable[[], None]:
        ended = self.signal()

        def repeat() -> None:
            while not ended.wait(seconds):
                run()

        join = self.once(repeat)

        def end() -> None:
            ended.set()
            join()

        return end

    def once(self, run: Callable[[], None]) -> Callable[[], None]:
        over = self.signal()

        def body() -> None:
            run()
            over.set()

        here = self._world.current
        self._world.spawn(f"{here.threads[0].name}, {self._name} aside", body, here)
        return lambda: _wait_for(over)


class SimulatedLock:
    def __init__(self, world: World) -> None:
        self._world = world
        self._is_taken = False
        self._waiting: list[Process] = []

    def __enter__(self) -> None:
        while self._is_taken:
            self._waiting.append(self._world.current)
            self._world.sleep(math.inf)
        self._is_taken = True

    def __exit__(self, *_: object) -> None:
        self._is_taken = False
        waiting, self._waiting = self._waiting, []
        for process in waiting:
            self._world.wake(process)


class SimulatedFlag:
    def __init__(self, world: World) -> None:
        self._world = world
        self._is_set = False
        self._waiting: list[Process] = []

    def set(self) -> None:
        self._is_set = True
        for process in self._waiting:
            self._world.wake(process)

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, seconds: float) -> bool:
        give_up = self._world.now() + seconds
        while not self._is_set and self._world.now() < give_up:
            process = self._world.current
            self._waiting.append(process)
            self._world.sleep(give_up - self._world.now())
            self._waiting.remove(process)
        return self._is_set


def _wait_for(flag: SimulatedFlag) -> None:
    flag.wait(math.inf)
