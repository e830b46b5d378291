"""Starts connectors from their configurations, for ``sinksdk.run``, the commands and the server.

::

    run         sinksdk.run and sinksdk.start
    prepare     checks before Spark is started
    startup     retries while Kafka or the store is unavailable
    topics      the Kafka cluster or topic directory
    connectors  a checked connector with its opened source or target
    deployment  store, topics and Spark that the connectors of a process share
    running     a connector in threads of this process
    spark       Spark, started for the first generation
    idle        offsets and deletion of connectors that do not run
    signals     SIGINT, SIGTERM and SIGHUP
    summary     what a connector has committed
"""

from __future__ import annotations
