"""Transforms and predicates, compared with Kafka's own, case by case."""

from __future__ import annotations

import base64
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pytest

from sinksdk.offsets import TopicPartition
from sinksdk.records import RECORD_COLUMNS, SinkRecords
from sinksdk.transforms.chain import TransformFailed
from sinksdk.transforms.plugins import KNOWN, keys_of, read_chain
from tests.transforms.cases import CASES, Case
from tests.transforms.kafka_answers import stored_results
from tests.transforms.shown import TYPES, rows_shown


def _arrow_type(schema: Any) -> pa.DataType:
    """Return the type of a schema in Connect's JSON."""
    if schema["type"] == "struct":
        return pa.struct([(field["field"], _arrow_type(field)) for field in schema["fields"]])
    if schema["type"] == "array":
        return pa.list_(_arrow_type(schema["items"]))
    if schema["type"] == "map":
        return pa.map_(_arrow_type(schema["keys"]), _arrow_type(schema["values"]))
    if schema.get("name", "").endswith(".Decimal"):
        return pa.decimal128(20, int(schema["parameters"]["scale"]))
    return TYPES[schema.get("name", schema["type"]).rpartition(".")[2]]


def _given(content: Any, schema: dict[str, Any]) -> Any:
    """Return a value of Connect's JSON as a Python object: its bytes and decimals are base64."""
    if content is None:
        return None
    kind = schema["type"]
    if kind == "struct":
        return {field["field"]: _given(content.get(field["field"]), field) for field in schema["fields"]}
    if kind == "array":
        return [_given(item, schema["items"]) for item in content]
    if kind == "map":
        return {name: _given(item, schema["values"]) for name, item in content.items()}
    if kind == "bytes" and "name" in schema:
        scale = int(schema["parameters"]["scale"])
        return Decimal(int.from_bytes(base64.b64decode(content), signed=True)).scaleb(-scale)
    return base64.b64decode(content) if kind == "bytes" else content


def _records(record: dict[str, Any]) -> SinkRecords:
    columns: dict[str, pa.Array] = {
        "offset": pa.array([7], pa.int64()),
        "timestamp": pa.array([record.get("timestamp", -1)], pa.int64()).cast(RECORD_COLUMNS["timestamp"]),
        "headers": pa.array(
            [[{"key": name, "value": text.encode()} for name, text in record.get("headers", [])]],
            RECORD_COLUMNS["headers"],
        ),
    }
    objects: dict[str, list[Any] | None] = {}
    for part in ("key", "value"):
        schema, content = record.get(f"{part}Schema"), record.get(part)
        objects[part] = None if schema else [content]
        columns[part] = pa.array([_given(content, schema)], _arrow_type(schema)) if schema else pa.nulls(1)
    batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    partition = TopicPartition(record.get("topic", "t"), 3)
    return SinkRecords(partition, batch, objects["key"], objects["value"])


def _shown(records: SinkRecords, asked: dict[str, Any]) -> Any:
    if not len(records):
        return "DROPPED"
    (shown,) = rows_shown(records)
    return {**shown, "topic": records.partition.topic} if "topic" in asked else shown


def _our_result(case: Case) -> dict[str, Any]:
    name = case["class"].removeprefix("predicates.")
    is_predicate = name != case["class"]
    kind = "predicates" if is_predicate else "transforms"
    keys = {f"{kind}.a.{key}": text for key, text in case["config"].items()}
    keys[f"{kind}.a.type"] = f"org.apache.kafka.connect.transforms.{case['class']}"
    if is_predicate:
        keys |= {"transforms.f.type": "Filter", "transforms.f.predicate": "a"}
    chain, problems = read_chain(["f"] if is_predicate else ["a"], ["a"] if is_predicate else [], keys)
    if chain is None:
        assert all(problem.startswith(f"'{kind}.a.") for problem in problems)
        return {"refused": problems}
    outputs = []
    for record in case["records"]:
        try:
            made = chain(_records(record))
        except TransformFailed as failed:
            outputs.append({"error": str(failed)})
        else:
            outputs.append(not len(made) if is_predicate else _shown(made, record))
    return {"outputs": outputs}


_DIFFERENT: Final = {
    ("SetSchemaMetadata$Value", "DataException: Cannot list fields on non-struct type"),
    ("SetSchemaMetadata$Key", "DataException: Schema required for [updating schema metadata]"),
}
"""Errors of transforms that have no effect in sinksdk."""


def _compare(case: Case, record: dict[str, Any], theirs: Any, ours: Any) -> None:
    if isinstance(theirs, dict) and "error" in theirs:
        if (case["class"], theirs["error"]) not in _DIFFERENT:
            assert "error" in ours
        return
    if isinstance(theirs, dict):
        for part in ("key", "value"):
            if theirs[part] is None:  # a column has one type, also where it is null; Connect's schema differs
                theirs = {name: shown for name, shown in theirs.items() if name != f"{part}Type"}
                ours.pop(f"{part}Type", None)
    assert ours == theirs, record


@pytest.mark.parametrize("place", range(len(CASES)), ids=lambda place: f"{place}-{CASES[place]['class']}")
def test_transform_results_equal_kafkas(place: int) -> None:
    case, theirs = CASES[place], stored_results()["answers"][place]
    ours = _our_result(case)
    assert ("refused" in ours) == ("refused" in theirs), ours
    for record, their_output, our_output in zip(
        case["records"], theirs.get("outputs", []), ours.get("outputs", []), strict="refused" not in ours
    ):
        _compare(case, record, their_output, our_output)


def test_transforms_have_the_same_keys_as_kafkas() -> None:
    for name, keys in stored_results()["keys"].items():
        known = KNOWN["predicates" if name.startswith("predicates.") else "transforms"]
        plugin = known[f"org.apache.kafka.connect.transforms.{name}"]
        assert sorted(keys_of(plugin.keys_class)) == sorted(keys)
        required = [f.alias or n for n, f in plugin.keys_class.model_fields.items() if f.is_required()]
        assert sorted(required) == sorted(key for key, default in keys.items() if default == "REQUIRED")
