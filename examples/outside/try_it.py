"""A sink in a package of its own, from its source to records in files: ``python examples/outside/try_it.py``.

Builds wheels of sinksdk and of the sink, installs both into a fresh environment, checks the sink with the
test kit, and runs it on a standalone Spark master from another working directory. Everything is in a
temporary folder and on the loopback interface, and ends with the script.

The other packages are those of the interpreter that runs this; with --from-pypi they are installed anew.
"""

import argparse
import csv
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
TOPIC_SCRIPT = HERE.parent / "make_topic.py"  # writes topic "readings"
PARTITIONS, RECORDS = 2, 5_000  # what it writes
PATIENCE = 90.0  # seconds until a daemon that does not start is an error


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--from-pypi", action="store_true", help="install all other packages too (minutes)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="outside-") as name:
        folder = Path(name)
        project = folder / "project"
        shutil.copytree(HERE, project, ignore=shutil.ignore_patterns("try_it.py", "__pycache__"))
        wheels = build(project, folder / "wheels")
        python = install(wheels, folder / "environment", from_pypi=options.from_pypi)
        check(python, project, folder / "elsewhere")
        with standalone_spark(python, folder / "spark") as master:
            run(python, folder, master)
    print("done: nothing is left")


def build(project: Path, wheels: Path) -> list[Path]:
    """Wheels of sinksdk and of the sink."""
    call(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        wheels,
        REPOSITORY,
        project,
    )
    built = sorted(wheels.glob("*.whl"))
    print("built:", ", ".join(wheel.name for wheel in built))
    return built


def install(wheels: list[Path], folder: Path, *, from_pypi: bool) -> Path:
    """A fresh environment with both wheels: its interpreter."""
    venv.create(folder, with_pip=True)
    python = folder / "bin/python"
    if from_pypi:
        extras = {"sinksdk": "[spark,cli,testing]", "csv_folder_sink": "[test]"}
        wanted = [f"{wheel}{extras[wheel.name.partition('-')[0]]}" for wheel in wheels]
        call(python, "-m", "pip", "install", "--quiet", *wanted)
    else:
        site = Path(output(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"))
        others = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
        (site / "other-packages.pth").write_text("".join(f"{path}\n" for path in others))
        call(python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", *wheels)
    for module in ("sinksdk", "csv_folder_sink"):
        where = output(python, "-c", f"import {module}; print({module}.__file__)")
        if not Path(where).is_relative_to(folder):
            sys.exit(f"{module} was imported from {where}, not from its wheel")
        print(f"installed: {where}")
    return python


def check(python: Path, project: Path, working_directory: Path) -> None:
    """The package's own test: the kit's check."""
    working_directory.mkdir()
    arguments = ["-q", "-s", "-p", "no:cacheprovider", "--rootdir", project, project / "tests"]
    call(python, "-m", "pytest", *arguments, cwd=working_directory)


def run(python: Path, folder: Path, master: str) -> None:
    """Write a topic, run the sink on it, and read what it made."""
    call(python, TOPIC_SCRIPT, folder / "topics")
    config = {
        "connector.class": "csv-folder",
        "topics": "readings",
        "tasks.max": "2",
        "flush.size": "2000",
        "folder": str(folder / "csv"),
    }
    (folder / "readings.json").write_text(json.dumps({"name": "readings-to-csv", "config": config}))
    command = [python.with_name("sinksdk"), "run", folder / "readings.json", "--until-caught-up"]
    command += ["--source-directory", folder / "topics", "--store", f"sqlite:///{folder}/commits.sqlite"]
    call(*command, "--master", master, cwd=folder / "elsewhere")
    for partition in range(PARTITIONS):
        found = list(offsets(folder / "csv", partition))
        if found != list(range(RECORDS)):
            sys.exit(f"readings-{partition}: {len(found)} records are in the files, {RECORDS} in the topic")
        print(f"readings-{partition}: {RECORDS} records, each once")


def offsets(folder: Path, partition: int) -> Iterator[int]:
    """Offsets of one partition's rows, file by file."""
    for path in sorted(folder.glob(f"readings-{partition}+*.csv")):
        with path.open(newline="", encoding="utf-8") as file:
            yield from (int(row[0]) for row in csv.reader(file))


# -- processes -----------------------------------------------------------------------------------------


def call(*command: object, cwd: Path | None = None) -> None:
    """Run a command that must succeed; what it prints is printed."""
    sys.stdout.flush()
    code = subprocess.run(list(map(str, command)), cwd=cwd, env=environment(), check=False).returncode
    if code:
        sys.exit(f"{' '.join(map(str, command))} ended with code {code}")


def output(*command: object) -> str:
    """Run a command that must succeed: what it printed."""
    found = subprocess.run(
        list(map(str, command)), env=environment(), cwd="/", check=True, capture_output=True, text=True
    )
    return found.stdout.strip()


def environment(**variables: str) -> Mapping[str, str]:
    """Ours, without what would let the repository be imported instead of the wheels."""
    hidden = {"PYTHONPATH", "PYTHONHOME", "PYSPARK_PYTHON", "VIRTUAL_ENV"}
    return {**{name: value for name, value in os.environ.items() if name not in hidden}, **variables}


@contextmanager
def standalone_spark(python: Path, folder: Path) -> Iterator[str]:
    """A master and a worker of two cores on the loopback interface: the master's URL."""
    folder.mkdir()
    home = Path(output(python, "-c", "import pyspark; print(pyspark.__path__[0])"))
    with daemon(home, folder / "master.log", "master.Master"):
        url = said(folder / "master.log", r"Starting Spark master at (spark://\S+)")
        options = ("--cores", "2", "--memory", "1g", "--work-dir", str(folder), url)
        with daemon(home, folder / "worker.log", "worker.Worker", *options):
            said(folder / "worker.log", "(Successfully registered) with master")
            print(f"Spark: {url}")
            yield url


@contextmanager
def daemon(home: Path, log: Path, name: str, *arguments: str) -> Iterator[None]:
    """One of Spark's daemons, ended with the block."""
    command = [str(home / "bin/spark-class"), f"org.apache.spark.deploy.{name}"]
    command += ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0", *arguments]
    variables = environment(SPARK_HOME=str(home), SPARK_LOCAL_IP="127.0.0.1")
    with log.open("wb") as file:
        process = subprocess.Popen(command, env=variables, stdout=file, stderr=file, cwd=log.parent)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def said(log: Path, pattern: str) -> str:
    """The first group of a pattern, as soon as the log has it."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        match = re.search(pattern, log.read_text(errors="replace"))
        if match:
            return match[1]
        time.sleep(0.1)
    sys.exit(f"{log.name} does not say {pattern!r}:\n{log.read_text(errors='replace')}")


if __name__ == "__main__":
    main()
