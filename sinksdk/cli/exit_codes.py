"""What the process's exit code tells scripts and supervisors."""

from __future__ import annotations

from enum import IntEnum

from sinksdk.errors import ConfigException, FencedException, MissingSourceTopicException


class ExitCode(IntEnum):
    """Exit codes of all commands. A second signal ends the process with 128 + its number instead."""

    DONE = 0
    """Everything was done, or it was asked to stop and what was begun is committed."""
    FAILED = 1
    """Something failed for good; what was committed stays committed."""
    BAD_CONFIG = 2
    """The configuration or the command line cannot work; nothing was started."""
    FENCED = 3
    """A newer driver of the same connector has taken over."""
    MISSING_TOPIC = 4
    """A subscribed topic is not in the source."""


def exit_code_of(error: BaseException) -> ExitCode:
    """The exit code an error ends the process with."""
    match error:
        case ConfigException():
            return ExitCode.BAD_CONFIG
        case FencedException():
            return ExitCode.FENCED
        case MissingSourceTopicException():
            return ExitCode.MISSING_TOPIC
        case _:
            return ExitCode.FAILED
