"""Checks before a DataFrame is written. Without Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from sinksdk import ConfigException
from sinksdk.frames.prepare import prepare_writer

VALUE = pa.schema({"value": pa.string()})


def options(folder: Path, **more: str) -> dict[str, str]:
    return {
        "connector.class": "examples.exactly_once_folder_sink:ExactlyOnceFolderSink",
        "name": "a",
        "topic": "t",
        "store": f"sqlite:///{folder}/store.sqlite",
        "folder": str(folder / "out"),
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def test_two_connector_names_with_the_same_topic_are_refused(tmp_path: Path) -> None:
    # Records of the two connectors would have the same topic and offsets, and so their files the same names.
    prepare_writer(options(tmp_path), VALUE)
    with pytest.raises(
        ConfigException, match=r"connector a in store .* writes the topic 't' .* another 'topic'"
    ):
        prepare_writer(options(tmp_path, name="b"), VALUE)
    prepare_writer(options(tmp_path, name="b", topic="u"), VALUE)
    with pytest.raises(ConfigException, match=r"connector b in store .* writes the topic 'u'"):
        prepare_writer(options(tmp_path, topic="u"), VALUE)

    prepare_writer(options(tmp_path, topic="v", tasks_max="2"), VALUE)
    prepare_writer(options(tmp_path), VALUE)


def test_columns_with_the_same_name_are_refused(tmp_path: Path) -> None:
    twice = pa.schema([("key", pa.string()), ("value", pa.string()), ("key", pa.string())])
    with pytest.raises(ConfigException, match="several columns are named key: rename or drop"):
        prepare_writer(options(tmp_path), twice)


def test_dead_letters_without_a_cluster_are_refused(tmp_path: Path) -> None:
    wrong = {"errors_tolerance": "all", "errors_deadletterqueue_topic_name": "letters"}
    with pytest.raises(
        ConfigException,
        match=r"a Kafka cluster: set the cluster of this topic with 'producer.override.bootstrap",
    ):
        prepare_writer(options(tmp_path, **wrong), VALUE)
