"""Typed values: keys and values as Arrow columns of any type, and their conversions.

This package does not know topics and records: see :mod:`sinksdk.engine.converters`.
"""
