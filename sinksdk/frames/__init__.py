"""Writes DataFrames with any sink: ``df.write`` and ``df.writeStream`` with ``format("sinksdk")``.

``datasource`` implements PySpark's interface; ``prepare`` checks everything before Spark runs; ``writer``
does the tasks' and the driver's part; ``task`` runs the connector's task on an executor; ``protocol`` decides
what is committed, without I/O; ``batches`` stores that.
"""
