"""Removing a deleted connector's records, step by step; each may be done again after a crash (KIP-883).

By then nothing of the connector runs: its tasks have closed and committed, or a claim fences them.
"""

from __future__ import annotations

import logging

from sinksdk.errors import ConnectException
from sinksdk.runtime.generation import Generations
from sinksdk.store import Conflict, Store, table
from sinksdk.store.keys import config_key
from sinksdk.store.records import ConnectorRecord

log = logging.getLogger(__name__)


def remove(store: Store, connector: str) -> None:
    """Remove a connector's records; the task count record stays, so that nothing of it ever comes back.

    The configuration goes last: until then a start finishes the deletion before anything else.

    Raises:
        FencedException: somebody else is at it.
        ConnectException: the connector is not being deleted.
    """
    row = table.read(store, config_key(connector), ConnectorRecord)
    if row is None:
        return
    if not row.value.deleted:
        message = f"connector '{connector}' is not being deleted; its records stay"
        raise ConnectException(message)
    Generations(store, connector).forget()
    try:
        store.delete(config_key(connector), row.version)
    except Conflict:
        log.debug("connector %s: somebody else has finished the deletion", connector)
