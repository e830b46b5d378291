"""Log lines of processes that are ours: the command line and the Python workers of its tasks.

The library itself only ever logs; whoever runs it otherwise configures logging as he likes.
"""

from __future__ import annotations

import logging
import sys

from sinksdk.confidential import WithoutSecrets


class _WithoutTraces(logging.Formatter):
    """One line per record: what failed is reported with its cause elsewhere."""

    def format(self, record: logging.LogRecord) -> str:
        trace, record.exc_info, record.exc_text = record.exc_info, None, None
        try:
            return super().format(record)
        finally:
            record.exc_info = trace


class Outage:
    """What fails again and again is warned of once, until it has worked in between.

    Args:
        log: where to.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._is_told = False

    def failed(self, message: str, *arguments: object) -> None:
        """It has failed, maybe not for the first time."""
        self._log.log(logging.DEBUG if self._is_told else logging.WARNING, message, *arguments, exc_info=True)
        self._is_told = True

    def worked(self) -> None:
        """It has worked."""
        self._is_told = False


def configure_logging(*, verbose: bool) -> None:
    """Log sinksdk's warnings and errors to stderr, one line each; with ``verbose`` everything, with traces.

    Does nothing where logging is configured already.
    """
    root = logging.getLogger()
    if root.handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    pattern = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    handler.setFormatter(WithoutSecrets(logging.Formatter(pattern) if verbose else _WithoutTraces(pattern)))
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("sinksdk").setLevel(logging.DEBUG if verbose else logging.WARNING)
