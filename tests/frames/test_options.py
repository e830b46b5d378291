from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import Field
from pyspark.sql.datasource import CaseInsensitiveDict

from sinksdk import ConfigException, ConnectorConfig, SinkConnector, SinkRecords, SinkTask
from sinksdk.connectors.s3_archiver.config import S3ArchiverConfig
from sinksdk.frames.prepare import read_options

OPTIONS = {
    "connector.class": "s3-archiver",
    "name": "a",
    "topic": "t",
    "store": "sqlite:////tmp/store.sqlite",
    "s3.bucket.name": "bucket",
    "flush.size": "10",
}


def test_keys_ignore_case_and_sparks_own_options_are_removed() -> None:
    given = {"topics.DIR": "Here", "checkpointlocation": "/c", "queryName": "q", "s3.SSEA.name": "AES256"}
    found = read_options({**OPTIONS, **given})

    assert isinstance(found.config, S3ArchiverConfig)
    assert found.config.topics_dir == "Here"
    assert (found.topic, found.config.topics) == ("t", ("t",))
    assert found.store_url == "sqlite:////tmp/store.sqlite"
    assert set(found.raw) == {*OPTIONS, "topics.dir", "topics", "s3.ssea.name"} - {"store", "topic"}


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"flush.size": "many"}, "'flush.size': input should be a valid integer"),
        (
            {"flush.sise": "1"},
            "option 'flush.sise' is not known to s3-archiver; did you mean 'flush.size'?",
        ),
        ({"records.sql": "SELECT 1"}, "transform the DataFrame before the write"),
        ({"transforms": "a"}, "transform the DataFrame before the write"),
        ({"connector.class": "examples.file_source:FileSource"}, "is a source, but a DataFrame"),
        ({"connector.class": "nobody"}, "no connector is called 'nobody'"),
        ({"store": "here"}, "'here' is not the URL of a store"),
        ({"topic": "../t"}, "option 'topic': '../t' is not a valid topic name"),
        ({"topic": ".."}, "'..' is not a valid topic name"),
        ({"store": "sqlite:////nowhere/at/all"}, "the folder /nowhere/at does not exist"),
    ],
)
def test_invalid_options_are_named(wrong: dict[str, str], says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parent.parent.parent)
    with pytest.raises(ConfigException) as raised:
        read_options({**OPTIONS, **wrong})

    assert says in str(raised.value)


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(ConfigException) as raised:
        read_options({"connector.class": "s3-archiver", "topics": "t", "x": "1"})

    said = str(raised.value)
    assert all(
        word in said for word in ("'store'", "'topic'", "'topics'", "'name'", "'s3.bucket.name'", "'x'")
    )


class Task(SinkTask):
    def put(self, records: SinkRecords) -> None:
        pass


class Mapped(ConnectorConfig):
    limits: dict[str, int] = Field(default={}, alias="the.Limits", description="Numbers by name.")


class Sink(SinkConnector):
    config_class, task_class = Mapped, Task


@pytest.mark.parametrize(
    ("given", "limits"),
    [
        ({"the.limits": '{"Ada": 1, "b.C": 2}'}, {"Ada": 1, "b.C": 2}),
        ({"the.limits": "Ada:1, b.C:2"}, {"Ada": 1, "b.C": 2}),
        ({"the.limits.ada": "1", "the.limits.b.c": "2"}, {"ada": 1, "b.c": 2}),
    ],
)
def test_entries_of_a_map_keep_their_case_in_its_text(given: dict[str, str], limits: dict[str, int]) -> None:
    # A map may be JSON or pairs. As single keys its entries are in lower case, because Spark passes keys in
    # lower case. Regression: entries of a map whose own name has a capital letter were unknown.
    found = read_options({**OPTIONS_OF_MAPPED, **given})
    assert isinstance(found.config, Mapped)
    assert found.config.limits == limits


OPTIONS_OF_MAPPED = {
    "connector.class": f"{__name__}:Sink",
    "name": "a",
    "topic": "t",
    "store": "sqlite:////tmp/store.sqlite",
}


def test_pyspark_passes_option_names_in_lower_case() -> None:
    # If a newer Spark makes this test fail, entries of a map could keep their case as single keys.
    given = CaseInsensitiveDict({"the.Limits.Ada": "1"})
    assert list(given) == ["the.limits.ada"]
