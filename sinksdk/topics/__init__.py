"""Topics of Kafka, of a topic directory, and in the memory of a test."""

from __future__ import annotations

from sinksdk.topics.base import Source, Subscription
from sinksdk.topics.directory import TopicDirectorySource, write_records, write_transaction

__all__ = ["Source", "Subscription", "TopicDirectorySource", "write_records", "write_transaction"]
