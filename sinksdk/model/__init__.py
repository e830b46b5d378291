"""Data models of a generation: plans, outcomes, status and measurements."""
