from __future__ import annotations

import pytest

from sinksdk import ConfigException, OffsetRange, TopicPartition
from sinksdk.runtime.sink_planning import first_positions

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
THERE = {P0: OffsetRange(10, 50), P1: OffsetRange(0, 7)}


def test_auto_offset_reset_earliest_commits_nothing_beforehand() -> None:
    assert first_positions(THERE, "earliest") == {}


def test_auto_offset_reset_latest_starts_at_the_end_offsets() -> None:
    assert first_positions(THERE, "latest") == {P0: 50, P1: 7}


def test_start_offsets_come_from_the_consumer_group_and_else_from_reset() -> None:
    assert first_positions(THERE, "earliest", {P0: 20}) == {P0: 20}
    assert first_positions(THERE, "latest", {P0: 20}) == {P0: 20, P1: 7}


def test_partitions_of_unsubscribed_topics_get_no_start_offset() -> None:
    assert first_positions(THERE, "earliest", {TopicPartition("other", 0): 3}) == {}


def test_a_groups_offset_below_the_log_is_kept() -> None:
    # on.data.loss also applies to records that the group had not read and that retention has removed.
    assert first_positions(THERE, "earliest", {P0: 3}) == {P0: 3}


def test_a_groups_offset_beyond_the_end_is_an_error() -> None:
    # The topic was recreated, so no start position can be known.
    with pytest.raises(ConfigException, match=r"t-1: the consumer group is at offset 8.* is 7"):
        first_positions(THERE, "latest", {P1: 8})


def test_auto_offset_reset_none_refuses_unknown_start_offsets() -> None:
    with pytest.raises(ConfigException, match=r"t-1: nothing is committed.*'none'"):
        first_positions(THERE, "none", {P0: 20})

    assert first_positions(THERE, "none", {P0: 20, P1: 0}) == {P0: 20, P1: 0}
