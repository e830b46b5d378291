from __future__ import annotations

import importlib.util
import logging
import multiprocessing
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from sinksdk import ConfigException, TopicPartition
from sinksdk.errors import ConnectException
from sinksdk.records import RECORD_COLUMNS
from sinksdk.topics.kafka import messages
from sinksdk.topics.kafka.messages import Filled, Loop, fill, plain_loop
from sinksdk.topics.kafka.rdkafka import Consumer, PartitionQueue
from tests.helpers.fake_messages import Fake, FakeLibrary
from tests.helpers.mock_cluster import FETCH, MockCluster, mock_cluster
from tests.helpers.needs import missing

LOOPS = {"plain": plain_loop, "compiled": messages.compiled_loop}
END = -191
MB = 1_000_000


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> Loop:
    found = LOOPS[request.param]
    if found is None:
        missing("the compiled loop", "install with a C compiler")
    return found


def read(queue: PartitionQueue, loop: Loop | None = None, **further: Any) -> Filled:
    return fill(
        queue, **{"timeout": 0.0, "end": 1000, "max_rows": 100, "max_bytes": MB, "loop": loop, **further}
    )


# -- messages that are made up -------------------------------------------------------------------------


def test_every_column_is_as_it_was_sent(loop: Loop) -> None:
    """Null and empty differ; header keys repeat; a record without headers has null; no timestamp is -1."""
    headers = ((b"a", b"1"), (b"a", None), (b"\xc3\xa4", b""))
    library = FakeLibrary(
        [
            Fake(3, b"k", b"v", 1_700_000_000_000, 1, headers),
            Fake(5, b"", b"", 5, 2),
            Fake(6, None, None, -1, 0, ((b"", b"x"),)),
            Fake(7, None, b"z", -1, 1),
        ]
    )
    filled = read(library.queue, loop)

    assert filled.batch is not None
    assert dict(zip(filled.batch.schema.names, filled.batch.schema.types, strict=True)) == RECORD_COLUMNS
    assert filled.batch.column("timestamp").cast(pa.int64()).to_pylist() == [1_700_000_000_000, 5, -1, -1]
    assert filled.batch.drop_columns(["timestamp"]).to_pydict() == {
        "offset": [3, 5, 6, 7],
        "timestampType": [0, 1, -1, 0],
        "key": [b"k", b"", None, None],
        "value": [b"v", b"", None, b"z"],
        "headers": [
            [{"key": "a", "value": b"1"}, {"key": "a", "value": None}, {"key": "ä", "value": b""}],
            None,
            [{"key": "", "value": b"x"}],
            None,
        ],
    }
    assert (filled.next, filled.is_end, filled.event) == (8, False, None)
    assert library.given == {}


def test_a_header_key_that_is_no_utf_8_is_replaced_as_python_does(loop: Loop) -> None:
    """Arrow's strings are UTF-8; one bad key does not change the others."""
    bad = (b"\xff", b"ok", b"a\xe2\x82", b"\xed\xa0\x80", b"\xc3\xa4\xf0\x9f\x98")
    filled = read(FakeLibrary([Fake(0, headers=tuple((key, None) for key in bad))]).queue, loop)

    assert filled.batch is not None
    filled.batch.validate(full=True)
    (headers,) = filled.batch.column("headers").to_pylist()
    assert [each["key"] for each in headers] == [key.decode("utf-8", "replace") for key in bad]


def test_what_splits_a_letter_over_two_keys_is_no_utf_8_either(loop: Loop) -> None:
    """The keys together are, each alone is not."""
    filled = read(FakeLibrary([Fake(0, headers=((b"\xc3", None), (b"\xa4", None)))]).queue, loop)

    assert filled.batch is not None
    (headers,) = filled.batch.column("headers").to_pylist()
    assert [each["key"] for each in headers] == ["\ufffd", "\ufffd"]


def test_only_the_columns_that_are_asked_for_are_there(loop: Loop) -> None:
    """The offset always is; headers that nobody wants are not looked at."""
    library = FakeLibrary([Fake(0, b"k", b"v", 1, 1, ((b"a", b"b"),), headers_error=-199)])
    filled = read(library.queue, loop, columns=("value", "timestampType"))

    assert filled.batch is not None
    assert filled.batch.to_pydict() == {"offset": [0], "timestampType": [0], "value": [b"v"]}


def test_an_unknown_column_or_an_empty_batch_is_refused() -> None:
    """Nothing is taken out of the queue for it."""
    library = FakeLibrary([Fake(0)])
    for wrong in ({"columns": ("value", "topic")}, {"max_rows": 0}, {"max_bytes": 0}):
        with pytest.raises(ValueError):
            read(library.queue, **wrong)
    assert library.waits == []


def test_it_waits_for_the_first_message_only(loop: Loop) -> None:
    """Then it takes what is there already."""
    library = FakeLibrary([Fake(0), Fake(1), None, Fake(2)])
    assert read(library.queue, loop, timeout=0.25).next == 2
    assert library.waits[0] == 250
    assert set(library.waits[1:]) == {0}


def test_nothing_came(loop: Loop) -> None:
    """No batch, no position, no event."""
    assert read(FakeLibrary([None]).queue, loop) == Filled(None, None, is_end=False, event=None)


def test_rows_and_bytes_are_limited(loop: Loop) -> None:
    """The row that reaches the bytes is the last; one is always read; the rest comes the next time."""
    library = FakeLibrary([Fake(offset, b"12", b"34567890") for offset in range(10)])

    assert read(library.queue, loop, max_rows=2).next == 2
    assert read(library.queue, loop, max_bytes=11).next == 4
    assert read(library.queue, loop, max_bytes=1).next == 5
    assert read(library.queue, loop).next == 10


def test_headers_count_as_bytes(loop: Loop) -> None:
    """Keys and values of headers, where they are wanted."""
    sent = [Fake(offset, headers=((b"12", b"34"), (b"5", None))) for offset in range(4)]

    assert read(FakeLibrary(sent).queue, loop, max_bytes=6).next == 2
    assert read(FakeLibrary(sent).queue, loop, max_bytes=6, columns=("key",)).next == 4


def test_the_range_ends_with_its_last_offset_or_behind_it(loop: Loop) -> None:
    """At its last record at once; at a gap with the record behind it, which waits for the next range."""
    library = FakeLibrary([Fake(0), Fake(3), Fake(8), Fake(9)])

    first = read(library.queue, loop, end=4)
    assert (first.next, first.is_end) == (4, True)
    gap = read(library.queue, loop, end=6)
    assert (gap.batch, gap.next, gap.is_end) == (None, 6, True)
    assert read(library.queue, loop, end=6) == gap
    rest = read(library.queue, loop, end=10)
    assert rest.batch is not None
    assert rest.batch.column("offset").to_pylist() == [8, 9]
    assert library.given == {}


@pytest.mark.parametrize(("end", "is_end"), [(7, True), (8, False)])
def test_the_end_of_the_partition_is_told_with_its_offset(loop: Loop, end: int, is_end: bool) -> None:
    """Behind markers and aborted records, where no record shows it; the range is complete if it is there."""
    filled = read(FakeLibrary([Fake(2), Fake(7, error=END, value=b"No more")]).queue, loop, end=end)

    assert filled.batch is not None
    assert filled.event is not None
    assert filled.event.is_end_of_partition
    assert (filled.event.error.name(), filled.event.offset, filled.event.error.str()) == (
        "_PARTITION_EOF",
        7,
        "No more",
    )
    assert (filled.next, filled.is_end) == (7, is_end)


def test_an_error_is_told_and_what_comes_after_it_is_read(loop: Loop) -> None:
    """With its text, or librdkafka's own where it has none; the position stays that of the rows."""
    library = FakeLibrary([Fake(0), Fake(-1001, error=3, value=b"gone"), Fake(1), Fake(-1001, error=3)])

    first, second = read(library.queue, loop), read(library.queue, loop)
    assert first.event is not None
    assert (first.next, first.event.error.name(), first.event.error.str()) == (
        1,
        "UNKNOWN_TOPIC_OR_PART",
        "gone",
    )
    assert second.event is not None
    assert (second.next, second.event.error.str()) == (2, "Broker: Unknown topic or partition")


def test_an_error_whose_text_is_no_text_is_told(loop: Loop) -> None:
    """Regression: a zero in it ended the task."""
    library = FakeLibrary([Fake(0, error=3, value=b"go\0ne\xff")])
    filled = read(library.queue, loop)
    assert filled.event is not None
    assert filled.event.error.str() == "go\ufffdne\ufffd"


def test_headers_that_cannot_be_read_are_an_event(loop: Loop) -> None:
    """A record without its headers would be another record."""
    library = FakeLibrary([Fake(0), Fake(1, headers=((b"a", b"b"),), headers_error=-199), Fake(2)])
    filled = read(library.queue, loop)

    assert filled.event is not None
    assert (filled.next, filled.event.error.name(), filled.event.offset) == (1, "_BAD_MSG", 1)
    assert read(library.queue, loop).next == 3


def test_a_column_is_cut_before_it_has_more_bytes_than_arrow_can_count(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record that does not fit begins the next batch; one that fits in none is an event."""
    monkeypatch.setattr(messages, "_LIMIT", 10)
    library = FakeLibrary([Fake(0, value=b"123456"), Fake(1, value=b"123456"), Fake(2, value=b"12345678901")])

    assert read(library.queue, loop).next == 1
    assert read(library.queue, loop).next == 2
    last = read(library.queue, loop)
    assert last.event is not None
    assert (last.batch, last.event.error.name(), last.event.offset) == (None, "_BAD_MSG", 2)


@pytest.mark.parametrize("says", [2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1])
def test_more_bytes_than_can_be_are_an_event(loop: Loop, says: int) -> None:
    """Whatever a message says: nothing is copied of it. Where nothing is, its length says nothing."""
    library = FakeLibrary([Fake(0, value=b"a", says=says), Fake(1, key=b"a", says=says), Fake(2, says=says)])

    for offset in range(2):
        filled = read(library.queue, loop)
        assert filled.event is not None
        assert (filled.batch, filled.event.error.name(), filled.event.offset) == (None, "_BAD_MSG", offset)
    assert table([read(library.queue, loop)]).select(["key", "value"]).to_pylist() == [
        {"key": None, "value": None}
    ]


def test_a_huge_record_is_read(loop: Loop) -> None:
    """10 MB of value and of header, more than the limit of bytes: alone."""
    huge = bytes(10 * MB)
    library = FakeLibrary([Fake(0, value=huge, headers=((b"a", huge),)), Fake(1)])
    filled = read(library.queue, loop)

    assert filled.batch is not None
    assert filled.batch.num_rows == 1
    assert filled.batch.column("value")[0].as_py() == huge
    assert filled.batch.column("headers")[0].as_py()[0]["value"] == huge


@pytest.mark.parametrize("made", [b"no buffer that can be written", bytearray(3), None])
def test_messages_are_destroyed_where_there_is_no_memory_for_them(
    monkeypatch: pytest.MonkeyPatch, made: object
) -> None:
    """Also those of the compiled loop, whatever it is given instead of the buffer it has asked for."""
    compiled = LOOPS["compiled"] or missing("the compiled loop", "install with a C compiler")
    library = FakeLibrary([Fake(offset, b"k", b"v", 1, 1, ((b"a", b"b"),)) for offset in range(5)])
    asked = []

    def allocate(size: int) -> object:
        asked.append(size)
        if len(asked) < 4:
            return bytearray(size)
        if made is None:
            raise MemoryError
        return made

    monkeypatch.setattr(messages.pa, "allocate_buffer", allocate)
    with pytest.raises((MemoryError, ValueError, BufferError)):
        read(library.queue, compiled)

    assert library.given == {}
    assert sum(library.destroyed.values()) == 5


def test_a_closed_queue_gives_back_what_it_held(loop: Loop) -> None:
    """Each message once; then it is used no more."""
    library = FakeLibrary([Fake(offset, value=b"v") for offset in range(300)])
    read(library.queue, loop, end=50, max_rows=1000)
    library.queue.close()
    library.queue.close()

    assert library.given == {}
    assert library.closed == 1
    with pytest.raises(RuntimeError, match="closed"):
        read(library.queue, loop)


def test_without_the_compiled_loop_the_plain_one_is_taken_and_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With what to do about it, at INFO."""
    name = "sinksdk.topics.kafka._messages"
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delattr("sinksdk.topics.kafka._messages", raising=False)
    spec = importlib.util.spec_from_file_location("messages_without", messages.__file__)
    assert spec is not None
    assert spec.loader is not None
    again = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "messages_without", again)
    with caplog.at_level(logging.INFO):
        spec.loader.exec_module(again)

    assert again.compiled_loop is None
    assert again.LOOP is again.plain_loop
    (said,) = caplog.records
    assert said.levelno == logging.INFO
    assert "C compiler" in said.getMessage()


# -- librdkafka, with its own mock of a cluster ----------------------------------------------------------


@pytest.fixture(scope="module")
def cluster() -> Iterator[MockCluster]:
    with mock_cluster() as found:
        yield found


def consumer(cluster: MockCluster, **further: str) -> Consumer:
    return Consumer({"bootstrap.servers": cluster.bootstrap, "fetch.wait.max.ms": "10", **further})


def records(count: int, prefix: str = "") -> list[dict[str, Any]]:
    return [
        {
            "key": f"{prefix}{number}".encode() if number % 3 else None,
            "value": f"value {number}".encode() if number % 5 else None,
            "timestamp": 1_700_000_000_000 + number,
            "headers": [("h", b"1"), ("h", None), ("ü", str(number).encode())] if number % 2 else None,
        }
        for number in range(count)
    ]


def read_to(queue: PartitionQueue, end: int, loop: Loop | None = None, **further: Any) -> list[Filled]:
    """Reads a range until it is complete, or something but the end of the partition is told."""
    found: list[Filled] = []
    until = time.monotonic() + 20
    while not (found and (found[-1].is_end or (found[-1].event and found[-1].event.error.code() != END))):
        assert time.monotonic() < until
        found.append(read(queue, loop, end=end, timeout=0.1, **further))
    return found


def table(found: Sequence[Filled]) -> pa.Table:
    return pa.Table.from_batches([each.batch for each in found if each.batch is not None])


def test_real_messages_are_the_same_in_both_loops(cluster: MockCluster) -> None:
    """Keys, values, headers and timestamps as they were produced."""
    compiled = LOOPS["compiled"] or missing("the compiled loop", "install with a C compiler")
    partition = TopicPartition("both", 0)
    cluster.create("both", 1)
    sent = records(1000)
    cluster.produce("both", 0, [*sent, {"value": bytes(2 * MB), "key": b""}])
    tables = []
    for each in (plain_loop, compiled):
        with consumer(cluster, **{"fetch.message.max.bytes": "4000000"}) as reader:
            reader.add({partition: 0})
            tables.append(table(read_to(reader.queue(partition), 1001, each, max_rows=300)))
            assert reader.errors() == []

    plain, other = tables
    assert plain.equals(other)
    rows = plain.to_pylist()
    assert [row["offset"] for row in rows] == list(range(1001))
    assert (rows[-1]["key"], rows[-1]["value"]) == (b"", bytes(2 * MB))
    dates = plain.column("timestamp").cast(pa.int64()).to_pylist()
    for row, date, one in zip(rows[:-1], dates[:-1], sent, strict=True):
        assert (row["key"], row["value"], date) == (one["key"], one["value"], one["timestamp"])
        assert row["timestampType"] == 0
        wanted = one["headers"] and [{"key": key, "value": value} for key, value in one["headers"]]
        assert row["headers"] == wanted


def test_each_partition_is_read_from_its_own_queue(cluster: MockCluster) -> None:
    """Whichever is read first, nothing of another one comes; nothing comes on the common queue."""
    cluster.create("many", 8)
    partitions = [TopicPartition("many", number) for number in range(8)]
    for each in partitions:
        cluster.produce("many", each.partition, records(200, f"{each.partition}:"))
    with consumer(cluster) as reader:
        reader.add(dict.fromkeys(partitions[:5], 0))
        reader.add(dict.fromkeys(partitions[5:], 100))
        for each in reversed(partitions):
            found = table(read_to(reader.queue(each), 200))
            start = 0 if each.partition < 5 else 100
            assert found.column("offset").to_pylist() == list(range(start, 200))
            keys = [key for key in found.column("key").to_pylist() if key]
            assert all(key.startswith(f"{each.partition}:".encode()) for key in keys)
            assert reader.errors() == []


def test_a_partition_that_is_removed_and_added_elsewhere_begins_there(cluster: MockCluster) -> None:
    """What was fetched before is forgotten, time after time; others go on."""
    cluster.create("again", 2)
    one, other = TopicPartition("again", 0), TopicPartition("again", 1)
    for each in (one, other):
        cluster.produce("again", each.partition, records(300))
    with consumer(cluster) as reader:
        reader.add({one: 0, other: 0})
        for start in (250, 10, 299, 0, 120) * 4:
            before = read(reader.queue(one), timeout=5, max_rows=7)
            assert before.batch is not None
            queue = reader.queue(one)
            reader.remove([one])
            with pytest.raises(RuntimeError, match="closed"):
                read(queue)
            reader.add({one: start})
            found = table(read_to(reader.queue(one), 300))
            assert found.column("offset").to_pylist() == list(range(start, 300))
            reader.remove([one])
            reader.add({one: 0})
        assert table(read_to(reader.queue(other), 300)).num_rows == 300
        assert reader.errors() == []


def test_the_end_of_a_partition_is_told_once_and_what_comes_later_is_read(cluster: MockCluster) -> None:
    """An empty partition, too."""
    cluster.create("empty", 1)
    partition = TopicPartition("empty", 0)
    with consumer(cluster) as reader:
        reader.add({partition: 0})
        filled = read(reader.queue(partition), timeout=10)
        assert filled.event is not None
        assert (filled.batch, filled.next, filled.event.is_end_of_partition) == (None, 0, True)
        cluster.produce("empty", 0, records(3))
        assert table(read_to(reader.queue(partition), 3)).num_rows == 3


def test_an_offset_that_is_not_there_is_told_on_the_partitions_own_queue(cluster: MockCluster) -> None:
    """No other offset is chosen instead."""
    cluster.create("range", 2)
    partition, other = TopicPartition("range", 0), TopicPartition("range", 1)
    cluster.produce("range", 1, records(3))
    with consumer(cluster) as reader:
        reader.add({partition: 500, other: 0})
        (*_, filled) = read_to(reader.queue(partition), 1000)
        assert filled.event is not None
        assert (filled.batch, filled.event.error.name()) == (None, "_AUTO_OFFSET_RESET")
        assert table(read_to(reader.queue(other), 3)).num_rows == 3


def test_errors_of_a_broker_that_pass(cluster: MockCluster) -> None:
    """Librdkafka asks again by itself; of those that it tells, it is said that they pass."""
    cluster.create("passing", 1)
    partition = TopicPartition("passing", 0)
    cluster.produce("passing", 0, records(20))
    cluster.fail(FETCH, [6, 7, 56])
    with consumer(cluster, **{"fetch.error.backoff.ms": "10"}) as reader:
        reader.add({partition: 0})
        (*_, filled) = found = read_to(reader.queue(partition), 20)
        while filled.event is not None:
            assert filled.event.error.retriable()
            (*_, filled) = more = read_to(reader.queue(partition), 20)
            found += more
        assert table(found).num_rows == 20


def test_a_broker_that_is_away_is_a_fault_that_may_pass() -> None:
    """Said on the common queue, as a value."""
    with Consumer({"bootstrap.servers": "127.0.0.1:1"}) as reader:
        reader.add({TopicPartition("none", 0): 0})
        found = []
        until = time.monotonic() + 10
        while not found and time.monotonic() < until:
            found = reader.errors()
            time.sleep(0.01)
    assert found[0].name() in {"_TRANSPORT", "_ALL_BROKERS_DOWN"}
    assert found[0].retriable()
    assert not found[0].fatal()
    assert "127.0.0.1:1" in found[0].str() or "down" in found[0].str()


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"no.such": "1"}, "no.such"),
        ({"fetch.wait.max.ms": "soon"}, "fetch.wait.max.ms"),
        ({"security.protocol": "ssl", "ssl.ca.location": "/nowhere/ca.pem"}, "ssl.ca.location"),
        ({"max.poll.interval.ms": "100", "session.timeout.ms": "6000"}, "max.poll.interval.ms"),
    ],
)
def test_properties_that_are_not_accepted_are_named(properties: dict[str, str], said: str) -> None:
    """Unknown ones, bad values, and what only shows when the client is made."""
    with pytest.raises(ConfigException, match=said):
        Consumer({"bootstrap.servers": "127.0.0.1:1", **properties})


def test_what_makes_it_a_reader_is_not_left_to_the_properties(cluster: MockCluster) -> None:
    """The end of a partition is told even if the user has turned that off."""
    cluster.create("own", 1)
    own = {"enable.partition.eof": "false", "auto.offset.reset": "latest", "group.id": "mine"}
    with consumer(cluster, **own) as reader:
        reader.add({TopicPartition("own", 0): 0})
        assert read(reader.queue(TopicPartition("own", 0)), timeout=10).event is not None


def test_a_partition_is_added_and_removed_once(cluster: MockCluster) -> None:
    """Twice is an error that changes nothing."""
    cluster.create("once", 1)
    partition = TopicPartition("once", 0)
    cluster.produce("once", 0, records(5))
    with consumer(cluster) as reader:
        reader.add({})
        reader.add({partition: 0})
        with pytest.raises(ConnectException, match="once-0"):
            reader.add({partition: 3})
        assert table(read_to(reader.queue(partition), 5)).num_rows == 5
        reader.remove([partition])
        with pytest.raises(ConnectException, match="once-0"):
            reader.remove([partition])


def test_a_closed_consumer_is_not_used(cluster: MockCluster) -> None:
    """Closing in the middle of reading, with messages held and fetched; a second time is nothing."""
    cluster.create("closed", 3)
    partitions = [TopicPartition("closed", number) for number in range(3)]
    for each in partitions:
        cluster.produce("closed", each.partition, records(500))
    reader = consumer(cluster)
    reader.add(dict.fromkeys(partitions, 0))
    queues = [reader.queue(each) for each in partitions]
    assert read(queues[0], timeout=10, max_rows=3, end=20).batch is not None
    begun = time.monotonic()
    reader.close()
    reader.close()

    assert time.monotonic() - begun < 5
    for use in (
        reader.errors,
        lambda: reader.add({}),
        lambda: reader.remove([]),
        lambda: reader.queue(partitions[0]),
        lambda: queues[0].address,
        lambda: read(queues[1]),
    ):
        with pytest.raises(RuntimeError, match="closed"):
            use()


def test_closing_waits_for_who_waits(cluster: MockCluster, loop: Loop) -> None:
    """Nothing is pulled away under him; whoever comes after it is told."""
    topic = "waiting-plain" if loop is plain_loop else "waiting-compiled"
    cluster.create(topic, 1)
    partition = TopicPartition(topic, 0)
    reader = consumer(cluster)
    reader.add({partition: 0})
    queue = reader.queue(partition)
    read(queue, timeout=10)  # the end of the partition
    ended: list[object] = []
    thread = threading.Thread(target=lambda: ended.append(read(queue, loop, timeout=1.0).batch))
    thread.start()
    while thread.is_alive() and not queue._lock.locked():
        time.sleep(0.001)  # until it waits
    reader.close()
    thread.join(30)
    assert ended == [None]
    with pytest.raises(RuntimeError, match="closed"):
        read(queue, loop)


def test_a_consumer_that_nobody_holds_is_closed(cluster: MockCluster) -> None:
    """Its threads and connections do not outlive it."""
    reader = consumer(cluster)
    release = reader._release
    del reader
    assert not release.alive


def _in_a_child(reader: Consumer, queue: PartitionQueue, answers: Any) -> None:
    for use in (reader.errors, lambda: reader.add({}), lambda: read(queue), lambda: queue.address):
        try:
            use()
        except RuntimeError as error:
            answers.put(str(error))
    queue.close()
    reader.close()
    answers.put("closed")


def test_a_consumer_is_not_used_after_a_fork(cluster: MockCluster) -> None:
    """A child can only forget it; the parent goes on reading."""
    cluster.create("forked", 1)
    partition = TopicPartition("forked", 0)
    cluster.produce("forked", 0, records(5))
    fork = multiprocessing.get_context("fork")
    with consumer(cluster) as reader:
        reader.add({partition: 0})
        queue = reader.queue(partition)
        answers = fork.SimpleQueue()
        child = fork.Process(target=_in_a_child, args=(reader, queue, answers))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python warns of threads before a fork
            child.start()
        said = [answers.get() for _ in range(5)]
        child.join(10)
        assert child.exitcode == 0
        assert ["fork" in each for each in said] == [True] * 4 + [False]
        assert table(read_to(queue, 5)).num_rows == 5
