"""Connect's single message transforms, applied to batches.

Each record is judged by itself, so that a batch may be divided anywhere.
"""
