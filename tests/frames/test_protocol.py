from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinksdk import ConnectException, FencedException, OffsetAndMetadata, Token, TopicPartition
from sinksdk.frames.protocol import (
    Settled,
    Share,
    Standing,
    Writing,
    standing,
    taken_over,
    with_batch,
    with_shares,
)
from sinksdk.store.records import FrameState, PartitionCommit

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
FIRST = Writing("q", "run-1", 7)


def state(*committed: Writing, run: str = "run-1") -> FrameState:
    frames = taken_over(None, run, is_open=True)
    for writing in committed:
        frames = with_batch(frames, writing)
    return frames


@pytest.mark.parametrize(
    ("frames", "writing", "expected"),
    [
        (None, FIRST, Standing.NEW),
        (state(), FIRST, Standing.WRITER),
        (state(), Writing("q", "run-2", 7), Standing.NEW),
        (state(FIRST), FIRST, Standing.COMMITTED),
        (state(FIRST), Writing("q", "run-2", 7), Standing.COMMITTED),
        (state(FIRST), Writing("q", "run-1", 6), Standing.COMMITTED),
        (state(FIRST), Writing("q", "run-1", 8), Standing.WRITER),
        (state(FIRST), Writing("new checkpoint", "run-2", 0), Standing.NEW),
        (state(FIRST, Writing("other", "run-2", 3)), FIRST, Standing.COMMITTED),
        (state(Writing("w", "w")), Writing("w", "w"), Standing.COMMITTED),
        (state(Writing("w", "w")), Writing("another", "another"), Standing.NEW),
    ],
)
def test_standing_decides_whether_a_run_writes_or_skips_a_micro_batch(
    frames: FrameState | None, writing: Writing, expected: Standing
) -> None:
    # A number is skipped if this query has committed it, in any run.
    assert standing("c", frames, writing) is expected


def test_superseded_run_stays_fenced() -> None:
    frames = taken_over(taken_over(state(), "run-2", is_open=True), "run-3", is_open=False)
    for run in ("run-1", "run-2"):
        with pytest.raises(
            FencedException,
            match=r"micro-batch 8 of query q is fenced, .* set different "
            "'name'",
        ):
            standing("c", frames, Writing("q", run, 8))


@given(st.lists(st.integers(0, 400), max_size=600))
def test_frame_state_keeps_at_most_200_queries_and_runs(queries: list[int]) -> None:
    frames = state()
    for number in queries:
        frames = taken_over(frames, f"run-{number}", is_open=True)
        frames = with_batch(frames, Writing(f"q-{number}", f"run-{number}", 0))
        frames = with_batch(frames, Writing(f"w-{number}", f"w-{number}"))
    latest = list(dict.fromkeys(reversed(queries)))[:150]

    assert len(frames.written) <= 200
    assert len(frames.superseded) <= 200
    assert sum(one.batch is None for one in frames.written) <= 1
    assert {f"q-{number}" for number in latest} <= {one.query for one in frames.written}


def committed(**offsets: int) -> Settled:
    entries = {
        TopicPartition("t", int(name[1:])): PartitionCommit(
            topic="t", partition=int(name[1:]), offset=at, generation=3
        )
        for name, at in offsets.items()
    }
    return Settled(entries, {P0: {name: Token(name) for name in ("a", "b", "lost")}})


def share(start: int, end: int, *tokens: str, generation: int = 4) -> Share:
    return Share(generation, P0, start, OffsetAndMetadata(end, "m", tokens), end - start)


def test_tokens_of_shares_are_committed_and_others_are_stale() -> None:
    after = with_shares("c", committed(p0=10, p1=3), [share(10, 20, "a", "b")], prepared_in=4, generation=5)

    assert after.committed[P0].as_offset() == OffsetAndMetadata(20, "m", (Token("a"), Token("b")))
    assert (after.committed[P0].generation, after.committed[P0].visible) == (5, 10)
    assert after.committed[P1].offset == 3
    assert after.stale == {P0: {"lost": Token("lost")}}
    assert after.unsettled() == [P0]


@pytest.mark.parametrize(
    ("wrong", "before", "says"),
    [
        (share(10, 20, generation=3), committed(p0=10), "ran in generation 3, but the newest is 4"),
        (share(10, 20), committed(p0=12), "started at offset 10, but 12 is committed"),
        (share(10, 20), committed(), "started at offset 10, but 0 is committed"),
        (share(10, 20, "a", "unknown"), committed(p0=10), "has not stored the tokens unknown"),
        (
            share(10, 20),
            Settled(
                {P0: PartitionCommit(topic="t", partition=0, offset=10, generation=3, publish=(Token("z"),))},
                {},
            ),
            "the commit at offset 10 is not published yet",
        ),
    ],
)
def test_a_share_that_does_not_follow_the_commit_commits_nothing(
    wrong: Share, before: Settled, says: str
) -> None:
    with pytest.raises(ConnectException, match=says) as raised:
        with_shares("c", before, [wrong], prepared_in=4, generation=5)

    assert "connector c, t-0: the micro-batch is not committed" in str(raised.value)
    assert "start the query or the write again" in str(raised.value)
