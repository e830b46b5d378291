"""Whole configurations of ``transforms`` for a real Connect worker, and the records of two topics."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

KAFKA: Final = "org.apache.kafka.connect.transforms."

CHAINS: Final[dict[str, dict[str, str]]] = {
    # Published configurations of S3 sinks.
    "i03": {
        "transforms": "createKey",
        "transforms.createKey.fields": "id",
        "transforms.createKey.type": f"{KAFKA}ValueToKey",
    },
    "e20": {
        "transforms": "RenameField,insertStaticField1",
        "transforms.RenameField.type": f"{KAFKA}ReplaceField$Value",
        "transforms.RenameField.renames": "name:full_name,id:identity",
        "transforms.insertStaticField1.type": f"{KAFKA}InsertField$Value",
        "transforms.insertStaticField1.static.field": "source",
        "transforms.insertStaticField1.static.value": "web",
    },
    # The configuration as it is published, without the keys of its transforms.
    "e20-bare": {
        "transforms": "RenameField,insertStaticField1",
        "transforms.RenameField.type": f"{KAFKA}ReplaceField$Value",
        "transforms.insertStaticField1.type": f"{KAFKA}InsertField$Value",
    },
    "e17": {
        "transforms": "DebeziumRecord",
        "transforms.DebeziumRecord.type": "org.radarbase.kafka.connect.transforms.DebeziumRecord",
    },
    "debezium": {
        "transforms": "source",
        "transforms.source.type": f"{KAFKA}InsertField$Value",
        "transforms.source.offset.field": "_offset",
        "transforms.source.predicate": "isTombstone",
        "transforms.source.negate": "true",
        "predicates": "isTombstone",
        "predicates.isTombstone.type": f"{KAFKA}predicates.RecordIsTombstone",
    },
    # r33 has Confluent's TombstoneHandler, which is not part of Kafka: with behavior=ignore it does the same
    # as this.
    "r33": {
        "transforms": "dropTombstones",
        "transforms.dropTombstones.type": f"{KAFKA}Filter",
        "transforms.dropTombstones.predicate": "tombstone",
        "predicates": "tombstone",
        "predicates.tombstone.type": f"{KAFKA}predicates.RecordIsTombstone",
    },
    # The chain of docs/connect-transforms.md.
    "page": {
        "transforms": "drop,mask",
        "transforms.drop.type": f"{KAFKA}Filter",
        "transforms.drop.predicate": "tombstone",
        "transforms.mask.type": f"{KAFKA}MaskField$Value",
        "transforms.mask.fields": "card",
        "predicates": "tombstone",
        "predicates.tombstone.type": f"{KAFKA}predicates.RecordIsTombstone",
    },
    "place": {
        "transforms": "hoist,place",
        "transforms.hoist.type": f"{KAFKA}HoistField$Value",
        "transforms.hoist.field": "value",
        "transforms.place.type": f"{KAFKA}InsertField$Value",
        "transforms.place.topic.field": "topic",
        "transforms.place.partition.field": "partition",
        "transforms.place.offset.field": "offset!",
        "transforms.place.timestamp.field": "timestamp?",
    },
    "many": {
        "transforms": "here,mark,headers,drop,flat,cast,at,key,unkey",
        "transforms.here.type": f"{KAFKA}InsertField$Value",
        "transforms.here.static.field": "here",
        "transforms.here.static.value": "yes",
        "transforms.here.predicate": "topic",
        "transforms.mark.type": f"{KAFKA}InsertHeader",
        "transforms.mark.header": "by",
        "transforms.mark.value.literal": "5",
        "transforms.mark.predicate": "marked",
        "transforms.mark.negate": "TRUE",
        "transforms.headers.type": f"{KAFKA}HeaderFrom$Value",
        "transforms.headers.fields": "name,score",
        "transforms.headers.headers": "h,score",
        "transforms.headers.operation": "move",
        "transforms.drop.type": f"{KAFKA}DropHeaders",
        "transforms.drop.headers": "gone",
        "transforms.flat.type": f"{KAFKA}Flatten$Value",
        "transforms.flat.delimiter": "_",
        "transforms.cast.type": f"{KAFKA}Cast$Value",
        "transforms.cast.spec": "id:string,address_zip:int16",
        "transforms.at.type": f"{KAFKA}TimestampConverter$Value",
        "transforms.at.field": "at",
        "transforms.at.target.type": "string",
        "transforms.at.format": "yyyy-MM-dd HH:mm:ss.SSS",
        "transforms.key.type": f"{KAFKA}ValueToKey",
        "transforms.key.fields": "id,card",
        "transforms.unkey.type": f"{KAFKA}ExtractField$Key",
        "transforms.unkey.field": "id",
        "predicates": "topic,marked",
        "predicates.topic.type": f"{KAFKA}predicates.TopicNameMatches",
        "predicates.topic.pattern": "people-.*",
        "predicates.marked.type": f"{KAFKA}predicates.HasHeaderKey",
        "predicates.marked.name": "h",
    },
    "negated-nothing": {
        "transforms": "drop",
        "transforms.drop.type": f"{KAFKA}Filter",
        "transforms.drop.negate": "true",
    },
    "no-predicate": {
        "transforms": "drop",
        "transforms.drop.type": f"{KAFKA}Filter",
        "transforms.drop.predicate": "nowhere",
    },
    "twice": {
        "transforms": "drop,drop",
        "transforms.drop.type": f"{KAFKA}Filter",
    },
}

TOPICS: Final = {"people-plain": "false", "people-schemas": "true"}
"""The names of the topics, and whether their values have an envelope with a schema."""
PARTITIONS: Final = 2
CONVERTERS: Final = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "errors.tolerance": "all",
    "errors.deadletterqueue.context.headers.enable": "true",
    "errors.deadletterqueue.topic.replication.factor": "1",
}


class Sent(NamedTuple):
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: list[tuple[str, bytes | None]]


def config_of(name: str, topic: str) -> dict[str, str]:
    """Return a connector's configuration, without its class and name."""
    return {
        "topics": topic,
        "errors.deadletterqueue.topic.name": f"letters-{name}-{topic}",
        **CONVERTERS,
        "value.converter.schemas.enable": TOPICS[topic],
        **CHAINS[name],
    }


def _field(name: str, kind: str, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"field": name, "type": kind, "optional": True, **({"fields": list(fields)} if fields else {})}


_SCHEMA: Final = {
    "type": "struct",
    "optional": True,
    "fields": [
        _field("id", "int64"),
        _field("name", "string"),
        _field("card", "string"),
        _field("score", "double"),
        _field("at", "int64"),
        _field("address", "struct", _field("street", "string"), _field("zip", "int64")),
    ],
}
_TEXT: Final = {"type": "string", "optional": True}


def _person(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "name": None if number % 4 == 3 else f"n{number}",
        "card": f"4711-{number}",
        "score": number + 0.5,
        "at": 1_700_000_000_000 + number * 86_400_001,
        "address": {"street": "Elm \u00e4", "zip": 70_000 + number},
    }


def sent(topic: str, partition: int) -> list[Sent]:
    """Return the records of a partition: people, tombstones, a null, a text, and invalid JSON."""
    values: list[Any] = [_person(partition * 100 + number) for number in range(8)]
    values[3:3] = [None]
    values[6:6] = ["a text"]
    records = []
    for number, value in enumerate(values):
        schema = _TEXT if isinstance(value, str) else _SCHEMA
        whole = {"schema": schema, "payload": value} if TOPICS[topic] == "true" else value
        data = None if value is None else json.dumps(whole).encode()
        marked: list[tuple[str, bytes | None]] = [("h", b"x"), ("gone", b"1"), ("h", b"2")]
        key = None if number % 3 == 2 else b"k%d" % number
        records.append(Sent(key, data, 1_700_000_000_000 + number, marked if number % 2 else []))
    return [*records, Sent(b"bad", b"{", 1_700_000_000_100, []), Sent(b"last", None, 1_700_000_000_101, [])]
