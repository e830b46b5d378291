"""Connect's single message transforms, over batches.

A transform is a function from records to records that were read and converted: it changes keys, values and
headers, or drops records. Each record is judged by itself, so that a batch may be divided anywhere::

    parts       the seam: keys and values as Python objects or as Arrow structures, whichever they are
    base        what transforms and predicates are, and what those of one field have in common
    fields  nested  cast  timestamps  headers       Kafka's own
    predicates  Kafka's own
    plugins     by their names: Kafka's, ours, an author's
    chain       several of them, one after the other
"""
