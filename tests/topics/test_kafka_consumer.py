from __future__ import annotations

import importlib.util
import itertools
import logging
import multiprocessing
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from sinksdk import ConfigException, TopicPartition
from sinksdk.errors import ConnectException
from sinksdk.records import RECORD_COLUMNS
from sinksdk.topics.kafka import consumer as module
from sinksdk.topics.kafka.consumer import Consumer
from sinksdk.topics.kafka.messages import END_OF_PARTITION, Client, Filled
from tests.helpers.fake_messages import CLIENTS, PARTITION, Fake, FakeLibrary
from tests.helpers.mock_cluster import FETCH, MockCluster, mock_cluster
from tests.helpers.needs import missing

MB = 1_000_000
NUMBERS = itertools.count()
OpenClient = Callable[..., Client]


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest) -> OpenClient:
    return CLIENTS[request.param] or missing("the compiled client", "install with a C compiler")


@pytest.fixture
def compiled() -> OpenClient:
    return CLIENTS["compiled"] or missing("the compiled client", "install with a C compiler")


@pytest.fixture
def plain() -> OpenClient:
    found = CLIENTS["plain"]
    assert found is not None
    return found


def read(source: FakeLibrary | Consumer, partition: TopicPartition = PARTITION, **further: Any) -> Filled:
    consumer = source.consumer if isinstance(source, FakeLibrary) else source
    return consumer.fill(
        partition, **{"timeout": 0.0, "end": 1000, "max_rows": 100, "max_bytes": MB, **further}
    )


# -- fake messages -------------------------------------------------------------------------------------


def test_fill_returns_every_column_as_it_was_sent(client: OpenClient) -> None:
    headers = ((b"a", b"1"), (b"a", None), (b"\xc3\xa4", b""))
    library = FakeLibrary(
        [
            Fake(3, b"k", b"v", 1_700_000_000_000, 1, headers),
            Fake(5, b"", b"", 5, 2),
            Fake(6, None, None, -1, 0, ((b"", b"x"),)),
            Fake(7, None, b"z", -1, 1),
        ],
        client,
    )
    filled = read(library)

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


@pytest.mark.parametrize(
    "keys",
    [
        (b"\xff", b"ok", b"a\xe2\x82", b"\xed\xa0\x80", b"\xc3\xa4\xf0\x9f\x98"),
        (b"\xc3", b"\xa4"),  # bytes that are UTF-8 together, but not each alone
    ],
)
def test_header_key_that_is_not_utf_8_is_replaced_as_by_python(
    compiled: OpenClient, keys: tuple[bytes, ...]
) -> None:
    filled = read(FakeLibrary([Fake(0, headers=tuple((key, None) for key in keys))], compiled))

    assert filled.batch is not None
    filled.batch.validate(full=True)
    (headers,) = filled.batch.column("headers").to_pylist()
    assert [each["key"] for each in headers] == [key.decode("utf-8", "replace") for key in keys]


def test_header_key_that_is_not_utf_8_is_an_event_of_the_plain_client(plain: OpenClient) -> None:
    library = FakeLibrary([Fake(0), Fake(1, headers=((b"\xff", None),)), Fake(2)], plain)
    filled = read(library)

    assert filled.event is not None
    assert (filled.next, filled.event.error.name(), filled.event.offset) == (1, "_BAD_MSG", 1)
    assert "install sinksdk from a wheel" in filled.event.error.str()
    assert read(library).next == 3


def test_fill_copies_only_wanted_columns_and_reads_no_unwanted_headers(client: OpenClient) -> None:
    library = FakeLibrary([Fake(0, b"k", b"v", 1, 1, ((b"a", b"b"),), headers_error=-199)], client)
    filled = read(library, columns=("value", "timestampType"))

    assert filled.batch is not None
    assert filled.batch.to_pydict() == {"offset": [0], "timestampType": [0], "value": [b"v"]}


def test_fill_refuses_an_unknown_column_or_an_empty_batch(client: OpenClient) -> None:
    library = FakeLibrary([Fake(0)], client)
    for wrong in ({"columns": ("value", "topic")}, {"max_rows": 0}, {"max_bytes": 0}):
        with pytest.raises(ValueError):
            read(library, **wrong)
    assert library.waits == []


def test_fill_waits_for_the_first_message_only(client: OpenClient) -> None:
    library = FakeLibrary([Fake(0), Fake(1), None, Fake(2)], client)
    assert read(library, timeout=0.25).next == 2
    assert library.waits[0] == 250
    assert set(library.waits[1:]) == {0}


def test_fill_without_messages_is_empty(client: OpenClient) -> None:
    assert read(FakeLibrary([None], client)) == Filled(None, None, is_end=False, event=None)


def test_fill_ends_with_the_row_that_reaches_a_limit(client: OpenClient) -> None:
    library = FakeLibrary([Fake(offset, b"12", b"34567890") for offset in range(10)], client)

    assert read(library, max_rows=2).next == 2
    assert read(library, max_bytes=11).next == 4
    assert read(library, max_bytes=1).next == 5
    assert read(library).next == 10


def test_max_bytes_counts_wanted_headers(client: OpenClient) -> None:
    sent = [Fake(offset, headers=((b"12", b"34"), (b"5", None))) for offset in range(4)]

    assert read(FakeLibrary(sent, client), max_bytes=6).next == 2
    assert read(FakeLibrary(sent, client), max_bytes=6, columns=("key",)).next == 4


def test_range_ends_at_its_last_record_or_at_the_first_record_after_it(client: OpenClient) -> None:
    library = FakeLibrary([Fake(0), Fake(3), Fake(8), Fake(9)], client)

    first = read(library, end=4)
    assert (first.next, first.is_end) == (4, True)
    gap = read(library, end=6)
    assert (gap.batch, gap.next, gap.is_end) == (None, 6, True)
    assert read(library, end=6) == gap
    rest = read(library, end=10)
    assert rest.batch is not None
    assert rest.batch.column("offset").to_pylist() == [8, 9]
    assert library.given == {}


# After transaction markers and aborted records, no record shows that a range is complete.
@pytest.mark.parametrize(("end", "is_end"), [(7, True), (8, False)])
def test_end_of_partition_is_an_event_with_its_offset(client: OpenClient, end: int, is_end: bool) -> None:
    filled = read(FakeLibrary([Fake(2), Fake(7, error=END_OF_PARTITION, value=b"No more")], client), end=end)

    assert filled.batch is not None
    assert filled.event is not None
    assert filled.event.is_end_of_partition
    error = filled.event.error
    assert (error.name(), filled.event.offset, error.str()) == ("_PARTITION_EOF", 7, "No more")
    assert (filled.next, filled.is_end) == (7, is_end)


def test_error_is_an_event_and_later_records_are_read(client: OpenClient) -> None:
    library = FakeLibrary(
        [Fake(0), Fake(-1001, error=3, value=b"gone"), Fake(1), Fake(-1001, error=3)], client
    )

    first, second = read(library), read(library)
    assert first.event is not None
    error = first.event.error
    assert (first.next, error.name(), error.str()) == (1, "UNKNOWN_TOPIC_OR_PART", "gone")
    assert second.event is not None
    assert (second.next, second.event.error.str()) == (2, "Broker: Unknown topic or partition")


def test_error_text_with_a_zero_byte_is_replaced(client: OpenClient) -> None:
    filled = read(FakeLibrary([Fake(0, error=3, value=b"go\0ne\xff")], client))
    assert filled.event is not None
    assert filled.event.error.str() == "go\ufffdne\ufffd"


def test_headers_that_cannot_be_read_are_an_event(client: OpenClient) -> None:
    sent = [Fake(0), Fake(1, headers=((b"a", b"b"),), headers_error=-199), Fake(2)]
    library = FakeLibrary(sent, client)
    filled = read(library)

    assert filled.event is not None
    assert (filled.next, filled.event.error.name(), filled.event.offset) == (1, "_BAD_MSG", 1)
    assert read(library).next == 3


def test_batch_is_cut_before_a_column_has_more_bytes_than_arrow_can_count(
    client: OpenClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LIMIT", 10)
    sent = [Fake(0, value=b"123456"), Fake(1, value=b"123456"), Fake(2, value=b"12345678901")]
    library = FakeLibrary(sent, client)

    assert read(library).next == 1
    assert read(library).next == 2
    last = read(library)
    assert last.event is not None
    assert (last.batch, last.event.error.name(), last.event.offset) == (None, "_BAD_MSG", 2)


@pytest.mark.parametrize("says", [2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1])
def test_impossible_size_is_an_event_unless_key_and_value_are_null(compiled: OpenClient, says: int) -> None:
    sent = [Fake(0, value=b"a", says=says), Fake(1, key=b"a", says=says), Fake(2, says=says)]
    library = FakeLibrary(sent, compiled)

    for offset in range(2):
        filled = read(library)
        assert filled.event is not None
        assert (filled.batch, filled.event.error.name(), filled.event.offset) == (None, "_BAD_MSG", offset)
    assert table([read(library)]).select(["key", "value"]).to_pylist() == [{"key": None, "value": None}]


def test_record_larger_than_max_bytes_is_read_alone(client: OpenClient) -> None:
    huge = bytes(10 * MB)
    filled = read(FakeLibrary([Fake(0, value=huge, headers=((b"a", huge),)), Fake(1)], client))

    assert filled.batch is not None
    assert filled.batch.num_rows == 1
    assert filled.batch.column("value")[0].as_py() == huge
    assert filled.batch.column("headers")[0].as_py()[0]["value"] == huge


@pytest.mark.parametrize("allocated", [b"not writable", bytearray(3), None])
def test_messages_are_destroyed_when_a_buffer_cannot_be_allocated(
    compiled: OpenClient, monkeypatch: pytest.MonkeyPatch, allocated: object
) -> None:
    library = FakeLibrary([Fake(offset, b"k", b"v", 1, 1, ((b"a", b"b"),)) for offset in range(5)], compiled)
    requested = []

    def allocate(size: int) -> object:
        requested.append(size)
        if len(requested) < 4:
            return bytearray(size)
        if allocated is None:
            raise MemoryError
        return allocated

    monkeypatch.setattr(pa, "allocate_buffer", allocate)
    with pytest.raises((MemoryError, ValueError, BufferError)):
        read(library)

    assert library.given == {}
    assert sum(library.destroyed.values()) == 5


def test_close_destroys_messages_that_were_not_read(client: OpenClient) -> None:
    library = FakeLibrary([Fake(offset, value=b"v") for offset in range(300)], client)
    read(library, end=50, max_rows=1000)
    library.consumer.close()
    library.consumer.close()

    assert library.given == {}
    assert library.closed == 1
    with pytest.raises(RuntimeError, match="closed"):
        read(library)


def test_plain_client_is_used_and_logged_once_without_the_compiled_module(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    name = "sinksdk.topics.kafka.compiled_client"
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delattr(name, raising=False)
    spec = importlib.util.spec_from_file_location("consumer_without", module.__file__)
    assert spec is not None
    assert spec.loader is not None
    without = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "consumer_without", without)
    with caplog.at_level(logging.INFO):
        spec.loader.exec_module(without)

    with without.Consumer({"bootstrap.servers": "127.0.0.1:1"}) as consumer:
        assert isinstance(consumer._client, without.PlainClient)
    (logged,) = caplog.records
    assert logged.levelno == logging.INFO
    assert "C compiler" in logged.getMessage()


# -- librdkafka's mock cluster ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster() -> Iterator[MockCluster]:
    with mock_cluster() as found:
        yield found


def open_consumer(cluster: MockCluster, client: OpenClient, **further: str) -> Consumer:
    return Consumer({"bootstrap.servers": cluster.bootstrap, "fetch.wait.max.ms": "10", **further}, client)


def create(cluster: MockCluster, count: int = 1) -> list[TopicPartition]:
    topic = f"topic-{next(NUMBERS)}"
    cluster.create(topic, count)
    return [TopicPartition(topic, number) for number in range(count)]


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


def read_to(consumer: Consumer, partition: TopicPartition, end: int, **further: Any) -> list[Filled]:
    """Read until the range is complete or an error comes."""
    found: list[Filled] = []
    until = time.monotonic() + 20
    while True:
        assert time.monotonic() < until
        found.append(filled := read(consumer, partition, end=end, timeout=0.1, **further))
        if filled.is_end or (filled.event and not filled.event.is_end_of_partition):
            return found


def table(found: Sequence[Filled]) -> pa.Table:
    return pa.Table.from_batches([each.batch for each in found if each.batch is not None])


def test_clients_return_the_produced_records(
    cluster: MockCluster, plain: OpenClient, compiled: OpenClient
) -> None:
    (partition,) = create(cluster)
    sent = records(1000)
    cluster.produce(*partition, [*sent, {"value": bytes(2 * MB), "key": b""}])
    tables = []
    for client in (plain, compiled):
        with open_consumer(cluster, client, **{"fetch.message.max.bytes": "4000000"}) as consumer:
            consumer.add({partition: 0})
            tables.append(table(read_to(consumer, partition, 1001, max_rows=300)))
            assert consumer.errors() == []

    assert tables[0].equals(tables[1])
    rows = tables[0].to_pylist()
    assert [row["offset"] for row in rows] == list(range(1001))
    assert (rows[-1]["key"], rows[-1]["value"]) == (b"", bytes(2 * MB))
    dates = tables[0].column("timestamp").cast(pa.int64()).to_pylist()
    for row, date, one in zip(rows[:-1], dates[:-1], sent, strict=True):
        assert (row["key"], row["value"], date) == (one["key"], one["value"], one["timestamp"])
        assert row["timestampType"] == 0
        wanted = one["headers"] and [{"key": key, "value": value} for key, value in one["headers"]]
        assert row["headers"] == wanted


def test_partitions_are_read_in_any_order(cluster: MockCluster, client: OpenClient) -> None:
    partitions = create(cluster, 8)
    for each in partitions:
        cluster.produce(*each, records(200, f"{each.partition}:"))
    with open_consumer(cluster, client) as consumer:
        consumer.add(dict.fromkeys(partitions[:5], 0))
        consumer.add(dict.fromkeys(partitions[5:], 100))
        for each in reversed(partitions):
            found = table(read_to(consumer, each, 200))
            start = 0 if each.partition < 5 else 100
            assert found.column("offset").to_pylist() == list(range(start, 200))
            keys = [key for key in found.column("key").to_pylist() if key]
            assert all(key.startswith(f"{each.partition}:".encode()) for key in keys)
            assert consumer.errors() == []


def test_partitions_are_read_by_turns(cluster: MockCluster, client: OpenClient) -> None:
    partitions = create(cluster, 2)
    for each in partitions:
        cluster.produce(*each, records(30))
    found: dict[TopicPartition, list[int]] = {each: [] for each in partitions}
    with open_consumer(cluster, client) as consumer:
        consumer.add(dict.fromkeys(partitions, 0))
        for turn in range(1, 7):
            for each in partitions:
                offsets = table(read_to(consumer, each, 5 * turn, max_rows=2)).column("offset")
                found[each] += offsets.to_pylist()
    assert set(map(tuple, found.values())) == {tuple(range(30))}


def test_partition_that_is_removed_and_added_again_starts_at_its_new_offset(
    cluster: MockCluster, client: OpenClient
) -> None:
    one, other = create(cluster, 2)
    for each in (one, other):
        cluster.produce(*each, records(300))
    with open_consumer(cluster, client) as consumer:
        consumer.add({one: 0, other: 0})
        for start in (250, 10, 299, 0, 120) * 4:
            assert read(consumer, one, timeout=5, max_rows=7).batch is not None
            consumer.remove([one])
            with pytest.raises(KeyError):
                read(consumer, one)
            consumer.add({one: start})
            found = table(read_to(consumer, one, 300))
            assert found.column("offset").to_pylist() == list(range(start, 300))
            consumer.remove([one])
            consumer.add({one: 0})
        assert table(read_to(consumer, other, 300)).num_rows == 300
        assert consumer.errors() == []


def test_end_of_an_empty_partition_is_an_event_and_later_records_are_read(
    cluster: MockCluster, client: OpenClient
) -> None:
    (partition,) = create(cluster)
    with open_consumer(cluster, client) as consumer:
        consumer.add({partition: 0})
        filled = read(consumer, partition, timeout=10)
        assert filled.event is not None
        assert (filled.batch, filled.next, filled.event.is_end_of_partition) == (None, 0, True)
        cluster.produce(*partition, records(3))
        assert table(read_to(consumer, partition, 3)).num_rows == 3


def test_position_is_after_the_last_record(cluster: MockCluster, client: OpenClient) -> None:
    (partition,) = create(cluster)
    cluster.produce(*partition, records(3))
    with open_consumer(cluster, client) as consumer:
        consumer.add({partition: 0})
        assert consumer.position(partition) < 0
        read_to(consumer, partition, 3)
        assert consumer.position(partition) == 3


def test_offset_out_of_range_is_an_event_of_its_partition_only(
    cluster: MockCluster, client: OpenClient
) -> None:
    partition, other = create(cluster, 2)
    cluster.produce(*other, records(3))
    with open_consumer(cluster, client) as consumer:
        consumer.add({partition: 500, other: 0})
        (*_, filled) = read_to(consumer, partition, 1000)
        assert filled.event is not None
        assert (filled.batch, filled.event.error.name()) == (None, "_AUTO_OFFSET_RESET")
        assert table(read_to(consumer, other, 3)).num_rows == 3


def test_transient_errors_of_a_broker_are_retried(cluster: MockCluster, client: OpenClient) -> None:
    (partition,) = create(cluster)
    cluster.produce(*partition, records(20))
    cluster.fail(FETCH, [6, 7, 56])
    with open_consumer(cluster, client, **{"fetch.error.backoff.ms": "10"}) as consumer:
        consumer.add({partition: 0})
        found = read_to(consumer, partition, 20)
        while (event := found[-1].event) is not None:
            assert event.error.retriable()
            found += read_to(consumer, partition, 20)
        assert table(found).num_rows == 20


def test_unreachable_broker_is_a_retriable_error_of_the_client(client: OpenClient) -> None:
    with Consumer({"bootstrap.servers": "127.0.0.1:1"}, client) as consumer:
        consumer.add({TopicPartition("none", 0): 0})
        found = []
        until = time.monotonic() + 10
        while not found and time.monotonic() < until:
            found = consumer.errors()
            time.sleep(0.01)
    assert found[0].name() in {"_TRANSPORT", "_ALL_BROKERS_DOWN"}
    assert found[0].retriable()
    assert not found[0].fatal()
    assert "127.0.0.1:1" in found[0].str() or "down" in found[0].str()


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        ({"no.such": "1"}, "no.such"),
        ({"fetch.wait.max.ms": "soon"}, "fetch.wait.max.ms"),
        ({"security.protocol": "ssl", "ssl.ca.location": "/nowhere/ca.pem"}, "ssl.ca.location"),
        ({"max.poll.interval.ms": "100", "session.timeout.ms": "6000"}, "max.poll.interval.ms"),
    ],
)
def test_refused_property_is_named(client: OpenClient, properties: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigException, match=named):
        Consumer({"bootstrap.servers": "127.0.0.1:1", **properties}, client)


def test_properties_do_not_override_fixed_ones(cluster: MockCluster, client: OpenClient) -> None:
    (partition,) = create(cluster)
    own = {"enable.partition.eof": "false", "auto.offset.reset": "latest", "group.id": "mine"}
    with open_consumer(cluster, client, **own) as consumer:
        consumer.add({partition: 0})
        assert read(consumer, partition, timeout=10).event is not None


def test_adding_or_removing_a_partition_twice_changes_nothing(
    cluster: MockCluster, client: OpenClient
) -> None:
    (partition,) = create(cluster)
    cluster.produce(*partition, records(5))
    with open_consumer(cluster, client) as consumer:
        consumer.add({})
        consumer.add({partition: 0})
        with pytest.raises(ConnectException, match=str(partition)):
            consumer.add({partition: 3})
        assert table(read_to(consumer, partition, 5)).num_rows == 5
        consumer.remove([partition])
        with pytest.raises(ConnectException, match=str(partition)):
            consumer.remove([partition])


def test_closed_consumer_raises(cluster: MockCluster, client: OpenClient) -> None:
    partitions = create(cluster, 3)
    for each in partitions:
        cluster.produce(*each, records(500))
    consumer = open_consumer(cluster, client)
    consumer.add(dict.fromkeys(partitions, 0))
    # Records are held by the client and by librdkafka when it is closed.
    assert read(consumer, partitions[0], timeout=10, max_rows=3, end=20).batch is not None
    begun = time.monotonic()
    consumer.close()
    consumer.close()

    assert time.monotonic() - begun < 5
    for use in (
        consumer.errors,
        lambda: consumer.add({}),
        lambda: consumer.remove([]),
        lambda: consumer.position(partitions[0]),
        lambda: read(consumer, partitions[1]),
    ):
        with pytest.raises(RuntimeError, match="closed"):
            use()


def test_close_waits_for_a_waiting_reader(cluster: MockCluster, client: OpenClient) -> None:
    (partition,) = create(cluster)
    consumer = open_consumer(cluster, client)
    consumer.add({partition: 0})
    read(consumer, partition, timeout=10)  # the end of the partition
    ended: list[object] = []
    begun = threading.Event()

    def wait() -> None:
        with consumer._use():
            begun.set()
            ended.append(read(consumer, partition, timeout=1.0).batch)

    thread = threading.Thread(target=wait)
    thread.start()
    assert begun.wait(10)
    consumer.close()
    assert ended == [None]
    thread.join(30)


def test_consumer_is_closed_when_it_is_garbage_collected(cluster: MockCluster, client: OpenClient) -> None:
    consumer = open_consumer(cluster, client)
    release = consumer._release
    del consumer
    assert not release.alive


def _in_a_child(consumer: Consumer, partition: TopicPartition, results: Any) -> None:
    for use in (consumer.errors, lambda: consumer.add({}), lambda: read(consumer, partition)):
        try:
            use()
        except RuntimeError as error:
            results.put(str(error))
    consumer.close()
    results.put("closed")


def test_forked_child_cannot_use_the_consumer_of_its_parent(cluster: MockCluster, client: OpenClient) -> None:
    (partition,) = create(cluster)
    cluster.produce(*partition, records(5))
    fork = multiprocessing.get_context("fork")
    with open_consumer(cluster, client) as consumer:
        consumer.add({partition: 0})
        results = fork.SimpleQueue()
        child = fork.Process(target=_in_a_child, args=(consumer, partition, results))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python warns of threads before a fork
            child.start()
        texts = [results.get() for _ in range(4)]
        child.join(10)
        assert child.exitcode == 0
        assert ["fork" in each for each in texts] == [True] * 3 + [False]
        assert table(read_to(consumer, partition, 5)).num_rows == 5
