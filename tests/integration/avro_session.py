"""A program whose session knows Avro.

It runs two connectors: one with a query, one with the documented function. Arguments: a folder with a topic
directory ``topics`` and ``recipe.py``, the jar, and the schema's file.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

import sinksdk

QUERY = """
SELECT * EXCEPT (value, f), concat_ws(' ', f.carrier, f.dep_delay) AS value
FROM (SELECT *, from_avro(substring(value, 6), '{schema}') AS f FROM records)
WHERE f.dep_delay > 60
"""


def main() -> None:
    folder, jar, schema = map(Path, sys.argv[1:])
    session = SparkSession.builder.master("local[2]").config("spark.jars", str(jar)).getOrCreate()
    transforms = {
        "query": {"records.sql": QUERY.format(schema=schema.read_text())},
        "function": {"records.transform": "recipe:departures"},
    }
    for name, transform in transforms.items():
        (folder / name).mkdir()
        sinksdk.run(
            {
                "name": name,
                "connector.class": "tests.integration.row_sink:RowSink",
                "topics": "flights",
                "tasks.max": 2,
                "out.folder": folder / name,
                **transform,
            },
            source=folder / "topics",
            store=f"sqlite:///{folder}/store.sqlite",
            spark=session,
            until_caught_up=True,
        )


if __name__ == "__main__":
    main()
