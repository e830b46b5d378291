"""A Spark that somebody else has started in this process."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from sinksdk.errors import ConfigException
from sinksdk.spark.context import is_alive

if TYPE_CHECKING:
    from pyspark import SparkContext


def context_of(session: object) -> SparkContext:
    """The context of a ``SparkSession``, or the one it is given itself.

    Raises:
        ConfigException: it is neither, it has ended, or it is a client of Spark Connect's.
    """
    from pyspark import SparkContext  # noqa: PLC0415 - whoever has a session has it
    from pyspark.sql import SparkSession  # noqa: PLC0415 - the same

    if isinstance(session, SparkSession):
        session = session.sparkContext
    if not isinstance(session, SparkContext):
        what = type(session)
        if what.__module__.startswith("pyspark.sql.connect"):
            message = (
                "spark is a session of Spark Connect: its driver is in another process, and a connector runs "
                "in the driver's; give a classic session"
            )
            raise ConfigException(message)
        raise ConfigException(f"spark is a {what.__name__}: give a SparkSession or a SparkContext")
    if not is_alive(session):
        message = "the Spark session that was given has ended: make another one"
        raise ConfigException(message)
    return session


def active_spark() -> SparkContext | None:
    """The Spark that runs in this process, if one does."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark import SparkContext  # noqa: PLC0415 - it is loaded

    active = SparkContext._active_spark_context  # noqa: SLF001 - pyspark has no public way to ask
    return active if active is not None and is_alive(active) else None
