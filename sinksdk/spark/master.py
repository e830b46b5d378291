"""Parses Spark master URLs: where tasks run, how many at a time, and how often they are tried."""

from __future__ import annotations

import os
import re
import socket
from typing import Final

from sinksdk.errors import ConfigException
from sinksdk.settings.addresses import is_loopback_host

ATTEMPTS: Final = 4
"""Attempts of a task: Spark's default on clusters. Local masters try once by default."""

_SLOTS_PER_CORE: Final = 4

_LOCAL = re.compile(r"local(?:\[\s*(?P<threads>\d+|\*)\s*(?:,\s*(?P<attempts>\d+)\s*)?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(?P<workers>\d+)\s*,\s*(?P<cores>\d+)\s*,\s*\d+\s*\]")
_STANDALONE = re.compile(r"spark://(?P<addresses>[^/]+)")
_KNOWN = (
    "local[*], local[N], local-cluster[workers,cores,megabytes], spark://host:port, yarn or k8s://host:port"
)


def check_master(master: str, store_is_local_file: bool) -> None:  # noqa: FBT001 - reads as a sentence where it is called by name
    """Raise ConfigException if the master is unknown, or its hosts cannot reach the store's file."""
    if (
        not is_local(master)
        and not _STANDALONE.fullmatch(master)
        and not master.startswith(("yarn", "k8s://"))
    ):
        raise ConfigException(f"the Spark master {master!r} is not supported: use {_KNOWN}")
    if store_is_local_file and not _is_this_host(master):
        raise ConfigException(
            f"the Spark master {master!r} runs tasks on other hosts, but the store is a file on this one: "
            f"use a store that every executor reaches (PostgreSQL or S3), or a master on this host"
        )


def is_local(master: str) -> bool:
    """Whether Spark starts driver and executors on this host."""
    return bool(_LOCAL.fullmatch(master) or _LOCAL_CLUSTER.fullmatch(master))


def task_slots_of(master: str, now: int) -> int:
    """Number of task slots: ``now``, as Spark reports it, but of a local cluster that of all its executors.

    Spark reports too few while a local cluster's executors start one after the other.
    """
    match = _LOCAL_CLUSTER.fullmatch(master)
    return int(match["workers"]) * int(match["cores"]) if match else now


def task_slots_named(master: str) -> int | None:
    """Number of task slots that the master's name states, if any."""
    if (match := _LOCAL_CLUSTER.fullmatch(master)) is not None:
        return int(match["workers"]) * int(match["cores"])
    if (match := _LOCAL.fullmatch(master)) is None or match["threads"] == "*":
        return None
    return int(match["threads"] or 1)


def with_task_slots(master: str, task_slots: int | None = None) -> str:
    """The same master; a local one gets more task slots than cores.

    A task mostly waits for its destination and the store, so that more tasks than cores can share the cores.

    Args:
        task_slots: number of task slots; None: four per core.

    Raises:
        ConfigException: ``task_slots`` is given, and the master is not a local one.
    """
    match = _LOCAL.fullmatch(master)
    if match is None:
        if task_slots is None:
            return master
        raise ConfigException(
            f"the number of task slots can be set for a local master only, and {master} is not local: set "
            f"the executors and their cores instead (--conf spark.executor.cores=N)"
        )
    threads = match["threads"] or "1"
    cores = len(os.sched_getaffinity(0)) if threads == "*" else int(threads)
    attempts = f",{match['attempts']}" if match["attempts"] else ""
    return f"local[{cores * _SLOTS_PER_CORE if task_slots is None else task_slots}{attempts}]"


def is_loopback(master: str) -> bool:
    return is_local(master) or all(is_loopback_host(host) for host in _hosts(master) or [""])


def with_attempts(master: str) -> str:
    """The same master; a local one tries tasks as often as a cluster."""
    match = _LOCAL.fullmatch(master)
    if match is None or match["attempts"]:
        return master
    return f"local[{match['threads'] or 1},{ATTEMPTS}]"


def is_same_master(one: str, other: str) -> bool:
    return one == other or with_attempts(one) == with_attempts(other)


def _is_this_host(master: str) -> bool:
    names = {socket.gethostname().lower(), socket.getfqdn().lower()}
    hosts = _hosts(master)
    return is_local(master) or (
        bool(hosts) and all(is_loopback_host(host) or host in names for host in hosts)
    )


def _hosts(master: str) -> list[str]:
    """Hosts of a standalone master; several if it is highly available."""
    match = _STANDALONE.fullmatch(master)
    if match is None:
        return []
    return [address.rpartition(":")[0].strip("[]").lower() for address in match["addresses"].split(",")]
