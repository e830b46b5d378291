from __future__ import annotations

import pytest

from sinksdk import OffsetAndMetadata, TopicPartition
from sinksdk.connectors.s3_archiver.archive.header import Archived, FileHeader
from sinksdk.connectors.s3_archiver.archive.layout import FileName, Layout


@pytest.mark.parametrize(
    "layout",
    [Layout(), Layout("a/b"), Layout("t", directory_delim="|", file_delim="_"), Layout("t", offset_width=0)],
)
@pytest.mark.parametrize("topic", ["orders", "007", "2024-01-01", "a.avro", "a+b", "x_y", "partition=1"])
@pytest.mark.parametrize("start", [0, 7, 12_345_678_901])
def test_parse_reverses_file(layout: Layout, topic: str, start: int) -> None:
    for path in ("partition=12", "year=2024/month=03", "a=x+1/b=partition=3"):
        name = FileName(TopicPartition(topic, 12), start, path.replace("/", layout.directory_delim))

        assert layout.parse(layout.file(name)) == name
        for extension in (".json", ".json.gz", ".bin.gz", ".snappy.parquet", ".parquet"):
            other = name._replace(number=3, extension=extension)
            assert layout.parse(layout.file(other)) == other


@pytest.mark.parametrize(
    "key",
    [
        "topics/orders/partition=0/orders+0+5.avro",
        "topics/orders/orders+1+0000000005.avro",
        "topics/orders/partition=0/orders+1+0000000005+0.avro",
        "topics/orders/partition=0/payments+0+0000000005.avro",
        "topics/orders/partition=0/orders+0+0000000005.avro.tmp",
        "topics/_sinksdk/orders.json",
        "elsewhere/orders/partition=0/orders+0+0000000005.avro",
    ],
)
def test_other_keys_are_not_parsed_as_files(key: str) -> None:
    assert Layout().parse(key) is None


def test_files_of_bytes_may_have_a_custom_extension() -> None:
    name = FileName(TopicPartition("orders", 0), 5, "partition=0", extension=".txt.gz")

    assert Layout(bytes_extension=".txt").parse(Layout().file(name)) == name
    assert Layout().parse(Layout().file(name)) is None


def test_markers_are_outside_of_the_topics_folders() -> None:
    assert Layout().marker("orders") == "topics/_sinksdk/orders.json"
    assert not Layout().marker("orders").startswith(Layout().folder("orders"))


def test_header_survives_its_metadata() -> None:
    withdrawn = Archived(3, 300, 412, withdrawn_to=0)
    for before, index in ((Archived(), 0), (withdrawn, 2), (Archived(end=50), 0)):
        header = FileHeader(TopicPartition("orders", 1), 500, "archivé", 7, before, index)

        metadata = {name: value.decode() for name, value in header.to_metadata().items()}

        for again in (FileHeader.of(metadata), FileHeader.of_object(header.to_object_metadata())):
            assert again == header
            assert again.before.withdrawn_to == before.withdrawn_to


def test_the_header_of_another_writers_file_is_refused() -> None:
    with pytest.raises(ValueError, match="not written by this archiver"):
        FileHeader.of({"avro.codec": "null"})


def test_commit_metadata_states_the_archive_up_to_the_commit() -> None:
    archived = Archived().with_group(1, 100, 100).with_group(1, 50, 163)

    assert Archived.of(OffsetAndMetadata(170, archived.to_text())) == Archived(2, 150, 163)


@pytest.mark.parametrize("metadata", ["", "by hand", "[]", '{"files": 1}'])
def test_commit_of_an_operator_begins_a_new_chain(metadata: str) -> None:
    assert Archived.of(OffsetAndMetadata(170, metadata)) == Archived(0, 0, 170)


def test_a_partition_without_a_commit_begins_an_empty_chain() -> None:
    assert Archived.of(None) == Archived(0, 0, None)
