"""Kafka: where records come from, and where those that cannot be delivered go."""
