"""Validation of offsets and tokens that the author's code returns."""

from __future__ import annotations

import json
import logging
import operator
from collections.abc import Collection, Mapping
from typing import Any, SupportsIndex

from sinksdk.records import OffsetAndMetadata, Token, TopicPartition, as_token

log = logging.getLogger(__name__)


def committable(
    returned: Any,
    *,
    offered: Mapping[TopicPartition, OffsetAndMetadata],
    floor: Mapping[TopicPartition, int],
    prepared: Mapping[TopicPartition, Collection[str]],
    label: str,
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Keep the valid offsets, ignore the others with a warning that says why.

    Args:
        offered: the largest offset that may be committed, per partition of this commit.
        floor: the committed offset (or the start of the range): the smallest that may be committed.
        prepared: ids of tokens prepared and not committed.
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
        flaw = flaw_of(partition, offset, offered, floor, prepared)
        if flaw is None:
            # Numpy's integers and plain tuples are accepted, but the store needs Python's.
            sound[TopicPartition(*partition)] = OffsetAndMetadata(
                operator.index(offset.offset), offset.metadata, offset.tokens
            )
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


def flaw_of(
    partition: TopicPartition,
    offset: Any,
    offered: Mapping[TopicPartition, OffsetAndMetadata],
    floor: Mapping[TopicPartition, int],
    prepared: Mapping[TopicPartition, Collection[str]],
) -> str | None:
    """The flaw of one offset from ``pre_commit``, or None. Arguments as for :func:`committable`."""
    if partition not in offered:
        return "which is not part of this commit"
    nonsense = _nonsense(offset)
    if nonsense:
        return nonsense
    if offset.offset > offered[partition].offset:
        return f"beyond the last delivered record (next offset {offered[partition].offset})"
    if offset.offset < floor[partition]:
        return "below what is committed: offsets never go back"
    unknown = [token.id for token in offset.tokens if token.id not in prepared[partition]]
    if unknown:
        return f"with tokens that were never noted by context.prepared: {', '.join(unknown)}"
    return None


def _nonsense(offset: Any) -> str | None:
    """The flaw in the types of an offset, or None: the author's code may not be type-checked."""
    if not isinstance(offset, OffsetAndMetadata):
        return f"which is of type {type(offset).__name__}, not an OffsetAndMetadata"
    number: Any = offset.offset
    metadata: Any = offset.metadata
    if not isinstance(number, SupportsIndex):
        return "which is not a whole number"
    if not isinstance(metadata, str):
        return f"with metadata {metadata!r}, not a text"
    flaw = token_flaw(offset.publish)
    return f"with tokens that cannot be kept: {flaw}" if flaw else None


def token_flaw(given: Any) -> str | None:
    """The flaw of a value that should be a list of tokens (or their ids), or None.

    The store keeps tokens as JSON. A flaw found here fails one partition; found in the write, it would fail
    the whole attempt.
    """
    if isinstance(given, str) or not isinstance(given, Collection):
        return f"{given!r} is no list of tokens"
    for item in given:
        flaw = _item_flaw(item)
        if flaw:
            return flaw
    return None


def _item_flaw(item: Any) -> str | None:
    if not isinstance(item, str | Token):
        return f"{item!r} is no token"
    token: Any = as_token(item)
    if not isinstance(token.id, str):
        return f"{item!r} has an id that is no text"
    if not isinstance(token.data, Mapping):
        return f"the data of token {token.id} is a {type(token.data).__name__}, not a mapping"
    try:
        json.dumps(dict(token.data))
    except (TypeError, ValueError) as error:
        return f"the data of token {token.id} is no JSON: {error}"
    return None
