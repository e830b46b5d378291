"""Writes whose dead letters' cluster is unreachable. Without Spark."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pytest

from sinksdk import ConnectException, RetriableException, committed_offsets
from sinksdk.frames import writer as writing_module
from sinksdk.frames.prepare import prepare_writer
from sinksdk.frames.protocol import Writing
from sinksdk.topics.kafka import own_topics
from tests.frames.test_prepare import VALUE, options
from tests.frames.test_rows import NULLABLE
from tests.helpers.mock_cluster import mock_cluster
from tests.helpers.ports import closed_port

LETTERS = {
    "value_converter": "json",
    "errors_tolerance": "all",
    "errors_deadletterqueue_topic_name": "letters",
    "producer_override_delivery_timeout_ms": "1500",
}
ROWS = pa.RecordBatch.from_pydict({"value": ['{"n": 1}', "no JSON", '{"n": 3}']}, schema=VALUE)


def test_an_unreachable_dead_letter_cluster_is_one_error_before_the_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Regression: rows were written up to the first bad one, whose task then waited for two minutes, four
    # times.
    monkeypatch.setattr(own_topics, "_TIMEOUT", 1.0)
    with closed_port() as port:
        servers = f"127.0.0.1:{port}"
        begun = time.monotonic()
        with pytest.raises(RetriableException) as raised:
            prepare_writer(options(tmp_path, **LETTERS, producer_override_bootstrap_servers=servers), VALUE)
    assert time.monotonic() - begun < 30
    said = str(raised.value)
    assert (
        f"the dead letter topic 'letters' ('errors.deadletterqueue.topic.name') cannot be read or created at {servers}"
        in said
    )
    assert "check that the cluster responds there" in said
    assert not (tmp_path / "store.sqlite").exists()


def test_a_lost_dead_letter_prevents_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The cluster becomes unreachable after the write was prepared.
    monkeypatch.setattr(writing_module, "prepare_process", lambda folders: None)
    with mock_cluster() as cluster:
        cluster.create("letters", 1)
        where = {"producer_override_bootstrap_servers": cluster.bootstrap}
        writer = prepare_writer(options(tmp_path, **LETTERS, **where), VALUE)
    now, begun = Writing("q", "run"), time.monotonic()
    with pytest.raises(
        ConnectException,
        match=r"the record of t-0 at offset 1 could not be written to the dead letter topic 'letters': .*"
        "check whether the cluster responds",
    ):
        writer.write(now, 0, iter([ROWS]))
    assert time.monotonic() - begun < 30
    writer.abort(now)

    assert committed_offsets(f"sqlite:///{tmp_path}/store.sqlite", "a") == {}
    assert [path for path in (tmp_path / "out").glob("**/*") if path.is_file()] == []


def test_a_written_dead_letter_allows_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing_module, "prepare_process", lambda folders: None)
    with mock_cluster() as cluster:
        cluster.create("letters", 1)
        where = {"producer_override_bootstrap_servers": cluster.bootstrap}
        writer = prepare_writer(options(tmp_path, **LETTERS, **where), VALUE)
        now = Writing("q", "run")
        share = writer.write(now, 0, iter([ROWS]))
        assert share is not None
        writer.commit(now, [share])

    assert [at.offset for at in committed_offsets(f"sqlite:///{tmp_path}/store.sqlite", "a").values()] == [3]


@pytest.mark.parametrize("tolerance", ["none", "all"])
def test_header_without_a_key_fails_the_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tolerance: str
) -> None:
    monkeypatch.setattr(writing_module, "prepare_process", lambda folders: None)
    headers = pa.array([[{"key": "h", "value": None}], [{"key": None, "value": None}]], NULLABLE)
    rows = pa.RecordBatch.from_pydict({"value": ["1", "2"], "headers": headers})
    settings = {"value_converter": "json", "errors_tolerance": tolerance}
    writer = prepare_writer(options(tmp_path, **settings), rows.schema)
    now = Writing("q", "run")
    with pytest.raises(ConnectException, match="column 'headers' of row 1 of Spark partition 0"):
        writer.write(now, 0, iter([rows.slice(0, 1), rows.slice(1)]))
    writer.abort(now)

    assert committed_offsets(f"sqlite:///{tmp_path}/store.sqlite", "a") == {}
    assert [path for path in (tmp_path / "out").glob("**/*") if path.is_file()] == []
