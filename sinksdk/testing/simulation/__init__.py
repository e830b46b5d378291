"""A whole cluster in one thread: drivers and tasks as processes of a seeded scheduler with virtual time."""
