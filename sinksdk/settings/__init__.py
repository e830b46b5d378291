"""Configurations: from text to typed settings, references to secrets, and the classes they name."""
