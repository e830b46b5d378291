from __future__ import annotations

from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from examples.folder_sink import FolderConfig
from sinksdk import ConfigException
from sinksdk.records import RECORD_COLUMNS
from sinksdk.spark.confined import confine_parsed
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
    "a stream": "SELECT * FROM STREAM records",
    "a version": "SELECT * FROM records VERSION AS OF 3",
    "a computed name": "SELECT * FROM IDENTIFIER(concat('text.`', '{secret}', '`'))",
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


RECORD = "SELECT topic, partition, offset"
COMMANDS = {
    "a command": "SELECT TRANSFORM(*) USING 'cat' AS (topic, partition, offset, value) FROM records",
    "a command beside": (
        "SELECT /*+ BROADCAST(t) */ r.topic, r.partition, r.offset, t.v AS value FROM records r CROSS JOIN "
        "(SELECT TRANSFORM(x) USING 'env' AS (v STRING) FROM VALUES ('a') AS s(x)) t"
    ),
    "a command in a scalar subquery": (
        "SELECT topic, partition, offset, (SELECT max(v) FROM "
        "(SELECT TRANSFORM(x) USING 'cat {secret}' AS (v STRING) "
        "FROM VALUES ('a') AS s(x))) AS value FROM records"
    ),
    "a command in an EXISTS": (
        "SELECT * FROM records WHERE EXISTS (SELECT TRANSFORM(x) USING 'env' AS (v) FROM VALUES ('a') AS s(x))"
    ),
    "a command in an IN": (
        "SELECT * FROM records WHERE string(key) IN "
        "(SELECT TRANSFORM(x) USING 'env' AS (v) FROM VALUES ('a') AS s(x))"
    ),
    "a command in a lateral subquery": (
        "SELECT r.* FROM records r, LATERAL (SELECT TRANSFORM(x) USING 'env' AS (v) FROM VALUES ('a') AS s(x))"
    ),
    "a command in a CTE": (
        "WITH t AS (SELECT TRANSFORM(x) USING 'env' AS (v STRING) FROM VALUES ('a') AS s(x)) "
        "SELECT /*+ BROADCAST(t) */ r.* FROM records r CROSS JOIN t"
    ),
    "a command by MAP": (
        "SELECT r.* FROM records r CROSS JOIN (MAP x USING 'env' AS (v) FROM VALUES ('a') AS s(x))"
    ),
    "a command by REDUCE": (
        "SELECT r.* FROM records r CROSS JOIN (REDUCE x USING 'env' AS (v) FROM VALUES ('a') AS s(x))"
    ),
}
UNKNOWN = {
    "a function by IDENTIFIER": f"{RECORD}, IDENTIFIER('reflect')('java.util.UUID', 'randomUUID') AS value FROM records",
    "a function of the catalog": f"{RECORD}, default.upper('a') AS value FROM records",
    "a UDF": f"{RECORD}, shout('a') AS value FROM records",
    "a UDF as a pipe's column": "FROM records |> SET value = shout('a') |> SELECT *",
    "a UDF in an inline table": "SELECT r.* FROM records r CROSS JOIN (VALUES (shout('a')))",
    "a UDF as a generator": "SELECT r.* FROM records r LATERAL VIEW shout('a') AS copy",
    "a UDF of a named window": "SELECT * FROM records WINDOW w AS (PARTITION BY shout('a'))",
    "a function without a name": f"{RECORD}, nope('a') AS value FROM records",
    "an XPath, whose parser loads DTDs": f"{RECORD}, xpath_string('<a/>', 'a') AS value FROM records",
    "an XSD": f"{RECORD}, from_xml(string(value), 'a INT', map('rowValidationXSDPath', '{{secret}}')) AS value FROM records",
    "an XSD of a computed option": (
        f"{RECORD}, from_xml(string(value), 'a INT', map(concat('rowValidation', 'XSDPath'), '{{secret}}')) AS value "
        "FROM records"
    ),
    "an XSD while Spark analyzes": (
        f"{RECORD}, from_xml(string(value), schema_of_xml('<a/>', str_to_map('rowValidationXSDPath:{{secret}}'))) "
        "AS value FROM records"
    ),
    "an Avro schema's address": (
        f"{RECORD}, from_avro(value, '\"string\"', map('avroSchemaUrl', 'file://{{secret}}')) AS value FROM records"
    ),
    "a descriptor file": f"{RECORD}, from_protobuf(value, 'M', '{{secret}}') AS value FROM records",
    "a class of Protobuf": f"{RECORD}, from_protobuf(value, 'java.lang.Object') AS value FROM records",
    "a table of words": "SELECT r.* FROM records r CROSS JOIN sql_keywords()",
    "lines of Python workers": "SELECT r.* FROM records r CROSS JOIN python_worker_logs()",
    "a table for a function": "SELECT r.* FROM records r CROSS JOIN explode(TABLE(SELECT 1))",
    "a parameter": "SELECT * FROM records WHERE offset > :low",
    "a parameter without a name": "SELECT * FROM records WHERE offset > ?",
}
PLACES = {
    "a filter": "SELECT a FROM records WHERE shout('a') = 'a'",
    "a filter of an aggregate": "SELECT count(*) FILTER (WHERE shout('a') = 'a') FROM records",
    "the order in a group": "SELECT listagg(string(a)) WITHIN GROUP (ORDER BY shout('a')) FROM records",
    "GROUP BY": "SELECT count(*) FROM records GROUP BY shout('a')",
    "grouping sets": "SELECT count(*) FROM records GROUP BY GROUPING SETS ((a), (shout('a')))",
    "HAVING": "SELECT count(*) FROM records GROUP BY a HAVING shout('a') = 'a'",
    "QUALIFY": "SELECT a FROM records QUALIFY row_number() OVER (ORDER BY shout('a')) = 1",
    "a window's partition": "SELECT sum(a) OVER (PARTITION BY shout('a')) FROM records",
    "LIMIT": "SELECT a FROM records LIMIT int(shout('1'))",
    "OFFSET": "SELECT a FROM records OFFSET int(shout('1'))",
    "DISTRIBUTE BY": "SELECT a FROM records DISTRIBUTE BY shout('a')",
    "a pivot": "SELECT * FROM records PIVOT (max(shout('a')) FOR a IN (1))",
    "a pivot's value": "SELECT * FROM records PIVOT (max(b) FOR a IN (int(shout('1'))))",
    "a join": "SELECT t.a FROM records JOIN VALUES (1) AS u(a) ON shout('a') = 'a'",
    "a lambda": "SELECT transform(array(1), x -> shout('a'))",
    "a subscript": "SELECT map('a', 1)[shout('a')]",
    "CASE": "SELECT CASE shout('a') WHEN 'a' THEN 1 ELSE 2 END",
    "IN": "SELECT 'a' IN ('b', shout('a'))",
    "IN of several": "SELECT (shout('a'), 1) IN (SELECT string(a), b FROM records)",
    "LIKE ANY": "SELECT 'a' LIKE ANY (shout('a'))",
    "a struct": "SELECT struct(shout('a') AS a).a",
    "an argument by name": "SELECT mask('a', upperChar => shout('a'))",
    "a table function": "SELECT * FROM explode(array(shout('a')))",
    "a generator": "SELECT copy FROM VALUES (1) LATERAL VIEW explode(array(shout('a'))) AS copy",
    "a CTE of a subquery": "WITH u AS (SELECT (SELECT shout('a'))) SELECT * FROM u",
    "a union": "SELECT 'a' UNION ALL SELECT shout('a')",
    "a pipe": "FROM records |> EXTEND shout('a') AS c |> AGGREGATE max(c)",
    "an argument of a function with options": "SELECT from_json(shout('a'), 'a INT', map('mode', shout('a')))",
}
STATEMENTS = {
    "EXECUTE IMMEDIATE": "EXECUTE IMMEDIATE 'SELECT * FROM records'",
    "a script": "BEGIN SELECT * FROM records; END",
    "SET": "SET spark.sql.variable.substitute = true",
    "ADD JAR": "ADD JAR {secret}",
    "CREATE FUNCTION": "CREATE TEMPORARY FUNCTION f AS 'java.lang.Object' USING JAR '{secret}'",
    "DECLARE": "DECLARE VARIABLE low INT DEFAULT 3",
    "INSERT": "FROM records INSERT INTO default.customers SELECT *",
    "INSERT OVERWRITE DIRECTORY": "INSERT OVERWRITE DIRECTORY '{secret}' USING text SELECT value FROM records",
}


@pytest.mark.parametrize("query", OTHERS.values(), ids=OTHERS)
def test_sql_of_a_server_is_refused_a_relation_other_than_records(
    session: SparkSession, secret: Path, query: str
) -> None:
    session.read.text(str(secret)).createOrReplaceTempView("customers")
    with pytest.raises(ConfigException, match="but may only read 'records'") as refused:
        check(session, query.format(secret=secret))
    assert "--config-sql" in str(refused.value)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("query", CALLS.values(), ids=CALLS)
def test_sql_of_a_server_is_refused_calls_of_java_methods(session: SparkSession, query: str) -> None:
    # Each of these queries can call any static method in the server's JVM.
    with pytest.raises(ConfigException, match="calls Java methods by reflection"):
        check(session, query)


@pytest.mark.parametrize("query", COMMANDS.values(), ids=COMMANDS)
def test_sql_of_a_server_is_refused_system_commands(session: SparkSession, secret: Path, query: str) -> None:
    with pytest.raises(ConfigException, match="the query runs system commands") as refused:
        check(session, query.format(secret=secret))
    assert "--config-sql" in str(refused.value)


@pytest.mark.parametrize("query", UNKNOWN.values(), ids=UNKNOWN)
def test_sql_of_a_server_is_refused_unknown_operators(
    session: SparkSession, secret: Path, query: str
) -> None:
    session.udf.register("shout", str.upper)
    with pytest.raises(ConfigException, match="--config-sql") as refused:
        check(session, query.format(secret=secret))
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("query", PLACES.values(), ids=PLACES)
def test_sql_of_a_server_is_refused_functions_in_any_clause(session: SparkSession, query: str) -> None:
    # The query is refused before Spark analyzes it, because the analysis evaluates constants.
    parsed = session._jsparkSession.sessionState().sqlParser().parsePlan(query)
    with pytest.raises(ConfigException, match="the query uses the function shout"):
        confine_parsed(parsed, session)


def test_sql_cannot_name_a_class_as_a_type(session: SparkSession) -> None:
    # A schema given as JSON may name user-defined types, whose classes Spark and pyspark load. In SQL, only
    # DDL is accepted.
    kind = '{"type": "struct", "fields": [{"name": "a", "type": {"type": "udt", "class": "X"}, "nullable": true}]}'
    with pytest.raises(ConfigException, match="PARSE_SYNTAX_ERROR"):
        check(session, f"{RECORD}, from_json(string(value), '{kind}') AS value FROM records")


def test_sql_of_a_server_may_read_avro_with_a_schema_in_its_text(session: SparkSession) -> None:
    with pytest.raises(ConfigException, match="Avro data source is not loaded"):
        check(
            session,
            f"{RECORD}, from_avro(substring(value, 6), '\"string\"', map('mode', 'FAILFAST')) AS value FROM records",
        )


@pytest.mark.parametrize("query", STATEMENTS.values(), ids=STATEMENTS)
def test_sql_of_a_server_is_refused_statements(session: SparkSession, secret: Path, query: str) -> None:
    with pytest.raises(ConfigException):
        check(session, query.format(secret=secret))
    assert secret.read_text() == "hunter2\n"


@pytest.mark.parametrize("reference", ["${env:HOME}", "${system:user.home}", "${spark.app.name}"])
def test_sql_is_not_substituted_with_variables_of_the_driver(session: SparkSession, reference: str) -> None:
    # Spark's own substitution would read the environment and the JVM's properties even where references may
    # not.
    with pytest.raises(ConfigException):  # unsubstituted, the text is no valid SQL
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
        "SELECT r.* FROM records r, LATERAL explode(sequence(1, 2)) AS t(copy)",
        "SELECT r.* FROM records r, LATERAL (SELECT r.offset + 1 AS following) AS t WHERE t.following > 3",
        "SELECT /*+ BROADCAST(t) */ r.* FROM records r JOIN range(3) AS t(id) ON r.offset = t.id",
        "FROM records |> WHERE offset > 3 |> SET value = upper(string(value)) |> SELECT *",
        "SELECT * EXCEPT (value), upper(string(value)) AS value FROM records",
        "SELECT * FROM records WHERE try_cast(get_json_object(string(value), '$.dep_delay') AS DOUBLE) > 60",
        (
            "SELECT * EXCEPT (value, f), struct(f.*, f.dep_delay / 60 AS hours) AS value FROM (SELECT *, "
            "from_json(string(value), 'carrier STRING, dep_delay DOUBLE') AS f FROM records) WHERE f.dep_delay > 60"
        ),
        f"{RECORD}, from_json(string(value), 'a INT', map('mode', 'FAILFAST')).a AS value FROM records",
        f"{RECORD}, from_xml(string(value), 'a INT', map('mode', 'FAILFAST')).a AS value FROM records",
        f"{RECORD}, parse_json(string(value)):a::string AS value FROM records",
        (
            f"{RECORD}, struct(uuid(), input_file_name(), current_timestamp, extract(YEAR FROM timestamp), "
            "trim(BOTH ' ' FROM string(value)), headers[0].value, transform(headers, h -> h.key), "
            "CASE WHEN string(value) LIKE 'a%' THEN 1 ELSE system.builtin.abs(-2) END, "
            "aggregate(sequence(1, 3), 0, (a, b) -> a + b), date_add(DAY, 1, timestamp), url_decode('a'), "
            "timestamp + INTERVAL 1 DAY, hash(value), typeof(value), encode('a', 'utf-8')) AS value FROM records"
        ),
        (
            "SELECT topic, partition, offset, (SELECT max(v) FROM "
            "(SELECT a, sum(b) OVER (PARTITION BY a) AS v FROM VALUES (1, 2), "
            "(3, abs(-4)) AS t(a, b) UNION SELECT DISTINCT 1, count(*) FROM VALUES (1) "
            "GROUP BY ALL HAVING count(*) > 0 ORDER BY 1 LIMIT 1)) AS value FROM records"
        ),
    ],
)
def test_sql_of_a_server_may_read_records_and_its_own_ctes(session: SparkSession, query: str) -> None:
    check(session, query)


def test_sql_may_read_files_and_tables_with_config_sql(session: SparkSession, secret: Path) -> None:
    query = "SELECT /*+ BROADCAST(f) */ r.* FROM records r JOIN text.`{}` AS f ON string(r.key) = f.value"
    check(session, query.format(secret), is_confined=False)
