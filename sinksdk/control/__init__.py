"""What operators ask of connectors and see of them: records in the store that a driver reads and writes."""
