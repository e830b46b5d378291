"""Simulate a whole cluster in one thread: a seeded scheduler runs drivers and tasks in virtual time.

::

    world  store  threads  cluster                     the scheduler; Spark and the store
    sink_cluster  archive  schedule  mutations         the S3 archiver
    source_cluster  copies  source_schedule  source_mutations    a source
    tables  reader  places  watched  fencing_table     its origin, its reader and its targets
    frames  frame_schedule  frame_mutations            Spark writing DataFrames through a sink
    watermarks  watermark_schedule  watermark_mutations    a sink that keeps its own offsets
    seeds  runs  pins                                  running schedules; a failing seed for each mutation
"""
