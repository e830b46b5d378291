"""Connector classes: finding them by name or entry point, and checking their configurations."""
