"""Checks that the mistakes in docs/write-a-database-sink.md and docs/write-an-http-sink.md fail as quoted.

tests/integration/test_examples_spark.py runs the commands of these pages, and tests/project their code.
"""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from examples.upsert_sink import UpsertConfig, UpsertSink, UpsertTask
from examples.webhook_receiver import Endpoint, Mishap
from examples.webhook_sink import WebhookConfig, WebhookTask
from sinksdk import ConnectException, SinkRecord, SinkRecords, SinkTask, TopicPartition
from sinksdk.config import ConnectorConfig
from sinksdk.connector import ConnectorIdentity
from sinksdk.plugins.checks import check_file
from sinksdk.testing import SinkTaskHarness
from tests.engine.sinks import Letters
from tests.examples.test_webhook_sink import serving

pytestmark = pytest.mark.extended

ROOT = Path(__file__).parents[2]
DATABASE = ROOT / "docs/write-a-database-sink.md"
HTTP = ROOT / "docs/write-an-http-sink.md"
P0 = TopicPartition("readings", 0)


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)


def messages(page: Path) -> set[str]:
    section = page.read_text().partition("## What goes wrong")[2].partition("\n## ")[0]
    return set(re.findall(r"^\| `(.*?)` \|", section, re.MULTILINE))


# -- the mistakes --------------------------------------------------------------------------------------


def changed(module: str, diff: str) -> str:
    lines = diff.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("-"))
    old, new = lines[at][1:], lines[at + 1].removeprefix("+")
    assert module.count(f"\n{old}\n") == 1, f"the page changes a line that is not there: {old}"
    imports = "".join(f"\n{line[1:]}" for line in lines[:at])
    return module.replace(old, new).replace("\nimport json", f"{imports}\nimport json", 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "name"), [(DATABASE, "upsert_sink.py"), (HTTP, "webhook_sink.py")], ids=["database", "http"]
)
def test_the_mistake_of_the_page_fails_with_the_quoted_message(page: Path, name: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    command = next(block for block in blocks(page, "bash") if "pytest" in block)
    command = command.replace(".venv/bin/python", sys.executable)
    diff, story = blocks(page, "text")[-2:]
    sink = tmp_path / "examples" / name

    codes, printed = [], ""
    for module in (sink.read_text(), changed(sink.read_text(), diff)):
        sink.write_text(module)
        done = subprocess.run(
            ["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        codes.append(done.returncode)
        printed = re.sub(r"^E +(sinksdk\S+Error: )?", "", done.stdout, flags=re.MULTILINE)
    assert codes == [0, 1], printed
    for line in story.splitlines():
        assert line.strip() in printed


# -- the messages --------------------------------------------------------------------------------------


def failure_of(task: type[SinkTask], config: ConnectorConfig, *records: SinkRecord) -> str:
    harness = SinkTaskHarness(task, config, dead_letters=Letters())
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, records)
    failure = harness.outcome(P0).failure
    harness.stop()
    assert failure is not None
    return failure.message


def said(attempt: Callable[[], object]) -> str:
    with pytest.raises(ConnectException) as caught:
        attempt()
    return str(caught.value)


def keys_of(name: str, **others: str) -> dict[str, str]:
    configured = json.loads((ROOT / "examples" / name).read_text())
    changes = {key.replace("_", "."): value for key, value in others.items()}
    return {"name": configured["name"], **configured["config"], **changes}


def test_messages_of_the_database_page_are_current(tmp_path: Path) -> None:
    file = tmp_path / "readings.sqlite"

    def config(**others: str) -> UpsertConfig:
        keys = keys_of("upsert_sink.json", database_url=f"sqlite:///{file}")
        return UpsertConfig.parse({**keys, **{key.replace("_", "."): value for key, value in others.items()}})

    def start(**others: str) -> None:
        connector = UpsertSink()
        connector.identity = ConnectorIdentity("store", "test", "incarnation")
        connector.start(config(**others))

    found = [said(start)]
    with closing(sqlite3.connect(file)) as database:
        database.execute("CREATE TABLE readings (sensor TEXT PRIMARY KEY, celsius INTEGER NOT NULL)")
    found.append(said(lambda: start(value_columns="fahrenheit")))
    found.append(said(lambda: start(key_columns="celsius")))
    start()
    found += UpsertSink().validate(config(database_url="postgres://localhost/readings"))
    found.append(failure_of(UpsertTask, config(), SinkRecord(*P0, 0, None, b"{}")))
    unconverted = config(value_converter="bytes")
    found.append(failure_of(UpsertTask, unconverted, SinkRecord(*P0, 0, b"a", b"{}")))
    found.append(failure_of(UpsertTask, config(), SinkRecord(*P0, 0, b"a", b"{}")))
    found.append(zombies_failure(config()))
    assert_said(messages(DATABASE), found)


def zombies_failure(config: UpsertConfig) -> str:
    zombie, successor = (SinkTaskHarness(UpsertTask, config, generation=number) for number in (1, 2))
    for harness in (zombie, successor):
        harness.start()
        harness.assign(P0)
    zombie.deliver(P0, [SinkRecord(*P0, 0, b"a", b'{"celsius": 1}')])
    failure = zombie.outcome(P0).failure
    for harness in (zombie, successor):
        harness.stop()
    assert failure is not None
    return failure.message


def test_messages_of_the_http_page_are_current(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECEIVER_TOKEN", "open-sesame")
    endpoint = Endpoint("open-sesame")
    with serving(endpoint) as url:

        def config(**others: str) -> WebhookConfig:
            return WebhookConfig.parse(keys_of("webhook_sink.json", **{"endpoint_url": url, **others}))

        def put(**others: str) -> None:
            task = WebhookTask()
            task.start(config(**others))
            task.put(SinkRecords.of(P0, [SinkRecord(*P0, 0)]))

        found = [said(lambda: config(endpoint_url="localhost:5555/readings"))]
        found.append(said(lambda: config(batch_max_records="501")))
        found.append(said(lambda: put(endpoint_url="http://127.0.0.1:1/readings")))
        with endpoint.lock:
            found.append(said(lambda: put(http_timeout_ms="50")))
        found.append(said(lambda: put(auth_header_value="open-sesame")))
        warm = SinkRecord(*P0, 0, b"a", b'{"celsius": "warm"}')
        found.append(failure_of(WebhookTask, config(), warm))
        endpoint.mishaps.extend([Mishap(400)] * 400)
        tolerant = config(errors_tolerance="all")
        records = [SinkRecord(*P0, offset, b"a", b"1") for offset in range(100)]
        found.append(failure_of(WebhookTask, tolerant, *records))
        large = SinkRecord(*P0, 0, b"a", json.dumps("x" * 2_000_000).encode())
        found.append(failure_of(WebhookTask, config(), large))
    assert_said(messages(HTTP), found)


def assert_said(expected: set[str], found: list[str]) -> None:
    assert len(expected) == len(found)
    missing = [message for message in expected if not any(message in one for one in found)]
    assert missing == [], found


def test_the_page_shows_how_to_reach_postgresql(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (line,) = blocks(DATABASE, "properties")
    key, _, url = line.strip().partition("=")
    environment: Mapping[str, str] = {"PGUSER": "me", "PGPASSWORD": "open-sesame"}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    keys = {**keys_of("upsert_sink.json"), key: url}
    path = tmp_path / "upsert.json"
    path.write_text(json.dumps({"name": keys.pop("name"), "config": keys}))
    checked = check_file(path)
    assert (checked.problems, checked.warnings) == ([], [])
    assert "open-sesame" not in repr(UpsertConfig.parse({**keys, "name": "test"}))
