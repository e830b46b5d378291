"""Found by PySpark itself, by the name of this package: ``format("sinksdk")`` for DataFrames."""

from sinksdk.frames.datasource import SinkDataSource as DefaultSource

__all__ = ["DefaultSource"]
