"""The driver gives this specification to every task of a generation."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sinksdk.support.logs import WARNINGS, LogSettings

if TYPE_CHECKING:
    from sinksdk.engine.writer import Target
    from sinksdk.topics.base import Reader
    from sinksdk.topics.kafka.client import KafkaClient


@dataclass(frozen=True, slots=True)
class GenerationSpec:
    """Spark pickles the specification to executors, so it holds no secret."""

    store_url: str  # references in it are unresolved
    store_id: str  # an executor that reaches another store must not write to it
    connector: str
    generation: int
    python_path: tuple[str, ...] = ()  # folders to import the connector from
    logs: LogSettings = WARNINGS
    # Spark sends all of them, packed, to every task, which unpacks only its own.
    readers: Sequence[bytes] = ()
    columns: tuple[str, ...] = ()  # columns that the connector does not use are not read
    dead_letters: KafkaClient | str | None = None  # a Kafka cluster, or the path of a topic directory
    source: KafkaClient | None = None
    target: Target | None = None
    speculates: bool = False  # Spark may run two copies of a task at once


def packed(readers: Iterable[Reader]) -> tuple[bytes, ...]:
    # Equal readers share one object, which pickle writes once.
    found: dict[bytes, bytes] = {}
    each = (zlib.compress(pickle.dumps(reader), level=1) for reader in readers)
    return tuple(found.setdefault(one, one) for one in each)


def unpacked(reader: bytes) -> Reader:
    found: Reader = pickle.loads(zlib.decompress(reader))  # noqa: S301 - our own driver's
    return found
