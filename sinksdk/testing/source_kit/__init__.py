"""The kit for sources: what is behind :func:`sinksdk.testing.check_source`."""
