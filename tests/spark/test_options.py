"""The choice of a Spark and its configuration: spark-submit, spark-defaults.conf, sinksdk's options."""

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
    """Remove what earlier tests left: there is no JVM, and Spark's configuration folder is empty."""
    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setattr(spark_configured, "_gateway", lambda: None)


def settings(options: SparkOptions) -> SparkSettings:
    return options.settings(store_is_local_file=False)


def defaults(folder: Path, text: str) -> None:
    (folder / "spark-defaults.conf").write_text(text)


def test_the_default_master() -> None:
    assert settings(SparkOptions()) == SparkSettings("local[*]")


def test_spark_defaults_override_sinksdks_defaults(tmp_path: Path) -> None:
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


def test_a_master_of_sparks_configuration_keeps_its_attempts(tmp_path: Path) -> None:
    defaults(tmp_path, "spark.master local[3]")

    assert spark_conf("x", "local[3]", {}, configured())["spark.master"] == "local[3]"
    assert spark_conf("x", "local[2]", {}, configured())["spark.master"] == "local[2,4]"


def test_the_jvms_options_of_spark_defaults_are_kept(tmp_path: Path) -> None:
    defaults(tmp_path, "spark.driver.defaultJavaOptions -XX:+UseG1GC")
    options = spark_conf("x", "local", {}, configured())["spark.driver.defaultJavaOptions"]

    assert options.endswith(" -XX:+UseG1GC")
    assert "Serial" not in options


def test_pyspark_submit_args_override_spark_defaults(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    defaults(tmp_path, "spark.x 1")
    said = "--master local[5] --name mine --conf spark.x=a=b --py-files a.py pyspark-shell"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", said)

    assert configured() == {"spark.master": "local[5]", "spark.app.name": "mine", "spark.x": "a=b"}
    assert spark_conf("ours", "local[5]", {}, configured())["spark.app.name"] == "mine"
    with pytest.raises(
        ConfigException, match=r"has the master local\[5\], but sinksdk the master local\[2\]"
    ):
        settings(SparkOptions("local[2]"))
    assert master_to_start("local[5]") == "local[5]"


def test_two_masters_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # spark-submit reports local[*] if it has none.
    said = {"spark.master": "yarn"}
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    monkeypatch.setattr(spark_configured, "configured", lambda: said)
    with pytest.raises(ConfigException, match=r"has the master yarn, but sinksdk the master local\[2\]"):
        master_to_start("local[2]")
    assert master_to_start(None) == "yarn"
    said["spark.master"] = "local[*]"
    assert master_to_start("local[2]") == "local[2]"


def test_a_server_has_more_task_slots_than_cores(tmp_path: Path) -> None:
    # A master in Spark's own configuration stays unchanged.
    assert settings(SparkOptions("local[2]", is_shared=True)).master == "local[8]"
    defaults(tmp_path, "spark.master local[3]")
    assert settings(SparkOptions(is_shared=True)).master == "local[3]"
    assert settings(SparkOptions(is_shared=True, task_slots=5)).master == "local[5]"


def test_settings_may_be_numbers_and_booleans() -> None:
    conf = settings(SparkOptions(conf={"spark.x": 2, "spark.y": True})).conf

    assert conf == {"spark.x": "2", "spark.y": "true"}


@pytest.fixture
def active(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the active Spark of this process."""
    conf = {"spark.x": "1"}
    running = SimpleNamespace(master="local[2,4]", appName="mine", getConf=lambda: conf)
    monkeypatch.setattr("sinksdk.spark.options.active_spark", lambda: running)
    return running


@pytest.mark.usefixtures("active")
def test_an_active_session_is_used() -> None:
    # Only programs use an active session. They look for it again when they need Spark, because it may have
    # stopped.
    found = settings(SparkOptions("local[2]", {"spark.x": 1}, joins=True))

    assert found == SparkSettings("local[2,4]", {"spark.x": "1"}, None, joins=True)
    assert settings(SparkOptions("local[7]")).master == "local[7]"


@pytest.mark.usefixtures("active")
def test_an_active_session_with_other_settings_is_refused() -> None:
    with pytest.raises(ConfigException) as caught:
        settings(SparkOptions("local[3]", {"spark.x": "2", "spark.y": "3"}, joins=True))

    first, second, third = caught.value.problems
    assert "(application 'mine') on master local[2,4], not local[3]" in first
    assert "with spark.x=1, not 2" in second
    assert "with spark.y=None, not 3" in third


def test_an_invalid_session_is_refused() -> None:
    with pytest.raises(ConfigException, match="spark is a str: give a SparkSession or a SparkContext"):
        settings(SparkOptions(session="local[2]"))


def test_a_file_store_is_refused_for_a_session_on_other_hosts(active: Any) -> None:
    active.master = "spark://elsewhere:7077"
    with pytest.raises(ConfigException, match="the store is a file on this one"):
        SparkOptions(joins=True).settings(store_is_local_file=True)
