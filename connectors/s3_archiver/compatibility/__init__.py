"""Configurations of other S3 sinks: what their keys mean here, and their conversion."""
