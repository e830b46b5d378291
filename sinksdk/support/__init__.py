"""Helpers for all packages, which import none of them: logs, measures, threads, secrets."""
