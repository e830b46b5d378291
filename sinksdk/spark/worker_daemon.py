"""The process from which Spark forks its Python workers, with the imports of all tasks.

Otherwise each new worker imports for a second of CPU time, or ten if a backlog keeps the cores busy.
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
from sinksdk.spark.conf import S3, STORE_KIND

_MODULES: Final = (
    "sinksdk.worker.sink_task",
    "sinksdk.topics.kafka.reader",
    "sinksdk.topics.directory.reader",
    "boto3.s3.inject",  # otherwise boto3 imports this module at the first request
)
_S3: Final = ("sinksdk.store.s3",)
_SQL: Final = ("sinksdk.store.sql", "sqlalchemy.dialects.sqlite")


def main() -> None:
    store = _S3 if os.environ.get(STORE_KIND) == S3 else _SQL
    with _stdout_to_stderr():
        for module in (*_MODULES, *store):
            # An extra is missing: a task that needs this module reports the error.
            with contextlib.suppress(ImportError):
                importlib.import_module(module)
        preload()
    # Otherwise pyspark's garbage collection after each task takes 0.1 s for the imported modules.
    gc.collect()
    gc.freeze()
    daemon.manager()


@contextlib.contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    # Spark reads the daemon's port from standard output: an import must not print there.
    sys.stdout.flush()
    stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(stdout, 1)
        os.close(stdout)


if __name__ == "__main__":
    main()
