"""What every task of a generation must know."""

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
    """What every task of a generation must know; travels to the executors and holds no secret.

    One flat record of twelve: what a sink needs and what a source needs differ in five of them.

    Args:
        store_url: the store, references unresolved.
        store_id: an executor that reaches another store must not write to it.
        python_path: folders to import the connector from, besides the installed packages.
        readers: what each task of a sink reads with, as :func:`packed` has it. Spark sends all of this to
            every task: it takes out its own, and lets the others be.
        columns: what the connector uses of a record; the rest is not read.
        kafka: the cluster that takes dead letters, if the connector has any.
        source: the Kafka cluster that records come from, if they come from one.
        target: where the records of a source connector go.
        speculates: whether Spark may run two copies of a task at once (``spark.speculation``).
    """

    store_url: str
    store_id: str
    connector: str
    generation: int
    python_path: tuple[str, ...] = ()
    logs: LogSettings = WARNINGS
    readers: Sequence[bytes] = ()
    columns: tuple[str, ...] = ()
    kafka: KafkaClient | None = None
    source: KafkaClient | None = None
    target: Target | None = None
    speculates: bool = False


def packed(readers: Iterable[Reader]) -> tuple[bytes, ...]:
    """What tasks read with, as it travels. Equal ones travel once."""
    found: dict[bytes, bytes] = {}
    each = (zlib.compress(pickle.dumps(reader), level=1) for reader in readers)
    return tuple(found.setdefault(one, one) for one in each)


def unpacked(reader: bytes) -> Reader:
    """What a task reads with."""
    found: Reader = pickle.loads(zlib.decompress(reader))  # noqa: S301 - our own driver's
    return found
