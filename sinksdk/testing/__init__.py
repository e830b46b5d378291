"""What connector authors test with: no Spark, no store, no waiting."""

from sinksdk.testing.clock import ManualClock
from sinksdk.testing.commits import MemoryCommitLog
from sinksdk.testing.harness import Call, SinkTaskHarness

__all__ = ["Call", "ManualClock", "MemoryCommitLog", "SinkTaskHarness"]
