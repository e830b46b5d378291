"""Typed values: keys and values as Arrow columns of any type, and their conversions.

::

    plain   Arrow → Python objects, as iterating over records returns them
    text    Arrow → bytes, text or JSON, for tasks that know only bytes
    shapes  descriptions of JSON values, and JSON → Arrow
    ddl  connect  avro      three languages of schemas, each → a shape; Avro data → Arrow
    kinds   predicates on Arrow types

This package does not know topics and records: see :mod:`sinksdk.engine.converters`.
"""
