"""Which Spark is used, and how it is configured: spark-submit, spark-defaults.conf, our own options."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sinksdk import ConfigException
from sinksdk.spark import conf as spark_configured
from sinksdk.spark.conf import configured, master_to_start
from sinksdk.spark.context import spark_conf
from sinksdk.spark.options import SparkOptions, SparkSettings


@pytest.fixture(autouse=True)
def _unconfigured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No JVM, whatever ran in this process before, and a configuration folder of our own."""
    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setattr(spark_configured, "_gateway", lambda: None)


def settings(options: SparkOptions) -> SparkSettings:
    return options.settings(store_is_local_file=False)


def defaults(folder: Path, text: str) -> None:
    (folder / "spark-defaults.conf").write_text(text)


def test_the_default_master() -> None:
    """Where nobody names one."""
    assert settings(SparkOptions()) == SparkSettings("local[*]")


def test_spark_defaults_count(tmp_path: Path) -> None:
    """Master and settings; what sinksdk sets itself is beneath them, what it is told is above."""
    defaults(tmp_path, "spark.master  local[3]\nspark.ui.enabled=true\nspark.x 1\n# a comment\nother 1\n")

    assert configured() == {"spark.master": "local[3]", "spark.ui.enabled": "true", "spark.x": "1"}
    assert settings(SparkOptions()).master == "local[3]"
    assert settings(SparkOptions("local[2]")).master == "local[2]"
    conf = spark_conf("ours", "local[3]", {"spark.x": "2"}, configured())
    assert {key: conf[key] for key in ("spark.ui.enabled", "spark.x", "spark.app.name")} == {
        "spark.ui.enabled": "true",
        "spark.x": "2",
        "spark.app.name": "ours",
    }


def test_a_master_that_spark_was_told_is_taken_as_it_is(tmp_path: Path) -> None:
    """Only a local one that is named to sinksdk tries tasks as often as clusters do."""
    defaults(tmp_path, "spark.master local[3]")

    assert spark_conf("x", "local[3]", {}, configured())["spark.master"] == "local[3]"
    assert spark_conf("x", "local[2]", {}, configured())["spark.master"] == "local[2,4]"


def test_the_jvms_options_of_spark_defaults_are_kept(tmp_path: Path) -> None:
    """Beside ours; who has chosen a collector there keeps it."""
    defaults(tmp_path, "spark.driver.defaultJavaOptions -XX:+UseG1GC")
    options = spark_conf("x", "local", {}, configured())["spark.driver.defaultJavaOptions"]

    assert options.endswith(" -XX:+UseG1GC")
    assert "Serial" not in options


def test_pyspark_submit_args_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As spark-submit's command line, which wins over its defaults; what is not about settings is left to it."""
    defaults(tmp_path, "spark.x 1")
    said = "--master local[5] --name mine --conf spark.x=a=b --py-files a.py pyspark-shell"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", said)

    assert configured() == {"spark.master": "local[5]", "spark.app.name": "mine", "spark.x": "a=b"}
    assert spark_conf("ours", "local[5]", {}, configured())["spark.app.name"] == "mine"
    with pytest.raises(
        ConfigException, match=r"told the master local\[5\], and sinksdk the master local\[2\]"
    ):
        settings(SparkOptions("local[2]"))
    assert master_to_start("local[5]") == "local[5]"


def test_a_master_of_spark_submit_and_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are named; that spark-submit was told none shows as local[*]."""
    said = {"spark.master": "yarn"}
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    monkeypatch.setattr(spark_configured, "configured", lambda: said)
    with pytest.raises(ConfigException, match=r"told the master yarn, and sinksdk the master local\[2\]"):
        master_to_start("local[2]")
    assert master_to_start(None) == "yarn"
    said["spark.master"] = "local[*]"
    assert master_to_start("local[2]") == "local[2]"


def test_a_server_has_more_task_slots_than_cores(tmp_path: Path) -> None:
    """Of a local master; one that Spark's own configuration names is left alone, unless task slots are given."""
    assert settings(SparkOptions("local[2]", is_shared=True)).master == "local[8]"
    defaults(tmp_path, "spark.master local[3]")
    assert settings(SparkOptions(is_shared=True)).master == "local[3]"
    assert settings(SparkOptions(is_shared=True, task_slots=5)).master == "local[5]"


def test_settings_may_be_numbers_and_booleans() -> None:
    """spark_conf as a mapping."""
    conf = settings(SparkOptions(conf={"spark.x": 2, "spark.y": True})).conf

    assert conf == {"spark.x": "2", "spark.y": "true"}


@pytest.fixture
def active(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A Spark that runs in this process."""
    conf = {"spark.x": "1"}
    running = SimpleNamespace(master="local[2,4]", appName="mine", getConf=lambda: conf)
    monkeypatch.setattr("sinksdk.spark.options.active_spark", lambda: running)
    return running


@pytest.mark.usefixtures("active")
def test_an_active_session_is_used() -> None:
    """By programs, not by commands; it is looked for again when it is needed, for it may end until then."""
    found = settings(SparkOptions("local[2]", {"spark.x": 1}, joins=True))

    assert found == SparkSettings("local[2,4]", {"spark.x": "1"}, None, joins=True)
    assert settings(SparkOptions("local[7]")).master == "local[7]"


@pytest.mark.usefixtures("active")
def test_an_active_session_is_not_what_is_asked_for() -> None:
    """What cannot be reconciled is an error that names both."""
    with pytest.raises(ConfigException) as caught:
        settings(SparkOptions("local[3]", {"spark.x": "2", "spark.y": "3"}, joins=True))

    first, second, third = caught.value.problems
    assert "(application 'mine') on master local[2,4], and master local[3] is asked for" in first
    assert "with spark.x=1, and spark.x=2 is asked for" in second
    assert "with spark.y=None, and spark.y=3 is asked for" in third


def test_what_is_no_session() -> None:
    """spark: said before anything is read."""
    with pytest.raises(ConfigException, match="spark is a str: give a SparkSession or a SparkContext"):
        settings(SparkOptions(session="local[2]"))


def test_a_store_that_the_sessions_executors_do_not_reach(active: Any) -> None:
    """A file on this host, and a session whose tasks run on others."""
    active.master = "spark://elsewhere:7077"
    with pytest.raises(ConfigException, match="the store is a file on this one"):
        SparkOptions(joins=True).settings(store_is_local_file=True)
