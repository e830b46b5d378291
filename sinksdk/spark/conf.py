"""Spark's own settings, as an operator may give them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from sinksdk.errors import ConfigException

if TYPE_CHECKING:
    from pyspark import SparkContext


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
    problems = [problem for key in conf if (problem := _problem(key))]
    if problems:
        raise ConfigException(problems)


def speculates(spark: SparkContext) -> bool:
    """Whether it runs second copies of slow tasks."""
    return spark.getConf().get("spark.speculation", "false").lower() == "true"


def _problem(key: str) -> str | None:
    if not key.startswith("spark."):
        return f"the Spark setting {key!r} is none: Spark's keys begin with 'spark.'"
    if key == "spark.master":
        return "the Spark setting 'spark.master' is not taken: name the master by itself (--master)"
    return None
