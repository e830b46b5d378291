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
def test_masters_on_this_host_may_use_a_local_store(master: str) -> None:
    """Every task sees the file."""
    check_master(master, store_is_local_file=True)


@pytest.mark.parametrize("master", OTHER_HOSTS)
def test_masters_on_other_hosts_may_not(master: str) -> None:
    """Tasks elsewhere would not see the file; with another store they are welcome."""
    check_master(master, store_is_local_file=False)
    with pytest.raises(ConfigException, match="the store is a file on this one"):
        check_master(master, store_is_local_file=True)


@pytest.mark.parametrize(
    "master", ["", "loca[2]", "local[x]", "local-cluster[2]", "http://h", "sc://h", "spark://"]
)
def test_a_master_that_spark_does_not_know_is_said_at_once(master: str) -> None:
    """The message lists the forms there are."""
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
    """Unless the URL itself says how often."""
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
    """Four per core of a local master, or as many as are asked for."""
    assert with_task_slots(master, task_slots) == expected


def test_task_slots_of_a_cluster_cannot_be_set() -> None:
    """They are set with Spark's settings; the message names the one."""
    with pytest.raises(ConfigException, match=r"spark\.executor\.cores"):
        with_task_slots("spark://h:7077", 4)


def test_only_masters_on_the_loopback_interface_bind_to_it() -> None:
    """A master under the host's name may have workers elsewhere, which must reach the driver."""
    for master in ("local[2]", "local-cluster[2,1,1024]", "spark://127.0.0.1:7077"):
        assert is_loopback(master)
        assert spark_conf("x", master, {})["spark.driver.bindAddress"] == "127.0.0.1"
        assert _variables(master)["SPARK_LOCAL_IP"] == "127.0.0.1"
    for master in (f"spark://{socket.gethostname()}:7077", "yarn", "k8s://localhost"):
        assert not is_loopback(master)
        assert "spark.driver.bindAddress" not in spark_conf("x", master, {})
        assert "SPARK_LOCAL_IP" not in _variables(master)


def test_own_configuration_wins() -> None:
    """Keys given replace those set here; the JVM's own options are kept besides ours."""
    key = "spark.driver.defaultJavaOptions"
    conf = spark_conf("x", "local", {"spark.ui.enabled": "true", "spark.x": "y", key: "-Da=b"})
    assert conf["spark.ui.enabled"] == "true"
    assert conf["spark.x"] == "y"
    assert conf[key] == f'"-Dlog4j2.configurationFile={jvm.LOG_CONFIGURATION.as_uri()}" -Da=b'
    assert jvm.LOG_CONFIGURATION.is_file()


def test_the_jvm_of_a_local_master_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """It only schedules. Who has chosen a collector keeps it: a JVM that is told two does not start."""
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


def test_settings_that_are_none_of_spark_start_nothing() -> None:
    """The master is named by itself; a key of nobody's would be ignored."""
    for conf in ({"spark.master": "yarn"}, {"x": "y"}):
        with pytest.raises(ConfigException, match="the Spark setting"):
            start_spark("x", "local", extra_conf=conf)


def test_workers_run_this_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """On this host always; on other hosts, where it may be elsewhere, PYSPARK_PYTHON is applied."""
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    assert _variables("local")["PYSPARK_PYTHON"] == sys.executable
    assert _variables("spark://h:7077")["PYSPARK_PYTHON"] == "/opt/python"
    monkeypatch.delenv("PYSPARK_PYTHON")
    assert _variables("spark://h:7077")["PYSPARK_PYTHON"] == sys.executable


def test_the_environment_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables of the JVM are set only while it starts, also when it does not."""
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


def test_the_signal_handler_is_put_back() -> None:
    """Otherwise pyspark would leave one that cancels all jobs."""
    before = signal.getsignal(signal.SIGINT)
    with _own_signal_handlers():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_missing_pyspark_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra is named."""
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(ConfigException, match=r"install sinksdk\[spark\]"):
        start_spark("x", "local")


def test_a_missing_java_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither on the PATH nor where JAVA_HOME points to."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ConfigException, match=r"no java on the PATH\. Spark needs Java 17"):
        jvm.launch({})
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigException, match=f"JAVA_HOME is {tmp_path}, but there is no bin/java"):
        jvm.launch({})


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # pyspark leaves the dead JVM's stdin open
def test_a_java_that_spark_does_not_run_on_is_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """What the JVM said before it ended is in the message, and nowhere else."""
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
        jvm.pass_on(line)
    return [(record.levelno, record.getMessage()) for record in caplog.records]


def test_sparks_errors_are_logged_here(caplog: pytest.LogCaptureFixture, capsys: Any) -> None:
    """Level, source and message, with the cause's first line; the stack trace at DEBUG."""
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
def test_messages_to_what_has_ended_with_the_application_are_no_errors(
    caplog: pytest.LogCaptureFixture, endpoint: str
) -> None:
    """Spark says so where an application ends while one is on its way, and nothing else happens."""
    trace = f"org.apache.spark.SparkException: Could not find {endpoint}."
    got = logged(caplog, f"\x1fERROR\x1fInbox\x1fIgnoring error\x1f{trace}\x1e\tat z\n")
    assert [level for level, _ in got] == [logging.DEBUG, logging.DEBUG]


def test_the_error_of_a_python_worker_is_what_python_says(caplog: pytest.LogCaptureFixture) -> None:
    """Its last line, not that there was a traceback; the whole of it at level DEBUG."""
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


def test_what_workers_print_goes_to_stderr(caplog: pytest.LogCaptureFixture, capsys: Any) -> None:
    """As it is, not as anything of Spark's."""
    assert logged(caplog, "from a task\n") == []
    assert capsys.readouterr().err == "from a task\n"


@pytest.mark.parametrize(("master", "is_warm"), [("local[2]", True), ("yarn", False)])
def test_workers_of_this_host_begin_with_everything_imported(master: str, is_warm: bool) -> None:
    """A connector that needs one more worker does not wait for its imports; other hosts have a Python of their own."""
    conf = spark_conf("app", master, {})
    assert (conf.get("spark.python.daemon.module") == worker_daemon.__name__) is is_warm


def test_the_daemon_that_workers_are_forked_from_has_imported_what_a_task_needs() -> None:
    """The executor's side, the stores, installed connectors; a connector that cannot be imported harms nobody."""
    code = (
        "import sys; from importlib import metadata; from pyspark import daemon\n"
        "broken = metadata.EntryPoint('broken', 'no.such.module:Sink', 'sinksdk.connectors')\n"
        "from sinksdk.plugins import classes\n"
        "found = classes.entry_points\n"
        "classes.entry_points = lambda **which: [broken, *found(**which)]\n"
        "daemon.manager = lambda: print(*sys.modules)\n"
        "from sinksdk.spark import worker_daemon; worker_daemon.main()"
    )
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    needed = {"sinksdk.worker.sink_task", "sqlalchemy", "pyarrow", "sinksdk.connectors.s3_archiver.connector"}
    assert needed <= set(printed.split())


def test_workers_look_for_garbage_in_what_is_their_own() -> None:
    """Regression: after each task Spark had them look through all that was imported, for 0.1 s of a core."""
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
def test_a_connector_that_prints_or_exits_when_it_is_imported_spoils_no_daemon(
    spoiler: str, tmp_path: Path
) -> None:
    """Standard output begins with the daemon's port; another connector's import is no reason to end."""
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
