"""The Spark of connectors: the user's session, or one that sinksdk starts by Spark's configuration."""

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
    """Checked options of the Spark that connectors run on.

    Args:
        conf: Spark's own settings, for one that is started; they win over all others.
        context: the user's, which is not changed or stopped.
        session: the user's, from which transforms have functions, views and settings.
        joins: use a Spark that is active in this process when one is needed, and do not stop it. Otherwise
            start one then.
    """

    master: str
    conf: Mapping[str, str] = field(default_factory=dict)
    context: SparkContext | None = None
    joins: bool = False
    session: SparkSession | None = None

    @property
    def task_slots(self) -> int | None:
        """Number of task slots of a Spark to start; None if the name of its master does not state it."""
        return task_slots_named(self.master) if self.context is None else None


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """Options for Spark, not checked yet.

    Args:
        master: Spark's master URL; None: what Spark's own configuration says, else ``local[*]``.
        conf: Spark's own settings, by key, or each ``KEY=VALUE``.
        session: the user's ``SparkSession`` or ``SparkContext``.
        joins: whether one that is active in this process is used, if there is one.
        is_shared: whether many connectors share it. Then a local master has more task slots than cores,
            unless Spark's own configuration names the master.
        task_slots: number of task slots of a local master; None: four per core if it is shared.
    """

    master: str | None = None
    conf: Mapping[str, Any] | Sequence[str] = ()
    session: object | None = None
    joins: bool = False
    is_shared: bool = False
    task_slots: int | None = None

    def settings(self, *, store_is_local_file: bool) -> SparkSettings:
        """Check the options.

        Args:
            store_is_local_file: tasks on other hosts would not see it.

        Raises:
            ConfigException: every problem at once, among them where options and a running session differ.
        """
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
    """Differences between a running Spark and the options."""
    runs = f"Spark runs in this process already (application {spark.appName!r})"
    problems = []
    if master is not None and not is_same_master(master, spark.master or ""):
        problems.append(
            f"{runs} on master {spark.master}, and master {master} is asked for: leave the master out, or "
            f"stop that session first"
        )
    has = spark.getConf()
    problems += [
        f"{runs} with {key}={has.get(key)}, and {key}={value} is asked for: leave it out, or give it to that "
        f"session when it is made"
        for key, value in conf.items()
        if has.get(key) != value
    ]
    return problems
