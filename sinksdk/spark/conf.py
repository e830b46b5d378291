"""Spark's own settings, as an operator may give them: all but those that sinksdk stands on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from sinksdk.errors import ConfigException

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NEEDED: Final[Mapping[str, str]] = {
    # A union of one-partition frames would be one partition, and so would all tasks.
    "spark.sql.unionOutputPartitioning": "false",
}
"""What must not have another value, or records would reach the wrong task."""


def parse_conf(settings: Iterable[str]) -> dict[str, str]:
    """Settings written as ``KEY=VALUE``, as spark-submit takes them; of a repeated key the last one holds.

    Raises:
        ConfigException: every setting that cannot be used, at once.
    """
    parted = [setting.partition("=") for setting in settings]
    problems = [
        f"the Spark setting {key!r} has no value: write KEY=VALUE" for key, sign, _ in parted if not sign
    ]
    conf = {key.strip(): value.strip() for key, sign, value in parted if sign}
    try:
        check_conf(conf)
    except ConfigException as error:
        problems += error.problems
    if problems:
        raise ConfigException(problems)
    return conf


def check_conf(conf: Mapping[str, str]) -> None:
    """Check that generations can run with these settings; whether Spark likes them, it says itself.

    Raises:
        ConfigException: every setting that cannot be used, at once.
    """
    problems = [problem for key, value in conf.items() if (problem := _problem(key, value))]
    if problems:
        raise ConfigException(problems)


def needed_conf() -> Mapping[str, str]:
    """Settings that every session has, whatever else is set."""
    return _NEEDED


def speculates(spark: SparkSession) -> bool:
    """Whether a session runs second copies of slow tasks."""
    return spark.sparkContext.getConf().get("spark.speculation", "false").lower() == "true"


def _problem(key: str, value: str) -> str | None:
    if not key.startswith("spark."):
        return f"the Spark setting {key!r} is none: Spark's keys begin with 'spark.'"
    if key == "spark.master":
        return "the Spark setting 'spark.master' is not taken: name the master by itself (--master)"
    if value != _NEEDED.get(key, value):
        return (
            f"the Spark setting {key!r} must be {_NEEDED[key]!r}: sinksdk runs one Spark partition per task"
        )
    return None
