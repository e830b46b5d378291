"""What a writer to Kafka refuses before any broker hears of it."""

from __future__ import annotations

import pytest

from sinksdk import ConnectException
from sinksdk.source import SourceRecord
from sinksdk.topics.kafka import KafkaWriter


def test_a_task_must_not_write_among_its_own_offsets() -> None:
    """As in Connect: what it wrote there would be taken for offsets, or waited for while its transaction is open."""
    writer = KafkaWriter({}, "g-files-0", "files", "offsets")
    with pytest.raises(
        ConnectException, match=r"connector files gave a record for topic offsets, in which its own"
    ):
        writer.send(SourceRecord({}, {}, "offsets", b"1"))
