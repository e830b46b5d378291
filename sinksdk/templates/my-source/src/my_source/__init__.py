"""The lines of the files in a folder, exactly once."""

from my_source.connector import (
    MySourceConfig,
    MySourceConnector,
    MySourceTask,
)

__all__ = [
    "MySourceConfig",
    "MySourceConnector",
    "MySourceTask",
]
