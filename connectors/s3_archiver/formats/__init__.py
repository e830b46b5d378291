"""The bytes of files: Avro, Parquet, JSON lines and bytes; whole records, values, keys or headers."""
