"""Spark itself and the job of one generation: all that knows of Spark."""
