"""The specification that every task of a generation gets."""

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
    """The specification that every task of a generation gets. Pickled to executors; holds no secret.

    One flat record of twelve fields, of which five are for sinks or for sources only.

    Args:
        store_url: the store, references unresolved.
        store_id: an executor that reaches another store must not write to it.
        python_path: folders to import the connector from, besides the installed packages.
        readers: of each task of a sink, as :func:`packed` returns them. Spark sends all of them to every
            task, which unpacks only its own.
        columns: that the connector uses; the others are not read.
        dead_letters: where the connector's dead letters go, if it has any: a Kafka cluster, or the path of a
            topic directory.
        source: the Kafka cluster of the records, if they come from one.
        target: of a source connector's records.
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
    dead_letters: KafkaClient | str | None = None
    source: KafkaClient | None = None
    target: Target | None = None
    speculates: bool = False


def packed(readers: Iterable[Reader]) -> tuple[bytes, ...]:
    """Readers in pickled form; equal ones share one object."""
    found: dict[bytes, bytes] = {}
    each = (zlib.compress(pickle.dumps(reader), level=1) for reader in readers)
    return tuple(found.setdefault(one, one) for one in each)


def unpacked(reader: bytes) -> Reader:
    """The reader of a task."""
    found: Reader = pickle.loads(zlib.decompress(reader))  # noqa: S301 - our own driver's
    return found
