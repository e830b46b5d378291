"""Writes DataFrames with any sink: ``df.write`` and ``df.writeStream`` with ``format("sinksdk")``."""
