"""A whole cluster in one thread: drivers and tasks as processes of a seeded scheduler with virtual time.

::

    world  store  threads  cluster                     the scheduler, and Spark and the store as it has them
    sink_cluster  archive  schedule  mutations         the S3 archiver in it
    source_cluster  copies  source_schedule  source_mutations    a source in it, with ...
    tables  reader  places  watched  fencing_table     ... what it reads, where it writes, who looks at that
    frames  frame_schedule  frame_mutations            Spark that writes DataFrames through a sink
    seeds  runs  pins                                  many schedules, and those that notice each mutation
"""
