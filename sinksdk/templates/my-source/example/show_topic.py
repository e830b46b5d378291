"""Print the records of a topic directory: `show_topic.py CONFIGURATION DIRECTORY`.

Only files named by an entry in `_transactions` are committed: others belong to open
transactions, or were left by a crash.
"""

import json
import sys
from pathlib import Path

from pyarrow import parquet


def main(configuration: Path, topics: Path) -> None:
    topic = json.loads(configuration.read_text())["config"]["topic"]
    entries = sorted((topics / "_transactions").glob("[0-9]*.json"))
    names = [
        name for entry in entries for name in json.loads(entry.read_text())["files"]
    ]
    for name in names:
        if name.startswith(f"topic={topic}/"):
            table = parquet.read_table(
                topics / name, columns=["offset", "key", "value"], partitioning=None
            )
            print(*table.to_pylist(), sep="\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
