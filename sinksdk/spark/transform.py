"""Runs a user's SQL or function between the records and the task, in one Spark stage.

Each Spark partition is one task. So the plan is checked for operators that move or reorder rows.
"""

from __future__ import annotations

import importlib
import itertools
import logging
import re
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from sinksdk.config import ConnectorConfig
from sinksdk.engine.encoding import becoming_bytes
from sinksdk.errors import ConfigException, ConnectException
from sinksdk.model.outcome import TransformFailure
from sinksdk.records import RECORD_COLUMNS
from sinksdk.spark.bypass import Columns
from sinksdk.spark.confined import VIEW, confine_analyzed, confine_parsed
from sinksdk.spark.jvm import data_error, each_of, failed_task
from sinksdk.spark.transform_task import READ, REPORT, SINK, TYPES, reads, sinks
from sinksdk.transforms.parts import PARTS, Part
from sinksdk.values.text import without_json
from sinksdk.worker.generation_spec import GenerationSpec

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

log = logging.getLogger(__name__)

_CONTEXT_LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_COORDINATES: Final = {"topic": ("string",), "partition": ("int",), "offset": ("bigint",)}
_TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    **_COORDINATES,
    "timestamp": ("timestamp",),
    "timestampType": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}
_THREAD: Final = threading.local()
_SHIPPING: Final = threading.Lock()
_NUMBERS: Final = itertools.count()
_MOST_TASKS: Final = 1_000_000

_SETTINGS: Final = {
    # Adaptive execution could add exchanges after the plan was checked.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(16 * 1024 * 1024),
    # ${env:…} and ${system:…} in a query would read the driver's environment, bypassing config providers.
    "spark.sql.variable.substitute": "false",
}

_ROWS: Final = 10_000
# These settings apply if rows have a fixed size, except for the carrier, whose bytes sinksdk limits.
_COUNTED: Final = {
    # Computing a batch's size at each row costs more than passing on a small row.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(_ROWS),
}
_MOST_PACKED: Final = 32 * 1024 * 1024 // _ROWS
_OF_ONE_SIZE: Final = (
    *("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "date"),
    *("timestamp", "timestamp_ntz", "decimal"),
)

# Operators that keep rows in their partition and order; in joins, on the side that is not broadcast.
_KEEPS_ROWS: Final = frozenset(
    {
        *("Project", "Filter", "Generate", "Expand", "Sample", "ColumnarToRow", "InputAdapter"),
        *("MapInArrow", "PythonMapInArrow", "MapInPandas"),
        *("ArrowEvalPython", "BatchEvalPython", "ArrowEvalPythonUDTF", "BatchEvalPythonUDTF"),
        *("BroadcastHashJoin", "BroadcastNestedLoopJoin", "CollectMetrics"),
    }
)

_WITHOUT_EXPRESSIONS: Final = ("WholeStageCodegen", "InputAdapter")

_BATCHES: Final = ("MapInArrow", "PythonMapInArrow", "MapInPandas")

_REASONS: Final[Mapping[str, str]] = {
    "BroadcastExchange": "sends the records to all tasks: broadcast the other side of the join (hint "
    "/*+ BROADCAST(t) */), whose rows without a match cannot be kept",
    "Exchange": "moves rows between tasks (GROUP BY, DISTINCT, a window, a join that is not a broadcast "
    "join, repartition)",
    "Aggregate": "needs rows of several offsets together (GROUP BY, DISTINCT, max, count)",
    "Limit": "stops before the end (LIMIT)",
    "Window": "needs rows of several offsets together (OVER)",
    "Sort": "changes the order of rows (ORDER BY, a sort-merge join)",
    "Coalesce": "merges rows of several tasks",
    "Union": "adds partitions without a task",
}
_UNKNOWN: Final = "is not known to keep rows in place"
_ADVICE: Final = (
    "rows must stay in their partition and in their order. SELECT, WHERE, functions, explode, UDFs, "
    "mapInArrow and broadcast joins (hint /*+ BROADCAST(t) */) do that"
)


@dataclass(frozen=True, slots=True)
class Transform:
    key: str
    apply: Callable[[DataFrame], DataFrame]

    @classmethod
    def of(cls, config: ConnectorConfig, *, is_confined: bool = False) -> Transform | None:
        # Clients over the network must not read the driver's files, tables and environment.
        if config.records_sql is not None:
            return cls("records.sql", _Query(config.records_sql, is_confined=is_confined))
        if config.records_transform is not None:
            return cls("records.transform", _function(config.records_transform))
        return None


class _Query:
    def __init__(self, text: str, *, is_confined: bool = False) -> None:
        self._text = text.strip().rstrip(";")
        self._is_confined = is_confined

    def __call__(self, records: DataFrame) -> DataFrame:
        from pyspark.errors import ParseException  # noqa: PLC0415 - loaded with the session

        session = records.sparkSession
        # The query is parsed alone, so that positions in error messages are those of the user's text.
        parsed = session._jsparkSession.sessionState().sqlParser().parsePlan(self._text)  # noqa: SLF001 - as above
        if self._is_confined:
            confine_parsed(parsed, session)
        records.createOrReplaceTempView(VIEW)
        try:  # the query is in brackets, because Spark would execute a statement at once
            frame = _within_brackets(session, self._text)
        except ParseException as error:
            raise ConfigException(
                "the query is a statement: give one SELECT over the view 'records'"
            ) from error
        if self._is_confined:
            confine_analyzed(frame._jdf.queryExecution().analyzed())  # noqa: SLF001 - as above
        return frame


def _within_brackets(session: SparkSession, text: str) -> DataFrame:
    return session.sql(f"SELECT * FROM (\n{text}\n)")  # noqa: S608 - the user configures SQL


def _function(path: str) -> Callable[[DataFrame], DataFrame]:
    module, _, name = path.partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise ConfigException(
            f"'records.transform': cannot import {path} ({error}): run sinksdk in its folder or install it"
        ) from error
    except AttributeError as error:
        raise ConfigException(f"'records.transform': module '{module}' has no '{name}'") from error
    if not callable(function):
        raise ConfigException(f"'records.transform': {path} is a {type(function).__name__}, not a function")
    found: Callable[[DataFrame], DataFrame] = function
    return found


class TransformedRecords:
    def __init__(
        self,
        spark: SparkContext | SparkSession,
        transform: Transform,
        columns: Collection[str],
        python_path: Collection[str] = (),
        as_bytes: Mapping[Part, str] | None = None,
    ) -> None:
        self._session = _copied_session(spark)
        self._transform = transform
        self._columns = columns
        # Executors cannot import from these folders: their modules are sent by value.
        self._python_path = python_path
        self._as_bytes = as_bytes or {}
        self._has_warned = False
        self._is_checked = False

    @classmethod
    def of(
        cls,
        config: ConnectorConfig,
        spark: SparkContext | SparkSession,
        columns: Collection[str],
        python_path: Collection[str],
        *,
        takes_bytes: bool,
        is_confined: bool = False,
    ) -> TransformedRecords | None:
        transform = Transform.of(config, is_confined=is_confined)
        if transform is None:
            return None
        as_bytes = becoming_bytes(config, takes_bytes=takes_bytes)
        found = cls(spark, transform, columns, python_path, as_bytes)
        found.check()
        return found

    @property
    def key(self) -> str:
        return self._transform.key

    def failure(self, text: str, error: BaseException) -> TransformFailure | None:
        cause = data_error(text)
        return None if cause is None else TransformFailure(self.key, cause, failed_task(error))

    def job(self, spec: GenerationSpec, tasks: int) -> Callable[[], list[str]]:
        frame = self._planned_frame(spec, tasks)
        if not self._has_warned and not frame._jdf.queryExecution().analyzed().deterministic():  # noqa: SLF001 - no public API
            self._has_warned = True
            log.warning(
                "'%s' is not deterministic (rand, uuid, a nondeterministic UDF): records that are read again "
                "after a crash may differ from before",
                self._transform.key,
            )
        reports = self._bypassing_reports(frame, spec, tasks) or frame.mapInArrow(
            sinks(spec, Columns()), REPORT
        )

        def run() -> list[str]:
            with _quiet():
                return [row[0] for row in reports.collect()]

        return run

    def _bypassing_reports(self, frame: DataFrame, spec: GenerationSpec, tasks: int) -> DataFrame | None:
        """Return the reports of a plan whose columns bypass Spark; None if no column can."""
        columns = _column_use(frame)
        if not columns.bypassing or _mentions(frame._jdf.queryExecution().analyzed()) > 1:  # noqa: SLF001 - as above
            return None
        if _counts(frame, columns):
            columns = replace(columns, most=_MOST_PACKED)
        slim = _with_fewer_columns(frame, self._records(spec, tasks, columns), columns)
        reports = slim.mapInArrow(sinks(spec, columns), REPORT)
        # Spark plans the query again, and might need other columns now.
        is_as_planned = columns.unread & set(columns.in_rows) <= _column_use(reports).unread
        return reports if is_as_planned else None

    def check(self) -> None:
        # two partitions: with one Spark needs no exchange
        self._planned_frame(GenerationSpec("", "", "", 0), 2)
        self._is_checked = True

    def _planned_frame(self, spec: GenerationSpec, tasks: int) -> DataFrame:
        frame = self._apply(self._records(spec, tasks, Columns()))
        selected = self._selected(frame)
        try:
            problem = _row_order_problem(selected)
        except Exception as error:
            raise ConfigException(
                f"Spark cannot plan '{self._transform.key}': {_first_line(error)}"
            ) from error
        if problem:
            raise ConfigException(f"'{self._transform.key}' {problem}")
        return selected

    def _records(self, spec: GenerationSpec, tasks: int, columns: Columns) -> DataFrame:
        # Each plan is unique, so that Spark does not use a plan that a user's function has cached.
        first = next(_NUMBERS) * _MOST_TASKS
        given = ", ".join(f"{name} {TYPES[name]}" for name in columns.in_rows)
        return self._session.range(first, first + tasks, 1, tasks).mapInArrow(reads(spec, columns), given)

    def _apply(self, records: DataFrame) -> DataFrame:
        from pyspark.errors import PySparkException  # noqa: PLC0415 - loaded with the session
        from pyspark.sql import DataFrame  # noqa: PLC0415 - the same

        key = self._transform.key
        try:
            with _quiet(), _sent_by_value(self._python_path):
                frame = self._transform.apply(records)
                if isinstance(frame, DataFrame):
                    frame.schema  # noqa: B018 - makes Spark resolve the columns
        except (PySparkException, ConfigException) as error:
            raise ConfigException(f"'{key}': {_first_line(error)}") from error
        except Exception as error:
            # The check succeeded before, so the cause may be an unavailable system that the function uses.
            kind = ConnectException if self._is_checked else ConfigException
            raise kind(f"'{key}' raised {type(error).__name__}: {error}") from error
        if not isinstance(frame, DataFrame):
            raise ConfigException(f"'{key}' returned {type(frame).__name__}: return a DataFrame")
        if frame.isStreaming:
            raise ConfigException(f"'{key}' returned a streaming DataFrame: derive it from 'records'")
        return frame

    def _type_problem(self, part: Part, kind: DataType) -> str | None:
        found = _arrow_type(kind)
        if found is None:
            return "Arrow does not support"
        if part in self._as_bytes and (without := without_json(found)) is not None:
            return f"cannot be written as JSON, because it holds {without}, and {self._as_bytes[part]}"
        return None

    def _selected(self, frame: DataFrame) -> DataFrame:
        from pyspark.sql.functions import col  # noqa: PLC0415 - loaded with the session

        key, found = self._transform.key, {field.name: field.dataType for field in frame.schema}
        problems = []
        if len(found) < len(frame.columns):
            twice = sorted({name for name in frame.columns if frame.columns.count(name) > 1})
            problems.append(f"'{key}' returns {_list(twice)} more than once")
        if missing := [name for name in (*_COORDINATES, "value") if name not in found]:
            problems.append(
                f"'{key}' returns no {_list(missing)}: keep topic, partition and offset unchanged, and name "
                f"the new value 'value'"
            )
        if unknown := [name for name in found if name not in RECORD_COLUMNS and name not in _TYPES]:
            known = _list((*_TYPES, *PARTS))
            problems.append(
                f"'{key}' returns {_list(unknown)}, but a record has only {known}: put other columns into "
                f"the value, for example with struct(…) AS value"
            )
        problems += [
            f"'{key}' returns {name} as {kind.simpleString()}: it must be {' or '.join(_TYPES[name])}"
            for name, kind in found.items()
            if name in _TYPES and kind.simpleString() not in _TYPES[name]
        ]
        problems += [
            f"'{key}' returns {part} as {found[part].simpleString()}, which {problem}: cast it"
            for part in PARTS
            if part in found and (problem := self._type_problem(part, found[part]))
        ]
        if problems:
            raise ConfigException(problems)
        if dropped := [name for name in self._columns if name not in found]:
            log.info("'%s' returns no %s: they are null for the task", key, _list(dropped))
        chosen = [name for name in RECORD_COLUMNS if name in found and name in {*self._columns, "offset"}]
        return frame.select(
            "topic",
            "partition",
            *(
                col(name).cast("binary").alias(name)
                if name in PARTS and found[name].simpleString() == "string"
                else name
                for name in chosen
            ),
        )


def _arrow_type(kind: DataType) -> pa.DataType | None:
    from pyspark.errors import PySparkException  # noqa: PLC0415 - loaded with Spark
    from pyspark.sql.pandas.types import to_arrow_type  # noqa: PLC0415 - the same

    try:
        return to_arrow_type(kind, timezone="UTC")
    except PySparkException:
        return None


def _copied_session(
    spark: SparkContext | SparkSession, settings: Mapping[str, str] = _SETTINGS
) -> SparkSession:
    from pyspark.sql import SparkSession  # noqa: PLC0415 - loaded with Spark

    # The clone has the user's functions, views and settings, and its changes do not affect the user's
    # session.
    theirs = spark if isinstance(spark, SparkSession) else SparkSession(spark)
    session = SparkSession(theirs.sparkContext, theirs._jsparkSession.cloneSession())  # noqa: SLF001 - pyspark has no copy
    for key, value in settings.items():
        session.conf.set(key, value)
    return session


@contextmanager
def _sent_by_value(folders: Collection[str]) -> Iterator[None]:
    from pyspark import cloudpickle  # noqa: PLC0415 - loaded with Spark

    with _SHIPPING:
        before = cloudpickle.list_registry_pickle_by_value()  # type: ignore[no-untyped-call] # pyspark's
        # Modules are compared by identity, because multiprocessing gives __main__ a second name.
        found = {id(module): module for module in list(sys.modules.values()) if _is_in(module, folders)}
        mine = [module for module in found.values() if module.__name__ not in before]
        for module in mine:
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call] # pyspark's
        try:
            yield
        finally:
            for module in mine:
                cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call] # pyspark's


def _is_in(module: ModuleType, folders: Collection[str]) -> bool:
    name, file = getattr(module, "__name__", ""), getattr(module, "__file__", None)
    # Functions of __main__ are sent by value in any case.
    if not file or name.partition(".")[0] in ("sinksdk", "__main__") or sys.modules.get(name) is not module:
        return False
    parts = Path(file).parts
    is_installed = "site-packages" in parts or "dist-packages" in parts
    return not is_installed and any(Path(file).is_relative_to(folder) for folder in folders)


def _list(names: Collection[str]) -> str:
    return ", ".join(names)


def _first_line(error: BaseException) -> str:
    # Spark's position is wrong, because it counts the line that sinksdk adds.
    line = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return re.sub(r"; line \d+ pos \d+;?$", "", line)


@contextmanager
def _quiet() -> Iterator[None]:
    from pyspark.logger import PySparkLogger  # noqa: PLC0415 - loaded with Spark

    # pyspark would print errors as JSON, although sinksdk raises them.
    for name in _CONTEXT_LOGGERS:  # pyspark creates these loggers, which take further arguments
        PySparkLogger.getLogger(name).addFilter(_is_from_others)
    _THREAD.logs_itself = True
    try:
        yield
    finally:
        _THREAD.logs_itself = False


def _is_from_others(_: logging.LogRecord) -> bool:
    return not getattr(_THREAD, "logs_itself", False)


# -- the plan --------------------------------------------------------------------------------------------


def _row_order_problem(frame: DataFrame) -> str | None:
    """Describe the first operator that moves rows; None: rows stay in their partition and order."""
    plan = frame._jdf.queryExecution().executedPlan()  # noqa: SLF001 - no public API
    if not (path := _path(plan)):
        return (
            f"does not read the view '{VIEW}', or reads a cache, an RDD or a collected copy of it, which "
            f"would not get new records: build the result from the DataFrame itself, with 'records' first in "
            f"joins and with tables of records.sparkSession"
        )
    for node in path[:-1]:
        name = node.nodeName().split(" ")[0]
        if name == "BroadcastNestedLoopJoin" and _reads_twice(node):
            return f"needs an outer join that Spark runs by reading the records twice: {_ADVICE}"
        if name not in _KEEPS_ROWS and not name.startswith("WholeStageCodegen"):
            reason = next((why for part, why in _REASONS.items() if part in name), _UNKNOWN)
            return f"needs Spark's operator {name}, which {reason}: {_ADVICE}"
    if changed := _changed(plan, path):
        return (
            f"computes {_list(changed)}: keep topic, partition and offset unchanged, which identify a record"
        )
    if _mentions(frame._jdf.queryExecution().optimizedPlan()) > 1:  # noqa: SLF001 - as above
        return f"reads the view '{VIEW}' more than once, but each record is read only once"
    return None


def _reads_twice(join: Any) -> bool:
    # Outer joins without an equality add partitions for the unmatched rows of the other table.
    kind, side = join.joinType().toString(), join.buildSide().toString()
    return kind == "FullOuter" or (kind, side) in (("RightOuter", "BuildRight"), ("LeftOuter", "BuildLeft"))


def _changed(plan: Any, path: list[Any]) -> list[str]:
    # After functions of batches it is unknown whether columns were changed.
    if any(node.nodeName() in _BATCHES for node in path[:-1]):
        return []
    read, returned = (_attributes(node) for node in (path[-1], plan))
    return [name for name in _COORDINATES if read[name] != returned[name]]


def _column_use(frame: DataFrame) -> Columns:
    plan = frame._jdf.queryExecution().executedPlan()  # noqa: SLF001 - as above
    path = _path(plan)
    source, returned = _attributes(path[-1]), _attributes(plan)
    read = set[int]()
    for node in path[:-1]:
        if node.nodeName().startswith(_WITHOUT_EXPRESSIONS) or f"{SINK}(" in node.simpleString(1000):
            continue
        expressions = _expressions(node)
        if expressions is None:
            # Operators that are unknown here may read all columns.
            return Columns()
        for expression in expressions:
            read |= {column.exprId().id() for column in each_of(expression.references().toSeq())}
    return Columns(
        frozenset(name for name, number in source.items() if number not in read),
        frozenset(name for name, number in source.items() if returned.get(name) == number),
    )


def _counts(frame: DataFrame, columns: Columns) -> bool:
    """Whether Spark's rows have a fixed size, apart from the carrier and the topic, which is short."""
    kinds = {field.name: field.dataType.simpleString().partition("(")[0] for field in frame.schema}
    variable = {name for name, kind in kinds.items() if kind not in _OF_ONE_SIZE}
    return not variable & {*columns.in_rows, *(kinds.keys() - columns.passed)} - {columns.carrier, "topic"}


def _with_fewer_columns(frame: DataFrame, records: DataFrame, columns: Columns) -> DataFrame:
    """Replace the bypassing columns of a plan by nulls, which do not change its result."""
    from pyspark.sql import DataFrame  # noqa: PLC0415 - loaded with the session

    there = set(columns.in_rows)
    every = records.selectExpr(
        *(
            f"`{name}`" if name in there else f"CAST(NULL AS {kind}) AS `{name}`"
            for name, kind in TYPES.items()
        )
    )
    session = frame.sparkSession
    if columns.most is not None:
        session = _copied_session(session, _COUNTED)
    jvm: Any = session.sparkContext._jvm  # noqa: SLF001 - no public API
    # The user's function is not called again, because it might return another plan.
    plan, put_in = (each._jdf.queryExecution().analyzed() for each in (frame, every))  # noqa: SLF001 - as above

    def sequence(items: list[Any]) -> Any:
        return jvm.PythonUtils.toSeq(items)

    def replaced(node: Any) -> Any:
        if _is_records(node):
            # The columns keep their ids, by which the other operators reference them.
            names = jvm.org.apache.spark.sql.catalyst.expressions
            pairs = zip(each_of(put_in.output()), each_of(node.output()), strict=True)
            nothing = (sequence([]), jvm.scala.Option.apply(None), sequence([]))
            same = [names.Alias(new, old.name(), old.exprId(), *nothing) for new, old in pairs]
            return jvm.org.apache.spark.sql.catalyst.plans.logical.Project(sequence(same), put_in)
        return node.withNewChildren(sequence([replaced(child) for child in _children(node)]))

    rows = jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, replaced(plan))  # noqa: SLF001 - as above
    slim = DataFrame(rows, session)
    return slim.select(*(name for name in frame.columns if name in there or name not in columns.passed))


def _expressions(node: Any) -> list[Any] | None:
    """Return an operator's expressions without columns it only passes through; None: it is unknown."""
    match node.nodeName().split(" ")[0]:
        case "Project":
            return [each for each in each_of(node.projectList()) if each.nodeName() != "AttributeReference"]
        case "Filter":
            return [node.condition()]
        case "Generate":
            return [node.generator()]
        case "ArrowEvalPython" | "BatchEvalPython":
            return list(each_of(node.udfs()))
        case "BroadcastHashJoin" | "BroadcastNestedLoopJoin":
            return list(each_of(node.expressions()))
    return None


def _attributes(node: Any) -> dict[str, int]:
    # A column that is only passed through keeps its id.
    return {column.name(): column.exprId().id() for column in each_of(node.output())}


def _path(node: Any) -> list[Any]:
    if _is_records(node):
        return [node]
    for child in _children(node):
        if below := _path(child):
            return [node, *below]
    return []


def _mentions(plan: Any) -> int:
    # The occurrences are counted in the text, because it includes subqueries and broadcasts.
    text: str = plan.toString()
    return text.count(f"{READ}(")


def _is_records(node: Any) -> bool:
    return node.nodeName() in ("MapInArrow", "PythonMapInArrow") and f"{READ}(" in node.simpleString(1000)


def _children(node: Any) -> Iterator[Any]:
    return each_of(node.children())
