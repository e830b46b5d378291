"""Run the setups of :mod:`tests.s3_archiver.original_values` through the archiver's task, each in one batch."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Final

from sinksdk import ConfigException, Header, SinkRecord, SinkRecords
from sinksdk.engine import EngineOptions
from sinksdk.topics.kafka.schema_registry import connect
from tests.engine.sinks import Letters
from tests.helpers.registry_server import RegistryServer
from tests.s3_archiver.original_values import (
    CONVERTERS,
    SCHEMAS,
    TIMESTAMP,
    Answer,
    Setup,
    read_avro,
    read_parquet,
)
from tests.s3_archiver.support import TP, Bench, bench, config

_TRANSFORMS: Final = "org.apache.kafka.connect.transforms."
_STAGES: Final = {
    "KEY_CONVERTER": "convert",
    "VALUE_CONVERTER": "convert",
    "TRANSFORMATION": "transform",
    "TASK_PUT": "write",
}
_EXTENSIONS: Final = {
    "JsonFormat": ".json",
    "ByteArrayFormat": ".bin",
    "AvroFormat": ".avro",
    "ParquetFormat": ".snappy.parquet",
}
# The end of the file names whose rows identify the records.
_ROWS: Final = ".headers.json"
_BETWEEN: Final = "<\x1e>"


def registry() -> RegistryServer:
    server = RegistryServer()
    for number, schema in SCHEMAS.items():
        assert server.register(f"subject-{number}", json.dumps(schema)) == number
    return server


def outcomes(setup: Setup, format_name: str, registry_url: str, *, is_named: bool = True) -> list[Answer]:
    """Return what became of each input, as the table says it, with an error's message instead of its class.

    ``{"refused": message}`` stands for all of them if the configuration is refused. All are in one batch, so
    that each record has neighbours. ``is_named`` false leaves the converter out of the configuration. Raises
    AssertionError if the partition stopped, which no record may cause.
    """
    try:
        keys = _keys_of(setup, format_name, registry_url)
        left_out = () if is_named else [key for key in keys if key.startswith(f"{setup.reads}.converter")]
        settings = config({key: text for key, text in keys.items() if key not in left_out})
    except ConfigException as error:
        return [{"refused": str(error)}] * len(setup.inputs)
    letters = Letters()
    made = bench(settings=settings, options=EngineOptions.of(settings, connect), dead_letters=letters)
    made.harness.deliver(
        TP, SinkRecords.of(TP, [_record(setup, place) for place in range(len(setup.inputs))])
    )
    made.harness.revoke()
    assert made.committed() == len(setup.inputs), made.harness.outcome(TP)
    found: list[Answer] = ["dropped"] * len(setup.inputs)
    for letter in letters.records:
        headers = {header.key: (header.value or b"").decode() for header in letter.headers}
        stage = _STAGES[headers["__connect.errors.stage"]]
        found[letter.offset] = {stage: headers["__connect.errors.exception.message"]}
    for place, answer in _rows(made, setup, format_name):
        assert found[place] == "dropped", (place, found[place], answer)
        found[place] = answer
    return found


def _keys_of(setup: Setup, format_name: str, registry_url: str) -> dict[str, str]:
    # Files of headers next to the values name the rows, so that null values differ from dropped ones.
    converter = CONVERTERS[setup.converter]
    other: dict[str, str] = {"key.converter": "string"}
    if setup.reads == "key":
        other = {"value.converter": "json", "value.converter.schemas.enable": "false"}
    writes_keys = setup.writes == "key"
    keys = {
        "flush.size": "100000",
        "errors.tolerance": "all",
        "errors.deadletterqueue.max.share": "1",
        "errors.deadletterqueue.topic.name": "letters",
        "errors.deadletterqueue.context.headers.enable": "true",
        "behavior.on.null.values": "write",
        "format.class": "JsonFormat" if writes_keys else format_name,
        "format.bytearray.separator": _BETWEEN,
        "json.decimal.format": converter.decimals,
        "store.kafka.keys": "true",
        "keys.format.class": format_name if writes_keys else "JsonFormat",
        "store.kafka.headers": "true",
        "headers.format.class": "JsonFormat",
        **other,
        f"{setup.reads}.converter": converter.kind,
        **{f"{setup.reads}.converter.{name}": text for name, text in converter.keys.items()},
    }
    if converter.kind == "avro":
        keys[f"{setup.reads}.converter.schema.registry.url"] = registry_url
    if setup.transforms:
        keys["transforms"] = ",".join(f"t{place}" for place in range(len(setup.transforms)))
    for place, (name, own) in enumerate(setup.transforms):
        keys[f"transforms.t{place}.type"] = f"{_TRANSFORMS}{name}"
        keys |= {f"transforms.t{place}.{key}": text for key, text in own.items()}
    return keys


def _record(setup: Setup, place: int) -> SinkRecord:
    given = setup.inputs[place]
    key, value = (given, b"{}") if setup.reads == "key" else (b"k", given)
    headers = (Header("place", str(place).encode()),)
    return SinkRecord(*TP, offset=place, key=key, value=value, timestamp=TIMESTAMP, headers=headers)


def _rows(made: Bench, setup: Setup, format_name: str) -> Iterator[tuple[int, Answer]]:
    for name in made.visible():
        if not name.endswith(_ROWS):
            continue
        lines = made.s3.data(name).splitlines()
        places = [int(json.loads(line)["headers"][0]["value"]) for line in lines]
        stem = name.removesuffix(_ROWS)
        if setup.writes == "value" and "/tombstone/" in stem:
            yield from ((place, "null") for place in places)
            continue
        view = ".keys" if setup.writes == "key" else ""
        data = made.s3.data(f"{stem}{view}{_EXTENSIONS[format_name]}")
        yield from zip(places, _answers(data, format_name), strict=True)


def _answers(data: bytes, format_name: str) -> list[Answer]:
    if format_name == "JsonFormat":
        return [{"text": line} for line in data.decode().split("\n")[:-1]]
    if format_name == "ByteArrayFormat":
        return [{"bytes": base64.b64encode(one).decode()} for one in data.split(_BETWEEN.encode())[:-1]]
    return [{"row": row} for row in (read_avro if format_name == "AvroFormat" else read_parquet)(data)]
