"""One attempt of a task, on an executor. Imports no PySpark."""
