"""Parses Spark master URLs: where tasks run, how many at a time, and how often they are tried."""

from __future__ import annotations

import os
import re
import socket
from typing import Final

from sinksdk.errors import ConfigException
from sinksdk.settings.addresses import is_loopback_host

# Spark's default on clusters; local masters try a task once.
ATTEMPTS: Final = 4

_SLOTS_PER_CORE: Final = 4

_LOCAL = re.compile(r"local(?:\[\s*(?P<threads>\d+|\*)\s*(?:,\s*(?P<attempts>\d+)\s*)?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(?P<workers>\d+)\s*,\s*(?P<cores>\d+)\s*,\s*\d+\s*\]")
_STANDALONE = re.compile(r"spark://(?P<addresses>[^/]+)")
_KNOWN = (
    "local[*], local[N], local-cluster[workers,cores,megabytes], spark://host:port, yarn or k8s://host:port"
)


def check_master(master: str, store_is_local_file: bool) -> None:  # noqa: FBT001 - called by name
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
    return bool(_LOCAL.fullmatch(master) or _LOCAL_CLUSTER.fullmatch(master))


def task_slots_of(master: str, now: int) -> int:
    # Spark reports too few while a local cluster's executors start one after the other.
    match = _LOCAL_CLUSTER.fullmatch(master)
    return int(match["workers"]) * int(match["cores"]) if match else now


def task_slots_named(master: str) -> int | None:
    if (match := _LOCAL_CLUSTER.fullmatch(master)) is not None:
        return int(match["workers"]) * int(match["cores"])
    if (match := _LOCAL.fullmatch(master)) is None or match["threads"] == "*":
        return None
    return int(match["threads"] or 1)


def with_task_slots(master: str, task_slots: int | None = None) -> str:
    match = _LOCAL.fullmatch(master)
    if match is None:
        if task_slots is None:
            return master
        raise ConfigException(
            f"the number of task slots can be set for a local master only, and {master} is not local: set "
            f"the executors and their cores instead (--conf spark.executor.cores=N)"
        )
    threads = match["threads"] or "1"
    # A task mostly waits for its destination and the store, so several can share a core.
    cores = len(os.sched_getaffinity(0)) if threads == "*" else int(threads)
    attempts = f",{match['attempts']}" if match["attempts"] else ""
    return f"local[{cores * _SLOTS_PER_CORE if task_slots is None else task_slots}{attempts}]"


def is_loopback(master: str) -> bool:
    return is_local(master) or all(is_loopback_host(host) for host in _hosts(master) or [""])


def with_attempts(master: str) -> str:
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
    match = _STANDALONE.fullmatch(master)
    if match is None:
        return []
    return [address.rpartition(":")[0].strip("[]").lower() for address in match["addresses"].split(",")]
