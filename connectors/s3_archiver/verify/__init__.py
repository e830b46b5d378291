"""Archived files read back: to verify an archive, and to find where it ends."""
