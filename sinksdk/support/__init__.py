"""What every part may use, and imports no part: logs, measures, threads, secrets."""
