"""The behaviour of every transactional writer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pytest

from sinksdk import FencedException
from sinksdk.engine.options import TaskName
from sinksdk.engine.writer import CommittedOffsets, TransactionalWriter
from sinksdk.records import Header
from sinksdk.source import SourceRecord
from sinksdk.source.positions import SourcePosition


class Place(Protocol):
    def topic(self, name: str) -> str: ...

    def writer(self, task: int = 0) -> TransactionalWriter: ...

    def offsets(self, connector: str = "files") -> CommittedOffsets: ...

    def visible(self, topic: str) -> list[bytes | None]: ...

    def values(self, topic: str) -> list[bytes | None]:
        # Kafka confirms a commit before it writes the markers that readers wait for.
        ...


NAME = TaskName("files", 0)


def at(line: int, file: str = "x") -> SourcePosition:
    return SourcePosition({"file": file}, {"line": line})


def write(
    place: Place,
    writer: TransactionalWriter,
    values: Sequence[bytes | None],
    positions: Sequence[SourcePosition] = (),
    topic: str = "a",
) -> None:
    writer.begin()
    for value in values:
        writer.send(SourceRecord({}, {}, place.topic(topic), value, partition=0))
    writer.commit(positions)


class WriterContract:
    @pytest.fixture
    def place(self) -> Place:
        raise NotImplementedError

    def test_transaction_is_visible_after_its_commit_only(self, place: Place) -> None:
        writer, offsets = place.writer(), place.offsets()
        writer.init()
        writer.begin()
        for topic in ("a", "b", "a"):
            writer.send(SourceRecord({}, {}, place.topic(topic), topic.encode(), partition=0))
        assert (place.visible("a"), place.visible("b"), offsets.offset({"file": "x"})) == ([], [], None)

        written = writer.commit([at(3)])

        assert (place.values("a"), place.values("b")) == ([b"a", b"a"], [b"b"])
        assert offsets.offset({"file": "x"}) == {"line": 3}
        assert [m.topic for m in written] == [place.topic(t) for t in ("a", "b", "a")]
        assert [m.partition for m in written] == [0, 0, 0]
        assert (written[0].offset, written[1].offset, written[2].offset) == (0, 0, 1)
        writer.close()
        offsets.close()

    def test_aborted_transaction_is_never_visible(self, place: Place) -> None:
        writer = place.writer()
        writer.init()
        write(place, writer, [b"1"], [at(1)])
        writer.begin()
        writer.send(SourceRecord({}, {}, place.topic("a"), b"2", partition=0))
        writer.abort()
        assert place.offsets().offset({"file": "x"}) == {"line": 1}
        write(place, writer, [b"3"], [at(3)])
        assert place.values("a") == [b"1", b"3"]
        writer.close()

    def test_transaction_may_consist_of_offsets(self, place: Place) -> None:
        writer = place.writer()
        writer.init()
        write(place, writer, [], [at(7)])
        assert place.offsets().offset({"file": "x"}) == {"line": 7}
        writer.close()

    def test_positions_returns_all_offsets_of_the_connector(self, place: Place) -> None:
        writer = place.writer()
        writer.init()
        write(place, writer, [b"1"], [at(1), at(2, "y"), at(3, "z")])
        writer.begin()
        writer.commit([at(4, "z")], [{"file": "y"}])

        offsets, others = place.offsets(), place.offsets("others")
        assert sorted(offsets.positions(), key=str) == [at(1), at(4, "z")]
        assert offsets.offsets([{"file": "x"}, {"file": "y"}]) == [{"line": 1}, None]
        assert list(others.positions()) == []
        for each in (writer, offsets, others):
            each.close()

    def test_last_offset_of_each_source_partition_is_returned(self, place: Place) -> None:
        first, second = place.writer(0), place.writer(1)
        first.init()
        second.init()
        write(place, first, [b"1"], [at(1), at(5, "y")])
        write(place, second, [b"2"], [at(2)])
        rich = {"t": "ä", "i": 7, "f": 0.5, "b": True, "n": None}
        write(place, first, [], [SourcePosition({"b": 1, "a": None}, rich)])

        reader = place.offsets()
        asked = [{"file": "x"}, {"file": "y"}, {"file": "z"}, {"a": None, "b": 1}]
        assert reader.offsets(asked) == [{"line": 2}, {"line": 5}, None, rich]
        write(place, second, [b"3"], [at(3)])
        assert reader.offset({"file": "x"}) == {"line": 3}
        assert place.offsets("other").offset({"file": "x"}) is None
        for it in (first, second, reader):
            it.close()

    def test_init_fences_the_older_writer(self, place: Place) -> None:
        old, new = place.writer(), place.writer()
        old.init()
        write(place, old, [b"1"], [at(1)])
        old.begin()
        old.send(SourceRecord({}, {}, place.topic("a"), b"zombie", partition=0))
        new.init()
        with pytest.raises(FencedException, match="files-0"):
            old.commit([at(99)])
        write(place, new, [b"2"], [at(2)])

        assert place.values("a") == [b"1", b"2"]
        assert place.offsets().offset({"file": "x"}) == {"line": 2}
        old.close()
        new.close()

    def test_init_aborts_an_open_transaction(self, place: Place) -> None:
        crashed, successor = place.writer(), place.writer()
        crashed.init()
        crashed.begin()
        crashed.send(SourceRecord({}, {}, place.topic("a"), b"half", partition=0))
        successor.init()
        write(place, successor, [b"whole"])
        assert place.values("a") == [b"whole"]
        successor.close()
        crashed.close()

    def test_fencing_does_not_affect_other_ids(self, place: Place) -> None:
        first, second = place.writer(0), place.writer(1)
        first.init()
        first.begin()
        first.send(SourceRecord({}, {}, place.topic("a"), b"first", partition=0))
        second.init()
        write(place, second, [b"second"])
        first.commit([])
        assert sorted(value or b"" for value in place.values("a")) == [b"first", b"second"]
        first.close()
        second.close()

    def test_close_is_idempotent_and_commits_nothing(self, place: Place) -> None:
        place.writer().close()
        writer = place.writer()
        writer.init()
        writer.begin()
        writer.send(SourceRecord({}, {}, place.topic("a"), b"open", partition=0))
        writer.close()
        writer.close()
        successor = place.writer()
        successor.init()
        assert place.values("a") == []
        successor.close()
        reader = place.offsets()
        reader.close()
        reader.close()

    def test_writer_accepts_keys_headers_and_tombstones(self, place: Place) -> None:
        writer = place.writer()
        writer.init()
        writer.begin()
        headers = (Header("h", b"1"), Header("h", None))
        record = SourceRecord({}, {}, place.topic("a"), None, b"key", 0, 1_700_000_000_000, headers)
        writer.send(record)
        (written,) = writer.commit([])
        assert (written.topic_partition, written.offset) == ((place.topic("a"), 0), 0)
        assert place.values("a") == [None]
        writer.close()
