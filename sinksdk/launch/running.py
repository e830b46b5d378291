"""A connector that runs in threads of this process."""

from __future__ import annotations

import logging
import sys
import sysconfig
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from signal import Signals
from threading import Lock
from types import TracebackType
from typing import Final, Literal, Self

from sinksdk.context import ClosingReason
from sinksdk.control.herder import Herder
from sinksdk.control.progress import Listener
from sinksdk.control.registry import ConnectorNotFoundException
from sinksdk.control.requests import ClosingSignal
from sinksdk.control.shown import ConnectorInfo
from sinksdk.errors import ConnectException
from sinksdk.launch.prepare import Prepared
from sinksdk.launch.spark import SparkOnDemand
from sinksdk.launch.summary import ErrorCounter, Summary
from sinksdk.support.logs import LogSettings
from sinksdk.support.threads import beside, has_ended

log = logging.getLogger(__name__)

_LOOK: Final = 0.1  # seconds between checks whether the driver has begun its work


class RunningConnector:
    """A connector that runs in threads of this process, until it has ended or is stopped.

    Made by :func:`sinksdk.start`. As a context manager it is stopped at the block's end: what it has read is
    flushed and committed. Its methods may be called from any thread; those that wait block it, so a coroutine
    calls them with ``asyncio.to_thread``.

    Args:
        until_caught_up: whether it ends when everything there is now is committed.
        python_path: folders that executors import the connector from, besides the installed packages; None:
            as this process does.
        logs: how its tasks log; None: as this process does.
        is_stopping: whether an end was requested by other means; then Spark is not started any more.
        tell: called with a line for the operator.
        hear: called with signals that Spark's JVM gets; None: they end it, unless it was started for this.

    Raises:
        ConfigException: Spark runs already, and its transform cannot be used there.
    """

    def __init__(
        self,
        prepared: Prepared,
        *,
        until_caught_up: bool = False,
        listener: Listener | None = None,
        python_path: tuple[str, ...] | None = None,
        logs: LogSettings | None = None,
        is_stopping: Callable[[], bool] = lambda: False,
        tell: Callable[[str], None] = log.info,
        hear: Callable[[Signals], None] | None = None,
    ) -> None:
        deployment, connector = prepared
        self._name = connector.config.name
        self._signal = ClosingSignal()
        self._tally = ErrorCounter(listener)
        spark = SparkOnDemand(
            deployment,
            self._name,
            python_path=_import_path() if python_path is None else python_path,
            logs=logs or _own_logs(),
            is_stopping=lambda: self._signal.is_final or is_stopping(),
            tell=tell,
            hear=hear,
        )
        try:
            spark.check(connector)
        except ConnectException:
            deployment.store.close()
            raise
        self._life = _ConnectorThread(prepared, spark, self._tally, self._signal)
        self._ended = beside(lambda: self._life.run(until_caught_up=until_caught_up), "driver")

    @property
    def name(self) -> str:
        """The connector's name."""
        return self._name

    def status(self) -> ConnectorInfo:
        """Its status: ``state``, ``tasks``, ``partitions``, ``lag``, ``trace`` …, as its store says.

        Raises:
            StoreUnavailable: the store does not answer.
        """
        return self._life.info()

    def summary(self) -> Summary:
        """What was committed since the start, by the generations that have ended."""
        return self._tally.summary()

    def rebalance(self) -> None:
        """End the running generation early: everything is flushed, committed and reassigned."""
        self._signal.ask(ClosingReason.REBALANCE, final=False)

    def flush(self) -> None:
        """Request a commit of all records available now, tails included. Does not wait for it.

        Raises:
            StoreUnavailable: the store does not answer.
            Exception: what has ended the connector.
        """
        # Before that the driver reads no requests; nothing was read either.
        while not self._tally.begun.wait(_LOOK):
            if has_ended(self._ended, 0):
                return
        self._life.flush()

    def close(self) -> None:
        """Request the end: read records are flushed and committed first. Does not wait for it."""
        self._life.close()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end.

        Args:
            timeout: seconds to wait at most; None: as long as it takes.

        Returns:
            Whether it has ended, without an exception.

        Raises:
            ConfigException: the connector refuses to start, or Spark cannot be started.
            MissingSourceTopicException: a subscribed topic is not there, or no longer.
            FencedException: a newer driver of the same connector has taken over.
            ConnectException: it failed for good; what was committed stays committed.
        """
        return has_ended(self._ended, timeout)

    def stop(self) -> Summary:
        """Flush, commit and close, and wait for it; ``task.shutdown.graceful.timeout.ms`` bounds that.

        Returns:
            What was committed since the start.

        Raises:
            ConnectException: as :meth:`wait`.
        """
        self.close()
        self.wait()
        return self.summary()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name!r})"

    def _repr_html_(self) -> str:
        """In a notebook: its status."""
        return self.status()._repr_html_()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if error is None:
            self.stop()
            return
        if self._signal.is_final:
            return  # it was closed before: the caller chose not to wait any longer
        try:
            self.stop()
        except Exception as failure:
            # The block's own exception is raised, which may be the connector's; this one must not hide it.
            if failure is not error:
                log.exception("connector %s: failed, too", self._name)


class _ConnectorThread:
    """What runs in the connector's thread: the connector, then the end of what it needed."""

    def __init__(
        self, prepared: Prepared, spark: SparkOnDemand, tally: ErrorCounter, signal: ClosingSignal
    ) -> None:
        deployment, connector = prepared
        self._name = connector.config.name
        self._store = deployment.store
        self._herder = Herder(deployment.store)
        self._spark = spark
        self._worker = deployment.worker(self._name, spark, tally, first=connector, signal=signal)
        self._ending = Lock()
        self._last: ConnectorInfo | None = None

    def run(self, *, until_caught_up: bool) -> None:
        """Run the connector to its end."""
        try:
            with self._spark:
                self._worker.run(until_caught_up=until_caught_up)
        finally:
            with self._ending:
                with suppress(ConnectException):
                    self._last = self._info()
                self._store.close()

    def close(self) -> None:
        """Ask for the end."""
        self._worker.close()

    def info(self) -> ConnectorInfo:
        """How it is doing; after its end, how it was then."""
        with self._ending:
            return self._last or self._info()

    def flush(self) -> None:
        """Have everything committed that is there now."""
        with self._ending:
            if self._last is None:
                self._herder.flush(self._name)

    def _info(self) -> ConnectorInfo:
        try:
            return self._herder.info(self._name)
        except ConnectorNotFoundException:  # it has not come to its start yet, or was deleted
            return ConnectorInfo(
                self._name,
                "UNASSIGNED",
                "RUNNING",
                is_deleted=False,
                driver="",
                generation=0,
                tasks=(),
                partitions=(),
            )


def _import_path() -> tuple[str, ...]:
    """Folders that executors import from besides the installed packages, as this process does."""
    installed = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    own = dict.fromkeys(Path(path).absolute() for path in ("", *sys.path))
    return tuple(str(path) for path in own if path.is_dir() and not any(map(path.is_relative_to, installed)))


def _own_logs() -> LogSettings:
    """Tasks log what this process logs."""
    level: Literal["DEBUG", "INFO", "WARNING"] = "WARNING"
    own = logging.getLogger("sinksdk")
    if own.isEnabledFor(logging.INFO):
        level = "DEBUG" if own.isEnabledFor(logging.DEBUG) else "INFO"
    return LogSettings(level)
