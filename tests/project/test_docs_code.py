"""Runs blocks of code of the documentation that no other test runs.

Whole pages run in test_docs.py (EXECUTED) and in tests/integration; commands in test_examples_spark.py.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
import textwrap
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import Field
from typer.testing import CliRunner

import sinksdk
from sinksdk import (
    ConfigException,
    ConnectorConfig,
    Converted,
    MissingSourceTopicException,
    OffsetAndMetadata,
    RetriableException,
    SinkRecords,
    SinkTask,
    TopicPartition,
    Verdict,
)
from sinksdk.cli.app import app
from sinksdk.compatibility import Meaning
from sinksdk.engine import SystemClock, TaskName
from sinksdk.engine.worker_source_task import WorkerSourceTask
from sinksdk.engine.writer import transactional_id
from sinksdk.plugins.checks import check_file
from sinksdk.source import SourceConnector, SourceConnectorConfig, SourceTask
from sinksdk.support.threads import SystemThreads
from sinksdk.testing import FakeContext, Fault, FaultKind, FaultPlan, SinkTaskHarness
from sinksdk.topics.directory.writer import TopicDirectoryOffsets, TopicDirectoryWriter
from tests.engine.sinks import Letters
from tests.project.test_docs import DOCS, EXECUTED, README, ROOT, Fence, fences
from tests.transforms.connect_cases import CHAINS

P0 = TopicPartition("t", 0)
KEYS = {"name": "test", "topics": "t"}


def block(page: str, text: str) -> str:
    """Return the block of a page that contains a text."""
    (found,) = (fence.code for fence in fences(DOCS / page, generated=False) if text in fence.code)
    return found


def ran(page: str, *texts: str, **names: Any) -> dict[str, Any]:
    """Return the names that blocks of a page define."""
    for text in texts:
        exec(compile(block(page, text), page, "exec", dont_inherit=True), names)  # noqa: S102 - our own pages
    return names


ELSEWHERE = {
    "notebook.md": "tests/integration/test_notebook.py",
    "read-an-archive.md": "tests/helpers/archive_to_read.py",
    "test-your-connector.md": "tests/testing/test_walkthrough.py",
    "transforms.md": "tests/integration/test_transform_plans.py",
    "write-a-dataframe.md": "tests/integration/test_frames_page.py",
}
"""Pages whose blocks another test runs."""


def test_each_block_of_python_is_run() -> None:
    calls = [node for node in ast.walk(ast.parse(Path(__file__).read_text())) if isinstance(node, ast.Call)]
    named = [
        [argument.value for argument in call.args if isinstance(argument, ast.Constant)]
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id in ("block", "ran")
    ]
    here = {(page, text) for page, *texts in filter(None, named) for text in texts}
    assert [page for page, test in ELSEWHERE.items() if page not in (ROOT / test).read_text()] == []
    assert [
        f"{page.name}: {fence.code}"
        for page in DOCS.rglob("*.md")
        if page not in EXECUTED and page.name not in ELSEWHERE
        for fence in fences(page, generated=False)
        if fence.language == "python"
        and not re.match(r"# test_\w+\.py\n", fence.code)  # tests/testing/test_walkthrough.py
        and not any(page.name == where and str(text) in fence.code for where, text in here)
    ] == []


# -- configurations and commands -----------------------------------------------------------------------


def configurations() -> Iterator[Any]:
    for page in sorted({*DOCS.rglob("*.md")} - {*DOCS.glob("decisions/*.md")}):
        for number, fence in enumerate(fences(page, generated=False)):
            if fence.language == "json" and "\n  " in fence.code and "LinesSource" not in fence.code:
                yield pytest.param(fence, id=f"{page.stem}-{number}")


@pytest.mark.parametrize("fence", list(configurations()))
def test_json_configurations_would_start(fence: Fence) -> None:
    shown = json.loads(fence.code)
    if "config" not in shown:  # the page shows only keys to add to a configuration
        shown = {**KEYS, "connector.class": "examples.folder_sink:FolderSink", "folder": "/tmp/x", **shown}
    checked = check_file(shown)
    # References to the reader's own secrets cannot be resolved here.
    assert [problem for problem in checked.problems if "${" not in problem] == []
    assert checked.having(Meaning.UNKNOWN) == []


def test_the_chain_of_the_page_is_compared_with_connect() -> None:
    shown = json.loads(block("connect-transforms.md", "transforms.mask"))
    assert {key: value for key, value in shown.items() if key != "value.converter"} == CHAINS["page"]


def test_the_entry_point_is_that_of_the_example_package() -> None:
    assert (
        block("ship-a-connector.md", "entry-points") in (ROOT / "examples/outside/pyproject.toml").read_text()
    )


def sinksdk_commands() -> Iterator[Any]:
    for page in [README, *sorted({*DOCS.rglob("*.md")} - {*DOCS.glob("decisions/*.md")})]:
        for fence in fences(page):
            for line in fence.code.replace("\\\n", " ").splitlines():
                command = re.match(r"\s*(?:[A-Z_]+=\S+ )*(?:\.venv/bin/)?sinksdk (.*)", line)
                if fence.language == "bash" and command:
                    yield pytest.param(command[1].partition(" > ")[0], id=f"{page.stem}: {command[1]}")


@pytest.mark.parametrize("command", list(sinksdk_commands()))
def test_commands_of_pages_have_existing_options(command: str) -> None:
    # With --help, the command only parses its arguments.
    result = CliRunner().invoke(app, [*shlex.split(command), "--help"])
    assert (result.exit_code, "Usage: sinksdk" in result.output) == (0, True), result.output


# -- sinks ---------------------------------------------------------------------------------------------


def test_problems_between_fields_are_reported() -> None:
    class Base(ConnectorConfig):
        flush_size: int = Field(default=10, alias="flush.size")
        open_records: int = Field(default=10, alias="open.records")

    code = "class Config(Base):\n" + textwrap.indent(block("write-a-connector.md", "problems"), "    ")
    names: dict[str, Any] = {"Base": Base, "__name__": __name__}
    exec(compile(code, "write-a-connector.md", "exec", dont_inherit=True), names)  # noqa: S102 - our own page
    names["Config"].parse({**KEYS, "open.records": "10"})
    with pytest.raises(ConfigException, match=r"'open\.records' must be at least 'flush\.size'"):
        names["Config"].parse({**KEYS, "open.records": "9"})


@pytest.mark.parametrize(
    ("mark", "committed", "requested"),
    [(None, None, {}), (7, None, {P0: 7}), (7, 5, {P0: 7}), (None, 5, {P0: 0})],
)
def test_a_destination_with_offsets_requests_its_position(
    mark: int | None, committed: int | None, requested: Mapping[TopicPartition, int]
) -> None:
    names = ran("make-it-exactly-once.md", "self.watermark(partition)")
    commits = {} if committed is None else {P0: OffsetAndMetadata(committed)}
    context = FakeContext([P0], committed=commits)
    names["open"](SimpleNamespace(context=context, watermark=lambda _: mark), [P0])
    assert context.moves == requested


def test_a_closing_pre_commit_may_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    names = ran(
        "errors-and-dead-letters.md", "send_what_is_kept", RetriableException=RetriableException, time=time
    )
    answers = [RetriableException("busy"), RetriableException("busy", retry_after=2)]

    def send(offsets: Any) -> Any:
        if answers:
            raise answers.pop(0)
        return offsets

    task = SimpleNamespace(context=SimpleNamespace(deadline=lambda: 3.0), send_what_is_kept=send)
    assert names["pre_commit"](task, {P0: 1}) == {P0: 1}
    assert slept == [1.0, 2.0]
    answers.append(RetriableException("busy", retry_after=3))
    with pytest.raises(RetriableException):
        names["pre_commit"](task, {P0: 1})


def test_a_task_reports_bad_records_and_continues() -> None:
    class Task(SinkTask):
        put = ran("errors-and-dead-letters.md", "errant_record_reporter().report")["put"]

        def write(self, record: Any) -> None:
            int(record.value)

    letters = Letters()
    config = ConnectorConfig.parse({**KEYS, "errors.tolerance": "all"})
    harness = SinkTaskHarness(Task, config, dead_letters=letters)
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, ["1", "no number", "3"])
    harness.stop()
    assert [record.offset for record in letters.records] == [1]
    assert harness.committed == {P0: OffsetAndMetadata(3)}


def test_an_endpoint_that_answers_for_each_record_is_sent_only_the_rest() -> None:
    names = ran("write-an-http-sink.md", "class BulkTask")
    answers = [[200, 422, 429, 200], [200, 200]]
    sent: list[list[int]] = []

    def send(_: Any, rows: Any) -> list[int]:
        sent.append([row.offset for row in rows])
        return answers.pop(0)

    letters = Letters()
    config = ConnectorConfig.parse({**KEYS, "errors.tolerance": "all"})
    task = type("Task", (names["BulkTask"],), {"send": send})
    harness = SinkTaskHarness(task, config, dead_letters=letters)
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, ["0", "1", "2", "3"])
    harness.advance(1)
    harness.stop()
    assert sent == [[0, 1, 2, 3], [2, 3]]
    assert [record.offset for record in letters.records] == [1]
    assert harness.committed == {P0: OffsetAndMetadata(4)}


def test_a_client_consults_the_fault_plan() -> None:
    kept: dict[str, bytes] = {}
    plan = FaultPlan(Fault(at=1, kind=FaultKind.LOST_RESPONSE))
    inner = SimpleNamespace(put_object=kept.__setitem__)
    client = ran("test-kit.md", "class Client")["Client"](inner, plan)
    client.put_object("a", b"1")
    with pytest.raises(RetriableException):
        client.put_object("b", b"2")
    assert kept == {"a": b"1", "b": b"2"}


def test_a_transform_of_ones_own_keeps_and_changes_records() -> None:
    above = ran("connect-transforms.md", "class Above", __name__=__name__)["Above"]()
    with pytest.raises(ConfigException, match="'limit' must be a number"):
        above.configure({"limit": "many"})
    above.configure({"limit": "2"})
    records = SinkRecords.of(P0, [sinksdk.SinkRecord(*P0, offset, None, None) for offset in range(4)])
    changed = above.apply(SinkRecords(P0, records.arrow, value_objects=[1, 5, 2, 3]))
    assert (changed.offsets.tolist(), list(changed.value_objects)) == ([1, 3], [3, 1])


def test_verdicts_and_translations_of_a_replaced_connector_count() -> None:
    names = ran(
        "configuration.md", "compatibility = {", "def translated", Verdict=Verdict, Converted=Converted
    )

    class Config(ConnectorConfig):
        compatibility = names["compatibility"]
        translated = names["translated"]

    judged = Config.judge({**KEYS, "flush.size": "7", "format.class": "JsonFormat", "parquet.codec": "zstd"})
    meanings = {option.key: option.verdict.meaning for option in judged if option.key not in KEYS}
    assert meanings == {
        "flush.size": Meaning.SAME,
        "format.class": Meaning.UNSUPPORTED,
        "parquet.codec": Meaning.IGNORED,
    }
    translated = Config.translated({"file.max.records": "7", "topics": "t"})
    assert translated.config == {"flush.size": "7", "topics": "t"}
    assert translated.notes == ["'file.max.records' is 'flush.size' here"]


# -- sources -------------------------------------------------------------------------------------------


def test_the_source_of_the_page_follows_its_file_and_its_topic_is_read(tmp_path: Path) -> None:
    page = ran("write-a-source.md", "class LinesTask", "def read_topic", __name__=__name__)
    file = tmp_path / "input"
    file.write_text("one\ntwo\nthr")
    name = TaskName("lines", 0)

    def run_for(seconds: float) -> Any:
        config = page["LinesConfig"].parse({"name": "lines", "file": str(file), "topic": "lines"})
        worker = WorkerSourceTask(
            page["LinesTask"](),
            name,
            config,
            writer=TopicDirectoryWriter(tmp_path / "topics", transactional_id("docs", name), name.connector),
            offsets=TopicDirectoryOffsets(tmp_path / "topics", name.connector),
            clock=SystemClock(),
            threads=SystemThreads(str(name)),
        )
        threading.Timer(seconds, worker.stop).start()
        return worker.run()

    assert run_for(0.3).records == 2
    with file.open("a") as more:
        more.write("ee\n")
    assert run_for(0.3).records == 1  # resumes after the last committed line
    found = page["read_topic"](tmp_path / "topics", "lines")["value"].to_pylist()
    assert found == [b"one", b"two", b"three"]


def test_the_configuration_of_the_source_would_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lines.py").write_text(block("write-a-source.md", "class LinesTask"))
    monkeypatch.syspath_prepend(tmp_path)
    checked = check_file(json.loads(block("write-a-source.md", "lines:LinesSource")))
    assert (checked.problems, checked.having(Meaning.UNKNOWN)) == ([], [])


def test_a_connector_with_a_thread_is_tested_as_the_page_says() -> None:
    tables = ["a", "b"]

    class Config(SourceConnectorConfig):
        database: str
        table_poll_interval_ms: int = Field(default=5, alias="table.poll.interval.ms")
        tables: list[str] = Field(default=[], description="Set by the connector.")

    class Task(SourceTask):
        def start(self, config: Any) -> None: ...

        def poll(self) -> None: ...

        def stop(self) -> None: ...

    names = ran(
        "write-a-source.md",
        "class TablesSource",
        SourceConnector=SourceConnector,
        threading=threading,
        json=json,
        list_tables=lambda database: list(tables),
    )
    source = type("Source", (names["TablesSource"],), {"config_class": Config, "task_class": Task})
    test = ran("test-kit.md", "def test_a_new_table_is_noticed", TablesSource=source)
    database = SimpleNamespace(path="tables.sqlite", create_table=tables.append)
    test["test_a_new_table_is_noticed"](database)


# -- programs ------------------------------------------------------------------------------------------


def test_a_program_is_told_which_topics_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object, **__: object) -> None:
        raise MissingSourceTopicException(["b", "a"])

    pages: list[str] = []
    monkeypatch.setattr(sinksdk, "run", run)
    archive = ran("missing-topics.md", "MissingSourceTopicException")["archive"]
    with pytest.raises(MissingSourceTopicException):
        archive({}, pages.append)
    assert pages == ["topics are gone: a, b"]


def test_a_program_shows_commits(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(
        sinksdk, "committed_offsets", lambda *_: {P0: OffsetAndMetadata(7, "m")}, raising=False
    )
    ran("operations.md", "def show_commits")["show_commits"]()
    assert capsys.readouterr().out == "t-0 7 m\n"
