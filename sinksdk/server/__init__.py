"""Kafka Connect's REST interface on a store of connectors."""
