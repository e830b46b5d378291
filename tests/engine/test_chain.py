"""Connect's transforms between converters and a task: what is dropped, what is refused, and what is committed."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pytest

from sinksdk import DataException, Header, OffsetAndMetadata, RetriableException, SinkRecord, SinkRecords
from sinksdk.engine import EngineOptions
from sinksdk.engine.converters import JsonConverter
from sinksdk.engine.retry import RetryPolicy
from sinksdk.testing import SinkTaskHarness
from sinksdk.transforms.chain import Chain
from sinksdk.transforms.plugins import read_chain
from tests.engine.sinks import P0, Letters, Sink

DROP = {
    "transforms.drop.type": "Filter",
    "transforms.drop.predicate": "old",
    "predicates.old.type": "RecordIsTombstone",
}
CAST = {"transforms.cast.type": "Cast$Value", "transforms.cast.spec": "n:int32"}
STAMP = {
    "transforms.stamp.type": "InsertHeader",
    "transforms.stamp.header": "by",
    "transforms.stamp.value.literal": "sinksdk",
}


class Arrow(Sink):
    takes_bytes = True
    max_poll_records: ClassVar[int | None] = None


def chain(*names: str, **more: Any) -> Chain:
    keys = {**DROP, **CAST, **STAMP, **more}
    found, problems = read_chain(names, ["old"], keys)
    assert found is not None, problems
    return found


def transforming(
    steps: Chain, *, tolerate: bool = True, sink: type[Sink] = Sink, most: int | None = None
) -> tuple[SinkTaskHarness, Letters]:
    letters = Letters()
    options = EngineOptions(
        tolerate_errors=tolerate,
        log_errors=True,
        value_converter=JsonConverter(),
        chain=steps,
        context_headers=True,
        max_poll_records=most,
        retry=RetryPolicy(1.0),
    )
    harness = SinkTaskHarness(sink, options=options, dead_letters=letters)
    harness.start()
    harness.assign(P0)
    return harness, letters


def records(*values: str | None, headers: Sequence[Header] = ()) -> list[SinkRecord]:
    return [
        SinkRecord(
            *P0, offset=offset, value=None if value is None else value.encode(), headers=tuple(headers)
        )
        for offset, value in enumerate(values)
    ]


def put(harness: SinkTaskHarness) -> list[tuple[int, Any]]:
    return [(r.offset, r.value) for call in harness.called("put") for r in call.arguments[0]]


def test_commits_cover_records_dropped_by_a_transform() -> None:
    harness, letters = transforming(chain("drop"))
    harness.deliver(P0, records("1", None, "3", None))
    assert put(harness) == [(0, 1), (2, 3)]
    harness.commit()
    assert harness.committed == {P0: OffsetAndMetadata(4)}
    harness.deliver(P0, [SinkRecord(*P0, offset=offset) for offset in (4, 5)])
    harness.commit()
    assert harness.committed == {P0: OffsetAndMetadata(6)}
    assert len(harness.called("put")) == 1
    assert not letters.records


def test_a_record_that_a_transform_refuses_is_a_dead_letter() -> None:
    harness, letters = transforming(chain("stamp", "cast"))
    bad = b'{"n":  "none"}'
    given = records('{"n": "1"}', bad.decode(), '{"n": 3}', headers=[Header("h", b"1")])
    harness.deliver(P0, given)
    assert put(harness) == [(0, {"n": 1}), (2, {"n": 3})]
    (letter,) = letters.records
    assert (letter.offset, letter.value) == (1, bad)
    own, context = letter.headers[:1], dict(letter.headers[1:])
    assert own == (Header("h", b"1"),), "not those that transforms have added"
    assert context["__connect.errors.stage"] == b"TRANSFORMATION"
    assert context["__connect.errors.class.name"].endswith(b".Cast")
    assert b"none" not in context["__connect.errors.exception.message"], "no error quotes what is in a record"
    harness.commit()
    assert harness.committed == {P0: OffsetAndMetadata(3)}


def test_untolerated_bad_records_fail_their_partition() -> None:
    harness, letters = transforming(chain("cast"), tolerate=False)
    harness.deliver(P0, records('{"n": 1}'))
    harness.deliver(P0, [SinkRecord(*P0, offset=1, value=b'"text"')])
    assert "flights-0 at offset 1 failed in TRANSFORMATION" in harness.outcome(P0).failure.message
    assert harness.committed == {P0: OffsetAndMetadata(1)}
    assert [letter.offset for letter in letters.records] == [1]


def test_a_reported_transformed_record_is_dead_lettered_as_it_was_read() -> None:
    class Refusing(Sink):
        def put(self, given: SinkRecords) -> None:
            for record in given:
                self.context.errant_record_reporter().report(record, ValueError("refused"))

    harness, letters = transforming(chain("stamp", "cast"), sink=Refusing)
    harness.deliver(P0, records('{"n":  1}'))
    (letter,) = letters.records
    assert letter.value == b'{"n":  1}'
    assert "by" not in dict(letter.headers)


def test_a_task_accepts_part_of_a_transformed_batch() -> None:
    class Slow(Sink):
        attempts = 0

        def put(self, given: SinkRecords) -> None:
            Slow.attempts += 1
            if Slow.attempts == 1:
                raise RetriableException("busy", accepted=1)

    harness, _ = transforming(chain("drop"), sink=Slow)
    harness.deliver(P0, records("1", None, "3"))
    harness.commit()
    assert harness.committed == {P0: OffsetAndMetadata(2)}
    harness.advance(1)
    harness.commit()
    assert harness.committed == {P0: OffsetAndMetadata(3)}


def test_max_poll_records_counts_records_before_the_transform() -> None:
    harness, _ = transforming(chain("drop"), most=2)
    harness.deliver(P0, records("1", None, None, None, "5"))
    harness.tick()
    assert [[r.offset for r in call.arguments[0]] for call in harness.called("put")] == [[0], [4]]


class Away:
    """An author's transform that raises RetriableException the first time."""

    calls = 0

    def apply(self, given: SinkRecords) -> SinkRecords:
        Away.calls += 1
        if Away.calls == 1:
            raise RetriableException("the service is away")
        return given


def test_a_retriable_error_of_a_transform_is_retried() -> None:
    Away.calls = 0
    harness, letters = transforming(chain("away", **{"transforms.away.type": f"{__name__}:Away"}))
    harness.deliver(P0, records("1", "2"))
    assert put(harness) == []
    harness.advance(1)
    assert put(harness) == [(0, 1), (1, 2)]
    assert not letters.records


class Doubling:
    """An author's transform with a key of its own."""

    factor = 1

    def configure(self, config: Mapping[str, str]) -> None:
        self.factor = int(config["factor"])

    def apply(self, given: SinkRecords) -> SinkRecords:
        """Drop 0, refuse numbers below 0, and multiply the others."""
        assert given.value_objects is not None
        if any(value < 0 for value in given.value_objects):
            message = "below 0"
            raise DataException(message)
        kept = [row for row, value in enumerate(given.value_objects) if value]
        values = [given.value_objects[row] * self.factor for row in kept]
        return SinkRecords(given.partition, given.arrow.take(kept), None, values)


def test_a_custom_transform_changes_and_drops_records() -> None:
    own = {"transforms.x.type": f"{__name__}:Doubling", "transforms.x.factor": "3"}
    harness, letters = transforming(chain("x", **own))
    harness.deliver(P0, records("1", "0", "-1", "4", "-5"))
    assert put(harness) == [(0, 3), (3, 12)]
    assert [letter.offset for letter in letters.records] == [2, 4]
    harness.commit()
    assert harness.committed == {P0: OffsetAndMetadata(5)}


class Moving:
    """An author's transform that moves records, which is not allowed."""

    def apply(self, given: SinkRecords) -> SinkRecords:
        assert given.value_objects is not None
        rows = list(range(len(given)))[::-1]
        return SinkRecords(given.partition, given.arrow.take(rows), None, given.value_objects[::-1])


def test_a_custom_transform_must_keep_the_order_of_records() -> None:
    harness, _ = transforming(chain("x", **{"transforms.x.type": f"{__name__}:Moving"}))
    harness.deliver(P0, records("1", "2"))
    assert "transform 'x' (Moving) returned records of flights-0" in harness.outcome(P0).failure.message
    assert put(harness) == []


class Failing:
    """An author's transform that does not find its field, or ends the process."""

    def apply(self, given: SinkRecords) -> SinkRecords:
        assert given.value_objects is not None
        if None in given.value_objects:
            sys.exit(2)
        kept = [row for row, value in enumerate(given.value_objects) if value["celsius"]]
        return given.take(kept) if len(kept) < len(given) else given

    def test(self, given: SinkRecords) -> list[bool]:
        return [len(self.apply(given[row : row + 1])) > 0 for row in range(len(given))]


FAILING = {"transforms.x.type": f"{__name__}:Failing"}


@pytest.mark.parametrize("tolerate", [True, False])
def test_an_error_in_a_transform_names_the_transform(
    caplog: pytest.LogCaptureFixture, *, tolerate: bool
) -> None:
    where = r"failed in TRANSFORMATION \(transform 'x', Failing\.apply\).*: KeyError: 'celsius'"
    harness, _ = transforming(chain("stamp", "x", **FAILING), tolerate=tolerate)
    harness.deliver(P0, records('{"celsius": 1}', "{}"))
    if not tolerate:
        assert re.search(where, harness.outcome(P0).failure.message)
    assert re.search(where, caplog.text)


def test_an_error_in_a_predicate_names_its_transform() -> None:
    keys = {"transforms.x.predicate": "p", "predicates.p.type": f"{__name__}:Failing"}
    steps, problems = read_chain(["x"], ["p"], {**FAILING, **keys})
    assert steps is not None, problems
    harness, _ = transforming(steps, tolerate=False)
    harness.deliver(P0, records("{}"))
    message = harness.outcome(P0).failure.message
    assert "failed in TRANSFORMATION (predicate of transform 'x', Failing.test) and" in message


@pytest.mark.parametrize("hook", ["apply", "test"])
def test_a_transform_that_exits_fails_its_partition(hook: str) -> None:
    keys = {"predicates.p.type": f"{__name__}:Failing"} if hook == "test" else {}
    choice = {"transforms.x.predicate": "p"} if keys else {}
    steps, problems = read_chain(["x"], ["p"] if keys else [], {**FAILING, **keys, **choice})
    assert steps is not None, problems
    harness, letters = transforming(steps)
    harness.deliver(P0, records('{"celsius": 1}', None))
    assert f"'x', Failing.{hook} raised SystemExit: 2" in harness.outcome(P0).failure.message
    assert harness.committed == {}
    assert not letters.records


def test_a_task_with_takes_bytes_gets_transformed_values_as_bytes() -> None:
    keys = {
        "transforms.mask.type": "MaskField$Value",
        "transforms.mask.fields": "card",
        "transforms.mask.predicate": "h",
        "predicates.h.type": "HasHeaderKey",
        "predicates.h.name": "secret",
    }
    steps, problems = read_chain(["mask"], ["h"], keys)
    assert steps is not None, problems
    harness, _ = transforming(steps, sink=Arrow)
    marked = (Header("secret", None),)
    harness.deliver(
        P0,
        [
            SinkRecord(*P0, offset=0, value=b'{"card":  "1", "a": "\xc3\xa4"}', headers=marked),
            SinkRecord(*P0, offset=1, value=b'{"card":  "2"}'),
            SinkRecord(*P0, offset=2, value=None),
        ],
    )
    (call,) = harness.called("put")
    column = call.arguments[0].arrow.column("value")
    assert column.to_pylist() == ['{"card":"","a":"ä"}'.encode(), b'{"card":  "2"}', None]
    assert call.arguments[0].value_objects is None


def test_without_transforms_put_gets_the_batch_as_read() -> None:
    harness = SinkTaskHarness(Arrow)
    harness.start()
    harness.assign(P0)
    given = SinkRecords.of(P0, records("1"))
    harness.deliver(P0, given)
    (call,) = harness.called("put")
    assert call.arguments[0].arrow.column("value").equals(given.arrow.column("value"))
    assert call.arguments[0].read is None


@pytest.mark.parametrize("text", ["true", "TRUE"])
def test_a_predicate_can_be_negated(text: str) -> None:
    harness, _ = transforming(chain("drop", **{"transforms.drop.negate": text}))
    harness.deliver(P0, records("1", None))
    assert put(harness) == [(1, None)]


class Marking:
    """An author's transform that changes objects in place, and fails for 2."""

    def apply(self, given: SinkRecords) -> SinkRecords:
        """Count how often the transform has received each object."""
        for value in given.value_objects or ():
            if value["n"] == 2:
                message = "it is 2"
                raise DataException(message)
            if value["n"]:
                value["seen"] = value.get("seen", 0) + 1
        return given


MARKING = {"transforms.x.type": f"{__name__}:Marking"}


def test_a_custom_transform_may_change_objects_in_place() -> None:
    harness, letters = transforming(chain("x", **MARKING))
    harness.deliver(P0, records('{"n": 1}', '{"n": 3}', '{"n": 2}', '{"n": 4}'))
    assert put(harness) == [(0, {"n": 1, "seen": 1}), (1, {"n": 3, "seen": 1}), (3, {"n": 4, "seen": 1})]
    assert [letter.offset for letter in letters.records] == [2]


def test_a_task_with_takes_bytes_gets_objects_changed_in_place() -> None:
    harness, _ = transforming(chain("x", **MARKING), sink=Arrow)
    harness.deliver(P0, records('{"n":  1}', '{"n":  0}'))
    (call,) = harness.called("put")
    assert call.arguments[0].arrow.column("value").to_pylist() == [b'{"n":1,"seen":1}', b'{"n":  0}']
