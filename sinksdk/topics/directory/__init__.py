"""Topics as folders of Parquet files, as ``df.write.partitionBy("topic", "partition").parquet(dir)`` writes.

::

    dir/topic=<topic>/partition=<number>/<any name>.parquet

Folder names
    Characters that a path cannot hold are written ``%XX``, as Hive does. Topics are always text (``007``).

Columns of the files (others are not read)
    ``offset`` (an integer that fits a long, never null, ascending), ``key`` and ``value`` (binary, or string
    in UTF-8) are required. Optional: ``timestamp`` (a timestamp, or an integer of milliseconds since the
    epoch), ``timestampType`` (any integer), ``headers`` (list<struct<key: string, value: binary>>).

New records
    New files have offsets above all earlier ones; file names do not determine the order. A writer must rename
    a file into place. Readers skip names that begin with ``_`` or ``.``, or end with ``.crc``, ``.tmp`` or
    ``._COPYING_``. Old files may be removed; the last one shows where the partition ends.

Transactions
    If the directory has a folder ``_transactions``, only files that one of its entries names are visible. An
    entry is a file ``<any name>.json``, renamed into place after its files::

        {"files": ["topic=a/partition=0/x.parquet", "topic=a/partition=1/y.parquet"]}

    To remove old files, replace their entry by ``{"files": []}`` first.

Several writers
    Entries of several writers are a log (:class:`~sinksdk.topics.directory.log.TransactionLog`), named by
    numbers of twenty digits without a gap. Only entries up to the number in the name of
    ``_transactions/_checkpoint-<number>.json`` may be emptied, and none may be removed: a writer that was
    frozen before could use its number again.
"""

from __future__ import annotations

from sinksdk.topics.directory.source import TopicDirectorySource
from sinksdk.topics.directory.writer import write_records, write_transaction

__all__ = ["TopicDirectorySource", "write_records", "write_transaction"]
