"""Stand-ins for threads that run in the caller's thread, for simulations."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from sinksdk.control.connector_calls import Call, ThreadExecutor
from sinksdk.control.consumer_group import ConsumerGroupSync, OffsetGroup
from sinksdk.errors import ConnectException
from sinksdk.offsets import TopicPartition
from sinksdk.runtime.environment import Threads

log = logging.getLogger(__name__)


class InlineExecutor(ThreadExecutor):
    def begin(self, call: Call[Any]) -> None:
        call.run()


class InlineSync(ConsumerGroupSync):
    # The next call repeats the failed write.
    def __init__(self, group: OffsetGroup, connector: str) -> None:
        self._group = group
        self._connector = connector
        self._written: dict[TopicPartition, int] = {}

    def follow(self, visible: Mapping[TopicPartition, int]) -> None:
        news = {p: offset for p, offset in visible.items() if self._written.get(p) != offset}
        if not news:
            return
        try:
            self._group.write(news)
        except ConnectException as error:
            log.info("connector %s: %s", self._connector, error)
        else:
            self._written |= news


INLINE = Threads(InlineExecutor, lambda run: run(), InlineSync)
