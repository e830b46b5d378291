"""From a configuration to a running connector."""
