"""Which of the offsets that ``pre_commit`` returned may be committed."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any

from sinksdk.records import OffsetAndMetadata, TopicPartition

log = logging.getLogger(__name__)


def committable(
    returned: Any,
    *,
    offered: Mapping[TopicPartition, OffsetAndMetadata],
    floor: Mapping[TopicPartition, int],
    prepared: Mapping[TopicPartition, Collection[str]],
    label: str,
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Keep what is sound, ignore the rest with a warning that says what is wrong with it.

    Args:
        returned: what the author's ``pre_commit`` returned, whatever it is.
        offered: what it was given: the most that may be committed, per partition of this commit.
        floor: what is committed already (or where the range starts): the least.
        prepared: ids of tokens noted and not committed.
        label: connector, task and generation, for the warning.
    """
    if not isinstance(returned, Mapping):
        log.warning(
            "%s: pre_commit returned %r, not a mapping of offsets; nothing is committed for %s "
            "(return {} when there is nothing to commit)",
            label,
            returned,
            ", ".join(map(str, offered)),
        )
        return {}
    sound = {}
    for partition, offset in returned.items():
        flaw = _flaw(partition, offset, offered, floor, prepared)
        if flaw is None:
            sound[partition] = offset
        else:
            log.warning(
                "%s: pre_commit returned %s for %s, %s; ignored, the partition keeps its commit at %s",
                label,
                getattr(offset, "offset", offset),
                partition,
                flaw,
                floor.get(partition, "another task"),
            )
    return sound


def _flaw(
    partition: TopicPartition,
    offset: Any,
    offered: Mapping[TopicPartition, OffsetAndMetadata],
    floor: Mapping[TopicPartition, int],
    prepared: Mapping[TopicPartition, Collection[str]],
) -> str | None:
    if partition not in offered:
        return "which is not part of this commit"
    if not isinstance(offset, OffsetAndMetadata):
        return f"which is a {type(offset).__name__}, not an OffsetAndMetadata"
    if offset.offset > offered[partition].offset:
        return f"beyond the last delivered record (next offset {offered[partition].offset})"
    if offset.offset < floor[partition]:
        return "below what is committed: offsets never go back"
    unknown = [token.id for token in offset.tokens if token.id not in prepared[partition]]
    if unknown:
        return f"with tokens that were never noted by context.prepared: {', '.join(unknown)}"
    return None
