"""The kit for sources: the implementation of :func:`sinksdk.testing.check_source`."""
