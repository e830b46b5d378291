from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sinksdk import ConfigException
from sinksdk.spark import kafka_jars, maven
from sinksdk.spark.kafka_jars import with_kafka


@pytest.fixture
def mvn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Puts a program called mvn on an otherwise empty PATH; gives the folder that jars are kept in."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))

    def install(script: str) -> Path:
        (tmp_path / "bin").mkdir()
        program = tmp_path / "bin" / "mvn"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        return maven.cache_folder()

    return install


_COPY = """
for argument in "$@"; do case "$argument" in -DoutputDirectory=*) target="${argument#*=}";; esac; done
/bin/mkdir -p "$target"
for name in spark-sql-kafka-0-10_2.13-9 kafka-clients-9 commons-pool2-9 scala-library-9; do : > "$target/$name.jar"; done
echo run >> "$target/../../runs"
"""


def jar_names(conf: dict[str, str]) -> Sequence[str]:
    return [Path(jar).name for jar in conf["spark.jars"].split(",")]


def test_jars_that_are_named_are_used(tmp_path: Path) -> None:
    """Whatever else is there; jars of spark.jars stay."""
    jar = tmp_path / "spark-sql-kafka.jar"
    jar.touch()

    assert with_kafka({"spark.jars": "own.jar"}, [str(jar)]) == {"spark.jars": f"own.jar,{jar}"}


def test_a_named_jar_that_is_missing_is_said(tmp_path: Path) -> None:
    """Before Spark starts."""
    with pytest.raises(ConfigException, match=r"not there: .*gone\.jar"):
        with_kafka({}, [str(tmp_path / "gone.jar")])


def test_an_operator_who_brings_the_source_in_sparks_own_way_is_left_alone() -> None:
    """spark.jars.packages is the operator's to set."""
    conf = {"spark.jars.packages": "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"}

    assert with_kafka(conf) == conf


def test_maven_is_asked_once_and_only_what_spark_lacks_is_added(mvn: Callable[[str], Path]) -> None:
    """The second time the jars are there already."""
    cache = mvn(_COPY)

    first, second = with_kafka({}), with_kafka({})

    assert jar_names(first) == [
        "commons-pool2-9.jar",
        "kafka-clients-9.jar",
        "spark-sql-kafka-0-10_2.13-9.jar",
    ]
    assert second == first
    assert (cache / "runs").read_text() == "run\n"


def test_two_that_need_the_jars_at_once_ask_maven_once(mvn: Callable[[str], Path]) -> None:
    """The second waits for the first, and finds what it brought."""
    cache = mvn(_COPY + "/bin/sleep 0.3\n")

    with ThreadPoolExecutor() as both:
        first, second = both.map(with_kafka, [{}, {}])

    assert first == second
    assert (cache / "runs").read_text() == "run\n"


def test_a_download_that_fails_leaves_nothing_behind(mvn: Callable[[str], Path]) -> None:
    """What Maven said, and what to do, in one sentence; the next attempt starts afresh."""
    cache = mvn(
        """
for argument in "$@"; do case "$argument" in -DoutputDirectory=*) target="${argument#*=}";; esac; done
/bin/mkdir -p "$target"; : > "$target/kafka-clients-9.jar"
echo "[ERROR] "; echo "[ERROR] Could not find artifact spark-sql-kafka"; exit 1
"""
    )

    with pytest.raises(ConfigException, match=r"Could not find artifact spark-sql-kafka.*--kafka-jars"):
        with_kafka({})

    assert [path.name for path in cache.iterdir()] == [".maven.lock"]


def test_without_maven_the_message_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And names the jars that are needed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(ConfigException, match=r"mvn.* is not on the PATH.*kafka-clients-\*\.jar"):
        with_kafka({})


def test_the_version_is_that_of_the_spark_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mvn: Callable[[str], Path]
) -> None:
    """Spark's and Scala's versions are read off Spark's own jars."""
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-sql_3.7-12.0.1-preview3.jar").touch()
    monkeypatch.setattr(kafka_jars, "_spark_jars", lambda: tmp_path / "jars")
    cache = mvn(_COPY)

    with_kafka({})

    assert (cache / "spark-kafka-12.0.1-preview3_3.7").is_dir()
