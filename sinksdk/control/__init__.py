"""Operators' requests and connectors' status: records in the store that drivers read and write."""
