"""Where records come from.

``Source`` is what the runtime asks; ``TopicDirectory`` reads Parquet files in folders per topic and
partition and needs nothing but a file system.
"""

from __future__ import annotations

from sinksdk.sources.base import Source, Subscription
from sinksdk.sources.topic_directory import TopicDirectory, write_records, write_transaction

__all__ = ["Source", "Subscription", "TopicDirectory", "write_records", "write_transaction"]
