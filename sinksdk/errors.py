"""Errors, grouped by what the runtime does about them.

::

    ConnectException                      fatal: the partition, task or connector fails with this cause
    ├── RetriableException                transient: the same call is repeated after a growing delay
    ├── DataException                     a bad record: dead letters, or fatal if they are off
    ├── ConfigException                   the operator's configuration is wrong: nothing is started
    ├── MissingSourceTopicException       a subscribed topic does not exist, or no longer (KIP-662)
    ├── OffsetOutOfRangeException         the source no longer has the records after the commit
    ├── UnpublishableException            data of committed tokens is gone: the commit is withdrawn
    └── FencedException                   a newer owner exists: write nothing more

The names are Kafka's (``org.apache.kafka.connect.errors``).
"""

from __future__ import annotations

import datetime as dt
import math
import sys
import traceback
from collections.abc import Iterable, Sequence
from contextlib import suppress
from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sinksdk.offsets import Token


class ConnectException(Exception):
    """Base of all errors of sinksdk: something failed for good.

    Raised from a task's method it ends the partitions concerned for this generation; the runtime opens them
    again after ``restart.backoff.ms``, at most ``restart.max.attempts`` times.
    """

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython shows: the message and the frames of the user's code."""
        from sinksdk.support.traces import short_trace  # noqa: PLC0415 - tasks do not need it

        return short_trace(self).splitlines()


class RetriableException(ConnectException):
    """A transient failure: the engine repeats the same call with the same arguments.

    Args:
        message: what happened.
        retry_after: seconds to wait before the next attempt: a number, a ``timedelta``, or the text of
            HTTP's ``Retry-After`` (a number or a date); by default the engine's growing delay.
        accepted: for a sink's ``put``: how many of the given records, from the first on, it has accepted, as
            if ``put`` had returned: they are not put again, and their offsets may be committed. The others
            are put again, with a new ``errors.retry.timeout``.

    Raises:
        ValueError: ``retry_after`` is none of these.
    """

    _retry_after: float | None = None
    accepted: int = 0

    def __init__(
        self, message: str = "", *, retry_after: float | str | dt.timedelta | None = None, accepted: int = 0
    ) -> None:
        super().__init__(message)
        self._retry_after = None if retry_after is None else _seconds(retry_after, message)
        self.accepted = accepted

    @property
    def retry_after(self) -> float | None:
        """Seconds to wait before the next attempt; None: the engine's growing delay."""
        return self._retry_after

    @retry_after.setter
    def retry_after(self, wait: float | str | dt.timedelta | None) -> None:
        self._retry_after = None if wait is None else _seconds(wait, str(self))


def _seconds(wait: object, message: str) -> float:
    try:
        return seconds_of(wait)
    except ValueError as error:
        raise ValueError(f"RetriableException({message!r}): retry_after {error}") from error


def seconds_of(wait: object) -> float:
    """Return a wait in seconds, from a number, a ``timedelta``, or the text of HTTP's ``Retry-After``.

    Raises:
        ValueError: it is none of these, not a number, or infinite.
    """
    seconds = math.nan
    if isinstance(wait, dt.timedelta):
        seconds = wait.total_seconds()
    elif not isinstance(wait, bool):
        try:
            seconds = float(wait)  # type: ignore[arg-type]  # whatever Python takes: numpy's, Decimal, text
        except (TypeError, ValueError, OverflowError):
            with suppress(ValueError):
                until = parsedate_to_datetime(str(wait))
                seconds = (until - dt.datetime.now(until.tzinfo)).total_seconds()
    if math.isfinite(seconds):
        return seconds
    raise ValueError(
        f"is {wait!r}: give seconds as a number, a timedelta, or the text of a Retry-After header"
    )


class DataException(ConnectException):
    """A bad record: no retry can deliver it."""

    is_expected: bool = False
    """Whether the configuration expects such records, as tombstones that it leaves out. They are reported,
    and do not count towards ``errors.deadletterqueue.max.consecutive`` and ``.max.share``."""


class ConfigException(ConnectException):
    """A configuration that cannot work; :attr:`problems` contains all problems."""

    def __init__(self, problems: str | Iterable[str]) -> None:
        self.problems: Sequence[str] = (problems,) if isinstance(problems, str) else tuple(problems)
        super().__init__("\n".join(self.problems))


class MissingSourceTopicException(ConnectException):
    """Subscribed topics that the source does not have (KIP-662); :attr:`topics` contains their names."""

    def __init__(self, topics: Iterable[str], message: str | None = None) -> None:
        self.topics: Sequence[str] = tuple(sorted(topics))
        super().__init__(
            message
            or f"the source has no topic {', '.join(map(repr, self.topics))}: create it, or remove "
            f"it from the connector's 'topics'"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.topics, str(self))


class OffsetOutOfRangeException(ConnectException):
    """The committed offset is outside the source's range: records were lost, or the topic was re-created."""


class UnpublishableException(ConnectException):
    """Raised by ``publish``: the data of committed tokens no longer exists and was never visible.

    The commit moves back: it is withdrawn to :attr:`offset` in a fenced write, logged and counted. The
    partition ends for this generation, and the next one reads again from there. Otherwise a commit moves back
    only if the task asks for it by ``context.offset``, or an operator alters offsets.

    Args:
        message: what no longer exists.
        offset: the first offset that cannot be published. No record at or after it is visible, or ever will
            be, through the tokens of the commit, except up to ``partly_visible_to``.
        metadata: metadata of the commit after it is withdrawn.
        discard: the commit's tokens from that offset on; they are passed to ``discard``. Those before it
            must be published.
        partly_visible_to: the offset after the last record from ``offset`` on that is visible nevertheless;
            None: there is none. The task skips these records when it reads them again, as ``metadata`` says.
            The connector is not deleted before its commit reaches this offset: a re-created connector would
            not know of these records.
    """

    def __init__(
        self,
        message: str,
        *,
        offset: int,
        metadata: str = "",
        discard: Iterable[Token | str] = (),
        partly_visible_to: int | None = None,
    ) -> None:
        super().__init__(message)
        self.offset = offset
        self.metadata = metadata
        self.discard = tuple(discard)
        self.partly_visible_to = partly_visible_to

    def __reduce__(self) -> tuple[object, ...]:
        return partial(
            type(self),
            offset=self.offset,
            metadata=self.metadata,
            discard=self.discard,
            partly_visible_to=self.partly_visible_to,
        ), self.args


class FencedException(ConnectException):
    """A newer generation, or a newer attempt of the same task, owns the store record of this write.

    After it, write nothing more and clean nothing up: the last write may have taken effect, and the
    successor decides whether to discard it.
    """


def describe(error: BaseException) -> str:
    """Return an error's message, preceded by its class unless it is one of sinksdk's."""
    # A KeyError's message alone, as in 'celsius', would not say what failed.
    message, kind = str(error), type(error)
    if not message:
        return kind.__name__
    return message if kind.__module__.partition(".")[0] == "sinksdk" else f"{kind.__name__}: {message}"


def authors_frames(error: BaseException) -> list[tuple[str, str, int]]:
    """Return name, file and line of the author's functions that an error passed through, outermost first.

    Functions of sinksdk, of pydantic (which calls validators), and of libraries that the author's package
    calls are left out.
    """
    found = [
        (str(frame.f_globals.get("__name__")).partition(".")[0], frame.f_code, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    package = next((name for name, _, _ in found if name not in _NOT_AUTHORS), None)
    return [
        (code.co_qualname, Path(code.co_filename).name, line) for name, code, line in found if name == package
    ]


_NOT_AUTHORS: Final = {"sinksdk", "pydantic", *sys.stdlib_module_names} - {"__main__"}


def raised_at(error: BaseException) -> str:
    """Return where the author's code raised an error, to append to a message; else an empty text."""
    frames = authors_frames(error)
    return f" at {frames[-1][0]} ({frames[-1][1]}, line {frames[-1][2]})" if frames else ""
