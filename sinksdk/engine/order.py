"""Whether a source keeps the order of its offsets: a commit is one number, which passes over late ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from sinksdk.errors import ConnectException
from sinksdk.records import TopicPartition

_LISTED: Final = 20  # offsets that a message names one by one


class OrderViolation(ConnectException):
    """A source delivers offsets out of order. Trying again is in vain, and what was accepted is in doubt.

    Which of the offsets that are missing so far come later nobody knows, so nothing of this generation
    that is not committed yet may be.
    """


def late_offsets(offsets: npt.NDArray[np.int64], before: int) -> tuple[npt.NDArray[np.int64], str] | None:
    """Offsets of a batch that are not above all before them.

    Args:
        offsets: of the batch.
        before: the highest one of the batches before it, -1 if there was none.

    Returns:
        The late (or repeated) ones, and the first of them in words; None where all ascend.
    """
    if offsets[0] > before and (len(offsets) == 1 or bool((offsets[1:] > offsets[:-1]).all())):
        return None
    highest = np.maximum.accumulate(np.concatenate((np.array([before], np.int64), offsets)))[:-1]
    is_late = offsets <= highest
    first = int(np.argmax(is_late))
    return offsets[is_late], f"offset {offsets[first]} after {highest[first]}"


def order_violation(
    label: str, partition: TopicPartition, what: str, late: Sequence[int], committed: int | None
) -> OrderViolation:
    """What to end a partition with.

    Args:
        label: connector, task and generation.
        partition: whose order is broken.
        what: the first offset that is out of order.
        late: all that are known to be.
        committed: the partition's commit as it stands.
    """
    passed = [offset for offset in late if committed is not None and offset < committed]
    if passed:
        outcome = (
            f"it was committed up to {committed} before that, which passed over {_listed(passed)} unless "
            f"the source had delivered them already: once it is in order, stop the connector and alter its "
            f"offset to {min(passed)}"
        )
    else:
        outcome = (
            f"no commit followed, so nothing is passed over: once the source is in order, restart the "
            f"connector; it reads on from {'where it began' if committed is None else committed}"
        )
    return OrderViolation(
        f"{label}: {partition}: the source delivers {what}; offsets must ascend (late or repeated: "
        f"{_listed(late)}); {outcome}"
    )


def _listed(offsets: Sequence[int]) -> str:
    distinct = sorted(set(offsets))
    shown = ", ".join(map(str, distinct[:_LISTED]))
    return shown if len(distinct) <= _LISTED else f"{shown} … {distinct[-1]}, {len(distinct):,} in all"
