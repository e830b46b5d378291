"""Reads Spark's configuration before its JVM runs, which takes seconds: the checks need the master."""

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
from sinksdk.settings.references import resolve_references
from sinksdk.store.addresses import S3_SCHEME

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway

MASTER: Final = "spark.master"
# Environment variable of Python workers, which import only the libraries of this kind of store.
STORE_KIND: Final = "SINKSDK_STORE"
S3: Final = "s3"
SQL: Final = "sql"
_NAME: Final = "spark.app.name"
# spark-submit has the same default, and reports it if no master was set.
_DEFAULT_MASTER: Final = "local[*]"
_UNNAMED: Final = "pyspark-shell"

# Settings that sinksdk passed to a JVM, which reports them as if the user had set them.
_PASSED: weakref.WeakKeyDictionary[Any, Mapping[str, str]] = weakref.WeakKeyDictionary()


def parse_conf(settings: Iterable[str]) -> dict[str, str]:
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
    problems = [
        f"{key!r} is not a Spark setting: Spark's keys begin with 'spark.'"
        for key in conf
        if not key.startswith("spark.")
    ]
    if MASTER in conf:
        problems.append("the Spark setting 'spark.master' cannot be used: set the master with --master")
    if problems:
        raise ConfigException(problems)


def store_conf(store_url: str) -> dict[str, str]:
    kind = S3 if resolve_references(store_url).startswith(S3_SCHEME) else SQL
    return {f"spark.executorEnv.{STORE_KIND}": kind}


def is_submitted() -> bool:
    return "PYSPARK_GATEWAY_PORT" in os.environ


def configured() -> dict[str, str]:
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
    theirs = configured().get(MASTER)
    submitted = theirs if is_submitted() else _submit_arguments().get(MASTER)
    if named is not None and submitted not in (None, _DEFAULT_MASTER, named):
        raise ConfigException(
            f"spark-submit has the master {submitted}, but sinksdk the master {named}: set it only once"
        )
    return named or theirs or _DEFAULT_MASTER


def is_configured(master: str) -> bool:
    return configured().get(MASTER) == master


def settings_of(gateway: JavaGateway) -> dict[str, str]:
    from pyspark import SparkConf  # noqa: PLC0415 - loaded with the JVM

    return dict(SparkConf(loadDefaults=True, _jvm=gateway.jvm).getAll())


def remember(gateway: JavaGateway, passed: Mapping[str, str]) -> None:
    _PASSED[gateway] = dict(passed)


def _gateway() -> JavaGateway | None:
    if not is_submitted() and "pyspark" not in sys.modules:
        return None
    from pyspark import SparkContext  # noqa: PLC0415 - already loaded, or needed

    if is_submitted():
        SparkContext._ensure_initialized()  # noqa: SLF001 - no public API
    return SparkContext._gateway  # noqa: SLF001 - the same


def _defaults() -> dict[str, str]:
    path = _conf_folder() / "spark-defaults.conf"
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigException(f"cannot read Spark's configuration {path}: {error}") from error
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
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False, allow_abbrev=False)
    parser.add_argument("--master")
    parser.add_argument("--name")
    parser.add_argument("--conf", "-c", action="append", default=[])
    try:
        parsed, _ = parser.parse_known_args(shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "")))
    except (ValueError, argparse.ArgumentError) as error:
        raise ConfigException(f"cannot parse PYSPARK_SUBMIT_ARGS: {error}") from error
    found = {key: value for key, _, value in (setting.partition("=") for setting in parsed.conf)}
    return found | {key: value for key, value in ((MASTER, parsed.master), (_NAME, parsed.name)) if value}
