"""From a configuration to a running connector: what ``sinksdk.run``, the commands and the server go through.

::

    run         sinksdk.run and sinksdk.start
    prepare     all checks before Spark is started
    topics      the source or target of records
    connectors  a checked configuration with its opened source or target
    deployment  store, topics and Spark of all connectors of a process
    running     one connector in threads of this process
    spark       Spark, started when the first generation needs it
    idle        connectors that do not run: their offsets, their deletion
"""

from __future__ import annotations
