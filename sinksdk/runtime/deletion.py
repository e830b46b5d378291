"""Deleting a connector, step by step; each may be done again after a crash (KIP-883).

By then nothing of the connector runs: its tasks have closed and committed, or a claim fences them.
"""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Callable
from typing import Final

from sinksdk.config import ConnectorConfig
from sinksdk.connector import Connector
from sinksdk.errors import ConnectException
from sinksdk.runtime.background import Background, in_a_thread
from sinksdk.runtime.generation import Generations
from sinksdk.store import Conflict, Store, table
from sinksdk.store.records import ConnectorRecord, config_key

log = logging.getLogger(__name__)

_FLAG: Final = "is_deleted"
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def stop_connector(
    connector: Connector,
    name: str,
    *,
    is_deleted: bool,
    timeout: float,
    start_with: ConnectorConfig | None = None,
    background: Background = in_a_thread,
) -> bool:
    """Call ``stop`` once, as its author declared it, with or without KIP-883's flag.

    Args:
        connector: which.
        name: its name, for messages.
        is_deleted: whether it is stopped because it is being deleted.
        timeout: seconds it may take.
        start_with: call ``start`` with this before: what does not run has nothing to clean up with.
            ``stop`` is called whatever becomes of that.
        background: runs it beside the caller's thread.

    Returns:
        Whether it came back in time. One that hangs is left behind in its thread and reported; what ``stop``
        raises is logged. Neither holds anybody up.
    """
    done = threading.Event()

    def run() -> None:
        try:
            if start_with is not None:
                _start(connector, name, start_with)
            _stop(connector.stop, is_deleted=is_deleted)
        except Exception:
            log.exception("connector %s: stop(is_deleted=%s) raised", name, is_deleted)
        finally:
            done.set()

    background(run)
    if done.wait(timeout):
        return True
    log.error(
        "connector %s: stop(is_deleted=%s) has not returned for %g s; its thread is left behind%s",
        name,
        is_deleted,
        timeout,
        ", what it should have cleaned up may still be there" if is_deleted else "",
    )
    return False


def _stop(stop: Callable[..., None], *, is_deleted: bool) -> None:
    """Call it as it was declared: many were written before there was a flag.

    The flag goes by its name where that, or any name, is taken; else to the first positional parameter, if
    that is a flag: it has no default, or a boolean one.
    """
    parameters = list(inspect.signature(stop).parameters.values())
    if any(map(_takes_the_name, parameters)):
        stop(**{_FLAG: is_deleted})
    elif parameters and _may_be_the_flag(parameters[0]):
        stop(is_deleted)
    else:
        stop()


def _takes_the_name(parameter: inspect.Parameter) -> bool:
    named = parameter.name == _FLAG and parameter.kind is not inspect.Parameter.POSITIONAL_ONLY
    return named or parameter.kind is inspect.Parameter.VAR_KEYWORD


def _may_be_the_flag(parameter: inspect.Parameter) -> bool:
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        return True
    is_flag = parameter.default is inspect.Parameter.empty or isinstance(parameter.default, bool)
    return parameter.kind in _POSITIONAL and is_flag


def _start(connector: Connector, name: str, config: ConnectorConfig) -> None:
    try:
        connector.start(config)
    except Exception:
        log.warning(
            "connector %s: start raised before its deletion; stop is called all the same", name, exc_info=True
        )


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
