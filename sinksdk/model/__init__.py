"""The shapes of a generation: the plan of a range, what came of it, what operators see, and measures."""
