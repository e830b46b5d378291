"""Kafka's messages as Arrow: both clients return the same buffers, with what the messages contain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from property_tests.exercised import EXERCISED
from sinksdk.records import RECORD_COLUMNS
from sinksdk.topics.kafka import consumer
from sinksdk.topics.kafka.messages import BAD_MESSAGE, END_OF_PARTITION, Filled
from tests.helpers.fake_messages import CLIENTS, PARTITION, Fake, FakeLibrary
from tests.helpers.needs import missing

exercised = EXERCISED["messages of Kafka"]

content = st.one_of(st.none(), st.binary(max_size=12))
name = st.binary(max_size=8).map(lambda raw: raw.replace(b"\0", b"")) | st.text(max_size=4).map(
    lambda text: text.replace("\0", "").encode("utf-8", "ignore")
)
record = st.builds(
    Fake,
    offset=st.integers(0, 3),  # offsets of the messages are sums of these gaps
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
    client: str,
    sent: Sequence[Fake | None],
    calls: Sequence[tuple[int, int, int]],
    columns: frozenset[str],
    limit: int,
) -> list[Filled]:
    open_client = CLIENTS[client] or missing("the compiled client", "install with a C compiler")
    library = FakeLibrary(sent, open_client)
    with mock.patch.object(consumer, "_LIMIT", limit):
        found = [
            library.consumer.fill(
                PARTITION, timeout=0.25, end=end, max_rows=rows, max_bytes=size, columns=columns
            )
            for end, rows, size in calls
        ]
    library.consumer.close()
    assert library.given == {}  # messages that were not read must be destroyed, too
    assert library.closed == 1
    return found


@given(sent=stream, calls=limits, columns=wanted, limit=st.sampled_from((2**31 - 1, 20, 3)))
def test_compiled_and_plain_loop_give_the_same_buffers(
    sent: list[Fake | None], calls: list[tuple[int, int, int]], columns: frozenset[str], limit: int
) -> None:
    sent = [each and replace(each, headers=as_utf_8(each.headers)) for each in sent]
    plain = run("plain", sent, calls, columns, limit)
    compiled = run("compiled", sent, calls, columns, limit)

    assert plain == compiled
    assert [buffers(each) for each in plain] == [buffers(each) for each in compiled]
    assert texts(plain) == texts(compiled)
    for each in (*plain, *compiled):
        exercised["batches"] += each.batch is not None
        exercised["complete ranges"] += each.is_end
        exercised["ends of partitions"] += each.event is not None and each.event.is_end_of_partition
        exercised["errors"] += each.event is not None and not each.event.is_end_of_partition
        if each.batch is not None:
            each.batch.validate(full=True)


def texts(found: Sequence[Filled]) -> list[str]:
    events = [each.event.error for each in found if each.event]
    return [
        error.str() for error in events if error.code() != BAD_MESSAGE
    ]  # the result of the plain client is the expected one


def as_utf_8(headers: tuple[tuple[bytes, bytes | None], ...]) -> tuple[tuple[bytes, bytes | None], ...]:
    return tuple((key.decode("utf-8", "replace").encode(), value) for key, value in headers)


def buffers(found: Filled) -> bytes | None:
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


@pytest.mark.parametrize("client", CLIENTS)
@given(sent=stream, calls=limits)
def test_each_record_before_the_end_is_read_once_and_in_order(
    client: str, sent: list[Fake | None], calls: list[tuple[int, int, int]]
) -> None:
    # The plain client reads header keys of valid UTF-8 only: see tests/topics/test_kafka_consumer.py.
    if client == "plain":
        sent = [each and replace(each, headers=as_utf_8(each.headers)) for each in sent]
    ends = sorted(end for end, _, _ in calls)
    calls = [(end, rows, size) for end, (_, rows, size) in zip(ends, calls, strict=True)]
    calls += [(10_000, 12, 80)] * (2 * len(sent) + 1)
    found = run(client, sent, calls, frozenset(RECORD_COLUMNS), 2**31 - 1)

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
    )  # names are not counted, because the reader may have replaced invalid ones by longer ones
