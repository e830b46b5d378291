"""A Connect worker's validations of chains; ``python -m tests.transforms.connect_validate`` writes them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError

from benchmarks.kafka_connect.worker import Worker, running_worker, worker_jars
from tests.kafka.broker import serving
from tests.transforms.connect import compile_sink
from tests.transforms.connect_cases import KAFKA

ANSWERS: Final = Path(__file__).with_name("validate_answers.json")
PREDICATES: Final = f"{KAFKA}predicates."
OF_CHAIN: Final = ("transforms", "predicates")
"""Beginnings of the keys that are compared."""

_MASK: Final = {
    "transforms": "a",
    "transforms.a.type": f"{KAFKA}MaskField$Value",
    "transforms.a.fields": "x",
}
_FILTER: Final = {"transforms": "a", "transforms.a.type": f"{KAFKA}Filter"}
_TOMBSTONE: Final = {"predicates": "p", "predicates.p.type": f"{PREDICATES}RecordIsTombstone"}

CHAINS: Final[Mapping[str, Mapping[str, str]]] = {
    "good": {**_MASK, **_TOMBSTONE, "transforms.a.predicate": "p", "transforms.a.negate": "true"},
    "none": {"transforms": ""},
    "no class": {"transforms": "a"},
    "unknown class": {**_MASK, "transforms.a.type": "org.example.Nothing"},
    "class for both parts": {**_MASK, "transforms.a.type": f"{KAFKA}MaskField"},
    "a predicate as a transform": {**_FILTER, "transforms.a.type": f"{PREDICATES}RecordIsTombstone"},
    "no required option": {key: _MASK[key] for key in ("transforms", "transforms.a.type")},
    "an option that is wrong": {
        "transforms": "a",
        "transforms.a.type": f"{KAFKA}Cast$Value",
        "transforms.a.spec": "x:int",
    },
    "an option of a wrong type": {
        "transforms": "a",
        "transforms.a.type": f"{KAFKA}ValueToKey",
        "transforms.a.fields": "x",
        "transforms.a.replace.null.with.default": "perhaps",
    },
    "what only the class itself finds": {"transforms": "a", "transforms.a.type": f"{KAFKA}InsertField$Value"},
    "an option that is not there": {**_MASK, "transforms.a.filds": "x"},
    "unknown predicate": {**_FILTER, "transforms.a.predicate": "p"},
    "another predicate": {**_FILTER, **_TOMBSTONE, "transforms.a.predicate": "q"},
    "predicate without option": {
        **_FILTER,
        "transforms.a.predicate": "p",
        "predicates": "p",
        "predicates.p.type": f"{PREDICATES}TopicNameMatches",
    },
    "predicate of no class": {**_FILTER, "transforms.a.predicate": "p", "predicates": "p"},
    "predicate of unknown class": {
        **_FILTER,
        "transforms.a.predicate": "p",
        "predicates": "p",
        "predicates.p.type": "org.example.Nothing",
    },
    "negate is no boolean": {
        **_FILTER,
        **_TOMBSTONE,
        "transforms.a.predicate": "p",
        "transforms.a.negate": "perhaps",
    },
    "negate without predicate": {**_FILTER, "transforms.a.negate": "true"},
    "an alias twice": {**_MASK, "transforms": "a, a"},
    "a predicate's alias twice": {
        **_FILTER,
        **_TOMBSTONE,
        "transforms.a.predicate": "p",
        "predicates": "p,p",
    },
    "several": {
        "transforms": "a,b",
        "transforms.a.type": f"{KAFKA}MaskField$Value",
        "transforms.b.type": "org.example.Nothing",
        "transforms.b.predicate": "q",
    },
    "of nobody": {**_MASK, "transforms.b.type": f"{KAFKA}Filter", "predicates.p.type": "org.example.Nothing"},
}


def of_chain(infos: Mapping[str, Any]) -> dict[str, Any]:
    """Return a validation's keys of the chain, with type, group and errors, and its number of errors."""
    keys = {}
    for info in infos["configs"]:
        name = info["value"]["name"]
        if name.partition(".")[0] in OF_CHAIN:
            definition = info["definition"] or {}
            keys[name] = {
                **{what: definition.get(what) for what in ("type", "required", "group")},
                "value": info["value"]["value"],
                "errors": info["value"]["errors"],
            }
    return {"error_count": infos["error_count"], "groups": infos["groups"], "keys": keys}


def run_worker() -> str:
    """Return a worker's validation of each chain, as JSON.

    Raises:
        MavenError: Connect's jars cannot be downloaded.
    """
    worker_jars()
    with tempfile.TemporaryDirectory(prefix="sinksdk-connect-") as name, serving() as broker:
        folder = Path(name)
        compile_sink(folder / "classes")
        settings = {"plugin.discovery": "hybrid_warn"}
        with running_worker(folder, broker.bootstrap, settings, classpath=[folder / "classes"]) as worker:
            responses = {chain: _response(worker, config) for chain, config in CHAINS.items()}
    lines = [f"{json.dumps(chain)}: {json.dumps(response)}" for chain, response in responses.items()]
    return "{" + ",\n".join(lines) + "}\n"


def _response(worker: Worker, config: Mapping[str, str]) -> dict[str, Any]:
    raw = {"connector.class": "RecordingSink", "name": "c", "topics": "t", "file": "f", **config}
    try:
        return of_chain(worker.validate("RecordingSink", raw))
    except HTTPError as error:
        return {"refused": json.loads(error.read())["message"]}


def stored_results() -> dict[str, dict[str, Any]]:
    responses: dict[str, dict[str, Any]] = json.loads(ANSWERS.read_text())
    return responses


if __name__ == "__main__":
    ANSWERS.write_text(run_worker())
