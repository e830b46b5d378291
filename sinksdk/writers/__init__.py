"""Where source tasks write to, in transactions: Kafka, a topic directory, or the memory of a test.

Each has a writer (:class:`~sinksdk.engine.writer.TransactionalWriter`) and a reader of the source offsets
that its transactions carried (:class:`~sinksdk.engine.writer.CommittedOffsets`).
"""
