"""Runs the folder sink in this program until it has caught up."""

import sinksdk

CONFIG = {
    "name": "readings-to-folder",
    "connector.class": "examples.folder_sink:FolderSink",
    "topics": "readings",
    "tasks.max": 2,
    "value.converter": "json",
    "flush.size": 2000,
    "folder": "build/lines",
}


def main() -> None:
    summary = sinksdk.run(
        CONFIG, source="build/topics", store="sqlite:///build/commits.sqlite", until_caught_up=True
    )
    for partition, records in summary.partitions.items():
        print(f"{partition}: {records} records")


if __name__ == "__main__":
    main()
