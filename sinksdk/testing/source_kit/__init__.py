"""The implementation of :func:`sinksdk.testing.check_source`."""
