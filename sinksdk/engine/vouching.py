"""Whether what was delivered is what was planned: a topic may have been replaced while it was read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from sinksdk.errors import ConnectException

Vouch = Callable[[Collection[str]], Mapping[str, ConnectException]]
"""Asked about topics after their records were delivered and before anything of them is committed.

Returns those whose records may not be what was planned, each with why: a RetriableException where it cannot
be told now, any other where it is certain that the topic is another one.
"""


def no_doubt(topics: Collection[str]) -> Mapping[str, ConnectException]:  # noqa: ARG001 - asked as every Vouch is
    """For sources whose topics cannot be replaced."""
    return {}
