"""Any DataFrame written by a sink: ``df.write`` and ``df.writeStream`` with ``format("sinksdk")``.

``protocol`` decides, without I/O; ``batches`` keeps it durable in the store; ``task`` runs the connector's
task on an executor; ``prepare`` checks everything before anything runs; ``writer`` does the tasks' and the
driver's part; ``datasource`` is what PySpark calls.
"""
