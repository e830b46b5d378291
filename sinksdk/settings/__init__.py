"""Configurations as text: references to secrets, verdicts on keys, and the model that parses them."""
