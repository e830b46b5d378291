"""The life of a token: every step from every state, and its result."""

from __future__ import annotations

import pytest

from sinksdk import ConnectException, OffsetAndMetadata, Token
from sinksdk.store.records import RetiredTokens, TaskRecord, retired
from sinksdk.store.tokens import TaskTokens, TokenState
from tests.store.protocol import P0, P1, A, B, entry, note

STEPS = {
    "prepare": lambda tokens: tokens.prepare({P0: [A]}),
    "commit": lambda tokens: tokens.commit(P0, OffsetAndMetadata(10, publish=[A])),
    "withdraw": lambda tokens: tokens.withdraw(P0, [A]),
    "discard": lambda tokens: tokens.discard(P0, [A]),
}
NOTHING = TaskTokens({}, ())
NONE = TaskRecord(generation=5, attempt=1)


def at(state: TokenState | None) -> TaskTokens:
    left = TaskRecord(generation=5, attempt=2, prepared=(note(P0, A),))
    match state:
        case TokenState.STALE:
            return TaskTokens.taken_over(NONE, {P0: {"a": A}}, ())
        case TokenState.LEFT:
            return TaskTokens.taken_over(left, {}, ())
        case TokenState.PREPARED:
            return NOTHING.prepare({P0: [A]})
        case TokenState.COMMITTED:
            return TaskTokens.taken_over(NONE, {}, [entry(P0, 10, 4, A)])
        case _:
            return NOTHING


LEADS_TO = {
    (None, "prepare"): TokenState.PREPARED,
    (TokenState.PREPARED, "prepare"): TokenState.PREPARED,
    (TokenState.PREPARED, "commit"): TokenState.COMMITTED,
    (TokenState.COMMITTED, "withdraw"): TokenState.PREPARED,
    (TokenState.STALE, "discard"): None,
    (TokenState.LEFT, "discard"): None,
    (TokenState.PREPARED, "discard"): None,
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("state", [None, *TokenState], ids=str)
def test_each_step_leads_to_one_state_or_is_refused(state: TokenState | None, step: str) -> None:
    before = at(state)
    if (state, step) not in LEADS_TO:
        with pytest.raises(ConnectException, match="flights-0: "):
            STEPS[step](before)
        return
    after, expected = STEPS[step](before), LEADS_TO[state, step]
    assert [one for one in TokenState if A in after.of(P0, one)] == ([expected] if expected else [])
    assert [one for one in TokenState if A in before.of(P0, one)] == ([state] if state else []), "a copy"


def test_published_tokens_are_removed() -> None:
    published = at(TokenState.COMMITTED).publish(P0)
    assert published.of(P0, *TokenState) == ()
    for step in ("commit", "withdraw", "discard"):
        with pytest.raises(ConnectException):
            STEPS[step](published)


def test_a_withdrawn_commit_has_no_tokens_to_publish() -> None:
    both = NOTHING.prepare({P0: [A, B]}).commit(P0, OffsetAndMetadata(10, publish=[A, B]))
    after = both.withdraw(P0, [B])
    assert after.of(P0, *TokenState) == after.of(P0, TokenState.PREPARED) == (B,)


def test_a_commit_stores_the_listed_data_of_tokens() -> None:
    sized = Token("a", {"size": 3})
    committed = at(TokenState.PREPARED).commit(P0, OffsetAndMetadata(10, publish=[sized]))
    assert committed.of(P0, TokenState.COMMITTED)[0].data == {"size": 3}


def test_tokens_are_published_in_the_order_of_their_commit() -> None:
    # Regression: the first upload of a group states which rows are visible, but another upload was used as
    # the first.
    tokens = NOTHING.prepare({P0: [A, B, Token("c")]}).commit(P0, OffsetAndMetadata(9, publish=["c", "a"]))

    assert [token.id for token in tokens.of(P0, TokenState.COMMITTED)] == ["c", "a"]
    assert [token.id for token in tokens.of(P0, TokenState.PREPARED)] == ["b"]


def test_a_token_of_another_partition_is_refused() -> None:
    noted = at(TokenState.PREPARED)
    with pytest.raises(
        ConnectException, match="cannot commit token a, which was not prepared by this attempt"
    ):
        noted.commit(P1, OffsetAndMetadata(1, publish=[A]))
    with pytest.raises(ConnectException, match="cannot discard token a"):
        noted.discard(P1, [A])


def test_an_id_is_prepared_by_one_attempt_only() -> None:
    # A frozen predecessor may be about to discard the id.
    for state in (TokenState.STALE, TokenState.LEFT):
        with pytest.raises(ConnectException, match="token a was prepared by an earlier attempt, and another"):
            at(state).prepare({P1: [A]})
    for state in (TokenState.STALE, TokenState.LEFT, TokenState.PREPARED):
        with pytest.raises(ConnectException, match=r"token a was discarded before, .* for example with uuid"):
            at(state).discard(P0, [A]).prepare({P0: [B, A]})
    with pytest.raises(ConnectException, match="token a was prepared for flights-0: use a different token"):
        at(TokenState.PREPARED).prepare({P1: [A]})


def test_discarded_ids_are_remembered_by_later_attempts() -> None:
    gone = at(TokenState.LEFT).discard(P0, [A])
    record = TaskRecord(generation=5, attempt=3, retired=gone.retired())
    for successor in (
        TaskTokens.taken_over(record, {}, ()),
        TaskTokens.taken_over(NONE, {}, (), gone.retired()),
    ):
        assert "was discarded before" in successor.unusable({P0: [A]})[P0]
        assert successor.unusable({P0: [B]}) == {}


def test_the_newest_discarded_ids_are_kept() -> None:
    def rows(partitions: int, ids: int) -> list[RetiredTokens]:
        return [
            RetiredTokens(topic="t", partition=p, ids=tuple(f"{p}-{n}" for n in range(ids)))
            for p in range(partitions)
        ]

    (one,) = retired(rows(1, 100), [RetiredTokens(topic="t", partition=0, ids=("0-40", "new"))])
    assert len(one.ids) == 64
    assert one.ids[-3:] == ("0-99", "0-40", "new")
    many = retired(rows(2_000, 10))
    assert {len(row.ids) for row in many} == {4}
    assert many[7].ids == tuple(f"7-{n}" for n in range(6, 10))
