from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
import venv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro
import pytest

from tests.helpers.installations import INSTALLATIONS, ROOT
from tests.helpers.ports import free_port
from tests.helpers.registry_server import RegistryServer
from tests.integration.archive_site import bucket, client
from tests.kafka.topics import consume, create_topic, produce, unused_name
from tests.project.test_docs import fences
from tests.store.postgres_server import PostgresServer

pytestmark = pytest.mark.extended

PATIENCE = 120.0  # seconds
# Variables that would let the repository be imported instead of the wheel.
HIDDEN = {"PYTHONPATH", "PYTHONHOME", "PYSPARK_PYTHON", "VIRTUAL_ENV"}

Environments = Callable[..., Path]


def on_spark(test: Callable[..., None]) -> Callable[..., None]:
    return pytest.mark.spark(pytest.mark.nightly(test))


@pytest.fixture(scope="module")
def environments() -> Iterator[Environments]:
    # Each environment is created once for all tests with the same requirements.
    with tempfile.TemporaryDirectory(prefix="installations-") as name:
        folder, made = Path(name), dict[frozenset[str], Path]()
        pip = [sys.executable, "-m", "pip"]
        build = [*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT]
        subprocess.run(build, check=True, timeout=PATIENCE)
        (wheel,) = folder.glob("sinksdk-*.whl")

        def environment(extras: str, *others: str) -> Path:
            wanted = frozenset((*extras.split(","), *others))
            if wanted not in made:
                there = folder / str(len(made))
                venv.create(there, with_pip=False)
                python = made[wanted] = there / "bin/python"
                install = [*pip, "--python", python, "install", "--quiet", "--no-compile"]
                subprocess.run([*install, f"{wheel}[{extras}]", *others], check=True, timeout=PATIENCE * 4)
            return made[wanted]

        yield environment


@dataclass
class Place:
    folder: Path
    python: Path

    def variables(self, more: Mapping[str, str]) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name not in HIDDEN}
        return {**kept, "PATH": f"{self.python.parent}{os.pathsep}{os.environ['PATH']}", **more}

    def run(self, *command: object, code: int = 0, **variables: str) -> str:
        done = subprocess.run(
            [self.python.with_name(str(command[0])), *map(str, command[1:])],
            cwd=self.folder,
            env=self.variables(variables),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def execute(self, program: str, *arguments: object) -> Any:
        (self.folder / "program.py").write_text(program)
        said = self.run("python", "program.py", *arguments, PYTHONPATH=str(self.folder))
        return json.loads(said.splitlines()[-1])

    def configure(self, name: str, **settings: object) -> Path:
        path = self.folder / f"{name}.json"
        keys = {key.replace("_", "."): str(value) for key, value in settings.items()}
        path.write_text(json.dumps({"name": name, "config": keys}))
        return path

    def copy_example(self, name: str) -> None:
        (self.folder / "examples").mkdir(exist_ok=True)
        shutil.copy(ROOT / "examples" / name, self.folder / "examples" / name)


@pytest.fixture
def place(request: pytest.FixtureRequest, environments: Environments, tmp_path: Path) -> Place:
    name = request.node.originalname
    (row,) = (row for row in INSTALLATIONS if name in row.tests)
    return Place(tmp_path, environments(row.extras, *row.others))


# -- without Spark -------------------------------------------------------------------------------------


def test_the_command_line_creates_a_package(place: Place) -> None:
    place.run("sinksdk", "new", "sink", "my-sink")

    there = {str(path.relative_to(place.folder / "my-sink")) for path in place.folder.rglob("*.*")}
    assert {"pyproject.toml", "src/my_sink/connector.py", "tests/test_my_sink.py"} <= there


def test_the_test_kit_finds_a_bug_and_passes_the_corrected_sink(place: Place) -> None:
    blocks = [fence.code for fence in fences(ROOT / "docs/test-your-connector.md")]
    for name in ("my_sink.py", "test_my_sink.py"):
        (code,) = (code for code in blocks if code.startswith(f"# {name}\n"))
        (place.folder / name).write_text(code)
    repair = next(code for code in blocks if code.startswith("def file_name(partition, records):"))
    (broken,) = re.findall(
        r"^def file_name.*?\n\n", (place.folder / "my_sink.py").read_text(), re.DOTALL | re.MULTILINE
    )

    said = place.run("pytest", "-q", "test_my_sink.py", code=1)
    assert "is not at the destination" in said

    sink = place.folder / "my_sink.py"
    sink.write_text(sink.read_text().replace(broken, f"{repair}\n\n"))
    said = place.run("pytest", "-q", "-s", "test_my_sink.py")
    assert "at least once: nothing was lost" in said


UPSERTS = """
import json, sys
from examples.upsert_sink import UpsertConfig, UpsertSink, UpsertTask
from sinksdk import SinkRecord, TopicPartition
from sinksdk.connector import ConnectorIdentity
from sinksdk.testing import SinkTaskHarness

keys = {"name": "test", "topics": "readings", "key.converter": "json", "value.converter": "json"}
keys |= {"database.url": sys.argv[1], "table": "readings", "key.columns": "sensor", "value.columns": "celsius"}
config = UpsertConfig.parse({**keys, "incarnation": "mine"})
connector = UpsertSink()
connector.identity = ConnectorIdentity("store", "test", "mine")
connector.start(config)
partition = TopicPartition("readings", 0)
harness = SinkTaskHarness(UpsertTask, config)
harness.start()
harness.assign(partition)
rows = [(b'{"sensor": "a"}', b'{"celsius": 1}'), (b'{"sensor": "a"}', b'{"celsius": 2}')]
harness.deliver(partition, [SinkRecord(*partition, n, key, value) for n, (key, value) in enumerate(rows)])
harness.stop()
print(json.dumps([offset.offset for offset in harness.committed.values()]))
"""


def test_a_database_sink_writes_to_postgresql(place: Place, postgres: PostgresServer) -> None:
    place.copy_example("upsert_sink.py")
    with postgres.connect() as session:
        session.execute("CREATE SCHEMA installed")
        session.execute("CREATE TABLE installed.readings (sensor VARCHAR(20) PRIMARY KEY, celsius INTEGER)")
        url = postgres.url("installed").replace("postgresql://", "postgresql+psycopg://")

        assert place.execute(UPSERTS, url) == [2]

        assert session.execute("SELECT sensor, celsius FROM installed.readings").fetchall() == [("a", 2)]


STORED = """
import json, sys
from sinksdk import committed_offsets
from sinksdk.store import identify, open_store

store = open_store(sys.argv[1], create=True)
identify(store)
version = store.put("connectors/c/tasks/9", {"n": 1}, if_version=None)
try:
    store.put("connectors/c/tasks/9", {"n": 2}, if_version=None)
except Exception as error:
    refused = type(error).__name__
store.put("connectors/c/tasks/9", {"n": 3}, if_version=version)
store.close()
again = open_store(sys.argv[1])
print(json.dumps([refused, again.get("connectors/c/tasks/9").value, list(committed_offsets(sys.argv[1], "none"))]))
"""


def test_a_store_in_postgresql_keeps_a_commit(place: Place, postgres: PostgresServer) -> None:
    assert place.execute(STORED, postgres.url("store_installed")) == ["Conflict", {"n": 3}, []]


def test_a_store_on_s3_keeps_a_commit(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with bucket() as (endpoint, _, name):
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
        for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(variable, "test")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")

        assert place.execute(STORED, f"s3://{name}/store") == ["Conflict", {"n": 3}, []]


CONVERTED = """
import json, sys
from sinksdk import ConnectorConfig, SinkTask, TopicPartition
from sinksdk.engine import EngineOptions
from sinksdk.testing import SinkTaskHarness
from sinksdk.topics.kafka.schema_registry import connect

class Task(SinkTask):
    def put(self, records):
        print(json.dumps([record.value for record in records]))

config = ConnectorConfig.parse({"name": "c", "topics": "t", "value.converter": "avro",
                                "value.converter.schema.registry.url": sys.argv[1]})
partition = TopicPartition("t", 0)
harness = SinkTaskHarness(Task, config, options=EngineOptions.of(config, connect))
harness.start()
harness.assign(partition)
harness.deliver(partition, [bytes.fromhex(value) for value in sys.argv[2:]])
"""


def test_avro_values_of_a_registry_are_converted(place: Place) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "celsius", "type": "int"}]}
    with RegistryServer().running() as registry:
        schema_id = registry.register("t-value", json.dumps(schema))
        value = io.BytesIO()
        fastavro.schemaless_writer(value, schema, {"celsius": -3})
        framed = b"\0" + schema_id.to_bytes(4, "big") + value.getvalue()

        assert place.execute(CONVERTED, registry.url, framed.hex()) == [{"celsius": -3}]


# -- on Spark ------------------------------------------------------------------------------------------


def readings(count: int) -> list[bytes | None]:
    return [json.dumps({"sensor": n % 3, "celsius": n}).encode() for n in range(count)]


def archive(place: Place, endpoint: str, name: str, topic: str, **settings: object) -> Path:
    keys = {"connector_class": "s3-archiver", "topics": topic, "s3_bucket_name": name, "store_url": endpoint}
    keys |= {"aws_access_key_id": "key", "aws_secret_access_key": "secret", "flush_size": 40}
    return place.configure("archive", **keys, **settings)


def objects(endpoint: str, name: str, suffix: str) -> list[bytes]:
    s3 = client(endpoint)
    keys = sorted(item["Key"] for item in s3.list_objects_v2(Bucket=name).get("Contents", []))
    return [
        s3.get_object(Bucket=name, Key=key)["Body"].read()
        for key in keys
        if key.endswith(suffix) and "_sinksdk" not in key
    ]


def run_until_caught_up(place: Place, config: Path, *source: object, **variables: str) -> str:
    store = f"sqlite:///{place.folder}/commits.sqlite"
    options = ("--store", store, "--master", "local[2]", "--until-caught-up")
    return place.run("sinksdk", "run", config, *source, *options, **variables)


@on_spark
def test_kafka_topics_are_archived_and_verified(place: Place, bootstrap: str) -> None:
    topic = create_topic(bootstrap, unused_name("readings"))
    produce(bootstrap, topic, readings(100))
    with bucket() as (endpoint, _, name):
        config = archive(place, endpoint, name, topic)
        run_until_caught_up(place, config, "--bootstrap-servers", bootstrap)

        rows = [row for data in objects(endpoint, name, ".avro") for row in fastavro.reader(io.BytesIO(data))]
        assert [(row["offset"], row["value"]) for row in rows] == list(enumerate(readings(100)))
        verify = ("python", "-m", "sinksdk.connectors.s3_archiver", "verify", config)
        said = place.run(
            *verify, "--store", f"sqlite:///{place.folder}/commits.sqlite", "--bootstrap-servers", bootstrap
        )
        assert "100 records are the same as in the Kafka topic" in said


@on_spark
def test_transforms_change_the_archived_records(place: Place, bootstrap: str) -> None:
    topic = create_topic(bootstrap, unused_name("readings"))
    produce(bootstrap, topic, readings(100))
    with bucket() as (endpoint, _, name):
        config = archive(
            place,
            endpoint,
            name,
            topic,
            format_class="JsonFormat",
            value_converter="json",
            records_sql="SELECT * FROM records WHERE get_json_object(string(value), '$.celsius') >= 90",
            transforms="drop",
            transforms_drop_type="ReplaceField$Value",
            transforms_drop_exclude="sensor",
        )
        run_until_caught_up(place, config, "--bootstrap-servers", bootstrap)

        lines = b"".join(objects(endpoint, name, ".json")).splitlines()
        assert [json.loads(line) for line in lines] == [{"celsius": n} for n in range(90, 100)]


@on_spark
def test_executors_read_kafka_and_its_topic_ids(
    place: Place, environments: Environments, bootstrap: str
) -> None:
    topic = create_topic(bootstrap, unused_name("readings"))
    produce(bootstrap, topic, readings(100))
    place.copy_example("folder_sink.py")
    keys = {"connector_class": "examples.folder_sink:FolderSink", "topics": topic, "value_converter": "json"}
    config = place.configure("lines", folder=place.folder / "lines", **keys)
    executors = place.python
    place.python = environments("kafka,spark,cli")

    said = run_until_caught_up(place, config, "--bootstrap-servers", bootstrap, PYSPARK_PYTHON=str(executors))

    lines = [
        line for path in sorted((place.folder / "lines").iterdir()) for line in path.read_text().splitlines()
    ]
    assert [json.loads(line)["value"]["celsius"] for line in lines] == list(range(100))
    assert "detected late" not in said


@on_spark
def test_a_new_source_and_a_new_sink_run_on_kafka(place: Place, bootstrap: str) -> None:
    create_topic(bootstrap, "lines", 2)
    pip = (sys.executable, "-m", "pip", "--python", place.python, "install", "--quiet", "--no-deps")
    for kind in ("source", "sink"):
        place.run("sinksdk", "new", kind, f"my-{kind}")
        subprocess.run([*pip, place.folder / f"my-{kind}"], check=True, timeout=PATIENCE)
    source = place.folder / "my-source/my-source.json"
    written = json.loads(source.read_text())
    written["config"]["folder"] = str(place.folder / "my-source/example/input")
    source.write_text(json.dumps(written))
    expected = sorted(
        line
        for path in (place.folder / "my-source/example/input").iterdir()
        for line in path.read_bytes().splitlines()
    )
    command = ["sinksdk", "run", str(source), "--bootstrap-servers", bootstrap, "--master", "local[2]"]
    command += ["--store", f"sqlite:///{place.folder}/source.sqlite"]
    with (place.folder / "source.log").open("wb") as log:
        process = subprocess.Popen(
            [place.python.with_name(command[0]), *command[1:]],
            cwd=place.folder,
            env=place.variables({}),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + PATIENCE
        while sorted(read.value or b"" for read in consume(bootstrap, "lines")) != expected:
            assert process.poll() is None, (place.folder / "source.log").read_text()
            assert time.monotonic() < deadline, (place.folder / "source.log").read_text()
            time.sleep(0.5)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    keys = {"connector_class": "my-sink", "topics": "lines", "value_converter": "json", "flush_size": 100}
    config = place.configure("my-sink", folder=place.folder / "out", **keys)
    run_until_caught_up(place, config, "--bootstrap-servers", bootstrap)

    files = (place.folder / "out").glob("*.jsonl")
    found = [json.loads(line)["value"] for path in files for line in path.read_text().splitlines()]
    assert sorted(found, key=str) == sorted((json.loads(line) for line in expected), key=str)


def fetch(url: str, body: object = None) -> bytes:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})  # noqa: S310 - the server's
    with urllib.request.urlopen(request, timeout=20) as response:  # noqa: S310 - the same
        answer: bytes = response.read()
        return answer


@on_spark
def test_the_server_archives_and_exports_metrics(place: Place) -> None:
    place.copy_example("make_topic.py")
    place.run("python", "examples/make_topic.py", "topics")
    url = f"http://127.0.0.1:{free_port()}"
    command = ["server", "--topic-directory", "topics", "--store", "sqlite:///commits.sqlite"]
    command += ["--master", "local[2]", "--port", url.rpartition(":")[2]]
    with bucket() as (endpoint, _, name), (place.folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [place.python.with_name("sinksdk"), *command],
            cwd=place.folder,
            env=place.variables({}),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:

            def until(path: str, pattern: bytes) -> None:
                deadline, found = time.monotonic() + PATIENCE, b""
                while not re.search(pattern, found):
                    said = (place.folder / "server.log").read_text()
                    assert process.poll() is None, said
                    assert time.monotonic() < deadline, said + found.decode()
                    time.sleep(0.2)
                    try:
                        found = fetch(url + path)
                    except OSError as error:
                        found = str(error).encode()

            until("/health", b"healthy")
            config = archive(place, endpoint, name, "readings", rotate_schedule_interval_ms=1_000)
            fetch(f"{url}/connectors", json.loads(config.read_text()))
            until(
                "/metrics", rb"(?m)^kafka_connect_sink_task_metrics_sink_record_read_total\{[^}]*\} 10000\b"
            )
            assert b"/connectors/{name}" in fetch(f"{url}/openapi.json")
            assert b"archive" in fetch(f"{url}/connectors")
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(PATIENCE)
        assert process.returncode == 0, (place.folder / "server.log").read_text()

        rows = [row for data in objects(endpoint, name, ".avro") for row in fastavro.reader(io.BytesIO(data))]
        assert sorted((row["partition"], row["offset"]) for row in rows) == [
            (partition, offset) for partition in range(2) for offset in range(5_000)
        ]


def values(place: Place, topic: str) -> list[Any]:
    files = (place.folder / "out").glob(f"{topic}-*.jsonl")
    return [json.loads(line)["value"] for path in files for line in path.read_text().splitlines()]


@on_spark
def test_dataframes_are_written(place: Place) -> None:
    place.copy_example("exactly_once_folder_sink.py")
    code = [fence.code for fence in fences(ROOT / "docs/write-a-dataframe.md") if fence.language == "python"]
    (place.folder / "page.py").write_text("\n".join(code))

    place.run("python", "page.py")

    rows = [json.loads(value) for value in values(place, "readings")]
    assert sorted(row["sensor"] for row in rows) == list(range(1_000))


ON_CONNECT = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote("local[2]").getOrCreate()
options = {"connector.class": "examples.exactly_once_folder_sink:ExactlyOnceFolderSink", "name": "rows",
           "store": f"sqlite:///{sys.argv[1]}/store.sqlite", "topic": "rows", "folder": f"{sys.argv[1]}/out",
           "value.converter": "string"}
rows = spark.range(40).selectExpr("cast(id AS string) AS value")
rows.write.format("sinksdk").options(**options).mode("append").save()
spark.stop()
print("null")
"""


@on_spark
def test_dataframes_of_spark_connect_are_written(place: Place) -> None:
    place.copy_example("exactly_once_folder_sink.py")

    place.execute(ON_CONNECT, place.folder)  # the server has a working directory of its own

    assert sorted(map(int, values(place, "rows"))) == list(range(40))
