"""Errors, grouped by what the runtime does about them.

::

    ConnectException                      fatal: the partition, task or connector fails with this cause
    ├── RetriableException                passing: the same call is made again after a growing delay
    ├── DataException                     one record is bad: dead letters, or fatal where they are off
    ├── ConfigException                   the operator's configuration is wrong: nothing is started
    ├── MissingSourceTopicException       a subscribed topic is not there, or no longer (KIP-662)
    ├── OffsetOutOfRangeException         the source no longer has what comes after the commit
    ├── UnpublishableException            committed tokens are gone: the commit is withdrawn, by name
    └── FencedException                   somebody newer owns this: write nothing more, ever

The names are Kafka's (``org.apache.kafka.connect.errors``), so that a Connect author finds them.
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

    Raised from a task's method it ends the partitions concerned for this generation; the runtime
    opens them again after ``restart.backoff.ms``, at most ``restart.max.attempts`` times.
    """

    def _render_traceback_(self) -> list[str]:
        """What IPython shows of it in a notebook's cell: the message, and no frames but those of users."""
        from sinksdk.support.traces import short_trace  # noqa: PLC0415 - tasks do not need it

        return short_trace(self).splitlines()


class RetriableException(ConnectException):
    """A passing failure: call the same method again with the same arguments.

    Args:
        message: what happened.
        retry_after: seconds to wait before the next attempt: a number, a ``timedelta``, or the text of HTTP's
            ``Retry-After`` (a number or a date); by default the engine's own growing delay.
        accepted: from a sink's ``put``: how many of the given records, from the first on, it has accepted, as
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
        """Seconds to wait before the next attempt; None: the engine decides."""
        return self._retry_after

    @retry_after.setter
    def retry_after(self, wait: float | str | dt.timedelta | None) -> None:
        self._retry_after = None if wait is None else _seconds(wait, str(self))


def _seconds(wait: object, message: str) -> float:
    try:
        seconds = seconds_of(wait)
    except ValueError as error:
        raise ValueError(f"RetriableException({message!r}): retry_after {error}") from error
    return seconds


def seconds_of(wait: object) -> float:
    """Seconds of a wait: a number, a ``timedelta``, or a text as HTTP's ``Retry-After`` has it.

    Raises:
        ValueError: it is none of these; or not a number, or infinite.
    """
    seconds = math.nan
    if isinstance(wait, dt.timedelta):
        seconds = wait.total_seconds()
    elif not isinstance(wait, bool):
        try:
            seconds = float(wait)  # type: ignore[arg-type]  # whatever Python takes: numpy's, Decimal, text
        except (TypeError, ValueError, OverflowError):
            with suppress(ValueError):
                seconds = _until(str(wait))
    if math.isfinite(seconds):
        return seconds
    raise ValueError(
        f"is {wait!r}: give seconds as a number, a timedelta, or the text of a Retry-After header"
    )


def _until(date: str) -> float:
    until = parsedate_to_datetime(date)
    return (until - dt.datetime.now(until.tzinfo)).total_seconds()


class DataException(ConnectException):
    """A record that no retry can deliver."""

    is_expected: bool = False
    """Whether the configuration expects such records, like tombstones that it leaves out: they are reported,
    and do not count towards ``errors.deadletterqueue.max.consecutive`` and ``.max.share``."""


class ConfigException(ConnectException):
    """A configuration that cannot work; :attr:`problems` lists everything wrong with it at once."""

    def __init__(self, problems: str | Iterable[str]) -> None:
        self.problems: Sequence[str] = (problems,) if isinstance(problems, str) else tuple(problems)
        super().__init__("\n".join(self.problems))


class MissingSourceTopicException(ConnectException):
    """Subscribed topics are not in the source (KIP-662); :attr:`topics` names them."""

    def __init__(self, topics: Iterable[str], message: str | None = None) -> None:
        self.topics: Sequence[str] = tuple(sorted(topics))
        super().__init__(
            message
            or f"the source has no topic {', '.join(map(repr, self.topics))}: create it, or take it "
            f"out of the connector's 'topics'"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.topics, str(self))


class OffsetOutOfRangeException(ConnectException):
    """The committed offset is outside what the source holds: records were lost or a topic re-created."""


class UnpublishableException(ConnectException):
    """Raised by ``publish``: committed tokens no longer exist outside, and their data never was visible.

    The only way to move a commit back: it is withdrawn to :attr:`offset` in a fenced write, logged and
    counted; the partition ends for this generation, and the next one reads again from there.

    Args:
        message: what no longer exists.
        offset: the first offset of what cannot be published; nothing at or beyond it is visible, or ever
            will be, through the tokens of the commit, except what ``partly_visible_to`` says.
        metadata: of the commit afterwards.
        discard: the commit's tokens from that offset on; they go to ``discard``. Those before it must be
            published.
        partly_visible_to: the offset after the last record from ``offset`` on that is visible all the same,
            which the task passes over when it comes again, as ``metadata`` tells it. The connector is not
            deleted before its commit is there: a connector made anew would know nothing of these records.
            None: there are none.
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
    """A newer generation, or a newer attempt at the same task, owns the store record of this write.

    After it, write nothing more and clean nothing up: the last write may have taken effect, and the successor
    decides whether to discard it.
    """


def said(error: BaseException) -> str:
    """An error's message, with its class unless it is sinksdk's: ``'celsius'`` alone says nothing."""
    message, kind = str(error), type(error)
    if not message:
        return kind.__name__
    return message if kind.__module__.partition(".")[0] == "sinksdk" else f"{kind.__name__}: {message}"


def authors_frames(error: BaseException) -> list[tuple[str, str, int]]:
    """Return name, file and line of an author's functions that an error went through, outermost first.

    Functions of sinksdk, of pydantic, which calls validators, and of the libraries that the author's own
    package calls are left out.
    """
    found = [
        (str(frame.f_globals.get("__name__")).partition(".")[0], frame.f_code, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    packages = (name for name, _, _ in found if name not in _NOT_AUTHORS)
    package = next(packages, None)
    return [
        (code.co_qualname, Path(code.co_filename).name, line) for name, code, line in found if name == package
    ]


_NOT_AUTHORS: Final = {"sinksdk", "pydantic", *sys.stdlib_module_names} - {"__main__"}


def place_of(error: BaseException) -> str:
    """Return where an author's code raised an error, as the end of a message; empty if it did not."""
    frames = authors_frames(error)
    return f" at {frames[-1][0]} ({frames[-1][1]}, line {frames[-1][2]})" if frames else ""
