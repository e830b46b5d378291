"""Spark's configuration: ``--conf``, spark-submit, spark-defaults.conf and PYSPARK_SUBMIT_ARGS."""

from __future__ import annotations

import argparse
import importlib.util
import os
import shlex
import sys
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sinksdk.errors import ConfigException
from sinksdk.settings.properties import read_properties

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway

MASTER: Final = "spark.master"
_NAME: Final = "spark.app.name"
_DEFAULT_MASTER: Final = "local[*]"
"""Ours, and spark-submit's: that it says so means that nobody has named one."""
_UNNAMED: Final = "pyspark-shell"
"""The application's name where a JVM was started for Python and nobody has named it."""

_PASSED: weakref.WeakKeyDictionary[Any, Mapping[str, str]] = weakref.WeakKeyDictionary()
"""Settings with which this process started a JVM, which the JVM would report as the user's."""


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
    problems = [
        f"the Spark setting {key!r} is none: Spark's keys begin with 'spark.'"
        for key in conf
        if not key.startswith("spark.")
    ]
    if MASTER in conf:
        problems.append("the Spark setting 'spark.master' is not taken: name the master by itself (--master)")
    if problems:
        raise ConfigException(problems)


def is_submitted() -> bool:
    """Whether this process was started by spark-submit."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def configured() -> dict[str, str]:
    """The settings; of keys that several ways set, those of the one that Spark prefers.

    Raises:
        ConfigException: ``spark-defaults.conf`` or ``PYSPARK_SUBMIT_ARGS`` cannot be read.
    """
    gateway = _gateway()
    if gateway is None:
        found = {**_defaults(), **_submit_arguments()}
    else:
        passed = _PASSED.get(gateway, {})
        found = {key: value for key, value in settings_of(gateway).items() if passed.get(key) != value}
    if found.get(_NAME) == _UNNAMED:
        del found[_NAME]
    return found


def master_to_start(named: str | None) -> str:
    """The master of a Spark that is started. Raises ConfigException: spark-submit was told another one."""
    theirs = configured().get(MASTER)
    submitted = theirs if is_submitted() else _submit_arguments().get(MASTER)
    if named is not None and submitted not in (None, _DEFAULT_MASTER, named):
        raise ConfigException(
            f"spark-submit was told the master {submitted}, and sinksdk the master {named}: name it once"
        )
    return named or theirs or _DEFAULT_MASTER


def is_configured(master: str) -> bool:
    """Whether Spark's own configuration names this master."""
    return configured().get(MASTER) == master


def settings_of(gateway: JavaGateway) -> dict[str, str]:
    """What a JVM was started with, and what spark-submit has made of it."""
    from pyspark import SparkConf  # noqa: PLC0415 - loaded with the JVM

    return dict(SparkConf(loadDefaults=True, _jvm=gateway.jvm).getAll())


def remember(gateway: JavaGateway, passed: Mapping[str, str]) -> None:
    """Remember these settings of a JVM as ours, not the user's."""
    _PASSED[gateway] = dict(passed)


def _gateway() -> JavaGateway | None:
    """The JVM of this process, if it has one."""
    if not is_submitted() and "pyspark" not in sys.modules:
        return None
    from pyspark import SparkContext  # noqa: PLC0415 - it is loaded, or there is no way around it

    if is_submitted():
        SparkContext._ensure_initialized()  # noqa: SLF001 - pyspark has no public way to ask
    return SparkContext._gateway  # noqa: SLF001 - the same


def _defaults() -> dict[str, str]:
    """``spark-defaults.conf``, where there is one: a JVM that could be asked takes seconds to start."""
    path = _conf_folder() / "spark-defaults.conf"
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigException(f"Spark's configuration {path} cannot be read: {error}") from error
    found = read_properties(text, f"Spark's configuration {path}")
    return {entry.key: entry.value for entry in found if entry.key.startswith("spark.")}


def _conf_folder() -> Path:
    if folder := os.environ.get("SPARK_CONF_DIR"):
        return Path(folder)
    if home := os.environ.get("SPARK_HOME"):
        return Path(home, "conf")
    pyspark = importlib.util.find_spec("pyspark")
    return Path(pyspark.origin or "").parent / "conf" if pyspark is not None else Path("conf")


def _submit_arguments() -> dict[str, str]:
    """What ``PYSPARK_SUBMIT_ARGS`` says of settings; the rest is spark-submit's business."""
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False, allow_abbrev=False)
    parser.add_argument("--master")
    parser.add_argument("--name")
    parser.add_argument("--conf", "-c", action="append", default=[])
    try:
        said, _ = parser.parse_known_args(shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "")))
    except (ValueError, argparse.ArgumentError) as error:
        raise ConfigException(f"PYSPARK_SUBMIT_ARGS cannot be read: {error}") from error
    found = {key: value for key, _, value in (setting.partition("=") for setting in said.conf)}
    return found | {key: value for key, value in ((MASTER, said.master), (_NAME, said.name)) if value}
