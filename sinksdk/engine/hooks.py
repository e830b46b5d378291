"""Run the hooks of an author's task."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sinksdk.engine.partition import InDoubt
from sinksdk.errors import ConnectException
from sinksdk.support.hooks import HookError, finished


class UnfinishedHook(InDoubt):
    """A hook returned before its work was done, so its records may not be written."""


def run_hook(label: str, task: object, hook: str, *arguments: object) -> Any:
    try:
        return finished(hook, getattr(task, hook)(*arguments))
    except HookError as error:  # the hook returned a coroutine, generator or future, which nothing would run
        raise UnfinishedHook(f"{label}: {error}") from error
    except SystemExit as error:  # would end Spark's Python worker, and Spark would repeat the task
        raise ConnectException(f"{label}: {hook} raised SystemExit: {error}") from error


@contextmanager
def attributed(label: str, hook: str) -> Iterator[None]:
    """Turn exceptions of a hook into a ConnectException with the cause."""
    try:
        yield
    except Exception as error:
        if isinstance(error, UnfinishedHook) or isinstance(error.__cause__, SystemExit):
            raise  # the error names the hook
        raise ConnectException(f"{label}: {hook} raised {type(error).__name__}: {error}") from error


def call_author(label: str, task: object, hook: str, *arguments: object) -> Any:
    with attributed(label, hook):
        return run_hook(label, task, hook, *arguments)
