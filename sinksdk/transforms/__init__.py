"""Connect's single message transforms, applied to batches.

A transform is a function from converted records to records: it changes keys, values and headers, or drops
records. Each record is judged by itself, so that a batch may be divided anywhere::

    parts       keys and values, as Python objects or as Arrow columns
    base        base classes of transforms and predicates
    fields  nested  cast  timestamps  headers       Kafka's transforms
    predicates  Kafka's predicates
    plugins     finds Kafka's and authors' classes by name
    chain       several transforms, applied one after the other
"""
