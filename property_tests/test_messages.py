"""Messages of Kafka as Arrow: compiled and plain give the same buffers, and what was in the messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from property_tests.exercised import EXERCISED
from sinksdk.records import RECORD_COLUMNS
from sinksdk.topics.kafka import messages
from sinksdk.topics.kafka.messages import END_OF_PARTITION, Filled, Loop, fill, plain_loop
from tests.helpers.fake_messages import Fake, FakeLibrary
from tests.helpers.needs import missing

exercised = EXERCISED["messages of Kafka"]

content = st.one_of(st.none(), st.binary(max_size=12))
name = st.binary(max_size=8).map(lambda raw: raw.replace(b"\0", b"")) | st.text(max_size=4).map(
    lambda text: text.replace("\0", "").encode("utf-8", "ignore")
)
record = st.builds(
    Fake,
    offset=st.integers(0, 3),  # the gap before it; offsets are made of these
    key=content,
    value=content,
    timestamp=st.sampled_from((-1, 0, -5, 1_700_000_000_000, 2**62)),
    kind=st.integers(0, 2),
    headers=st.lists(st.tuples(name, content), max_size=3).map(tuple),
    error=st.sampled_from((0,) * 12 + (END_OF_PARTITION, -195, 3)),
    headers_error=st.sampled_from((0,) * 15 + (-199,)),
)


def ascending(drawn: Sequence[Fake | None]) -> list[Fake | None]:
    found: list[Fake | None] = []
    at = 0
    for each in drawn:
        if each is None:
            found.append(None)
            continue
        at += each.offset
        found.append(Fake(**{**vars(each), "offset": at}))
        at += not each.error
    return found


stream = st.lists(st.one_of(record, record, record, st.none()), min_size=1, max_size=40).map(ascending)
limits = st.lists(
    st.tuples(st.integers(1, 60), st.integers(1, 12), st.integers(1, 80)), min_size=1, max_size=12
)
wanted = st.one_of(st.just(frozenset(RECORD_COLUMNS)), st.frozensets(st.sampled_from(list(RECORD_COLUMNS))))


def run(
    loop: Loop,
    sent: Sequence[Fake | None],
    calls: Sequence[tuple[int, int, int]],
    columns: frozenset[str],
    limit: int,
) -> list[Filled]:
    library = FakeLibrary(sent)
    found = []
    with mock.patch.object(messages, "_LIMIT", limit):
        for end, rows, size in calls:
            found.append(
                fill(
                    library.queue,
                    timeout=0.25,
                    end=end,
                    max_rows=rows,
                    max_bytes=size,
                    columns=columns,
                    loop=loop,
                )
            )
    library.queue.close()
    assert library.given == {}  # what was held, too
    assert library.closed == 1
    return found


@given(sent=stream, calls=limits, columns=wanted, limit=st.sampled_from((2**31 - 1, 20, 3)))
def test_compiled_and_plain_give_the_same_buffers(
    sent: list[Fake | None], calls: list[tuple[int, int, int]], columns: frozenset[str], limit: int
) -> None:
    """Whatever comes, whatever the limits, call after call; every message is destroyed once."""
    if messages.compiled_loop is None:
        missing("the compiled loop", "install with a C compiler")
    plain = run(plain_loop, sent, calls, columns, limit)
    compiled = run(messages.compiled_loop, sent, calls, columns, limit)

    assert plain == compiled
    assert [buffers(each) for each in plain] == [buffers(each) for each in compiled]
    assert [each.event and each.event.error.str() for each in plain] == [
        each.event and each.event.error.str() for each in compiled
    ]
    for each in (*plain, *compiled):
        exercised["batches"] += each.batch is not None
        exercised["complete ranges"] += each.is_end
        exercised["ends of partitions"] += each.event is not None and each.event.is_end_of_partition
        exercised["errors"] += each.event is not None and not each.event.is_end_of_partition
        if each.batch is not None:
            each.batch.validate(full=True)


def buffers(found: Filled) -> bytes | None:
    """A batch's buffers, byte for byte, as Arrow would send them."""
    return found.batch.serialize().to_pybytes() if found.batch is not None else None


def expected(each: Fake) -> dict[str, Any]:
    return {
        "offset": each.offset,
        "timestamp": each.timestamp if each.kind else -1,
        "timestampType": each.kind - 1,
        "key": each.key,
        "value": each.value,
        "headers": [{"key": k.decode("utf-8", "replace"), "value": v} for k, v in each.headers] or None,
    }


def as_rows(found: Sequence[Filled]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for each in found:
        if each.batch is not None:
            dates = each.batch.column("timestamp").cast("int64").to_pylist()
            others = each.batch.drop_columns(["timestamp"]).to_pylist()
            rows += ({**row, "timestamp": date} for row, date in zip(others, dates, strict=True))
    return rows


@pytest.mark.parametrize("loop", [plain_loop, messages.compiled_loop], ids=["plain", "compiled"])
@given(sent=stream, calls=limits)
def test_each_record_before_the_end_is_read_once_and_in_order(
    loop: Loop | None, sent: list[Fake | None], calls: list[tuple[int, int, int]]
) -> None:
    """Nothing is lost between calls, with ends that grow; limits hold; what is no record is told once."""
    if loop is None:
        missing("the compiled loop", "install with a C compiler")
    ends = sorted(end for end, _, _ in calls)
    calls = [(end, rows, size) for end, (_, rows, size) in zip(ends, calls, strict=True)]
    calls += [(10_000, 12, 80)] * (2 * len(sent) + 1)
    found = run(loop, sent, calls, frozenset(RECORD_COLUMNS), 2**31 - 1)

    readable = [each for each in sent if each and not each.error and not each.headers_error]
    assert as_rows(found) == [expected(each) for each in readable]
    told = [(each.event.error.code(), each.event.offset) for each in found if each.event]
    assert told == [
        (each.error or each.headers_error, each.offset)
        for each in sent
        if each and (each.error or each.headers_error)
    ]
    for (end, rows, size), each in zip(calls, found, strict=True):
        last = -1
        if each.batch is not None:
            last = each.batch.column("offset")[-1].as_py()
            assert each.batch.num_rows <= rows
            assert last < end
            assert sum(map(weight, as_rows([each])[:-1])) < size
        assert each.is_end == (each.next is not None and each.next >= end)
        if each.next is not None and not each.is_end and each.event is None:
            assert each.next == last + 1


def weight(row: dict[str, Any]) -> int:
    headers = row["headers"] or []
    own = len(row["key"] or b"") + len(row["value"] or b"")
    return own + sum(
        len(each["value"] or b"") for each in headers
    )  # names may have been replaced by longer ones
