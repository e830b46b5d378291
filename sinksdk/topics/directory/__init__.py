"""Topics as folders of Parquet files, as ``df.write.partitionBy("topic", "partition").parquet(dir)`` writes.

::

    dir/topic=<topic>/partition=<number>/<any name>.parquet

Folder names
    Hive's: characters that a path cannot hold are written ``%XX``. Topics are text, whatever they look
    like (``007``, ``2024-01-01``). A folder whose topic has a name that Kafka does not allow is skipped
    with a warning.

Columns of the files (others are not read)
    ===============  ====================================================  ==============================
    ``offset``       any integer that fits a long                          required, never null, ascending
    ``key``          binary, or string (taken as UTF-8)                    required
    ``value``        binary, or string (taken as UTF-8)                    required
    ``timestamp``    a timestamp (without a zone it is taken as UTC), or   optional
                     an integer of milliseconds since the epoch
    ``timestampType``  any integer                                         optional
    ``headers``      list<struct<key: string, value: binary>>              optional
    ===============  ====================================================  ==============================

New records
    are added in new files, with offsets above all earlier ones. File names do not determine the order;
    offsets do. A file must appear whole, by being renamed into place: names that begin with ``_`` or
    ``.``, or end with ``.crc``, ``.tmp`` or ``._COPYING_``, are skipped, and so are all others than
    ``*.parquet``. Old files may be removed; the last one of a partition should stay, because it shows
    where the partition ends.

Transactions
    If the directory has a folder ``_transactions``, only files that one of its entries names are visible.
    An entry is a file ``_transactions/<any name>.json`` with paths relative to the directory::

        {"files": ["topic=a/partition=0/x.parquet", "topic=a/partition=1/y.parquet"]}

    written after its files and renamed into place, so that all of them appear at once. To remove old
    files, empty their entry first: put ``{"files": []}`` in its place.

Several writers
    append entries to a log (:class:`~sinksdk.topics.directory.log.TransactionLog`): their names are numbers
    of twenty digits, from 1 on without a gap, and exactly one of the writers that try creates each of them.
    Besides their files they contain the offsets in them (``extents``), their writer (``writer``:
    transactional id, epoch, attempt) and source offsets (``positions``). Readers ignore all of that. Only
    entries up to the number in the name of ``_transactions/_checkpoint-<number>.json`` may be emptied, and
    none may be removed: a writer that was frozen before could use its number again.
"""

from __future__ import annotations

from sinksdk.topics.directory.source import TopicDirectorySource
from sinksdk.topics.directory.writer import write_records, write_transaction

__all__ = ["TopicDirectorySource", "write_records", "write_transaction"]
