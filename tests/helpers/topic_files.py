"""Files of a topic directory as other programs write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sinksdk.errors import ConnectException, RetriableException
from sinksdk.offsets import OffsetRange, TopicPartition
from sinksdk.topics import Subscription, TopicDirectorySource

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
ALL = Subscription(regex=".*")


def rows(offsets: Any, **columns: Any) -> pa.Table:
    size = len(offsets)
    plain: dict[str, Any] = {
        "offset": pa.array(offsets, pa.int64()),
        "key": pa.nulls(size, pa.binary()),
        "value": pa.array([b"v"] * size, pa.binary()),
    }
    return pa.table(plain | columns)


def put(root: Path, name: str, table: pa.Table, **options: Any) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, **options)
    return path


def ends(root: Path) -> dict[TopicPartition, OffsetRange]:
    return TopicDirectorySource(root).partitions(ALL)


def problem(root: Path) -> str:
    with pytest.raises(ConnectException) as caught:
        ends(root)
    assert not isinstance(caught.value, RetriableException)
    return str(caught.value)
