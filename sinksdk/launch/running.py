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
from sinksdk.launch.summary import CommitCounter, Summary
from sinksdk.support.logs import LogSettings
from sinksdk.support.threads import has_ended, start_call

log = logging.getLogger(__name__)

_POLL: Final = 0.1  # seconds between checks whether the driver reads requests


class RunningConnector:
    """A connector that runs in threads of this process until it has caught up, fails or is stopped.

    Created by :func:`sinksdk.start`. As a context manager, it is stopped at the block's end: partial batches
    are flushed and committed. Its methods may be called from any thread; some block, so a coroutine calls
    them with ``asyncio.to_thread``.
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
        report: Callable[[str], None] = log.info,
        on_jvm_signal: Callable[[Signals], None] | None = None,
    ) -> None:
        deployment, connector = prepared
        self._name = connector.config.name
        self._store = deployment.store
        self._herder = Herder(deployment.store)
        self._signal = ClosingSignal()
        self._commits = CommitCounter(listener)
        self._ending = Lock()
        self._last: ConnectorInfo | None = None
        self._spark = SparkOnDemand(
            deployment,
            self._name,
            python_path=_import_path() if python_path is None else python_path,
            logs=logs or _own_logs(),
            is_stopping=lambda: self._signal.is_final or is_stopping(),
            report=report,
            on_jvm_signal=on_jvm_signal,
        )
        try:
            self._spark.check(connector)
        except ConnectException:
            self._store.close()
            raise
        self._worker = deployment.worker(
            self._name, self._spark, self._commits, first=connector, signal=self._signal
        )
        self._ended = start_call(lambda: self._run(until_caught_up=until_caught_up), "driver")

    @property
    def name(self) -> str:
        """Name of the connector."""
        return self._name

    def status(self) -> ConnectorInfo:
        """Read the status from the store: ``state``, ``tasks``, ``partitions``, ``lag`` and others.

        Raises:
            StoreUnavailable: the store does not respond.
        """
        with self._ending:
            return self._last or self._info()

    def summary(self) -> Summary:
        """Totals that completed generations have committed since the start."""
        return self._commits.summary()

    def rebalance(self) -> None:
        """Flush, commit and close the running generation; the next one gets a new assignment."""
        self._signal.request(ClosingReason.REBALANCE, final=False)

    def flush(self) -> None:
        """Request a commit of all records available now, partial batches included. Does not wait for it.

        Raises:
            StoreUnavailable: the store does not respond.
            Exception: the connector's failure.
        """
        # The driver would not see a request that was stored before its start.
        while not self._commits.has_started.wait(_POLL):
            if has_ended(self._ended, 0):
                return
        with self._ending:
            if self._last is None:
                self._herder.flush(self._name)

    def close(self) -> None:
        """Request a stop: partial batches are flushed and committed. Does not wait for it."""
        self._worker.close()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the connector has stopped.

        Args:
            timeout: seconds to wait at most; None: without limit.

        Returns:
            Whether it has stopped, without a failure.

        Raises:
            ConfigException: the connector refuses to start, or Spark cannot be started.
            MissingSourceTopicException: a subscribed topic does not exist.
            FencedException: a newer driver of the same connector has taken over.
            ConnectException: a permanent failure; committed records stay committed.
        """
        return has_ended(self._ended, timeout)

    def stop(self) -> Summary:
        """Flush, commit and close, and wait for it; ``task.shutdown.graceful.timeout.ms`` limits that.

        Returns:
            Totals that were committed since the start.

        Raises:
            ConnectException: as :meth:`wait`.
        """
        self.close()
        self.wait()
        return self.summary()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name!r})"

    def _repr_html_(self) -> str:
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
            return  # close() was called before: the caller chose not to wait
        try:
            self.stop()
        except Exception as failure:
            # The connector's failure must not hide the exception of the block.
            if failure is not error:
                log.exception("connector %s failed as well", self._name)

    def _run(self, *, until_caught_up: bool) -> None:
        try:
            with self._spark:
                self._worker.run(until_caught_up=until_caught_up)
        finally:
            with self._ending:
                with suppress(ConnectException):
                    self._last = self._info()
                self._store.close()

    def _info(self) -> ConnectorInfo:
        try:
            return self._herder.info(self._name)
        except ConnectorNotFoundException:  # the connector is not stored yet, or was deleted
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
    # Executors have their own installed packages.
    installed = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    own = dict.fromkeys(Path(path).absolute() for path in ("", *sys.path))
    return tuple(str(path) for path in own if path.is_dir() and not any(map(path.is_relative_to, installed)))


def _own_logs() -> LogSettings:
    level: Literal["DEBUG", "INFO", "WARNING"] = "WARNING"
    own = logging.getLogger("sinksdk")
    if own.isEnabledFor(logging.INFO):
        level = "DEBUG" if own.isEnabledFor(logging.DEBUG) else "INFO"
    return LogSettings(level)
