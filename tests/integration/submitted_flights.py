"""A program for spark-submit: it runs the connector of a configuration file in the command's Spark.

Arguments: the configuration, the topic directory, the store, and a folder, whose ``inside.json`` gets what
the program sees of Spark. With ``--own-session`` the program creates the session itself, computes with Spark
alone what the query makes of the folder's ``rows``, and runs until it has caught up.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.functions import to_json

import sinksdk


def tell(file: Path) -> None:
    while not file.exists():
        time.sleep(0.05)
        with suppress(AttributeError):  # Spark does not run yet, or is still starting
            spark = SparkContext._active_spark_context
            said = {"master": spark.master, "name": spark.appName, "id": spark.applicationId}
            said["conf"] = dict(spark.getConf().getAll())
            file.with_suffix(".tmp").write_text(json.dumps(said))
            file.with_suffix(".tmp").rename(file)


def compute(config: Path, folder: Path) -> SparkSession:
    session = SparkSession.builder.getOrCreate()
    session.read.parquet(str(folder / "rows")).createOrReplaceTempView("records")
    query = json.loads(config.read_text())["config"]["records.sql"]
    rows = session.sql(query)
    # A sink that takes bytes gets the result of the query as the JSON that Spark itself writes.
    rows.withColumn("value", to_json("value")).write.parquet(str(folder / "expected"))
    session.catalog.dropTempView("records")
    return session


def main() -> None:
    config, source, store, folder, *options = sys.argv[1:]
    threading.Thread(target=tell, args=(Path(folder, "inside.json"),), daemon=True).start()
    session = compute(Path(config), Path(folder)) if options else None
    where = {"source": source, "store": store}
    summary = sinksdk.run(config, **where, until_caught_up=session is not None)
    is_active = SparkContext._active_spark_context is not None
    said: dict[str, object] = {"records": summary.records, "signal": summary.signal, "is_active": is_active}
    if session is not None:
        session.range(7).count()
    else:
        try:
            sinksdk.run(config, **where, master="local[7]")
        except sinksdk.ConfigException as error:
            said["refused"] = str(error)
    print(json.dumps(said))


if __name__ == "__main__":
    main()
