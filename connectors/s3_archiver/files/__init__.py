"""Open files of topic partitions: which records go to which, when they end, and their uploads."""
