from __future__ import annotations

import io
import json
import re
import struct
from collections.abc import Iterator
from pathlib import Path

import fastavro
import pytest

from tests.helpers.registry_server import RegistryServer
from tests.integration.refusing_site import RECORDS, Site, context
from tests.kafka.topics import consume

pytestmark = [pytest.mark.extended, pytest.mark.spark, pytest.mark.slow]

REFUSE = {"name": "refuse", "type": "boolean"}
FIRST = {"type": "record", "name": "Order", "fields": [REFUSE]}
SECOND = {"type": "record", "name": "Order", "fields": [{"name": "note", "type": "string"}, REFUSE]}
UNKNOWN = 4_711
AVRO = {
    "value.converter": "io.confluent.connect.avro.AvroConverter",
    "value.converter.basic.auth.credentials.source": "USER_INFO",
    "value.converter.basic.auth.user.info": "reader:secret",
}


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with RegistryServer().running() as server:
        server.credentials = "reader:secret"
        assert server.register("orders-value", json.dumps(FIRST)) == 1
        assert server.register("orders-value", json.dumps(SECOND)) == 2
        yield server


@pytest.fixture
def site(tmp_path: Path, bootstrap: str) -> Site:
    return Site(tmp_path, bootstrap)


def is_unreadable(offset: int) -> bool:
    return offset % 10 == 3


def value(offset: int) -> bytes:
    schema_id, schema = (1, FIRST) if offset % 2 else (2, SECOND)
    buffer = io.BytesIO()
    fastavro.schemaless_writer(
        buffer, fastavro.parse_schema(schema), {"refuse": offset % 25 == 0, "note": "n" * (offset % 7)}
    )
    return struct.pack(">bI", 0, UNKNOWN if is_unreadable(offset) else schema_id) + buffer.getvalue()


def run(site: Site, registry: RegistryServer, **more: str) -> tuple[int, str]:
    source = ["--bootstrap-servers", site.bootstrap]
    return site.run(source, **AVRO, **{"value.converter.schema.registry.url": registry.url}, **more)


def test_records_of_two_schemas_are_delivered_and_others_are_dead_letters(
    site: Site, registry: RegistryServer
) -> None:
    # A record is delivered again if the generation could not commit what it had delivered.
    site.produce(value)

    code, said = run(site, registry)

    assert code == 0, said
    assert "secret" not in said
    assert site.committed() == {0: RECORDS, 1: RECORDS}
    good = [offset for offset in range(RECORDS) if not is_unreadable(offset) and offset % 25]
    bad = sorted(set(range(RECORDS)).difference(good))
    letters = consume(site.bootstrap, site.letters)
    # The broker of a busy machine may take more than ten seconds to confirm a topic's id, without which no task commits.
    is_once = "left for the next generation" not in said
    for partition in range(2):
        delivered = site.delivered(partition)
        assert (delivered if is_once else sorted(set(delivered))) == good, said
        own = [letter for letter in letters if context(letter)["partition"] == b"%d" % partition]
        offsets = [int(context(letter)["offset"] or b"") for letter in own]
        assert sorted(offsets if is_once else set(offsets)) == bad, said
    for letter in letters:
        offset = int(context(letter)["offset"] or b"")
        assert letter.value == value(offset)
        unreadable = is_unreadable(offset)
        assert context(letter)["stage"] == (b"VALUE_CONVERTER" if unreadable else b"TASK_PUT")
    tasks = sum(map(int, re.findall(r"^generation \d+: (\d+) tasks?, ", said, re.MULTILINE)))
    for schema_id in (1, 2):
        asked = sum(path.startswith(f"/schemas/ids/{schema_id}") for path in registry.requests)
        assert 1 <= asked <= tasks, f"schema {schema_id} was asked for {asked} times by {tasks} tasks"


@pytest.mark.nightly
def test_registry_outage_turns_no_record_into_a_dead_letter(site: Site, registry: RegistryServer) -> None:
    site.produce(value)
    registry.failing = 503

    code, said = run(site, registry, **{"errors.retry.timeout": "2000"})

    assert code == 1, said
    assert registry.url in said
    assert not any(site.committed().values())
    assert not consume(site.bootstrap, site.letters)

    registry.failing = None
    code, said = run(site, registry)

    assert code == 0, said
    assert site.committed() == {0: RECORDS, 1: RECORDS}
