"""Reads archived files back, to verify an archive and to find where it ends."""
