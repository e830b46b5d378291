"""Logging of sinksdk's own processes: the command line and the Python workers of its tasks."""

from __future__ import annotations

import contextvars
import json
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal, TextIO

from sinksdk.support.confidential import SECRETS, WithoutSecrets

_REPEATED: Final = 600.0  # seconds until a lasting outage is logged again
# The subject of log lines is set where the work begins, as in Connect (KIP-449).
_FIELDS: Final = ("connector", "task", "generation")
_PATTERN: Final = "%(asctime)s %(levelname)s %(where)s%(name)s: %(message)s"

log = logging.getLogger(__name__)

_about: contextvars.ContextVar[dict[str, str | int] | None] = contextvars.ContextVar("about", default=None)


@dataclass(frozen=True, slots=True)
class LogSettings:
    level: Literal["DEBUG", "INFO", "WARNING"] = "WARNING"
    is_json: bool = False
    traces: bool = False


WARNINGS: Final = LogSettings()


@contextmanager
def logging_about(**fields: str | int) -> Iterator[None]:
    token = _about.set({**(_about.get() or {}), **fields})
    try:
        yield
    finally:
        _about.reset(token)


def same_subject(function: Callable[[], None]) -> Callable[[], None]:
    context = contextvars.copy_context()
    return lambda: context.run(function)


def stack_of(thread: int | None) -> list[str]:
    frame = sys._current_frames().get(thread or 0)  # noqa: SLF001 - documented, and the only way
    return traceback.format_stack(frame) if frame else []


class Outage:
    """Logs when an operation begins to fail, every ten minutes while it fails, and when it works again."""

    def __init__(
        self,
        log: logging.Logger,
        what: str | Callable[[], str],
        *,
        after: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._what = what
        # Seconds of failure before the first log line.
        self._after = after
        self._clock = clock
        self._lock = threading.Lock()
        self._failures = 0
        self._since = 0.0
        self._logged_at: float | None = None

    @property
    def since(self) -> float | None:
        return self._since if self._failures else None

    def failed(self, message: str, *arguments: object, since: float | None = None) -> None:
        """Record a failure; ``since`` is the first attempt, by default the first failure."""
        with self._lock:
            now = self._clock()
            if not self._failures:
                self._since = now if since is None else since
            self._failures += 1
            is_news = now - self._since >= self._after and (
                self._logged_at is None or now - self._logged_at >= _REPEATED
            )
            if any(getattr(argument, "is_logged", False) for argument in arguments):
                # The store logs its own outages, so these are skipped.
                is_news = False
            if is_news:
                self._logged_at = now
        error = next((one for one in arguments if isinstance(one, BaseException)), sys.exc_info()[1])
        self._log.log(logging.WARNING if is_news else logging.DEBUG, message, *arguments, exc_info=error)

    def worked(self) -> None:
        if not self._failures:
            return
        with self._lock:
            failures, was_logged = self._failures, self._logged_at is not None
            self._failures, self._logged_at = 0, None
            seconds = self._clock() - self._since
        if was_logged:
            what = self._what if isinstance(self._what, str) else self._what()
            self._log.warning("%s works again after %.1f s (%d failures)", what, seconds, failures)


def configure_logging(settings: LogSettings) -> None:
    """Log to stderr, unless the program has configured logging."""
    root = logging.getLogger()
    if root.handlers:
        return
    handler = _Stderr()
    handler.addFilter(_make_printable)
    handler.addFilter(_add_subject)
    handler.setFormatter(WithoutSecrets(_Json() if settings.is_json else _Text(traces=settings.traces)))
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("sinksdk").setLevel(settings.level)
    threading.excepthook = _log_ended_thread


class _Stderr(logging.StreamHandler[TextIO]):
    # A live table on the terminal replaces sys.stderr temporarily.
    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override] # a StreamHandler has it as an attribute
        return sys.stderr


def _log_ended_thread(ended: threading.ExceptHookArgs) -> None:
    # Python's hook prints the trace, with secrets that it quotes, and not as a log line.
    if ended.exc_value is not None and not isinstance(ended.exc_value, SystemExit):
        name = ended.thread.name if ended.thread else "unknown"
        what = f"{ended.exc_type.__name__}: {ended.exc_value}"
        log.error("thread %s failed: %s", name, what, exc_info=ended.exc_value)


def _make_printable(record: logging.LogRecord) -> bool:
    try:  # otherwise Python would print a trace
        record.getMessage()
    except Exception:  # noqa: BLE001 - an argument's own __str__ may raise anything
        record.msg, record.args = f"{record.msg} {_shown(record.args)}", None
    return True


def _shown(arguments: object) -> str:
    try:
        return repr(arguments)
    except Exception:  # noqa: BLE001 - an argument's own __repr__ may raise anything
        return "(unprintable arguments)"


def _add_subject(record: logging.LogRecord) -> bool:
    about = _about.get() or {}
    for field in _FIELDS:
        setattr(record, field, about.get(field))
    return True


class _Text(logging.Formatter):
    """Formats ``time LEVEL [connector|task-0|generation-7] logger: message``."""

    def __init__(self, *, traces: bool) -> None:
        super().__init__(_PATTERN)
        self._traces = traces

    def format(self, record: logging.LogRecord) -> str:
        known = {field: getattr(record, field, None) for field in _FIELDS}
        parts = [
            str(value) if field == "connector" else f"{field}-{value}"
            for field, value in known.items()
            if value is not None
        ]
        record.where = f"[{'|'.join(parts)}] " if parts else ""
        if self._traces:
            return super().format(record)
        trace, record.exc_info, record.exc_text = record.exc_info, None, None
        try:
            return super().format(record) + _cause(record, trace[1] if trace else None)
        finally:
            record.exc_info = trace


def _cause(record: logging.LogRecord, error: BaseException | None) -> str:
    # Secrets are hidden in the message, so the comparison must hide them, too.
    lines = SECRETS.hide(str(error)).strip().splitlines() if error is not None else []
    if error is None or (lines and lines[0] in record.getMessage()):
        return ""
    return ": ".join(["", type(error).__name__, *lines[:1]])


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {
            "time": at.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            **{field: getattr(record, field, None) for field in _FIELDS},
            "message": record.getMessage() + _cause(record, record.exc_info[1] if record.exc_info else None),
            "trace": self.formatException(record.exc_info) if record.exc_info else None,
        }
        return json.dumps({key: value for key, value in line.items() if value is not None}, default=str)
