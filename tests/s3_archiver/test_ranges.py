from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinksdk.connectors.s3_archiver.archive.ranges import RowRanges, numbers_of

STEPS = st.lists(st.tuples(st.sampled_from([0, 0, 1, 1, 2, 1_000]), st.booleans()), min_size=1, max_size=40)


def rows_of(steps: list[tuple[int, bool]], first: int) -> tuple[np.ndarray, np.ndarray, list[bool]]:
    offsets = first + np.cumsum([step for step, _ in steps])
    return offsets, numbers_of(offsets), [chosen for _, chosen in steps]


def ranges_of(offsets: np.ndarray, numbers: np.ndarray, chosen: list[bool]) -> RowRanges:
    runs: list[list[int]] = []
    for place, is_chosen in enumerate(chosen):
        row = [int(offsets[place]), int(numbers[place])]
        if is_chosen and place and chosen[place - 1]:
            runs[-1][2:] = row
        elif is_chosen:
            runs.append([*row, *row])
    return RowRanges(*np.array(runs, np.int64).reshape(-1, 4).T)


@given(STEPS, st.sampled_from([0, 7, 2**40]))
def test_ranges_hold_their_rows_and_round_trip_as_text(steps: list[tuple[int, bool]], first: int) -> None:
    offsets, numbers, chosen = rows_of(steps, first)
    ranges = RowRanges.of_text(ranges_of(offsets, numbers, chosen).to_text())

    assert ranges.holds(offsets, numbers).tolist() == chosen
    middle = len(steps) // 2
    assert ranges.holds(offsets[middle:], numbers[middle:]).tolist() == chosen[middle:]


@given(STEPS, st.data())
def test_beyond_returns_the_rows_at_or_above_an_offset(
    steps: list[tuple[int, bool]], data: st.DataObject
) -> None:
    offsets, numbers, chosen = rows_of(steps, 5)
    border = data.draw(st.integers(0, int(offsets[-1]) + 1))
    beyond = ranges_of(offsets, numbers, chosen).beyond(border)

    kept = [is_chosen and offset >= border for is_chosen, offset in zip(chosen, offsets, strict=True)]
    assert beyond.holds(offsets, numbers).tolist() == kept


@given(STEPS)
def test_the_union_of_disjoint_ranges_holds_both(steps: list[tuple[int, bool]]) -> None:
    offsets, numbers, chosen = rows_of(steps, 0)
    rest = ranges_of(offsets, numbers, [not is_chosen for is_chosen in chosen])
    both = RowRanges.union([rest, ranges_of(offsets, numbers, chosen)])

    assert both.holds(offsets, numbers).all()


@given(STEPS, st.data())
def test_the_union_of_overlapping_ranges_merges_them(
    steps: list[tuple[int, bool]], data: st.DataObject
) -> None:
    # Regression: the text named rows far above, which were then skipped and lost.
    offsets, numbers, chosen = rows_of(steps, 0)
    others = data.draw(st.lists(st.booleans(), min_size=len(steps), max_size=len(steps)))
    both = RowRanges.union([ranges_of(offsets, numbers, chosen), ranges_of(offsets, numbers, others)])

    expected = [one or other for one, other in zip(chosen, others, strict=True)]
    assert RowRanges.of_text(both.to_text()).holds(offsets, numbers).tolist() == expected


def test_no_rows_are_an_empty_text() -> None:
    assert RowRanges().to_text() == ""
    assert RowRanges.of_text("").runs == 0
    assert not RowRanges().holds(np.arange(3), np.zeros(3, np.int64)).any()


def test_ranges_of_single_rows_take_under_3_bytes_each() -> None:
    offsets = np.cumsum(np.random.default_rng(1).integers(1, 1_000, 2_000))
    nothing = np.zeros(len(offsets), np.int64)

    assert len(RowRanges(offsets, nothing, offsets, nothing).to_text()) < 3 * len(offsets)


@pytest.mark.parametrize("text", ["no base64!", "QUJD", "eJwDAAAAAAE="])
def test_an_invalid_text_of_ranges_is_refused(text: str) -> None:
    # If the text counted as empty, visible rows would be archived twice.
    with pytest.raises(ValueError, match=r"."):
        RowRanges.of_text(text)


@pytest.mark.parametrize(
    ("others", "is_covered"),
    [([(3, 4)], True), ([(3, 9)], True), ([(2, 3)], False), ([(9, 10)], False), ([(3, 4), (20, 20)], True)],
)
def test_ranges_cover_offsets_with_at_least_one_row(
    others: list[tuple[int, int]], *, is_covered: bool
) -> None:
    first, last = np.array([3, 6, 20]), np.array([5, 9, 20])
    nothing = np.zeros(3, np.int64)
    asked = np.array(others).T

    assert RowRanges(first, nothing, last, nothing).covers(
        RowRanges(asked[0], asked[0], asked[1], asked[1])
    ) is (is_covered)
