"""Chains over batches: batches may be divided anywhere, and keep what they are made of."""

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
    """Steps of these types, named 0, 1, …; a keyword is a key of all of them, ``__`` a dot."""
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
    """Values as converters give them; records of these rows have the header ``h``."""
    rows = [
        SinkRecord(*P0, offset=row * 2, value=b"", headers=(Header("h", None),) if row in marked else ())
        for row in range(len(values))
    ]
    return SinkRecords(P0, SinkRecords.of(P0, rows).arrow, None, list(values))


def typed(values: Sequence[Any], kind: pa.DataType, marked: Sequence[int] = ()) -> SinkRecords:
    """The same as an Arrow column."""
    return with_content(plain(values, marked), "value", pa.array(values, kind))


def values_of(records: SinkRecords) -> list[Any]:
    return [record.value for record in records]


PERSON = pa.struct([("name", pa.string()), ("age", pa.int32())])


def test_a_predicate_chooses_rows_and_keeps_their_order() -> None:
    """Records that are not chosen stay as they are, between those that are."""
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
def test_a_batch_is_divided_where_a_predicate_gives_some_records_another_type(
    kind: str, keys: dict[str, str]
) -> None:
    """The chain names the offsets at which the types alternate; a batch of one kind is transformed whole."""
    step = chain(kind, predicate=True, **keys)
    people = typed([{"name": name, "age": 1} for name in "ABCDE"] + [None], PERSON, marked=[1, 2, 4])
    with pytest.raises(TypesDiffer) as differ:
        step(people)
    assert differ.value.offsets.tolist() == [2, 6, 8, 10]
    assert content_of(step(people[1:3]), "value").type != PERSON
    assert content_of(step(people[3:4]), "value").type == PERSON


def test_nulls_have_the_type_of_the_others() -> None:
    """Tombstones that a predicate leaves out are in the way of no type: the most frequent use of one."""
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


def test_what_was_read_stays_with_the_records() -> None:
    """Dead letters: columns that transforms change are kept as they were, through drops and slices, too."""
    records = SinkRecords.of(
        P0, [SinkRecord(*P0, offset=o, value=b"%d" % o, headers=(Header("h", b"1"),)) for o in range(4)]
    )
    drop = chain("DropHeaders", headers="h")
    made = drop(records).take([1, 3])[1:]
    (record,) = made
    assert record.headers == ()
    assert record.as_read() == list(records)[3]


def test_batches_without_headers_get_some() -> None:
    """A source that has none: the column is made, and joined with those that have none."""
    records = plain([{"a": 1}, {"a": 2}])
    bare = SinkRecords(P0, records.arrow.drop_columns(["headers"]), None, records.value_objects)
    made = chain("InsertHeader", header="n", value__literal="x")(bare)
    assert [record.headers for record in joined([made[:1], bare[1:]])] == [(Header("n", b"x"),), ()]


def test_moments_of_converters_are_understood() -> None:
    """Avro's logical types are Python's: they are cast and converted as Connect's are."""
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
def test_timestamps_of_any_unit_are_understood(unit: str) -> None:
    """Typed values: a column's unit and time zone do not matter."""
    for kind in (pa.timestamp(unit), pa.timestamp(unit, tz="Europe/Berlin")):
        column = pa.array([1_700_000_000, None], pa.timestamp("s")).cast(kind)
        records = with_content(plain([None, None]), "value", column)
        made = chain("TimestampConverter$Value", target__type="string", format="yyyy-MM-dd HH:mm:ss")(records)
        assert values_of(made) == ["2023-11-14 22:13:20", None]


def test_years_of_two_digits_are_near_today() -> None:
    """As Java: from 80 years ago to 20 years from now."""
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
def test_no_error_quotes_what_is_in_a_record(step: Chain, value: Any) -> None:
    """They end up in logs. Connect's quote values."""
    with pytest.raises(TransformFailed) as caught:
        step(plain([value]))
    assert "secret" not in str(caught.value)
    assert "4711" not in str(caught.value)


class Emptying:
    """An author's that puts nothing in place of what was read."""

    def apply(self, records: SinkRecords) -> SinkRecords:
        """Makes columns of its own, and drops the first record."""
        rest = records.arrow.slice(1)
        nothing = pa.nulls(rest.num_rows, pa.binary())
        return SinkRecords(
            records.partition, rest.set_column(rest.schema.get_field_index("value"), "value", nothing)
        )


def test_what_an_author_does_to_columns_is_not_what_was_read() -> None:
    """Dead letters: rows are found again by their offsets, also where the author did not keep them."""
    step, problems = read_chain(["e"], [], {"transforms.e.type": f"{__name__}:Emptying"})
    assert step is not None, problems
    given_records = SinkRecords.of(P0, [SinkRecord(*P0, offset=o, value=b"%d" % o) for o in (3, 5)])
    (record,) = step(given_records)
    assert (record.offset, record.value) == (5, None)
    assert record.as_read().value == b"5"


class Odd:
    """A predicate of an author's own."""

    def test(self, records: SinkRecords) -> list[bool]:
        """Chooses odd numbers."""
        return [value % 2 == 1 for value in records.value_objects or ()]


class Vague:
    """A predicate that says neither true nor false."""

    def test(self, records: SinkRecords) -> list[Any]:
        """Text is true in Python, and so is ``"false"``."""
        return ["false"] * len(records)


class Short:
    """A predicate that says too little."""

    def test(self, _records: SinkRecords) -> list[bool]:
        """Of one record only."""
        return [True]


def with_own(predicate: str) -> Chain:
    keys = {"transforms.a.type": "Filter", "transforms.a.predicate": "own", "predicates.own.type": predicate}
    found, problems = read_chain(["a"], ["own"], keys)
    assert found is not None, problems
    return found


class Elsewhere:
    """Asks a service."""

    def test(self, records: SinkRecords) -> list[bool]:
        message = "the service is away"
        raise RetriableException(message, retry_after=7)


def test_a_passing_failure_names_its_transform_and_keeps_its_delay() -> None:
    """RetriableException of an author's predicate: its sentence names the transform, retry_after stays."""
    with pytest.raises(RetriableException) as caught:
        with_own(f"{__name__}:Elsewhere")(plain([1]))
    assert str(caught.value) == "predicate of transform 'a', Elsewhere.test: the service is away"
    assert caught.value.retry_after == 7


def test_an_authors_predicate_chooses() -> None:
    """It says true or false for each record; what it raises makes bad records."""
    assert values_of(with_own(f"{__name__}:Odd")(plain([1, 2, 3, 4]))) == [2, 4]
    with pytest.raises(TransformFailed):
        with_own(f"{__name__}:Odd")(plain(["x"]))
    with pytest.raises(ConnectException, match="did not return true or false for each of 3 records"):
        with_own(f"{__name__}:Short")(plain([1, 2, 3]))
    with pytest.raises(ConnectException, match="did not return true or false for each of 1 records"):
        with_own(f"{__name__}:Vague")(plain([1]))


class Returning:
    """An author's that returns what it was told to."""

    made: Callable[[SinkRecords], Any]

    def apply(self, records: SinkRecords) -> Any:
        """Something else."""
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
        (lambda r: replace(r, partition=TopicPartition("u", 0)), "returned records of u-0: records keep"),
        (lambda r: replace(r, value_objects=[1]), "returned records of t-0 with 1 values for 3 rows"),
        (lambda r: replace(r, key_objects=[1] * 4), "returned records of t-0 with 4 keys for 3 rows"),
        (lambda r: r.take([2, 1, 0]), "in another order"),
        (lambda r: r.take([0, 1, 1, 2]), "more of them"),
        (lambda r: _with_offsets(r, [0, 2, 5]), "with other offsets than it received"),
        (lambda r: _with_offsets(r, [0, 2, 9]), "with other offsets than it received"),
        (lambda r: _with_offsets(r, [0, 2, None]), "without offsets"),
        (
            lambda r: _with_offsets(r, ["0", "2", "4"], pa.string()),
            "column 'offset' is of type string, not int64",
        ),
        (lambda r: replace(r, arrow=r.arrow.drop_columns(["offset"])), "without offsets"),
    ],
)
def test_what_an_author_returns_is_looked_at(made: Callable[[SinkRecords], Any], said: str) -> None:
    """It may drop records and change them: anything else ends the partition with a sentence, and is no bad record."""
    step, problems = read_chain(["x"], [], {"transforms.x.type": f"{__name__}:Returning"})
    assert step is not None, problems
    Returning.made = staticmethod(made)
    with pytest.raises(ConnectException, match=r"transform 'x' \(Returning\) ") as caught:
        step(plain([1, 2, 3]))
    assert said in str(caught.value)


def _of_one_offset(values: Sequence[Any]) -> SinkRecords:
    """Rows that ``records.sql`` has made of one record each two; every second one has the header ``h``."""
    whole = plain(values, marked=range(0, len(values), 2))
    return _with_offsets(whole, [row // 2 for row in range(len(values))])


def test_rows_of_one_offset_keep_their_order() -> None:
    """records.sql may have made them of one record: a predicate that chooses some moves none."""
    given_records = _of_one_offset([{"a": 1}, {"a": 2}, {"a": 3}, {"a": 4}])
    made = chain("InsertField$Value", predicate=True, static__field="b", static__value="x")(given_records)
    assert values_of(made) == [{"a": 1, "b": "x"}, {"a": 2}, {"a": 3, "b": "x"}, {"a": 4}]
    assert made.offsets.tolist() == [0, 0, 1, 1]
    assert values_of(chain("Filter", predicate=True)(given_records)) == [{"a": 2}, {"a": 4}]


def test_an_author_may_drop_rows_of_one_offset() -> None:
    """Rows are counted, not only offsets: one more of an offset than was given is refused."""
    step, problems = read_chain(["x"], [], {"transforms.x.type": f"{__name__}:Returning"})
    assert step is not None, problems
    Returning.made = staticmethod(lambda records: records.take([1, 2]))
    assert values_of(step(_of_one_offset([1, 2, 3, 4]))) == [2, 3]
    Returning.made = staticmethod(lambda records: records.take([0, 0, 0]))
    with pytest.raises(ConnectException, match="more of them"):
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
    """What becomes of each record alone; None if one of them is refused."""
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
def test_a_batch_is_its_records(values: list[Any], marked: set[int], step: Chain) -> None:
    """Each record is judged by itself: a batch gives what its records give alone, or is refused if one of them is."""
    records = plain(values, sorted(marked))
    alone = one_by_one(step, records)
    if alone is None:
        with pytest.raises(TransformFailed):
            step(records)
    else:
        assert bare(list(step(records))) == bare(alone)


def without_nulls(value: Any) -> Any:
    """Structures say null where objects say nothing."""
    if isinstance(value, dict):
        return {name: without_nulls(item) for name, item in value.items() if item is not None}
    return value


def parts_of(step: Chain, records: SinkRecords) -> list[SinkRecords]:
    """The parts of a batch in which the chain gives values of one type."""
    try:
        step(records)
    except TypesDiffer as differ:
        borders = [0, *np.searchsorted(records.offsets, differ.offsets).tolist(), len(records)]
        return [records[begin:end] for begin, end in pairwise(borders)]
    return [records]


@given(VALUES, st.sets(st.integers(0, 5)), st.sampled_from(STEPS))
def test_typed_values_are_transformed_as_objects_are(
    values: list[Any], marked: set[int], step: Chain
) -> None:
    """Structures and objects with the same fields give the same, where neither refuses a record."""
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
    ):  # it makes names of null structures' fields
        assert shown[0] == shown[1]


def test_every_one_of_kafkas_has_a_case() -> None:
    """KNOWN: what is offered is compared with Kafka's own; TombstoneHandler is Confluent's."""
    asked = {case["class"].removeprefix("predicates.") for case in CASES}
    offered = {name for known in KNOWN.values() for name in known if "." not in name}
    assert {name.partition("$")[0] for name in offered - {"TombstoneHandler"}} == {
        n.partition("$")[0] for n in asked
    }
