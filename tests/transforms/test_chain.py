"""Chains over batches, which may be divided anywhere."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinksdk import ConnectException, Header, RetriableException, SinkRecord, SinkRecords, TopicPartition
from sinksdk.transforms import temporal
from sinksdk.transforms.chain import Chain, TransformFailed, TypesDiffer
from sinksdk.transforms.date_format import DateFormat
from sinksdk.transforms.parts import content_of, joined, with_content
from sinksdk.transforms.plugins import KNOWN, read_chain
from tests.transforms.cases import CASES

P0 = TopicPartition("t", 0)
MARKED = {"predicates.p.type": "HasHeaderKey", "predicates.p.name": "h"}


def chain(*kinds: str, predicate: bool = False, **keys: str) -> Chain:
    """Return steps of these types, named 0, 1, …; a keyword is a key of all of them, ``__`` a dot."""
    config = dict(MARKED)
    for place, kind in enumerate(kinds):
        prefix = f"transforms.{place}."
        config[f"{prefix}type"] = kind
        config |= {prefix + key.replace("__", "."): text for key, text in keys.items()}
        if predicate:
            config[f"{prefix}predicate"] = "p"
    found, problems = read_chain([str(place) for place in range(len(kinds))], ["p"], config)
    assert found is not None, problems
    return found


def plain(values: Sequence[Any], marked: Sequence[int] = ()) -> SinkRecords:
    """Return values as converters return them; records of these rows have the header ``h``."""
    rows = [
        SinkRecord(*P0, offset=row * 2, value=b"", headers=(Header("h", None),) if row in marked else ())
        for row in range(len(values))
    ]
    return SinkRecords(P0, SinkRecords.of(P0, rows).arrow, None, list(values))


def typed(values: Sequence[Any], kind: pa.DataType, marked: Sequence[int] = ()) -> SinkRecords:
    return with_content(plain(values, marked), "value", pa.array(values, kind))


def values_of(records: SinkRecords) -> list[Any]:
    return [record.value for record in records]


PERSON = pa.struct([("name", pa.string()), ("age", pa.int32())])


def test_predicate_keeps_the_order_of_records() -> None:
    mask = chain("MaskField$Value", predicate=True, fields="a")
    made = mask(plain([{"a": 1}, {"a": 2}, {"a": 3}, {"a": 4}], marked=[1, 2]))
    assert values_of(made) == [{"a": 1}, {"a": 0}, {"a": 0}, {"a": 4}]
    assert made.offsets.tolist() == [0, 2, 4, 6]


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        ("InsertField$Value", {"offset__field": "at"}),
        ("Cast$Value", {"spec": "age:string"}),
        ("ExtractField$Value", {"field": "name"}),
        ("HoistField$Value", {"field": "person"}),
    ],
)
def test_types_differ_lists_the_offsets_to_split_the_batch_at(kind: str, keys: dict[str, str]) -> None:
    step = chain(kind, predicate=True, **keys)
    people = typed([{"name": name, "age": 1} for name in "ABCDE"] + [None], PERSON, marked=[1, 2, 4])
    with pytest.raises(TypesDiffer) as differ:
        step(people)
    assert differ.value.offsets.tolist() == [2, 6, 8, 10]
    assert content_of(step(people[1:3]), "value").type != PERSON
    assert content_of(step(people[3:4]), "value").type == PERSON


def test_tombstones_get_the_type_of_other_values() -> None:
    cast, problems = read_chain(
        ["c"],
        ["old"],
        {
            "transforms.c.type": "Cast$Value",
            "transforms.c.spec": "age:string",
            "transforms.c.predicate": "old",
            "transforms.c.negate": "true",
            "predicates.old.type": "RecordIsTombstone",
        },
    )
    assert cast is not None, problems
    made = cast(typed([None, {"name": "A", "age": 1}, None], PERSON))
    assert content_of(made, "value").type == pa.struct([("name", pa.string()), ("age", pa.string())])
    assert values_of(made) == [None, {"name": "A", "age": "1"}, None]


def test_transformed_records_keep_the_read_columns() -> None:
    records = SinkRecords.of(
        P0, [SinkRecord(*P0, offset=o, value=b"%d" % o, headers=(Header("h", b"1"),)) for o in range(4)]
    )
    drop = chain("DropHeaders", headers="h")
    made = drop(records).take([1, 3])[1:]
    (record,) = made
    assert record.headers == ()
    assert record.as_read() == list(records)[3]


def test_headers_are_added_to_batches_without_headers() -> None:
    records = plain([{"a": 1}, {"a": 2}])
    bare = SinkRecords(P0, records.arrow.drop_columns(["headers"]), None, records.value_objects)
    made = chain("InsertHeader", header="n", value__literal="x")(bare)
    assert [record.headers for record in joined([made[:1], bare[1:]])] == [(Header("n", b"x"),), ()]


def test_python_times_are_cast_and_converted() -> None:
    at = dt.datetime(2023, 11, 14, 22, 13, 20, 5000, tzinfo=dt.UTC)
    record = {"at": at, "day": at.date(), "clock": at.time()}
    text = chain("Cast$Value", spec="at:string,day:string,clock:string")
    assert values_of(text(plain([record]))) == [
        {"at": "2023-11-14T22:13:20.005Z", "day": "2023-11-14", "clock": "22:13:20.005Z"}
    ]
    number = chain("Cast$Value", spec="at:int64,day:int64,clock:int64")
    assert values_of(number(plain([record]))) == [
        {"at": 1_700_000_000_005, "day": 19_675, "clock": 80_000_005}
    ]
    unix = chain("TimestampConverter$Value", field="at", target__type="unix")
    assert values_of(unix(plain([record])))[0]["at"] == 1_700_000_000_005


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamp_columns_of_any_unit_are_converted(unit: str) -> None:
    for kind in (pa.timestamp(unit), pa.timestamp(unit, tz="Europe/Berlin")):
        column = pa.array([1_700_000_000, None], pa.timestamp("s")).cast(kind)
        records = with_content(plain([None, None]), "value", column)
        made = chain("TimestampConverter$Value", target__type="string", format="yyyy-MM-dd HH:mm:ss")(records)
        assert values_of(made) == ["2023-11-14 22:13:20", None]


def test_two_digit_years_are_near_today() -> None:
    this_year = dt.datetime.now(dt.UTC).year
    form = DateFormat.of("yy")
    for year in (this_year, this_year - 79, this_year + 19):
        millis = form.parse(f"{year % 100:02}")
        assert millis is not None
        found = temporal.of_millis(millis, "Date")
        assert isinstance(found, dt.date)
        assert found.year == year


@pytest.mark.parametrize(
    ("step", "value"),
    [
        (chain("Cast$Value", spec="a:int8"), {"a": "secret"}),
        (chain("TimestampConverter$Value", field="a", target__type="unix", format="yyyy"), {"a": "secret"}),
        (chain("MaskField$Value", fields="a", replacement="x"), {"a": 4711}),
        (chain("InsertField$Value", offset__field="o"), "secret"),
        (chain("Flatten$Value"), "secret"),
    ],
)
def test_errors_do_not_quote_records(step: Chain, value: Any) -> None:
    with pytest.raises(TransformFailed) as caught:
        step(plain([value]))
    assert "secret" not in str(caught.value)
    assert "4711" not in str(caught.value)


class Emptying:
    def apply(self, records: SinkRecords) -> SinkRecords:
        rest = records.arrow.slice(1)
        nothing = pa.nulls(rest.num_rows, pa.binary())
        return SinkRecords(
            records.partition, rest.set_column(rest.schema.get_field_index("value"), "value", nothing)
        )


def test_dead_letters_of_an_authors_transform_have_the_read_columns() -> None:
    step, problems = read_chain(["e"], [], {"transforms.e.type": f"{__name__}:Emptying"})
    assert step is not None, problems
    given_records = SinkRecords.of(P0, [SinkRecord(*P0, offset=o, value=b"%d" % o) for o in (3, 5)])
    (record,) = step(given_records)
    assert (record.offset, record.value) == (5, None)
    assert record.as_read().value == b"5"


class Odd:
    def test(self, records: SinkRecords) -> list[bool]:
        return [value % 2 == 1 for value in records.value_objects or ()]


class Vague:
    def test(self, records: SinkRecords) -> list[Any]:
        return ["false"] * len(records)


class Short:
    def test(self, _records: SinkRecords) -> list[bool]:
        return [True]


def with_own(predicate: str) -> Chain:
    keys = {"transforms.a.type": "Filter", "transforms.a.predicate": "own", "predicates.own.type": predicate}
    found, problems = read_chain(["a"], ["own"], keys)
    assert found is not None, problems
    return found


class Elsewhere:
    def test(self, records: SinkRecords) -> list[bool]:
        message = "the service is away"
        raise RetriableException(message, retry_after=7)


def test_retriable_exception_names_its_transform_and_keeps_retry_after() -> None:
    with pytest.raises(RetriableException) as caught:
        with_own(f"{__name__}:Elsewhere")(plain([1]))
    assert str(caught.value) == "predicate of transform 'a', Elsewhere.test: the service is away"
    assert caught.value.retry_after == 7


def test_authors_predicate_chooses_records() -> None:
    assert values_of(with_own(f"{__name__}:Odd")(plain([1, 2, 3, 4]))) == [2, 4]
    with pytest.raises(TransformFailed):
        with_own(f"{__name__}:Odd")(plain(["x"]))
    with pytest.raises(ConnectException, match="did not return true or false for each of 3 records"):
        with_own(f"{__name__}:Short")(plain([1, 2, 3]))
    with pytest.raises(ConnectException, match="did not return true or false for each of 1 records"):
        with_own(f"{__name__}:Vague")(plain([1]))


class Returning:
    made: Callable[[SinkRecords], Any]

    def apply(self, records: SinkRecords) -> Any:
        return Returning.made(records)


def _with_offsets(
    records: SinkRecords, offsets: Sequence[Any], kind: pa.DataType | None = None
) -> SinkRecords:
    index = records.arrow.schema.get_field_index("offset")
    column = pa.array(offsets, kind or pa.int64())
    return replace(records, arrow=records.arrow.set_column(index, "offset", column))


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda _: None, "returned NoneType, not SinkRecords"),
        (list, "returned list, not SinkRecords"),
        (
            lambda r: replace(r, partition=TopicPartition("u", 0)),
            "returned records of u-0: a transform must keep",
        ),
        (lambda r: replace(r, value_objects=[1]), "returned records of t-0 with 1 values for 3 rows"),
        (lambda r: replace(r, key_objects=[1] * 4), "returned records of t-0 with 4 keys for 3 rows"),
        (lambda r: r.take([2, 1, 0]), "in another order"),
        (lambda r: r.take([0, 1, 1, 2]), "more rows than it received"),
        (lambda r: _with_offsets(r, [0, 2, 5]), "with offsets that it did not receive"),
        (lambda r: _with_offsets(r, [0, 2, 9]), "with offsets that it did not receive"),
        (lambda r: _with_offsets(r, [0, 2, None]), "without offsets"),
        (
            lambda r: _with_offsets(r, ["0", "2", "4"], pa.string()),
            "column 'offset' is of type string, not int64",
        ),
        (lambda r: replace(r, arrow=r.arrow.drop_columns(["offset"])), "without offsets"),
    ],
)
def test_invalid_result_of_an_authors_transform_is_fatal(
    made: Callable[[SinkRecords], Any], said: str
) -> None:
    step, problems = read_chain(["x"], [], {"transforms.x.type": f"{__name__}:Returning"})
    assert step is not None, problems
    Returning.made = staticmethod(made)
    with pytest.raises(ConnectException, match=r"transform 'x' \(Returning\) ") as caught:
        step(plain([1, 2, 3]))
    assert said in str(caught.value)


def _of_one_offset(values: Sequence[Any]) -> SinkRecords:
    """Return rows that ``records.sql`` made of one record each two; every second one has the header ``h``."""
    whole = plain(values, marked=range(0, len(values), 2))
    return _with_offsets(whole, [row // 2 for row in range(len(values))])


def test_rows_that_share_an_offset_keep_their_order() -> None:
    given_records = _of_one_offset([{"a": 1}, {"a": 2}, {"a": 3}, {"a": 4}])
    made = chain("InsertField$Value", predicate=True, static__field="b", static__value="x")(given_records)
    assert values_of(made) == [{"a": 1, "b": "x"}, {"a": 2}, {"a": 3, "b": "x"}, {"a": 4}]
    assert made.offsets.tolist() == [0, 0, 1, 1]
    assert values_of(chain("Filter", predicate=True)(given_records)) == [{"a": 2}, {"a": 4}]


def test_author_may_drop_but_not_add_rows_of_an_offset() -> None:
    step, problems = read_chain(["x"], [], {"transforms.x.type": f"{__name__}:Returning"})
    assert step is not None, problems
    Returning.made = staticmethod(lambda records: records.take([1, 2]))
    assert values_of(step(_of_one_offset([1, 2, 3, 4]))) == [2, 3]
    Returning.made = staticmethod(lambda records: records.take([0, 0, 0]))
    with pytest.raises(ConnectException, match="more rows than it received"):
        step(_of_one_offset([1, 2, 3, 4]))


STEPS = [
    chain("InsertField$Value", predicate=True, topic__field="t", offset__field="o"),
    chain("ReplaceField$Value", exclude="a", renames="b:c"),
    chain("MaskField$Value", predicate=True, fields="a"),
    chain("ExtractField$Value", field="a"),
    chain("Flatten$Value"),
    chain("HoistField$Value", field="x"),
    chain("Cast$Value", spec="a:string"),
    chain("Filter", predicate=True),
    chain("TombstoneHandler", behavior="ignore"),
    chain("HeaderFrom$Value", fields="a", headers="h", operation="move"),
    chain("InsertHeader", predicate=True, header="n", value__literal="x"),
]
KIND = pa.struct([("a", pa.int32()), ("b", pa.struct([("c", pa.string())]))])
VALUES = st.lists(
    st.none()
    | st.fixed_dictionaries(
        {
            "a": st.none() | st.integers(-5, 5),
            "b": st.none() | st.fixed_dictionaries({"c": st.none() | st.text("abä", max_size=3)}),
        }
    ),
    min_size=1,
    max_size=6,
)


def one_by_one(step: Chain, records: SinkRecords) -> list[SinkRecord] | None:
    """Transform each record alone; None if one of them is refused."""
    made = []
    try:
        for row in range(len(records)):
            made += list(step(records[row : row + 1]))
    except TransformFailed:
        return None
    return made


def bare(records: Sequence[SinkRecord]) -> list[tuple[Any, ...]]:
    return [(r.offset, r.key, r.value, r.headers) for r in records]


@given(VALUES, st.sets(st.integers(0, 5)), st.sampled_from(STEPS))
def test_batch_is_transformed_like_its_single_records(
    values: list[Any], marked: set[int], step: Chain
) -> None:
    records = plain(values, sorted(marked))
    alone = one_by_one(step, records)
    if alone is None:
        with pytest.raises(TransformFailed):
            step(records)
    else:
        assert bare(list(step(records))) == bare(alone)


def without_nulls(value: Any) -> Any:
    """Remove nulls from objects: structures contain null for fields that objects do not have."""
    if isinstance(value, dict):
        return {name: without_nulls(item) for name, item in value.items() if item is not None}
    return value


def parts_of(step: Chain, records: SinkRecords) -> list[SinkRecords]:
    """Return parts of a batch whose values have one type after the chain."""
    try:
        step(records)
    except TypesDiffer as differ:
        borders = [0, *np.searchsorted(records.offsets, differ.offsets).tolist(), len(records)]
        return [records[begin:end] for begin, end in pairwise(borders)]
    return [records]


@given(VALUES, st.sets(st.integers(0, 5)), st.sampled_from(STEPS))
def test_typed_values_are_transformed_like_objects(values: list[Any], marked: set[int], step: Chain) -> None:
    objects, columns = plain(values, sorted(marked)), typed(values, KIND, sorted(marked))
    try:
        made = step(objects)
    except TransformFailed:
        with pytest.raises(TransformFailed):
            step(columns)
        return
    found = [one for part in parts_of(step, columns) for one in step(part)]
    shown = [[(o, without_nulls(v), h) for o, _, v, h in bare(each)] for each in (list(made), found)]
    if (
        step.steps[0].transformation.__class__.__name__ != "Flatten"
    ):  # Flatten makes names of null structures' fields
        assert shown[0] == shown[1]


def test_every_kafka_transform_has_a_case() -> None:
    asked = {case["class"].removeprefix("predicates.") for case in CASES}
    kafkas = {name for known in KNOWN.values() for name in known if name.startswith("org.apache.kafka.")}
    offered = {name.rpartition(".")[2] for name in kafkas}
    assert {name.partition("$")[0] for name in offered} == {name.partition("$")[0] for name in asked}
