"""Compare-and-set stores, and typed views on the durable state."""

from __future__ import annotations

import uuid
from functools import partial
from typing import TYPE_CHECKING

from sinksdk.errors import ConfigException
from sinksdk.offsets import OffsetAndMetadata, TopicPartition
from sinksdk.store import table
from sinksdk.store.addresses import S3Address, absolute_store_url, parse_address
from sinksdk.store.base import Conflict, Store, StoreRefused, StoreUnavailable, StoreUnreadable
from sinksdk.store.keys import STORE_KEY, dropped_key, plan_key, task_count_key, task_key
from sinksdk.store.ledger import (
    Merged,
    TakenOver,
    closing_request,
    is_current,
    may_be_newer,
    merge,
    missing_dropped,
    missing_segment,
    newest_attempt,
    newest_plan,
    request_closing,
    take_over,
    whole,
    with_dropped,
)
from sinksdk.store.records import Dropped, GenerationPlan, StoreIdentity, TaskCountRecord, TaskRecord

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

__all__ = [
    "Conflict",
    "Store",
    "StoreRefused",
    "StoreUnavailable",
    "StoreUnreadable",
    "TakenOver",
    "absolute_store_url",
    "closing_request",
    "committed_offsets",
    "identify",
    "is_current",
    "newest_attempt",
    "newest_plan",
    "open_store",
    "read_commits",
    "request_closing",
    "take_over",
]


def open_store(url: str, *, create: bool = False, expected_id: str | None = None) -> Store:
    """Open a store, with references in its URL resolved. Raises ConfigException."""
    store = _opened(parse_address(url), create=create)
    if expected_id is not None:
        row = table.read(store, STORE_KEY, StoreIdentity)
        if row is None or row.value.id != expected_id:
            store.close()
            raise ConfigException(
                f"store {store.url} is not the store this connector was started with (id {expected_id}); "
                f"driver and executors must reach the same one"
            )
    return store


def _opened(address: S3Address | URL, *, create: bool) -> Store:
    if not isinstance(address, S3Address):
        from sinksdk.store.sql import SqlStore  # noqa: PLC0415 - only the backend used is loaded

        return SqlStore(address, create=create)
    try:
        from sinksdk.store.s3 import S3Store  # noqa: PLC0415 - as above

        return S3Store(address, create=create)
    except ModuleNotFoundError as error:
        raise ConfigException(f"a store on S3 needs boto3: {error}; pip install 'sinksdk[s3]'") from error


def identify(store: Store) -> str:
    while True:
        row = table.read(store, STORE_KEY, StoreIdentity)
        if row is not None:
            return row.value.id
        try:
            return table.write(store, STORE_KEY, StoreIdentity(id=str(uuid.uuid4())), None).value.id
        except Conflict:
            continue


def read_commits(store: Store, connector: str) -> Merged:
    """Merge a connector's commits and stale tokens, without claiming a generation."""
    while True:
        count = table.read(store, task_count_key(connector), TaskCountRecord)
        if count is None or not count.value.planned:
            return Merged({}, {})
        base = table.read(store, plan_key(connector, count.value.planned), GenerationPlan)
        dropped_in = base.value.dropped if base else None
        dropped = (
            None if dropped_in is None else table.read(store, dropped_key(connector, dropped_in), Dropped)
        )
        rows = store.at_once(partial(_written, store, connector, base), range(count.value.tasks))
        again = table.read(store, task_count_key(connector), TaskCountRecord)
        if again is None or again.version != count.version:
            continue  # a driver has written since the first read: the values may not belong together
        if base is None:
            raise StoreUnreadable(
                f"connector {connector}: store {store.url} has lost the plan of generation "
                f"{count.value.planned}, so the commits are unknown; restore the store from a backup"
            )
        if (plan := base.value).dropped is not None:
            if dropped is None:
                raise missing_dropped(store, connector, plan)
            plan = with_dropped(plan, dropped.value)
        return merge(plan, [row for row in rows if row])


def _written(
    store: Store, connector: str, base: table.Row[GenerationPlan] | None, task: int
) -> TaskRecord | None:
    key, before = task_key(connector, task), None
    while True:
        row = table.read(store, key, TaskRecord)
        if row is None or base is None or not may_be_newer(base.value, row.value):
            return None
        found = whole(store, connector, task, row.value)
        if found is not None:
            return found
        if before == row.version:  # the record has not changed, so its segment is missing
            count = table.read(store, task_count_key(connector), TaskCountRecord)
            if count is None or count.value.planned != base.value.generation:
                return None  # a newer plan exists: the caller reads again
            raise missing_segment(store, connector, task)
        before = row.version


def committed_offsets(store: Store | str, connector: str) -> dict[TopicPartition, OffsetAndMetadata]:
    """A connector's commits, read-only: the next offset to read of each partition.

    Tokens that are committed and not published yet are in ``publish``.

    Raises:
        ConfigException: the store cannot be opened.
    """
    opened = open_store(store) if isinstance(store, str) else store
    try:
        return {p: entry.as_offset() for p, entry in read_commits(opened, connector).committed.items()}
    finally:
        if opened is not store:
            opened.close()
