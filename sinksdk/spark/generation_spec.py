"""What every task of a generation must know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sinksdk.logs import WARNINGS, LogSettings

if TYPE_CHECKING:
    from sinksdk.engine.writer import Target
    from sinksdk.sources.base import Reader
    from sinksdk.sources.kafka.client import KafkaClient


@dataclass(frozen=True, slots=True)
class GenerationSpec:
    """What every task of a generation must know; travels to the executors and holds no secret.

    Args:
        store_url: the store, references unresolved.
        store_id: its id: an executor that reaches another store must not write to it.
        connector: the connector's name.
        generation: the generation's number.
        python_path: folders to import the connector from, besides the installed packages.
        logs: how they log.
        reader: what the tasks of a sink read with.
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
    reader: Reader | None = None
    columns: tuple[str, ...] = ()
    kafka: KafkaClient | None = None
    source: KafkaClient | None = None
    target: Target | None = None
    speculates: bool = False
