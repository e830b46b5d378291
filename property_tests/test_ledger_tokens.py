"""Random use of a task's tokens: each open upload is known to the successor.

Tasks prepare, commit, publish, withdraw and discard tokens, reuse ids of discarded ones, crash, and are taken over by
further attempts and generations. After each step the durable record is merged as a successor would merge it.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sinksdk import ConnectException, OffsetAndMetadata, Token, TopicPartition
from sinksdk.store.ledger import Ledger, merge
from sinksdk.store.records import GenerationPlan, TaskRecord, by_partition, prepared_tokens

PARTITIONS = tuple(TopicPartition("t", partition) for partition in range(2))


def some(tokens: Sequence[Token]) -> st.SearchStrategy[list[Token]]:
    return st.lists(st.sampled_from(tokens), unique_by=lambda token: token.id, min_size=1)


class Recorded(Ledger):
    def __init__(self, record: TaskRecord, plan: GenerationPlan) -> None:
        super().__init__(record, by_partition(plan.stale), retired=plan.retired)
        self.durable = record

    def _save(self, record: TaskRecord) -> None:
        self.durable = TaskRecord.model_validate(record.as_json())


class Tokens(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.plan = GenerationPlan(generation=1, config_version=1, tasks=(), committed=())
        self.ledger = Recorded(TaskRecord(generation=1, attempt=1), self.plan)
        self.open: dict[str, TopicPartition] = {}
        self.visible: set[str] = set()
        self.used: list[str] = []

    @rule(partition=st.sampled_from(PARTITIONS))
    def prepare(self, partition: TopicPartition) -> None:
        token = f"token-{len(self.used)}"
        self.ledger.prepare({partition: [Token(token)]})
        self.open[token] = partition
        self.used.append(token)

    @precondition(lambda self: self.foreign())
    @rule(data=st.data(), partition=st.sampled_from(PARTITIONS))
    def prepare_again(self, data: st.DataObject, partition: TopicPartition) -> None:
        token = data.draw(st.sampled_from(self.foreign()))
        with pytest.raises(ConnectException):
            self.ledger.prepare({partition: [Token(token)]})

    @precondition(lambda self: self.committable())
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        partition = data.draw(st.sampled_from(self.committable()))
        before = self.ledger.committed(partition)
        chosen = data.draw(some(self.own(partition)))
        self.ledger.commit(
            {partition: OffsetAndMetadata((before.offset if before else 0) + 10, publish=chosen)}
        )

    @precondition(lambda self: self.unpublished())
    @rule(data=st.data())
    def publish(self, data: st.DataObject) -> None:
        partition, tokens = data.draw(st.sampled_from(self.unpublished()))
        for token in tokens:
            self.open.pop(token.id, None)
            self.visible.add(token.id)
        self.ledger.mark_published(partition)

    @precondition(lambda self: self.unpublished())
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        partition, tokens = data.draw(st.sampled_from(self.unpublished()))
        left = [token for token in tokens if token.id in self.open]
        self.ledger.withdraw(partition, OffsetAndMetadata(1), left)

    @precondition(lambda self: self.discardable())
    @rule(data=st.data())
    def discard(self, data: st.DataObject) -> None:
        partition = data.draw(st.sampled_from(self.discardable()))
        self._discard(partition, data.draw(some([*self.ledger.stale(partition), *self.own(partition)])))

    def _discard(self, partition: TopicPartition, chosen: Sequence[Token]) -> None:
        assert not {token.id for token in chosen} & self.visible, "what is visible is to be discarded"
        for token in chosen:
            self.open.pop(token.id, None)
        self.ledger.mark_discarded(partition, chosen)

    @precondition(lambda self: self.unpublished() or self.visible)
    @rule(data=st.data(), partition=st.sampled_from(PARTITIONS))
    def discard_what_is_committed(self, data: st.DataObject, partition: TopicPartition) -> None:
        committed = {token.id for _, tokens in self.unpublished() for token in tokens}
        chosen = data.draw(some([Token(token) for token in sorted(committed | self.visible)]))
        with pytest.raises(ConnectException):
            self.ledger.mark_discarded(partition, chosen)

    @rule()
    def flush(self) -> None:
        self.ledger.flush()

    def open_all(self) -> None:
        for partition in PARTITIONS:
            if tokens := self.ledger.stale(partition):
                self._discard(partition, tokens)

    @rule(discards=st.booleans())
    def another_attempt(self, *, discards: bool) -> None:
        record = self.ledger.durable
        self.ledger = Recorded(record.model_copy(update={"attempt": record.attempt + 1}), self.plan)
        if discards:
            self.open_all()

    @rule(discards=st.booleans())
    def another_generation(self, *, discards: bool) -> None:
        merged = merge(self.plan, [self.ledger.durable])
        self.plan = GenerationPlan(
            generation=self.plan.generation + 1,
            config_version=1,
            tasks=(),
            committed=tuple(merged.committed.values()),
            stale=prepared_tokens({p: tokens.values() for p, tokens in merged.stale.items()}),
            retired=merged.retired,
        )
        record = TaskRecord(generation=self.plan.generation, attempt=1, entries=self.plan.committed)
        self.ledger = Recorded(record, self.plan)
        if discards:
            self.open_all()

    def foreign(self) -> list[str]:
        own = {token.id for partition in PARTITIONS for token in self.own(partition)}
        return [token for token in self.used if token not in own and token not in self.visible]

    def own(self, partition: TopicPartition) -> list[Token]:
        return [token for token in self.ledger.prepared(partition) if token.id in self.open]

    def unpublished(self) -> list[tuple[TopicPartition, tuple[Token, ...]]]:
        commits = [(partition, self.ledger.committed(partition)) for partition in PARTITIONS]
        return [(partition, at.tokens) for partition, at in commits if at is not None and at.publish]

    def committable(self) -> list[TopicPartition]:
        waiting = {partition for partition, _ in self.unpublished()}
        return [partition for partition in PARTITIONS if self.own(partition) and partition not in waiting]

    def discardable(self) -> list[TopicPartition]:
        return [p for p in PARTITIONS if self.ledger.stale(p) or self.own(p)]

    @invariant()
    def nothing_open_is_forgotten_and_nothing_committed_discarded(self) -> None:
        committed, stale, _ = merge(self.plan, [self.ledger.durable])
        listed = {token for tokens in stale.values() for token in tokens}
        covered = {token.id for entry in committed.values() for token in entry.publish}
        assert set(self.open) <= listed | covered, "nobody will publish or discard it: a leak"
        assert not listed & (covered | self.visible), "a successor would discard what is committed"
        for token, partition in self.open.items():
            assert token in covered or token in stale.get(partition, {}), "noted of another partition"


Tokens.TestCase.settings = settings(max_examples=300, stateful_step_count=50, deadline=None)
TestTokens = Tokens.TestCase
