"""JSON lines in a folder, exactly once."""

from my_sink.connector import (
    MySinkConfig,
    MySinkConnector,
    MySinkTask,
)

__all__ = [
    "MySinkConfig",
    "MySinkConnector",
    "MySinkTask",
]
