from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sinksdk.errors import ConfigException
from sinksdk.spark import jvm, worker_daemon
from sinksdk.spark.conf import store_conf
from sinksdk.spark.context import _environment, _own_signal_handlers, _variables, spark_conf, start_spark
from sinksdk.spark.master import check_master, is_loopback, with_attempts, with_task_slots

THIS_HOST = [
    "local",
    "local[*]",
    "local[2]",
    "local[2, 3]",
    "local-cluster[2,1,1024]",
    "spark://localhost:7077",
    "spark://127.0.0.1:7077",
    "spark://[::1]:7077",
    f"spark://{socket.gethostname()}:7077",
    f"spark://localhost:7077,{socket.gethostname()}:7077",
]
OTHER_HOSTS = ["yarn", "k8s://https://h:443", "spark://h:7077", "spark://localhost:7077,h:7077"]


@pytest.mark.parametrize("master", THIS_HOST)
def test_a_file_store_is_accepted_for_masters_on_this_host(master: str) -> None:
    check_master(master, store_is_local_file=True)


@pytest.mark.parametrize("master", OTHER_HOSTS)
def test_a_file_store_is_refused_for_masters_on_other_hosts(master: str) -> None:
    check_master(master, store_is_local_file=False)
    with pytest.raises(ConfigException, match="the store is a file on this one"):
        check_master(master, store_is_local_file=True)


@pytest.mark.parametrize(
    "master", ["", "loca[2]", "local[x]", "local-cluster[2]", "http://h", "sc://h", "spark://"]
)
def test_an_unknown_master_is_refused(master: str) -> None:
    with pytest.raises(ConfigException, match=r"use local\[\*\]"):
        check_master(master, store_is_local_file=False)


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("local", "local[1,4]"),
        ("local[*]", "local[*,4]"),
        ("local[3]", "local[3,4]"),
        ("local[3,1]", "local[3,1]"),
        ("local-cluster[2,1,1024]", "local-cluster[2,1,1024]"),
        ("spark://h:7077", "spark://h:7077"),
    ],
)
def test_local_masters_try_tasks_as_often_as_clusters(master: str, expected: str) -> None:
    assert with_attempts(master) == expected


@pytest.mark.parametrize(
    ("master", "task_slots", "expected"),
    [
        ("local", None, "local[4]"),
        ("local[2]", None, "local[8]"),
        ("local[*]", None, f"local[{4 * len(os.sched_getaffinity(0))}]"),
        ("local[2]", 3, "local[3]"),
        ("local[2,1]", None, "local[8,1]"),
        ("spark://h:7077", None, "spark://h:7077"),
    ],
)
def test_connectors_that_share_cores_have_more_task_slots_than_cores(
    master: str, task_slots: int | None, expected: str
) -> None:
    assert with_task_slots(master, task_slots) == expected


def test_task_slots_of_a_cluster_cannot_be_set() -> None:
    with pytest.raises(ConfigException, match=r"spark\.executor\.cores"):
        with_task_slots("spark://h:7077", 4)


def test_only_masters_on_the_loopback_interface_bind_to_it() -> None:
    # A master that is named by this host's name may have workers on other hosts, which must reach the driver.
    for master in ("local[2]", "local-cluster[2,1,1024]", "spark://127.0.0.1:7077"):
        assert is_loopback(master)
        assert spark_conf("x", master, {})["spark.driver.bindAddress"] == "127.0.0.1"
        assert _variables(master)["SPARK_LOCAL_IP"] == "127.0.0.1"
    for master in (f"spark://{socket.gethostname()}:7077", "yarn", "k8s://localhost"):
        assert not is_loopback(master)
        assert "spark.driver.bindAddress" not in spark_conf("x", master, {})
        assert "SPARK_LOCAL_IP" not in _variables(master)


def test_extra_conf_overrides_sinksdks_defaults() -> None:
    key = "spark.driver.defaultJavaOptions"
    conf = spark_conf("x", "local", {"spark.ui.enabled": "true", "spark.x": "y", key: "-Da=b"})
    assert conf["spark.ui.enabled"] == "true"
    assert conf["spark.x"] == "y"
    assert conf[key] == f'"-Dlog4j2.configurationFile={jvm.LOG_CONFIGURATION.as_uri()}" -Da=b'
    assert jvm.LOG_CONFIGURATION.is_file()


def test_the_jvm_of_a_local_master_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    # The collector of the user's configuration stays, because a JVM with two does not start.
    key = "spark.driver.defaultJavaOptions"
    for name in ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "SPARK_SUBMIT_OPTS"):
        monkeypatch.delenv(name, raising=False)

    small = spark_conf("app", "local[2]", {})[key]
    assert " -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xms48m -Xmn24m " in small
    assert "-XX" not in spark_conf("app", "spark://host:7077", {})[key]
    assert "-XX" not in spark_conf("app", "local[2]", {}, only_schedules=False)[key], "transforms run there"
    own = spark_conf("app", "local[2]", {"spark.driver.extraJavaOptions": "-XX:+UseG1GC"})
    assert "Serial" not in own[key]
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-Xss1m -XX:+UseZGC")
    assert "Serial" not in spark_conf("app", "local[2]", {})[key]


def test_invalid_settings_are_refused() -> None:
    for conf in ({"spark.master": "yarn"}, {"x": "y"}):
        with pytest.raises(ConfigException, match="Spark setting"):
            start_spark("x", "local", extra_conf=conf)


def test_workers_run_this_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    # On other hosts the interpreter may be elsewhere, so PYSPARK_PYTHON overrides the path.
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    assert _variables("local")["PYSPARK_PYTHON"] == sys.executable
    assert _variables("spark://h:7077")["PYSPARK_PYTHON"] == "/opt/python"
    monkeypatch.delenv("PYSPARK_PYTHON")
    assert _variables("spark://h:7077")["PYSPARK_PYTHON"] == sys.executable


def test_the_environment_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SET", "1")
    monkeypatch.delenv("A_NEW", raising=False)

    def fail() -> None:
        with _environment({"A_SET": "2", "A_NEW": "3"}):
            assert (os.environ["A_SET"], os.environ["A_NEW"]) == ("2", "3")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert os.environ["A_SET"] == "1"
    assert "A_NEW" not in os.environ


def test_the_signal_handler_is_restored() -> None:
    # pyspark's own handler cancels all jobs.
    before = signal.getsignal(signal.SIGINT)
    with _own_signal_handlers():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_missing_pyspark_error_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(ConfigException, match=r"install sinksdk\[spark\]"):
        start_spark("x", "local")


def test_a_missing_java_error_names_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ConfigException, match=r"java is not on the PATH\. Spark needs Java 17"):
        jvm.launch({})
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigException, match=f"JAVA_HOME is {tmp_path}, but has no bin/java"):
        jvm.launch({})


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # pyspark leaves the dead JVM's stdin open
def test_the_output_of_an_unsupported_java_is_in_the_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    java = tmp_path / "bin/java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho UnsupportedClassVersionError >&2\nexit 1\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigException, match=r"(?s)Java 17 or 21.*UnsupportedClassVersionError"):
        jvm.launch({})
    assert capfd.readouterr() == ("", "")


def logged(caplog: pytest.LogCaptureFixture, *lines: str) -> list[tuple[int, str]]:
    caplog.set_level(logging.DEBUG, "sinksdk.spark.jvm")
    for line in lines:
        jvm.log_line(line)
    return [(record.levelno, record.getMessage()) for record in caplog.records]


def test_sparks_errors_are_logged(caplog: pytest.LogCaptureFixture, capsys: Any) -> None:
    got = logged(
        caplog,
        "\x1fERROR\x1fExecutor\x1fTask failed\x1fjava.lang.X: y\x1e\tat z\n",
        "\x1fFATAL\x1fMaster\x1fgone\x1f\n",
    )
    assert got == [
        (logging.ERROR, "Executor: Task failed (java.lang.X: y)"),
        (logging.DEBUG, "java.lang.X: y\n\tat z"),
        (logging.CRITICAL, "Master: gone"),
    ]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("endpoint", ["AppClient", "CoarseGrainedScheduler"])
def test_messages_to_stopped_receivers_are_logged_at_debug(
    caplog: pytest.LogCaptureFixture, endpoint: str
) -> None:
    trace = f"org.apache.spark.SparkException: Could not find {endpoint}."
    got = logged(caplog, f"\x1fERROR\x1fInbox\x1fIgnoring error\x1f{trace}\x1e\tat z\n")
    assert [level for level, _ in got] == [logging.DEBUG, logging.DEBUG]


def test_the_error_of_a_python_worker_is_pythons_message(caplog: pytest.LogCaptureFixture) -> None:
    trace = (
        "org.apache.spark.api.python.PythonException: [X] In the worker: Traceback (most recent call last):",
        '  File "task.py", line 1, in run',
        "sinksdk.errors.FencedException: generation 1 is over",
        "",
        "\tat org.apache.spark.Frame.run(Frame.scala:1)",
    )
    line = f"\x1fERROR\x1fExecutor\x1fException in task 0.0\x1f{chr(0x1E).join(trace)}\n"

    assert logged(caplog, line)[0] == (
        logging.ERROR,
        "Executor: Exception in task 0.0 (sinksdk.errors.FencedException: generation 1 is over)",
    )


def test_output_of_workers_goes_to_stderr(caplog: pytest.LogCaptureFixture, capsys: Any) -> None:
    assert logged(caplog, "from a task\n") == []
    assert capsys.readouterr().err == "from a task\n"


@pytest.mark.parametrize(("master", "is_warm"), [("local[2]", True), ("yarn", False)])
def test_only_local_masters_use_the_daemon(master: str, is_warm: bool) -> None:
    # Other hosts have their own Python.
    conf = spark_conf("app", master, {})
    assert (conf.get("spark.python.daemon.module") == worker_daemon.__name__) is is_warm


@pytest.mark.parametrize("url", ["sqlite:///store.sqlite", "postgresql://db/store", "s3://bucket/store"])
def test_the_daemon_imports_tasks_connectors_and_the_store_in_use(url: str) -> None:
    # A connector that cannot be imported is skipped.
    code = (
        "import sys; from importlib import metadata; from pyspark import daemon\n"
        "broken = metadata.EntryPoint('broken', 'no.such.module:Sink', 'sinksdk.connectors')\n"
        "from sinksdk.plugins import classes\n"
        "found = classes.entry_points\n"
        "classes.entry_points = lambda **which: [broken, *found(**which)]\n"
        "daemon.manager = lambda: print(*sys.modules)\n"
        "from sinksdk.spark import worker_daemon; worker_daemon.main()"
    )
    environment = {key.removeprefix("spark.executorEnv."): value for key, value in store_conf(url).items()}
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    loaded = set(done.stdout.split())
    assert {"sinksdk.worker.sink_task", "pyarrow", "sinksdk.connectors.s3_archiver.connector"} <= loaded
    assert ("sinksdk.store.s3" in loaded) is url.startswith("s3:")
    assert ("sqlalchemy" in loaded) is not url.startswith("s3:")


@pytest.mark.parametrize(
    "module",
    [
        "sinksdk.worker.sink_task",
        "sinksdk.worker.source_task",
        "sinksdk.spark.transform_task",
        "sinksdk.store.s3",
    ],
)
def test_importing_a_workers_modules_loads_no_sqlalchemy(module: str) -> None:
    code = f"import sys, {module}; print('sqlalchemy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "False\n"


def test_the_daemon_freezes_imported_modules() -> None:
    # Regression: pyspark's garbage collection after each task took 0.1 s for the imported modules.
    code = (
        "import gc; from pyspark import daemon\n"
        "daemon.manager = lambda: print(len(gc.get_objects()))\n"
        "from sinksdk.spark import worker_daemon; worker_daemon.main()"
    )
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert int(printed) < 5_000


@pytest.mark.parametrize(
    "spoiler", ["print('Welcome')", "import os; os.write(1, b'Welcome')", "raise SystemExit(3)"]
)
def test_a_connector_that_prints_or_exits_at_import_does_not_break_the_daemon(
    spoiler: str, tmp_path: Path
) -> None:
    # Spark reads the daemon's port from standard output.
    (tmp_path / "spoiler.py").write_text(f"{spoiler}\nclass Sink: pass\n")
    code = (
        "import sys; from importlib import metadata; from pyspark import daemon\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "from sinksdk.plugins import classes\n"
        "classes.entry_points = lambda **_: [metadata.EntryPoint('s', 'spoiler:Sink', 'sinksdk.connectors')]\n"
        "daemon.manager = lambda: print('port', end='')\n"
        "from sinksdk.spark import worker_daemon; worker_daemon.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert (done.stdout, "Welcome" in done.stderr) == ("port", "Welcome" in spoiler)
