from __future__ import annotations

import datetime as dt
import io
import json
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from sinksdk import TopicPartition
from sinksdk.control.herder import Herder
from sinksdk.store import open_store
from sinksdk.topics import write_records
from tests.helpers.registry_server import RegistryServer
from tests.integration.archive_site import Site, SlowS3, descendants, ended, wait_until
from tests.integration.typed_sink import rows_in
from tests.project.test_docs import ROOT

pytestmark = [pytest.mark.extended, pytest.mark.spark, pytest.mark.slow]

PARTITIONS, RECORDS, FLUSH_SIZE = 2, 10_000, 500
OPTIONS = ("--until-caught-up", "--conf", "spark.sql.session.timeZone=UTC")
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
ROWS = """
    -- every third one goes, every seventh comes twice
    FROM records LATERAL VIEW explode(sequence(1, if(offset % 7 = 0, 2, 1))) AS copy
    WHERE offset % 3 > 0
"""
HANDED_ON = f"SELECT records.* {ROWS}"
MADE_BY_SPARK = f"""
    SELECT topic, partition, offset, key, if(value IS NULL, NULL, named_struct(
        'id', offset, 'amount', cast(offset / 8 AS decimal(20, 3)), 'at', timestamp_micros(offset * 1001),
        'day', date_from_unix_date(int(offset % 1000)), 'tags', array(string(offset), NULL),
        'notes', map('half', offset / 2)
    )) AS value {ROWS}
"""


def is_null(offset: int) -> bool:
    return offset % 11 == 0


def amount(offset: int) -> Decimal:
    return (Decimal(offset) / 8).quantize(Decimal("0.001"))


def at(offset: int) -> dt.datetime:
    return EPOCH + dt.timedelta(microseconds=offset * 1001)


@dataclass(frozen=True)
class Form:
    """How values are written in the topic, and what a task gets of them.

    Args:
        bytes_of: the bytes at an offset.
        object_of: what iterating gives.
        kinds: the types that batches may have.
    """

    bytes_of: Callable[[int], bytes]
    object_of: Callable[[int], dict[str, Any]]
    kinds: Sequence[pa.DataType]
    settings: Mapping[str, object] = field(default_factory=dict)


# -- Avro of a registry, in two versions of a schema that alternate ---------------------------------------------

AMOUNT = {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 3}
AT = {"type": "long", "logicalType": "timestamp-micros"}
TAGS = {"type": "array", "items": ["null", "string"]}
MORE = {"type": "record", "name": "More", "fields": [{"name": "half", "type": "double"}]}


def schema_of(**fields: Any) -> dict[str, Any]:
    listed = [{"name": name, "type": kind} for name, kind in fields.items()]
    return {"type": "record", "name": "Order", "fields": listed}


SCHEMAS = (
    schema_of(id="int", amount=AMOUNT, at=AT, tags=TAGS),
    schema_of(id="long", amount=AMOUNT, at=AT, tags=TAGS, more=["null", MORE]),
)
PARSED = [fastavro.parse_schema(schema) for schema in SCHEMAS]


def avro_object(offset: int) -> dict[str, Any]:
    row = {"id": offset, "amount": amount(offset), "at": at(offset), "tags": [str(offset), None]}
    return row if offset % 2 == 0 else {**row, "more": None if offset % 5 == 0 else {"half": offset / 2}}


def avro_bytes(offset: int) -> bytes:
    datum, number = io.BytesIO(), offset % 2
    fastavro.schemaless_writer(datum, PARSED[number], avro_object(offset))
    return b"\0" + struct.pack(">i", number + 1) + datum.getvalue()


def avro_kind(number: pa.DataType, *more: tuple[str, pa.DataType]) -> pa.DataType:
    return pa.struct(
        [
            *(("id", number), ("amount", pa.decimal128(20, 3)), ("at", pa.timestamp("us", "UTC"))),
            *(("tags", pa.list_(pa.string())), *more),
        ]
    )


NEWER = avro_kind(pa.int64(), ("more", pa.struct([("half", pa.float64())])))
AVRO = Form(
    avro_bytes,
    avro_object,
    [avro_kind(pa.int32()), NEWER],  # a batch with records of both versions has the newer version's type
    {"records.sql": HANDED_ON, "value.converter": "avro"},
)

# -- JSON with a schema, and what Spark makes ---------------------------------------------------------------------


def json_object(offset: int) -> dict[str, Any]:
    more = {"day": (EPOCH + dt.timedelta(days=offset % 1000)).date(), "tags": [str(offset), None]}
    row = {"id": offset, "amount": amount(offset), "at": at(offset), **more}
    return {**row, "notes": {"half": offset / 2}}


def json_bytes(offset: int) -> bytes:
    return json.dumps(
        {**json_object(offset), "left out": 1},
        default=lambda value: str(value) if isinstance(value, Decimal) else value.isoformat(),
    ).encode()


DDL = (
    "id BIGINT, amount DECIMAL(20, 3), at TIMESTAMP, day DATE, tags ARRAY<STRING>, notes MAP<STRING, DOUBLE>"
)
JSON_KIND = pa.struct(
    [
        *(("id", pa.int64()), ("amount", pa.decimal128(20, 3)), ("at", pa.timestamp("us", "UTC"))),
        *(
            ("day", pa.date32()),
            ("tags", pa.list_(pa.string())),
            ("notes", pa.map_(pa.string(), pa.float64())),
        ),
    ]
)
JSON = Form(
    json_bytes,
    json_object,
    [JSON_KIND],
    {"records.sql": HANDED_ON, "value.converter": "json", "value.converter.schema": DDL},
)
SPARK_KIND = pa.struct(
    [
        *(JSON_KIND.field("id"), JSON_KIND.field("amount"), JSON_KIND.field("at"), JSON_KIND.field("day")),
        pa.field(
            "tags", pa.list_(pa.field("element", pa.string())), nullable=False
        ),  # with the type's name in Spark
        pa.field("notes", pa.map_(pa.string(), pa.float64()), nullable=False),
    ]
)
SPARK = Form(lambda offset: b"%d" % offset, json_object, [SPARK_KIND], {"records.sql": MADE_BY_SPARK})
FORMS = {"avro": AVRO, "json": JSON, "spark": SPARK}


# -- the connector ------------------------------------------------------------------------------------------------


class TypedSite(Site):
    @property
    def out(self) -> Path:
        return self.folder / "out"

    @property
    def slow(self) -> Path:
        return self.folder / "slow"

    def configure(self, **settings: object) -> None:
        config = {
            "connector.class": "tests.integration.typed_sink:TypedSink",
            "topics": self.topic,
            "tasks.max": PARTITIONS,
            "folder": str(self.out),
            "slow.file": str(self.slow),
            "key.converter": "string",
            "flush.size": FLUSH_SIZE,
            "offset.flush.interval.ms": 500,
            "closing.poll.ms": 100,
            "poll.interval.ms": 200,
            **settings,
        }
        self.config.write_text(json.dumps({"name": "archive", "config": config}))

    def started(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        path = {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
        return super().started(command, {**(env or {}), **path})

    def fill(self, bytes_of: Callable[[int], bytes]) -> None:
        offsets = range(RECORDS)
        table = pa.table(
            {
                "offset": offsets,
                "key": [b"k%d" % offset for offset in offsets],
                "value": pa.array([None if is_null(n) else bytes_of(n) for n in offsets], pa.binary()),
                "timestamp": pa.array(offsets, pa.timestamp("ms", "UTC")),
            }
        )
        for partition in range(PARTITIONS):
            write_records(self.topics, TopicPartition(self.topic, partition), table)

    def generation(self) -> int:
        with closing(open_store(self.store)) as store:
            return Herder(store).info("archive").generation

    def rebalance(self, driver: subprocess.Popen[str]) -> None:
        before = self.generation()
        with closing(open_store(self.store)) as store:
            Herder(store).rebalance("archive")
        wait_until(lambda: self.generation() > before, driver, "another generation began")


@pytest.fixture
def typed(tmp_path: Path) -> Iterator[TypedSite]:
    with closing(TypedSite(tmp_path, "", SlowS3(lambda *_: []), "")) as made:
        made.slow.touch()
        yield made


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    with RegistryServer().running() as server:
        for schema in SCHEMAS:
            server.register("orders-value", json.dumps(schema))
        yield server.url


@pytest.mark.parametrize(
    ("form", "whose"),
    [
        ("avro", "worker"),
        pytest.param("avro", "driver", marks=pytest.mark.nightly),
        pytest.param("json", "worker", marks=pytest.mark.nightly),
        pytest.param("json", "driver", marks=pytest.mark.nightly),
        pytest.param("spark", "worker", marks=pytest.mark.nightly),
        pytest.param("spark", "driver", marks=pytest.mark.nightly),
    ],
)
def test_typed_rows_are_archived_once_and_keep_their_types_after_kills(
    typed: TypedSite, registry: str, form: str, whose: str
) -> None:
    # Two versions of an Avro schema alternate: a batch has the fields of both. Values are dropped,
    # multiplied and null.
    given = FORMS[form]
    where = {"value.converter.schema.registry.url": registry} if form == "avro" else {}
    typed.configure(**given.settings, **where)
    typed.fill(given.bytes_of)
    driver = typed.start(*OPTIONS)
    wait_until(lambda: sum(typed.committed().values()) > FLUSH_SIZE, driver, "something was committed")
    if whose == "driver":
        driver.kill()
        ended(driver)
        before = sum(typed.committed().values())
        driver = typed.start(*OPTIONS)
        wait_until(lambda: sum(typed.committed().values()) > before, driver, "more was committed")
    else:
        workers = [
            pid
            for pid, command in descendants(driver.pid)
            if "pyspark.worker" in command or "worker_daemon" in command
        ]
        os.kill(max(workers), signal.SIGKILL)
    assert sum(typed.committed().values()) < PARTITIONS * RECORDS
    typed.rebalance(driver)
    typed.slow.unlink()
    code, output = ended(driver)

    assert code == 0, output
    assert typed.committed() == dict.fromkeys(range(PARTITIONS), RECORDS)
    written = rows_in(typed.out)
    assert written.keys() == {f"orders-{number}" for number in range(PARTITIONS)}
    for rows in written.values():
        assert_as_expected(rows, given)
    assert [path for path in typed.out.glob(".*") if path.stat().st_size] == []


def assert_as_expected(rows: Sequence[Sequence[Any]], form: Form) -> None:
    offsets = [n for n in range(RECORDS) if n % 3 > 0 for _ in range(2 if n % 7 == 0 else 1)]
    assert [row[0] for row in rows] == offsets
    fields = {str(kind): dict.fromkeys(field.name for field in kind) for kind in form.kinds}
    seen = set()
    for offset, key, value, key_kind, value_kind in rows:
        assert (key, key_kind) == (repr(f"k{offset}"), "string")
        assert value_kind in fields, offset
        seen.add(value_kind)
        # Fields of the batch that the record's own schema does not have are null.
        wanted = None if is_null(offset) else {**fields[value_kind], **form.object_of(offset)}
        assert value == repr(wanted), offset
    assert str(form.kinds[-1]) in seen
