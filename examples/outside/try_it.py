"""Runs sinksdk as users do, installed from its wheel: ``python examples/outside/try_it.py``.

Installs the wheel, and that of a sink in a package of its own, with their dependencies into an empty
environment that knows nothing of the repository. There it runs the README's connector with the README's
commands, checks the other sink with the test kit, and runs it on a standalone Spark master. Then it creates a
sink and a source with ``sinksdk new``, and runs their tests and examples. With ``--pure`` it then installs
the wheel without compiled parts, and checks the sink again. Everything is in a temporary folder and on the
loopback interface, and is removed at the end. Other packages come from pip's cache or PyPI.
"""

import argparse
import ast
import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parent
REPOSITORY = EXAMPLES.parent
README_NEEDS = ("folder_sink.py", "folder_sink.json", "make_topic.py")  # of examples/
PARTITIONS, RECORDS = 2, 5_000  # what make_topic.py writes
PATIENCE = 90.0  # seconds until a daemon that does not start is an error
A_MINUTE = 60.0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--wheel", type=Path, help="sinksdk's (default: one is built of the repository)")
    parser.add_argument(
        "--pure", type=Path, help="the wheel without compiled parts, in the same folder (default: not tried)"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="outside-") as name:
        folder = Path(name)
        project, elsewhere = folder / "project", folder / "elsewhere"
        shutil.copytree(HERE, project, ignore=shutil.ignore_patterns("try_it.py", "__pycache__"))
        elsewhere.mkdir()
        own = options.wheel.resolve() if options.wheel else build(REPOSITORY, folder / "wheels")
        python = install(own, build(project, folder / "wheels"), elsewhere / ".venv")
        follow_the_readme(elsewhere)
        check(python, project, elsewhere)
        with standalone_spark(python, folder / "spark") as master:
            run(python, folder, master)
        start_anew(python, folder)
        if options.pure:
            choose(own.parent, folder / "chosen")
            install_pure(python, options.pure.resolve())
            check(python, project, elsewhere)
    print("done: nothing is left")


def build(project: Path, folder: Path) -> Path:
    """Build a project's wheel."""
    before = set(folder.glob("*.whl"))
    call(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, project)
    (wheel,) = {*folder.glob("*.whl")} - before
    print(f"built: {wheel.name}")
    return wheel


def install(own: Path, package: Path, folder: Path) -> Path:
    """Install both wheels into a new environment, and return its interpreter."""
    started = time.monotonic()
    venv.create(folder, with_pip=False)  # a pip from outside installs as well, and is there already
    python = folder / "bin/python"
    wanted = (f"{own}[spark,cli,testing]", f"{package}[test]", "pip")  # pip is for the packages made anew
    call(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-compile", *wanted)
    for module in ("sinksdk", "csv_folder_sink"):
        where = output(python, "-c", f"import {module}; print({module}.__file__)")
        if not Path(where).is_relative_to(folder):
            sys.exit(f"{module} was imported from {where}, not from its wheel")
        print(f"installed: {where}")
    print(f"installed in {time.monotonic() - started:.0f} s")
    return python


def choose(wheels: Path, folder: Path) -> None:
    """Let pip choose among the wheels of a folder, as from an index: for Linux and for another system."""
    for platform, wanted in (("manylinux2014_x86_64", "-abi3-manylinux"), ("win_amd64", "-py3-none-any")):
        where = folder / platform
        options = (
            "--no-index",
            "--find-links",
            wheels,
            "--no-deps",
            "--only-binary",
            ":all:",
            "--platform",
            platform,
        )
        python = ("--python-version", "3.13", "--implementation", "cp", "--abi", "cp313", "--abi", "abi3")
        call(
            sys.executable, "-m", "pip", "download", "--quiet", "--dest", where, *options, *python, "sinksdk"
        )
        (chosen,) = where.iterdir()
        if wanted not in chosen.name:
            sys.exit(f"pip chooses {chosen.name} for {platform}")
        print(f"{platform}: {chosen.name}")


def install_pure(python: Path, wheel: Path) -> None:
    """Replace the installed sinksdk by its wheel without compiled parts."""
    options = ("--quiet", "--no-compile", "--force-reinstall", "--no-deps")
    call(sys.executable, "-m", "pip", "--python", python, "install", *options, wheel)
    home = Path(output(python, "-c", "import sinksdk; print(sinksdk.__path__[0])"))
    if compiled := [path.name for path in home.rglob("*.so")]:
        sys.exit(f"{wheel.name} installs compiled parts: {', '.join(compiled)}")
    output(python, "-m", "sinksdk", "plugins")
    print(f"installed: {wheel.name}")


def follow_the_readme(folder: Path) -> None:
    """Run the README's commands for its connector, without ``make install``, and check what it wrote."""
    (folder / "examples").mkdir()
    for name in README_NEEDS:
        shutil.copy(EXAMPLES / name, folder / "examples" / name)
    blocks = re.findall(
        r"^```bash\n(.*?)^```$", (REPOSITORY / "README.md").read_text(), re.DOTALL | re.MULTILINE
    )
    (commands,) = (block for block in blocks if "sinksdk run examples/folder_sink.json" in block)
    call("bash", "-euxc", commands.replace("make install\n", ""), cwd=folder)
    for partition in range(PARTITIONS):
        files = sorted((folder / "build/lines").glob(f"readings-{partition}+*.jsonl"))
        lines = [line for file in files for line in file.read_text().splitlines()]
        compare(partition, [json.loads(line)["offset"] for line in lines])


def check(python: Path, project: Path, working_directory: Path) -> None:
    """Run the package's own test, which uses the kit."""
    arguments = ["-q", "-s", "-p", "no:cacheprovider", "--rootdir", project, project / "tests"]
    call(python, "-m", "pytest", *arguments, cwd=working_directory)


def run(python: Path, folder: Path, master: str) -> None:
    """Run the sink on the README's topic, and check what it wrote."""
    config = {
        "connector.class": "csv-folder",
        "topics": "readings",
        "tasks.max": "2",
        "flush.size": "2000",
        "folder": str(folder / "csv"),
    }
    (folder / "readings.json").write_text(json.dumps({"name": "readings-to-csv", "config": config}))
    command = [python.with_name("sinksdk"), "run", folder / "readings.json", "--until-caught-up"]
    command += [
        "--topic-directory",
        folder / "elsewhere/build/topics",
        "--store",
        f"sqlite:///{folder}/commits.sqlite",
    ]
    call(*command, "--master", master, cwd=folder / "elsewhere")
    for partition in range(PARTITIONS):
        compare(partition, list(offsets(folder / "csv", partition)))


def offsets(folder: Path, partition: int) -> Iterator[int]:
    """Yield the offsets of one partition's rows, file by file."""
    for path in sorted(folder.glob(f"readings-{partition}+*.csv")):
        with path.open(newline="", encoding="utf-8") as file:
            yield from (int(row[0]) for row in csv.reader(file))


def compare(partition: int, found: list[int]) -> None:
    """Exit unless each offset of the topic was found once."""
    if found != list(range(RECORDS)):
        sys.exit(f"readings-{partition}: {len(found)} records are in the files, {RECORDS} in the topic")
    print(f"readings-{partition}: {RECORDS} records, each once")


# -- sinksdk new ---------------------------------------------------------------------------------------


def start_anew(python: Path, folder: Path) -> None:
    """Create a sink and a source, run their tests, and check the output of their examples."""
    sinksdk = python.with_name("sinksdk")
    for kind in ("sink", "source"):
        call(sinksdk, "new", kind, f"fresh-{kind}", cwd=folder)
    started = time.monotonic()
    call("make", "test", cwd=folder / "fresh-sink")  # in an environment of its own, as whoever made it would
    if (seconds := time.monotonic() - started) > A_MINUTE:
        sys.exit(f"the first make test took {seconds:.0f} s, not the minute that is promised")
    print(f"the first make test took {seconds:.0f} s")

    shared = (f"VENV={python.parent.parent}", "SINKSDK=sinksdk")  # it is there already, and Spark
    call("make", "run", *shared, cwd=folder / "fresh-sink")
    for partition in range(2):
        files = sorted((folder / "fresh-sink/build/lines").glob(f"readings-{partition}+*.jsonl"))
        lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        wanted = [
            {"offset": n, "key": f"sensor-{partition}", "value": {"celsius": 20 + n % 7}}
            for n in range(1_000)
        ]
        if lines != wanted:
            sys.exit(f"readings-{partition}: {len(files)} files of {len(lines)} lines are not the topic")

    call("make", "test", *shared, cwd=folder / "fresh-source")
    follow(folder / "fresh-source", shared)
    plugins = output(sinksdk, "plugins")
    for name in ("fresh-sink", "fresh-source"):
        if f"{name}  ({name.replace('-', '_')}:Fresh" not in plugins:
            sys.exit(f"{name} is not listed: {plugins}")
    print("made anew, tested and run: a sink and a source")


def follow(project: Path, shared: Sequence[str]) -> None:
    """Run the source until it has read a line that is written meanwhile, and stop it as Ctrl-C does."""
    command = ["make", "run", *shared]
    process = subprocess.Popen(command, cwd=project, env=environment(), start_new_session=True)
    wanted = {b"a.jsonl": [b'{"celsius": 20}', b'{"celsius": 21}'], b"b.jsonl": [b'{"celsius": 25}']}
    try:
        wait_for(project, shared, wanted)
        with (project / "example/input/b.jsonl").open("a") as file:
            file.write('{"celsius": 26}\n')
        wanted[b"b.jsonl"].append(b'{"celsius": 26}')
        wait_for(project, shared, wanted)
    finally:
        os.killpg(process.pid, signal.SIGINT)
        process.wait(PATIENCE)


def wait_for(project: Path, shared: Sequence[str], wanted: Mapping[bytes, list[bytes]]) -> None:
    """Wait until ``make show`` prints each line once, in the order of its file."""
    deadline = time.monotonic() + PATIENCE
    found: dict[bytes, list[bytes]] = {}
    while found != wanted:
        if time.monotonic() > deadline:
            sys.exit(f"the topic has {found}, and not {wanted}")
        time.sleep(0.5)
        if not (project / "build/topics/topic=lines").exists():
            continue
        rows = map(ast.literal_eval, output("make", "show", *shared, cwd=project).splitlines())
        found = {}
        for row in sorted(rows, key=lambda row: row["offset"]):
            found.setdefault(row["key"], []).append(row["value"])


# -- processes -----------------------------------------------------------------------------------------


def call(*command: object, cwd: Path | None = None) -> None:
    """Run a command and show its output; exit if it fails."""
    sys.stdout.flush()
    code = subprocess.run(list(map(str, command)), cwd=cwd, env=environment(), check=False).returncode
    if code:
        sys.exit(f"{' '.join(map(str, command))} ended with code {code}")


def output(*command: object, cwd: Path = Path("/")) -> str:
    """Run a command and return its output; raise if it fails."""
    found = subprocess.run(
        list(map(str, command)), env=environment(), cwd=cwd, check=True, capture_output=True, text=True
    )
    return found.stdout.strip()


def environment(**variables: str) -> Mapping[str, str]:
    """Return this process's environment without variables that would let the repository be imported."""
    hidden = {"PYTHONPATH", "PYTHONHOME", "PYSPARK_PYTHON", "VIRTUAL_ENV"}
    return {**{name: value for name, value in os.environ.items() if name not in hidden}, **variables}


@contextmanager
def standalone_spark(python: Path, folder: Path) -> Iterator[str]:
    """Run a master and a worker with two cores on the loopback interface; yield the master's URL."""
    folder.mkdir()
    home = Path(output(python, "-c", "import pyspark; print(pyspark.__path__[0])"))
    with daemon(home, folder / "master.log", "master.Master"):
        url = first_match(folder / "master.log", r"Starting Spark master at (spark://\S+)")
        options = ("--cores", "2", "--memory", "1g", "--work-dir", str(folder), url)
        with daemon(home, folder / "worker.log", "worker.Worker", *options):
            first_match(folder / "worker.log", "(Successfully registered) with master")
            print(f"Spark: {url}")
            yield url


@contextmanager
def daemon(home: Path, log: Path, name: str, *arguments: str) -> Iterator[None]:
    """Run one of Spark's daemons for the duration of the block."""
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


def first_match(log: Path, pattern: str) -> str:
    """Wait for a pattern in the log and return its first group."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        match = re.search(pattern, log.read_text(errors="replace"))
        if match:
            return match[1]
        time.sleep(0.1)
    sys.exit(f"{log.name} does not say {pattern!r}:\n{log.read_text(errors='replace')}")


if __name__ == "__main__":
    main()
