"""Options of the Spark for connectors: the user's session, or one that sinksdk starts."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sinksdk.errors import ConfigException
from sinksdk.plugins.checks import collecting
from sinksdk.spark.conf import check_conf, is_configured, master_to_start, parse_conf
from sinksdk.spark.context import active_spark, context_of, session_of
from sinksdk.spark.master import check_master, is_same_master, task_slots_named, with_task_slots

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """Checked options. A given context or session is neither changed nor stopped."""

    master: str
    conf: Mapping[str, str] = field(default_factory=dict)
    context: SparkContext | None = None
    # Whether to use, and not to stop, an active Spark of this process.
    joins: bool = False
    session: SparkSession | None = None

    @property
    def task_slots(self) -> int | None:
        return task_slots_named(self.master) if self.context is None else None


@dataclass(frozen=True, slots=True)
class SparkOptions:
    master: str | None = None
    conf: Mapping[str, Any] | Sequence[str] = ()
    session: object | None = None
    joins: bool = False
    # Many connectors share Spark: a local master gets more task slots than cores, unless Spark's own
    # configuration names the master.
    is_shared: bool = False
    task_slots: int | None = None

    def settings(self, *, store_is_local_file: bool) -> SparkSettings:
        problems, conf, master = list[str](), dict[str, str](), ""
        if importlib.util.find_spec("pyspark") is None:
            problems.append("Spark is not installed: pip install 'sinksdk[spark]'")
        given = running = None
        with collecting(problems):
            given = context_of(self.session) if self.session is not None else None
            running = given or (active_spark() if self.joins else None)
            master = self._master(running)
            check_master(master, store_is_local_file=store_is_local_file)
        with collecting(problems):
            conf = self._conf()
        if running is not None:
            problems += _differences(running, self.master, conf)
        if problems:
            raise ConfigException(problems)
        session = session_of(self.session, running) if running is not None else None
        return SparkSettings(master, conf, given, self.joins, session)

    def _master(self, running: SparkContext | None) -> str:
        if running is not None:
            return running.master or ""
        master = master_to_start(self.master)
        if self.is_shared and (self.task_slots is not None or not is_configured(master)):
            return with_task_slots(master, self.task_slots)
        return master

    def _conf(self) -> dict[str, str]:
        if not isinstance(self.conf, Mapping):
            return parse_conf(self.conf)
        conf = {
            key: str(value).lower() if isinstance(value, bool) else str(value)
            for key, value in self.conf.items()
        }
        check_conf(conf)
        return conf


def _differences(spark: SparkContext, master: str | None, conf: Mapping[str, str]) -> list[str]:
    runs = f"Spark is already running in this process (application {spark.appName!r})"
    problems = []
    if master is not None and not is_same_master(master, spark.master or ""):
        problems.append(
            f"{runs} on master {spark.master}, not {master}: leave the master out, or stop that session first"
        )
    has = spark.getConf()
    problems += [
        f"{runs} with {key}={has.get(key)}, not {value}: leave the setting out, or set it when the session "
        f"is created"
        for key, value in conf.items()
        if has.get(key) != value
    ]
    return problems
