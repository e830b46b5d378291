"""Folders of records: by Kafka partition, by time, by fields of values."""
