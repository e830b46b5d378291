"""Define the Avro schema of whole records, and the sync marker of a file."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

SYNC_BYTES: Final = 16
# RecordEncoder writes the fields in this order.
RECORD_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "record",
    "name": "Record",
    "namespace": "sinksdk",
    "doc": "A Kafka record, whole: nothing of it is interpreted, so that it can be restored.",
    "fields": [
        {"name": "topic", "type": "string"},
        {"name": "partition", "type": "int"},
        {"name": "offset", "type": "long"},
        {
            "name": "timestamp",
            "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}],
            "doc": "-1: the record has no timestamp",
        },
        {"name": "timestamp_type", "type": "int", "doc": "0 create time, 1 log append time, -1 none"},
        {"name": "key", "type": ["null", "bytes"]},
        {"name": "value", "type": ["null", "bytes"]},
        {
            "name": "headers",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Header",
                    "fields": [
                        {"name": "key", "type": "string"},
                        {"name": "value", "type": ["null", "bytes"]},
                    ],
                },
            },
            "doc": "in the order they were written, keys may repeat",
        },
    ],
}


def sync_marker(object_key: str) -> bytes:
    # Records archived again under the same key give the same bytes, so checksums can be compared.
    return hashlib.sha256(object_key.encode()).digest()[:SYNC_BYTES]
