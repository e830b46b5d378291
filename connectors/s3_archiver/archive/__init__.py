"""Keys of the archive's objects, and what its files and commits say of their records."""
