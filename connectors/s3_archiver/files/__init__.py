"""Open files of topic partitions: which records they hold, when they end, and their uploads."""
