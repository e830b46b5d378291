from __future__ import annotations

import pytest

from sinksdk import ConfigException, OffsetRange, TopicPartition
from sinksdk.runtime.sink_planning import first_positions

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
THERE = {P0: OffsetRange(10, 50), P1: OffsetRange(0, 7)}


def test_earliest_commits_nothing_beforehand() -> None:
    assert first_positions(THERE, "earliest") == {}


def test_latest_begins_at_every_end() -> None:
    assert first_positions(THERE, "latest") == {P0: 50, P1: 7}


def test_a_group_says_where_to_begin_and_reset_rules_for_the_rest() -> None:
    assert first_positions(THERE, "earliest", {P0: 20}) == {P0: 20}
    assert first_positions(THERE, "latest", {P0: 20}) == {P0: 20, P1: 7}


def test_partitions_of_topics_that_are_not_subscribed_are_not_begun() -> None:
    assert first_positions(THERE, "earliest", {TopicPartition("other", 0): 3}) == {}


def test_a_groups_offset_below_the_log_is_kept() -> None:
    # on.data.loss decides about records that the group had not read and the log has lost.
    assert first_positions(THERE, "earliest", {P0: 3}) == {P0: 3}


def test_a_groups_offset_beyond_the_end_is_an_error() -> None:
    # The topic was recreated: any start would be a guess.
    with pytest.raises(ConfigException, match=r"t-1: the consumer group is at offset 8.* ends at 7"):
        first_positions(THERE, "latest", {P1: 8})


def test_none_refuses_to_guess() -> None:
    with pytest.raises(ConfigException, match=r"t-1: nothing is committed.*'none'"):
        first_positions(THERE, "none", {P0: 20})

    assert first_positions(THERE, "none", {P0: 20, P1: 0}) == {P0: 20, P1: 0}
