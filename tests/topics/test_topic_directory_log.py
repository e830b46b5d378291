from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sinksdk.errors import RetriableException
from sinksdk.records import SinkRecord, SinkRecords
from sinksdk.topics import TopicDirectorySource, write_records, write_transaction
from tests.helpers.topic_files import ALL, T0, T1, ends, problem, rows


def test_written_records_are_read_back(tmp_path: Path) -> None:
    records = SinkRecords.of(T0, [SinkRecord("t", 0, 7, b"k", None, 12), SinkRecord("t", 0, 9, None, b"v")])
    path = write_records(tmp_path, T0, records)
    assert path == tmp_path / f"topic=t/partition=0/{7:020d}-{9:020d}.parquet"
    assert list(path.parent.iterdir()) == [path]
    assert pq.read_table(path, partitioning=None).to_pylist() == records.arrow.to_pylist()


def test_records_with_invalid_offsets_are_refused(tmp_path: Path) -> None:
    wrong = [rows(offsets) for offsets in ([2, 1], [1, 1], [-1], [1, None], [])]
    for table in (*wrong, rows([1]).drop_columns(["offset"])):
        with pytest.raises(ValueError, match="t-0"):
            write_records(tmp_path, T0, table)
    assert list(tmp_path.iterdir()) == []


def test_failed_write_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_table: pa.Table, path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "no space left")

    monkeypatch.setattr("sinksdk.topics.directory.writer.pq.write_table", full)
    with pytest.raises(OSError, match="no space"):
        write_records(tmp_path, T0, rows(np.arange(3)))
    assert list((tmp_path / "topic=t/partition=0").iterdir()) == []


def test_with_transactions_only_named_files_are_visible(tmp_path: Path) -> None:
    write_transaction(tmp_path, {T0: rows([0, 1]), T1: rows([0])})
    write_records(tmp_path, T0, rows([2]))
    source = TopicDirectorySource(tmp_path)
    assert source.partitions(ALL) == {T0: (0, 2), T1: (0, 1)}
    entry = tmp_path / "_transactions/by-hand.json"
    entry.write_text(json.dumps({"files": [f"topic=t/partition=0/{2:020d}-{2:020d}.parquet"]}))
    assert source.partitions(ALL) == {T0: (0, 3), T1: (0, 1)}


def test_a_transaction_that_names_a_missing_file_is_an_error(tmp_path: Path) -> None:
    files = write_transaction(tmp_path, {T0: rows([0]), T1: rows([0])})
    files[T0].unlink()
    assert f"names {files[T0]}, which does not exist" in problem(tmp_path)
    files[T0].parent.rmdir()
    assert f"names {files[T0]}, which does not exist" in problem(tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        {"file": []},
        {"files": "x"},
        {"files": [1]},
        ["x"],
        {"files": ["/topic=t/partition=0/x.parquet"]},
        {"files": ["../topic=t/partition=0/x.parquet"]},
        {"files": ["x.parquet"]},
        {"files": ["topic=t/partition=x/x.parquet"]},
        {"files": ["topic=t/partition=2147483648/x.parquet"]},
    ],
)
def test_a_transaction_entry_of_another_form_is_an_error(tmp_path: Path, content: Any) -> None:
    write_transaction(tmp_path, {T0: rows([0])})
    entry = tmp_path / "_transactions/x.json"
    entry.write_text(json.dumps(content))
    assert problem(tmp_path).startswith(str(entry))


def test_incomplete_transaction_entry_is_retriable_then_an_error(tmp_path: Path) -> None:
    write_transaction(tmp_path, {T0: rows([0])})
    entry = tmp_path / "_transactions/x.json"
    (tmp_path / "_transactions/_x.json").write_text('{"files": [')
    entry.write_text('{"files": [')
    with pytest.raises(RetriableException):
        ends(tmp_path)
    an_hour_ago = time.time() - 3_600
    os.utime(entry, (an_hour_ago, an_hour_ago))
    assert f"{entry} is not a JSON document" in problem(tmp_path)
