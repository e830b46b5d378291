"""Where partitions begin of which nothing is committed: Kafka's ``auto.offset.reset``, or a group's offsets.

What is decided at the first start, or at the first one after a reset, is committed at once: a connector that
begins at the end of its topics must find what came meanwhile when it is started again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

from sinksdk.control.consumer_group import OffsetGroup
from sinksdk.errors import ConfigException
from sinksdk.records import OffsetRange, TopicPartition

Reset = Literal["earliest", "latest", "none"]


def final_offsets(group: OffsetGroup, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
    """What a group has committed of these partitions, if nobody can commit more to it.

    Raises:
        ConfigException: somebody still can.
        RetriableException: nobody answers.
    """
    offsets = group.offsets(partitions)
    if group.is_in_use(offsets):
        raise ConfigException(
            f"'offset.source' is 'group', but {group} is in use: does the connector still run in Kafka "
            f"Connect? Records would be read twice: stop it first; nothing was read"
        )
    return offsets


def first_positions(
    available: Mapping[TopicPartition, OffsetRange],
    reset: Reset,
    group: Mapping[TopicPartition, int] | None = None,
) -> dict[TopicPartition, int]:
    """Offsets to begin at; a partition that is not named begins at its first record.

    Args:
        available: what the source holds of partitions without a commit.
        reset: where to begin where ``group`` has nothing.
        group: offsets another consumer has committed.

    Raises:
        ConfigException: a group's offset is beyond what the source holds, or ``reset`` is
            ``none`` and a partition has no offset.
    """
    positions = {p: offset for p, offset in (group or {}).items() if p in available}
    for partition, offset in positions.items():
        end = available[partition].end
        if offset > end:
            raise ConfigException(
                f"{partition}: the consumer group is at offset {offset}, but the source ends at {end}: the "
                f"topic was deleted and created again; reset the group's offset, or take 'offset.source' out"
            )
    unknown = sorted(available.keys() - positions.keys())
    if unknown and reset == "none":
        raise ConfigException(
            f"{', '.join(map(str, unknown))}: nothing is committed, and auto.offset.reset is 'none': set it "
            f"to 'earliest' or 'latest', or give the connector the offsets of a consumer group with "
            f"offset.source=group"
        )
    if reset == "latest":
        positions |= {partition: available[partition].end for partition in unknown}
    return positions
