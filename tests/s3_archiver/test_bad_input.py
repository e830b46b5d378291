from __future__ import annotations

import io
import json
import random
import struct
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sinksdk import RetriableException, SinkRecord, SinkRecords
from sinksdk.connectors.s3_archiver.config import S3ArchiverConfig
from sinksdk.connectors.s3_archiver.files.file import Grain
from sinksdk.engine import EngineOptions
from sinksdk.topics.kafka.schema_registry import connect
from tests.helpers.registry_server import RegistryServer
from tests.s3_archiver.support import MINIMAL, TP, Bench, bench, config

NOON = 1_709_210_096_000
YEAR_20000 = 568_971_820_800_000
# Timestamps in milliseconds: in 2024, in the year 20000, and in the last year.
BEYOND_ALL = 2**63 - 1

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "n", "type": "int"},
        {"name": "country", "type": ["null", "string", {"type": "array", "items": "int"}]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
GOOD = {"n": 0, "country": "DE", "at": NOON}

BY_COUNTRY = {"partitioner.class": "FieldPartitioner", "partition.field.name": "country"}
BY_HOUR = {
    "partitioner.class": "HourlyPartitioner",
    "timestamp.extractor": "RecordField",
    "timestamp.field": "at",
}
BY_DAY_OF_KAFKA = {"partitioner.class": "DailyPartitioner", "timestamp.extractor": "Record"}
JSON = {
    "format.class": "JsonFormat",
    "value.converter": "json",
    "value.converter.schemas.enable": "false",
}
TYPED = {"value.converter": "json", "value.converter.schema": "n INT, country STRING, at BIGINT"}
AVRO = {"format.class": "AvroFormat", "value.converter": "avro"}


def as_json(**fields: Any) -> bytes:
    return json.dumps({name: each for name, each in {**GOOD, **fields}.items() if each is not ...}).encode()


def framed(schema_id: int, datum: bytes) -> bytes:
    return struct.pack(">bI", 0, schema_id) + datum


def datum(**fields: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(ORDER), {**GOOD, **fields})
    return out.getvalue()


class Registry(NamedTuple):
    server: RegistryServer
    order: int
    illegal_name: int
    illegal_field: int
    no_avro: int


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    with RegistryServer().running() as server:
        field = {"name": "the country", "type": "string"}
        yield Registry(
            server,
            server.register("orders-value", json.dumps(ORDER)),
            server.register("a", json.dumps({**ORDER, "name": "Order-2"})),
            server.register("b", json.dumps({**ORDER, "fields": [field]})),
            server.register("c", '{"type": "object"}', schemaType="JSON"),
        )


class Letters:
    def __init__(self) -> None:
        self.records: list[SinkRecord] = []

    def send(self, record: SinkRecord) -> Future[None]:
        self.records.append(record)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def message(self) -> str:
        (record,) = self.records
        headers = {header.key: header.value or b"" for header in record.headers}
        where = [headers[f"__connect.errors.{name}"] for name in ("topic", "partition", "offset")]
        assert where == [b"orders", b"0", b"%d" % record.offset]
        return headers["__connect.errors.exception.message"].decode()


class Case(NamedTuple):
    """A bad record.

    Args:
        value: of the record, or a function of the registry.
        message: parts of the message, in their order.
        timestamp: Kafka's.
    """

    name: str
    keys: Mapping[str, str]
    value: bytes | Callable[[Registry], bytes] | None
    message: tuple[str, ...]
    timestamp: int = NOON


WITHOUT_FOLDER = "topic orders, partition 0, offset 3: the record has no folder: "
NO_JSON, CONVERTER = "topic orders: the bytes are not JSON: ", "or configure the converter for its format"
NOT_ARCHIVED = "orders-0: the record at offset 3 cannot be archived: "
TOLERATE = "correct the producer of such records, or skip them with 'errors.tolerance' = all"
OF_REGISTRY = "correct the producer, its schema, or"
FOLDERS_ARE = "folders are named after text, whole numbers and booleans"
TIMES_ARE = "must be milliseconds since 1970, a timestamp, or text like 2024-02-29T12:34:56Z"


def by_country(name: str, message: str, **fields: Any) -> Case:
    return Case(name, JSON | BY_COUNTRY, as_json(**fields), (WITHOUT_FOLDER, message, TOLERATE))


def by_hour(name: str, message: str, **fields: Any) -> Case:
    return Case(name, JSON | BY_HOUR, as_json(**fields), (WITHOUT_FOLDER, message, TOLERATE))


def unreadable(name: str, message: str, value: Callable[[Registry], bytes]) -> list[Case]:
    return [
        Case(f"{name}, copied", AVRO, value, (NOT_ARCHIVED, message, OF_REGISTRY)),
        Case(
            f"{name}, for folders",
            {**AVRO, **BY_COUNTRY, "archive.content": "record"},
            value,
            (WITHOUT_FOLDER, "its value has schema", message, TOLERATE),
        ),
    ]


CASES = [
    by_country("field is missing", "its value has no field 'country' ('partition.field.name')", country=...),
    by_country("field with a slash", "its value has a text with '/', which would be several", country="a/b"),
    by_country("field is two dots", f"its value has '..' as 'country' ('partition.field.name'): {FOLDERS_ARE}", country=".."),
    by_country("field of 2 KB", "the folder's name has 2,056 bytes, and the file's key would exceed S3's 1,024 bytes", country="x" * 2_048),
    by_country("field is empty", "its value has an empty text as 'country'", country=""),
    by_country("field with a line's end", "its value has a text with control characters", country="a\nb"),
    by_country("field is an object", "its value has an object as 'country'", country={"code": "DE"}),
    by_country("field is a fraction", "its value has a value of type double as 'country'", country=1.5),
    Case("value is a list", JSON | BY_COUNTRY, b"[1]", (WITHOUT_FOLDER, "its value has no field 'country'", TOLERATE)),
    Case("value is no JSON", JSON | BY_COUNTRY, b"DE;1", (NO_JSON, "Expecting value: line 1 column 1", CONVERTER)),
    Case("value is no UTF-8", JSON | BY_COUNTRY, b'{"country":"\xff"}', (NO_JSON, "it is not UTF-8", CONVERTER)),
    Case("value of many levels", JSON | BY_COUNTRY, b'{"country":' + b"[" * 9_999 + b"]" * 9_999 + b"}", (NO_JSON, "it has more than 1,000 levels", CONVERTER)),
    Case("value is empty", JSON | BY_COUNTRY, b"", (NOT_ARCHIVED, "it has no value (null), and 'behavior.on.null.values' is fail")),
    Case("value is null", JSON | BY_COUNTRY, None, (NOT_ARCHIVED, "it has no value (null), and 'behavior.on.null.values' is fail: set it to ignore")),
    Case("value is JSON's null", JSON | BY_HOUR, b"null", (NOT_ARCHIVED, "it has no value (null), and 'behavior.on.null.values' is fail")),
    by_hour("timestamp is missing", "its value has no field 'at' ('timestamp.field')", at=...),
    by_hour("timestamp is null", f"its value has null as 'at' ('timestamp.field'), which {TIMES_ARE}", at=None),
    by_hour("timestamp is a word", f"its value has a text that is not a timestamp as 'at' ('timestamp.field'), which {TIMES_ARE}", at="soon"),
    by_hour("timestamp beyond all years", "its timestamp 9223372036854775807 is outside of the years", at=BEYOND_ALL),
    Case("no timestamp of Kafka", JSON | BY_DAY_OF_KAFKA, as_json(), (WITHOUT_FOLDER, "it has no timestamp", "use RecordField or Wallclock", TOLERATE), timestamp=-1),
    *unreadable("unknown schema", "has no schema 777", lambda _: framed(777, datum())),
    *unreadable("schema that is no Avro", "is not Avro: JSON", lambda ids: framed(ids.no_avro, b"{}")),
    Case("schema whose name is not legal", AVRO, lambda ids: framed(ids.illegal_name, datum()), (NOT_ARCHIVED, "contains the name 'Order-2', which is not legal in Avro", OF_REGISTRY)),
    Case("field whose name is not legal", AVRO, lambda ids: framed(ids.illegal_field, b"\4DE"), (NOT_ARCHIVED, "contains the name 'the country', which is not legal in Avro", OF_REGISTRY)),
    Case("value without a schema's id", AVRO, as_json(), (NOT_ARCHIVED, "its value does not begin with a zero byte", "ByteArrayFormat")),
    Case("datum that ends too soon", {**AVRO, **BY_HOUR, "archive.content": "record"}, lambda ids: framed(ids.order, datum()[:5]), (WITHOUT_FOLDER, "its value does not match schema 1", TOLERATE)),
    Case("Avro, field is an array", AVRO | BY_COUNTRY, lambda ids: framed(ids.order, datum(country=[1])), (WITHOUT_FOLDER, "its value has an array as 'country'", TOLERATE)),
    Case("Avro, timestamp beyond all years", AVRO | BY_HOUR, lambda ids: framed(ids.order, datum(at=BEYOND_ALL)), (WITHOUT_FOLDER, "its timestamp 9223372036854775807 is outside of the years", TOLERATE)),
    Case("typed, in Parquet, field with a slash", {**TYPED, **BY_COUNTRY, "format.class": "ParquetFormat"}, as_json(country="a/b"), (WITHOUT_FOLDER, "its value has a text with '/'", TOLERATE)),
    Case("typed, in Avro, timestamp beyond all years", {**TYPED, **BY_HOUR, "format.class": "AvroFormat"}, as_json(at=BEYOND_ALL), (WITHOUT_FOLDER, "is outside of the years", TOLERATE)),
    Case("typed, field of another type", {**TYPED, "format.class": "ParquetFormat"}, as_json(country=1), ("topic orders", "field 'country'")),
]  # fmt: skip


def started(case: Case, registry: Registry, **keys: str) -> tuple[Bench, Letters]:
    settings = config(
        {
            **case.keys,
            "flush.size": "2",
            "value.converter.schema.registry.url": registry.server.url,
            "errors.deadletterqueue.topic.name": "letters",
            "errors.deadletterqueue.context.headers.enable": "true",
            **{name.replace("_", "."): value for name, value in keys.items()},
        }
    )
    letters = Letters()
    options = EngineOptions.of(settings, connect)
    return bench(settings=settings, options=options, dead_letters=letters), letters


def deliver(made: Bench, case: Case, registry: Registry, *numbers: int) -> None:
    is_avro = case.keys["value.converter"] == "avro"
    bad = case.value(registry) if callable(case.value) else case.value
    given = []
    for n in numbers:
        good = framed(registry.order, datum(n=n)) if is_avro else as_json(n=n)
        value, timestamp = (bad, case.timestamp) if n == 3 else (good, NOON)
        given.append(SinkRecord(*TP, offset=n, key=b"k", value=value, timestamp=timestamp))
    made.harness.deliver(TP, SinkRecords.of(TP, given))


def archived(made: Bench) -> list[int]:
    found: list[int] = []
    for key in made.visible():
        data = made.s3.data(key)
        if key.endswith(".json"):
            found += [json.loads(line)["n"] for line in data.splitlines()]
        elif key.endswith(".parquet"):
            found += pq.read_table(io.BytesIO(data)).column("n").to_pylist()
        elif key.endswith(".avro"):
            rows: list[Any] = list(fastavro.reader(io.BytesIO(data)))
            found += [row.get("n", row.get("offset")) for row in rows]
    return sorted(found)


def in_order(text: str, parts: tuple[str, ...]) -> bool:
    at = 0
    for part in parts:
        at = text.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return True


every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@every_case
def test_a_tolerated_bad_record_becomes_a_dead_letter_and_others_are_archived(
    case: Case, registry: Registry
) -> None:
    made, letters = started(case, registry, errors_tolerance="all", errors_deadletterqueue_max_share="1")
    deliver(made, case, registry, 0, 1, 2, 3, 4, 5)
    deliver(made, case, registry, 6, 7)
    made.harness.revoke()

    assert (archived(made), made.committed()) == ([0, 1, 2, 4, 5, 6, 7], 8)
    assert in_order(letters.message(), case.message), letters.message()
    bad = case.value(registry) if callable(case.value) else case.value
    assert [(record.key, record.value) for record in letters.records] == [(b"k", bad)]


@every_case
def test_an_untolerated_bad_record_fails_its_partition_at_its_offset(case: Case, registry: Registry) -> None:
    made, letters = started(case, registry)
    deliver(made, case, registry, 0, 1)
    made.harness.commit()
    deliver(made, case, registry, 2, 3, 4, 5)
    made.harness.revoke()

    failure = made.harness.outcome(TP).failure
    assert failure is not None
    assert in_order(
        failure.message, ("orders-0 at offset 3 failed in", "errors.tolerance is none", *case.message)
    )
    assert (archived(made), made.committed()) == ([0, 1], 2)
    assert [record.offset for record in letters.records] == [3]


@pytest.mark.parametrize("case", CASES[::6], ids=lambda case: case.name)
def test_tolerated_bad_records_are_skipped_without_a_dead_letter_topic(
    case: Case, registry: Registry
) -> None:
    made, _ = started(
        case, registry, errors_tolerance="all", errors_deadletterqueue_topic_name="", flush_size="100"
    )
    deliver(made, case, registry, 3, 4)
    deliver(made, case, registry, 5)
    made.harness.revoke()

    assert (archived(made), made.committed()) == ([4, 5], 6)


PARTITIONED = {
    "lines by country": JSON | BY_COUNTRY,
    "typed, in Parquet, by hour": {**TYPED, **BY_HOUR, "format.class": "ParquetFormat"},
    "typed, in Avro, by country": {**TYPED, **BY_COUNTRY, "format.class": "AvroFormat"},
}
BAD = (as_json(country="a/b", at=BEYOND_ALL), b"[1]", b"DE;1", None)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("keys", PARTITIONED.values(), ids=PARTITIONED)
def test_records_are_archived_once_or_become_dead_letters_despite_crashes(
    keys: dict[str, str], seed: int
) -> None:
    chance = random.Random(seed)  # noqa: S311 - a schedule
    last = 80
    values = [
        chance.choice(BAD) if chance.random() < 0.2 else as_json(n=n, country=chance.choice("abc"))
        for n in range(last)
    ]
    limits = {"flush.size": str(chance.randint(3, 40)), "errors.deadletterqueue.max.share": "1"}
    settings = config({**keys, **limits, "errors.tolerance": "all"})
    letters = Letters()
    grain = Grain(rows=(1, 8, 8, 12, 64)[seed], block_bytes=64)
    made = bench(settings=settings, grouping={"grain": grain}, dead_letters=letters)
    while (first := made.harness.position(TP)) < last:
        until = min(first + chance.randint(1, 20), last)
        given = [SinkRecord(*TP, offset=n, key=b"k", value=values[n]) for n in range(first, until)]
        made.harness.deliver(TP, SinkRecords.of(TP, given))
        if chance.random() < 0.2:
            made.harness.commit()
        if chance.random() < 0.1:
            made.harness.crash()
            made.harness.start()
            made.harness.assign(TP)
    made.harness.revoke()

    bad = {n: value for n, value in enumerate(values) if value in BAD}
    assert archived(made) == [n for n in range(last) if n not in bad]
    assert {record.offset: record.value for record in letters.records} == bad
    assert made.committed() == last


# -- what is good ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "folder"), [(BY_HOUR, "hour=00"), (BY_DAY_OF_KAFKA, "day=01")], ids=("field", "of Kafka")
)
def test_timestamps_in_the_year_20000_are_archived(
    keys: dict[str, str], folder: str, registry: Registry
) -> None:
    # Confluent's sink also writes five digits for such a year.
    case = Case("year 20000", JSON | keys, as_json(n=3, at=YEAR_20000), (), timestamp=YEAR_20000)
    made, letters = started(case, registry)
    deliver(made, case, registry, 3)
    made.harness.revoke()

    (key,) = made.visible()
    assert "year=20000" in key
    assert folder in key
    assert letters.records == []


@pytest.mark.parametrize("form", ["JsonFormat", "AvroFormat", "ParquetFormat"])
def test_a_typed_bad_record_of_the_year_20000_is_reported(form: str) -> None:
    # Spark may return such a timestamp, although Python has no datetime of that year.
    moments = pa.array([NOON, YEAR_20000], pa.int64()).cast(pa.timestamp("ms", "UTC"))
    values = pa.StructArray.from_arrays([pa.array(["DE", ".."]), moments], names=["country", "at"])
    offsets = pa.array([0, 1], pa.int64())
    letters = Letters()
    keys = {**BY_COUNTRY, "format.class": form, "errors.tolerance": "all", "errors.log.enable": "true"}
    keys |= {"errors.log.include.messages": "true"}
    made = bench(settings=config(keys), dead_letters=letters)
    made.harness.deliver(
        TP, SinkRecords(TP, pa.RecordBatch.from_arrays([offsets, values], names=["offset", "value"]))
    )
    made.harness.revoke()

    assert made.committed() == 2
    assert [record.value for record in letters.records] == [b'{"country":"..","at":"20000-01-01T00:00:00Z"}']


@pytest.mark.parametrize("folders", [BY_COUNTRY, BY_HOUR], ids=("by field", "by time"))
@pytest.mark.parametrize("value", [None, b"null"], ids=repr)
def test_ignored_null_values_need_no_folder(
    folders: dict[str, str], value: bytes | None, registry: Registry
) -> None:
    # Regression: with behavior.on.null.values=ignore such records were bad, because they have no fields.
    case = Case("null", JSON | folders, value, ())
    made, letters = started(case, registry, behavior_on_null_values="ignore", errors_tolerance="all")
    deliver(made, case, registry, 2, 3, 4)
    made.harness.revoke()

    assert (archived(made), made.committed()) == ([2, 4], 5)
    assert "'report.null.values.to.dlq'" in letters.message()


def test_one_bad_record_in_a_large_batch_is_reported() -> None:
    letters = Letters()
    settings = config({**JSON, **BY_COUNTRY, "errors.tolerance": "all", "flush.size": "100000"})
    made = bench(settings=settings, dead_letters=letters)
    values = [b'{"n":%d,"country":"DE"}' % n for n in range(30_000)]
    values[17_171] = b'{"n":17171}'
    offsets = pa.array(range(30_000), pa.int64())
    batch = pa.RecordBatch.from_arrays([offsets, pa.array(values)], names=["offset", "value"])
    made.harness.deliver(TP, SinkRecords(TP, batch))
    made.harness.revoke()

    assert [record.offset for record in letters.records] == [17_171]
    assert archived(made) == [n for n in range(30_000) if n != 17_171]


def test_errors_do_not_contain_the_content_of_bad_records(
    caplog: pytest.LogCaptureFixture, registry: Registry
) -> None:
    # The messages are logged, so they must not quote values.
    for value in (b"secret", b'{"country":"secret/secret"}', b'{"country":{"secret":1}}'):
        case = Case("secret", JSON | BY_COUNTRY, value, ())
        made, letters = started(case, registry, errors_tolerance="all", errors_log_enable="true")
        deliver(made, case, registry, 3)
        assert letters.message()
        assert "secret" not in letters.message()
    assert "offset 3" in caplog.text
    assert "secret" not in caplog.text


# -- a registry that is away -------------------------------------------------------------------------------


@pytest.mark.parametrize("failing", [503, 500, 429, 0], ids=("503", "500", "429", "hangs up"))
@pytest.mark.parametrize(
    "keys", [AVRO, {**AVRO, **BY_COUNTRY, "archive.content": "record"}], ids=("values", "folders")
)
def test_no_record_is_accepted_while_the_registry_is_unavailable(keys: dict[str, str], failing: int) -> None:
    with RegistryServer().running() as server:
        registry = Registry(server, server.register("orders-value", json.dumps(ORDER)), 0, 0, 0)
        case = Case("away", keys, None, ())
        made, letters = started(case, registry, errors_tolerance="all")
        server.failing = failing
        task: Any = made.harness.task
        given = SinkRecords.of(
            TP, [SinkRecord(*TP, offset=n, value=framed(registry.order, datum(n=n))) for n in range(3)]
        )
        for _ in range(2):
            with pytest.raises(RetriableException, match=f"schema {registry.order}"):
                task.put(given)
        assert made.s3.objects == {}
        server.failing = None
        made.harness.deliver(TP, given)
        made.harness.revoke()
    assert (archived(made), letters.records) == ([0, 1, 2], [])


def test_registry_authentication_errors_do_not_make_bad_records() -> None:
    # A wrong password fails the partition, even if errors are tolerated.
    with RegistryServer().running() as server:
        registry = Registry(server, server.register("orders-value", json.dumps(ORDER)), 0, 0, 0)
        case = Case("refused", {**AVRO, **BY_COUNTRY, "archive.content": "record"}, None, ())
        made, letters = started(case, registry, errors_tolerance="all")
        server.credentials = "user:password"
        deliver(made, case, registry, 0)
    failure = made.harness.outcome(TP).failure
    assert failure is not None
    assert "check its URL, user and password" in failure.message
    assert letters.records == []


# -- before the start --------------------------------------------------------------------------------------


@pytest.mark.parametrize("letter", list("bfgijlnopqrtuvABFIJLNOPQRTUVWX"))
def test_unknown_letters_of_a_path_format_are_refused(letter: str) -> None:
    keys = {"partitioner.class": "TimeBasedPartitioner", "partition.duration.ms": "1"}
    _, problems = S3ArchiverConfig.check({**MINIMAL, **keys, "path.format": f"YYYY/{letter}{letter}"})

    (problem,) = [problem for problem in problems if "'path.format'" in problem]
    assert f"'{letter}" in problem
