"""``records.sql`` of a server's connectors reads the view ``records`` and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from examples.folder_sink import FolderConfig
from sinksdk import ConfigException
from sinksdk.records import RECORD_COLUMNS
from sinksdk.spark.transform import TransformedRecords

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def session(spark: SparkContext) -> SparkSession:
    return SparkSession(spark)


@pytest.fixture(scope="module")
def secret(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("secrets") / "password.txt"
    path.write_text("hunter2\n")
    return path


def check(session: SparkSession, query: str, *, is_confined: bool = True) -> None:
    config = FolderConfig.model_construct(records_sql=query)
    TransformedRecords.of(
        config, session, tuple(RECORD_COLUMNS), (), takes_bytes=False, is_confined=is_confined
    )


OTHERS = {
    "a file": "SELECT r.* FROM records r JOIN (SELECT /*+ BROADCAST */ value AS v FROM text.`{secret}`) ON true",
    "a file in a scalar subquery": (
        "SELECT topic, partition, offset, (SELECT first(value) FROM text.`{secret}`) AS value FROM records"
    ),
    "a file in an EXISTS": "SELECT * FROM records WHERE EXISTS (SELECT 1 FROM text.`{secret}`)",
    "a file in an IN": "SELECT * FROM records WHERE string(key) IN (SELECT value FROM text.`{secret}`)",
    "a file in a CTE": (
        "WITH found AS (SELECT value AS v FROM text.`{secret}`) "
        "SELECT /*+ BROADCAST(found) */ r.* FROM records r CROSS JOIN found"
    ),
    "a file by IDENTIFIER": (
        "SELECT r.* FROM records r JOIN IDENTIFIER('text.`{secret}`') AS f ON string(r.key) = f.value"
    ),
    "a file as JSON": "SELECT r.* FROM records r CROSS JOIN json.`{secret}`",
    "a table of the catalog": "SELECT r.* FROM records r CROSS JOIN default.customers",
    "a table with a CTE's name elsewhere": (
        "SELECT * FROM records WHERE EXISTS (WITH customers AS (SELECT 1) SELECT * FROM customers) "
        "AND EXISTS (SELECT 1 FROM customers)"
    ),
    "global temporary views": "SELECT r.* FROM records r CROSS JOIN global_temp.customers",
}
CALLS = {
    "java_method": "SELECT topic, partition, offset, java_method('java.lang.System', 'getenv', 'HOME') AS value FROM records",
    "reflect": "SELECT topic, partition, offset, REFLECT('java.lang.System', 'getenv', 'HOME') AS value FROM records",
    "try_reflect": "SELECT topic, partition, offset, try_reflect('java.lang.System', 'getenv', 'HOME') AS value FROM records",
    "reflect in a filter": "SELECT * FROM records WHERE length(reflect('java.lang.System', 'getenv', 'HOME')) > 1",
    "reflect with its namespace": (
        "SELECT topic, partition, offset, system.builtin.reflect('java.util.UUID', 'randomUUID') AS value FROM records"
    ),
    "reflect in a lambda": (
        "SELECT topic, partition, offset, "
        "transform(array('HOME'), name -> reflect('java.lang.System', 'getenv', name))[0] AS value FROM records"
    ),
    "reflect in an ORDER BY of a subquery": (
        "SELECT topic, partition, offset, (SELECT v FROM VALUES ('a') AS t(v) "
        "ORDER BY reflect('java.lang.System', 'getenv', 'HOME') LIMIT 1) AS value FROM records"
    ),
}


@pytest.mark.parametrize("query", OTHERS.values(), ids=OTHERS)
def test_sql_of_a_server_is_refused_a_relation_other_than_records(
    session: SparkSession, secret: Path, query: str
) -> None:
    """Who may create connectors over REST cannot read the server's files or tables with ``records.sql``."""
    session.read.text(str(secret)).createOrReplaceTempView("customers")
    with pytest.raises(ConfigException, match="may read no other relation than 'records'") as refused:
        check(session, query.format(secret=secret))
    assert "--config-sql" in str(refused.value)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("query", CALLS.values(), ids=CALLS)
def test_sql_of_a_server_is_refused_calls_of_java_methods(session: SparkSession, query: str) -> None:
    """``reflect``, ``java_method`` and ``try_reflect`` call any static method in the server's JVM."""
    with pytest.raises(ConfigException, match="calls Java methods by reflection"):
        check(session, query)


@pytest.mark.parametrize("reference", ["${env:HOME}", "${system:user.home}", "${spark.app.name}"])
def test_sql_is_not_substituted_with_variables_of_the_driver(session: SparkSession, reference: str) -> None:
    """Spark's own substitution would read the environment and the JVM's properties where references may not."""
    with pytest.raises(ConfigException):  # the text stays as it is, and is no SQL
        check(session, f"SELECT topic, partition, offset, {reference} AS value FROM records")  # noqa: S608 - on purpose


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM records",
        "WITH late AS (SELECT * FROM records WHERE offset > 3) SELECT * FROM late",
        "SELECT * FROM (SELECT * FROM Records) AS r WHERE r.offset % 2 = 0",
        "SELECT /*+ BROADCAST(t) */ r.* FROM records r JOIN VALUES ('a'), ('b') AS t(k) ON string(r.key) = t.k",
        "SELECT r.* FROM records r LATERAL VIEW explode(sequence(1, 2)) AS copy",
        "SELECT * FROM records WHERE string(key) IN (SELECT v FROM VALUES ('a') AS t(v))",
    ],
)
def test_sql_of_a_server_may_read_records_and_what_it_holds_itself(session: SparkSession, query: str) -> None:
    """CTEs, inline tables and functions read nothing of the server."""
    check(session, query)


def test_sql_may_read_files_and_tables_where_the_server_allows_it(
    session: SparkSession, secret: Path
) -> None:
    """``--config-sql``, and ``sinksdk run`` with the operator's own file, read whatever Spark reads."""
    query = "SELECT /*+ BROADCAST(f) */ r.* FROM records r JOIN text.`{}` AS f ON string(r.key) = f.value"
    check(session, query.format(secret), is_confined=False)
