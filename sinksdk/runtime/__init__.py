"""Plans generations, runs them, and fences their predecessors."""
