"""Connector classes: found by name or entry point, and their configurations checked."""
