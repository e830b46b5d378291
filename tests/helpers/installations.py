"""Installations that pages name, and the tests that run each page's feature in its installation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
RUN_BY: Final = ROOT / "tests/integration/test_installations.py"


class Installation(NamedTuple):
    # ``extras`` are separated by commas; ``others`` are further packages that the pages tell to install.
    pages: tuple[str, ...]
    extras: str
    tests: tuple[str, ...]
    others: tuple[str, ...] = ()


INSTALLATIONS: Final = (
    Installation(
        ("README.md", "docs/install.md", "docs/kafka.md", "docs/spark-clusters.md"),
        "kafka,s3,spark,cli",
        ("test_kafka_topics_are_archived_and_verified", "test_transforms_change_the_archived_records"),
    ),
    Installation(
        (
            "docs/decisions/0026-tasks-read-their-records-themselves.md",
            "sinksdk/templates/my-sink/README.md",
            "sinksdk/templates/my-source/README.md",
        ),
        "kafka,spark,cli",
        ("test_a_new_source_and_a_new_sink_run_on_kafka",),
    ),
    Installation(
        ("docs/server.md",), "server,cli,spark,s3", ("test_the_server_archives_and_exports_metrics",)
    ),
    Installation(("docs/write-a-dataframe.md",), "spark", ("test_dataframes_are_written",)),
    Installation(
        ("docs/write-a-dataframe.md",),
        "spark",
        ("test_dataframes_of_spark_connect_are_written",),
        others=("pyspark[connect]",),
    ),
    Installation(
        ("docs/write-a-database-sink.md",), "postgres", ("test_a_database_sink_writes_to_postgresql",)
    ),
    Installation(("docs/stores.md",), "postgres", ("test_a_store_in_postgresql_keeps_a_commit",)),
    Installation(("docs/stores.md",), "s3", ("test_a_store_on_s3_keeps_a_commit",)),
    Installation(
        ("docs/errors-and-dead-letters.md",), "kafka", ("test_avro_values_of_a_registry_are_converted",)
    ),
    Installation(
        ("docs/kafka.md", "docs/missing-topics.md"), "kafka", ("test_executors_read_kafka_and_its_topic_ids",)
    ),
    Installation(
        ("docs/test-your-connector.md",),
        "testing",
        ("test_the_test_kit_finds_a_bug_and_passes_the_corrected_sink",),
        others=("pytest",),
    ),
    Installation(("docs/write-a-connector.md",), "cli", ("test_the_command_line_creates_a_package",)),
)

# Pages name these packages, but no test installs them.
NOT_RUN: Final = {
    ("docs/kafka.md", "confluent-kafka"): "needs a librdkafka with Kerberos from the system's packages",
}


def extras_named(text: str) -> set[frozenset[str]]:
    return {frozenset(found.split(",")) for found in re.findall(r"\bsinksdk\[([a-z\d,-]+)\]", text)}


def others_named(text: str) -> set[str]:
    commands: list[str] = re.findall(r"\bpip install ([^`\n]+)", text)
    words = {word.strip("'\"") for command in commands for word in command.split(" ")}
    is_package = re.compile(r"[a-z][\w-]*(\[[\w,-]+\])?")
    return {word for word in words if is_package.fullmatch(word) and not word.startswith("sinksdk")}
