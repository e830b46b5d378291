"""Typed values: keys and values as Arrow columns of any type, and the ways there and back.

::

    plain   Arrow → Python's own types, as iterating over records gives them
    text    Arrow → bytes, text or JSON, for what knows only bytes
    shapes  what JSON may look like, and JSON → Arrow
    ddl  connect  avro      three ways to write a schema, each → a shape; Avro's data → Arrow
    kinds   which moments a column holds

Nothing here knows of topics and records: see :mod:`sinksdk.engine.converters`.
"""
