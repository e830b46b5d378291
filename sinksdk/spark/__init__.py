"""Spark and the job of one generation: the only package that depends on Spark."""
