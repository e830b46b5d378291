from __future__ import annotations

import pytest

from sinksdk.connectors.s3_archiver.compatibility.kcql import read_kcql
from sinksdk.connectors.s3_archiver.config import S3ArchiverConfig

INTO = "insert into bucket:prefix select * from orders"
SECOND = "insert into {} select * from {}"


@pytest.mark.parametrize(
    ("clauses", "expected"),
    [
        ("", {"format.class": "JsonFormat", "flush.size": "50000", "rotate.schedule.interval.ms": "3600000"}),
        ("STOREAS `PARQUET`", {"format.class": "ParquetFormat"}),
        ("storeas avro with_flush_count = 10", {"format.class": "AvroFormat", "flush.size": "10"}),
        ("STOREAS `TEXT`", {"format.class": "ByteArrayFormat", "format.bytearray.extension": ".text"}),
        (
            "WITH_FLUSH_SIZE = 1000 WITH_FLUSH_INTERVAL = 60",
            {"flush.bytes": "1000", "rotate.schedule.interval.ms": "60000"},
        ),
        (
            "PROPERTIES('flush.count'=7, 'flush.interval'='30')",
            {"flush.size": "7", "rotate.schedule.interval.ms": "30000"},
        ),
        (
            "PARTITIONBY country, _value.meta.shop",
            {"partitioner.class": "FieldPartitioner", "partition.field.name": "country,meta.shop"},
        ),
        (
            "PARTITIONBY _date.uuuu,_date.LL,_date.dd,_date.HH",
            {
                "partitioner.class": "TimeBasedPartitioner",
                "path.format": "'year'=yyyy/'month'=MM/'day'=dd/'hour'=HH",
                "partition.duration.ms": "3600000",
                "timestamp.extractor": "Record",
            },
        ),
        (
            "PARTITIONBY country, _date.uuuu",
            {"partitioner.class": "FieldAndTimeBasedPartitioner", "partition.duration.ms": "86400000"},
        ),
        (
            "PARTITIONBY country, _date.uuuu, _date.LL PROPERTIES('partition.include.keys'=false)",
            {"path.format": "yyyy/MM", "partition.field.format.path": "false"},
        ),
        (
            "PROPERTIES('flush.count'=0, 'flush.size'='0', 'flush.interval'=0)",
            {"flush.size": "50000", "flush.bytes": "500000000", "rotate.schedule.interval.ms": "3600000"},
        ),
        ("WITH_FLUSH_COUNT = 0", {"flush.size": "50000"}),
        ("PROPERTIES('padding.length.offset'=16)", {"filename.offset.zero.pad.width": "16"}),
        ("PROPERTIES('padding.type'='NoOp')", {"filename.offset.zero.pad.width": "0"}),
        ("PARTITIONBY _date.uuuu WITHPARTITIONER = Values", {"path.format": "yyyy"}),
        (
            "STOREAS `AVRO` PROPERTIES('store.envelope'=true)",
            {"format.class": "AvroFormat", "archive.content": "record"},
        ),
    ],
)
def test_kcql_clauses_become_keys(clauses: str, expected: dict[str, str]) -> None:
    found = read_kcql(f"{INTO} {clauses}")

    always = {"s3.bucket.name": "bucket", "topics.dir": "prefix", "topics": "orders"}
    assert found.problems == []
    assert found.keys.items() >= {**always, **expected}.items()
    assert S3ArchiverConfig.check({"name": "archive", **found.keys})[1] == []


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("delete from orders", "not of the form"),
        ("insert into bucket select a, b from orders", "SELECT of fields"),
        ("; ".join([INTO, SECOND.format("bucket:prefix", "*")]), "FROM *"),
        (f"{INTO} STOREAS `CSV`", "STOREAS CSV"),
        (f"{INTO} WITH_FLUSH_COUNT = many", "FLUSH_COUNT"),
        (f'{INTO} PROPERTIES("flush.count"=5)', '"flush.count"=5'),
        (f"{INTO} where price > 5 STOREAS JSON", "where price > 5"),
        (f"{INTO} PARTITIONBY _key.id", "_key.id"),
        (
            f"{INTO} PARTITIONBY country PROPERTIES('partition.include.keys'=false)",
            "always contain the field's name",
        ),
        (f"{INTO} PARTITIONBY _header.trace", "_header.trace"),
        (f"{INTO} PARTITIONBY _date.ww", "_date.ww"),
        (f"{INTO} PROPERTIES('store.envelope'=true)", "store.envelope"),
        ("; ".join([INTO, SECOND.format("other", "customers")]), "customers"),
    ],
)
def test_unsupported_clauses_are_problems(statement: str, problem: str) -> None:
    (found,) = read_kcql(statement).problems

    assert problem in found


def test_statements_of_one_bucket_become_one_configuration() -> None:
    found = read_kcql("; ".join([INTO, SECOND.format("`bucket:prefix`", "`customers`"), ""]))

    assert found.problems == []
    assert found.keys["topics"] == "orders,customers"


def test_a_refused_kcql_shows_the_equivalent_keys() -> None:
    (option,) = S3ArchiverConfig.judge({"connect.s3.kcql": f"{INTO} STOREAS `CSV` WITH_FLUSH_COUNT = 7"})

    assert "s3.bucket.name=bucket, topics.dir=prefix, " in option.verdict.why
    assert "flush.size=7" in option.verdict.why
    assert "STOREAS CSV" in option.verdict.why


def test_a_property_without_counterpart_is_noted() -> None:
    found = read_kcql(f"{INTO} PROPERTIES('flush.count'=7, 'padding.length.partition'=12)")

    assert "PROPERTIES padding.length.partition has no counterpart, and is left out" in found.notes
