"""Metrics of connectors: Kafka Connect's under its names, and sinksdk's own."""
