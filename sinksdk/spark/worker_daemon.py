"""The process that Spark forks its Python workers from: it has imported what every task needs.

Spark starts a worker whenever more tasks run at once than did lately, and ends those that are idle for a
minute. One that has to import everything by itself costs more than a second of a core, during which its task
stands still; where another connector's backlog keeps the cores busy, that becomes ten.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
from collections.abc import Iterator
from typing import Final

from pyspark import daemon

from sinksdk.plugins.classes import preload

_MODULES: Final = (
    "sinksdk.worker.sink_task",
    "sinksdk.store.sql",
    "sinksdk.store.s3",
    "sinksdk.topics.kafka.reader",
    "sinksdk.topics.directory.reader",
    # What a first request to S3, or to a store in a file, imports.
    "boto3.s3.inject",
    "sqlalchemy.dialects.sqlite",
)


def main() -> None:
    """Import, then do what pyspark's own daemon does."""
    with _nothing_printed():
        for module in _MODULES:
            with contextlib.suppress(ImportError):  # of an extra that is not installed: who needs it says so
                importlib.import_module(module)
        preload()
    # Spark collects garbage after each task, for 0.1 s of a core: imported modules hold none.
    gc.collect()
    gc.freeze()
    daemon.manager()


@contextlib.contextmanager
def _nothing_printed() -> Iterator[None]:
    """What is printed goes to standard error: standard output begins with the port that Spark waits for."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


if __name__ == "__main__":
    main()
