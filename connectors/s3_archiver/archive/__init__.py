"""Keys of the archive's objects, and the metadata of its files and commits."""
