"""Any DataFrame written by a sink: ``df.write`` and ``df.writeStream`` with ``format("sinksdk")``.

``protocol`` decides, without I/O; ``batches`` keeps it durable in the store; ``task`` runs the connector's
task on an executor; ``writer`` checks the options and does the driver's part; ``datasource`` is what PySpark
calls.
"""
