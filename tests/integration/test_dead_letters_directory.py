from __future__ import annotations

from pathlib import Path

import pytest

from sinksdk.records import SinkRecords
from sinksdk.topics import Subscription, TopicDirectorySource
from tests.integration.refusing_site import RECORDS, Site, context
from tests.kafka.topics import Read

pytestmark = [pytest.mark.extended, pytest.mark.spark, pytest.mark.slow]


def value(offset: int) -> bytes:
    return (
        b"no JSON" if offset % 10 == 3 else b'{"refuse":  %s}' % (b"true" if offset % 25 == 0 else b"false")
    )


BAD = [offset for offset in range(RECORDS) if offset % 10 == 3 or offset % 25 == 0]


def letters_of(site: Site) -> list[Read]:
    source = TopicDirectorySource(site.folder / "topics")
    available = source.partitions(Subscription((site.letters,), None))
    columns = ("key", "value", "timestamp", "headers")
    batches = source.reader(available).read(available, columns, {})
    return [
        Read(
            *record.topic_partition,
            record.offset,
            record.timestamp or 0,
            record.key,
            record.value,
            [(header.key, header.value) for header in record.headers],
        )
        for batch in batches
        if isinstance(batch, SinkRecords)
        for record in batch
    ]


def test_a_killed_worker_loses_no_dead_letter(tmp_path: Path) -> None:
    site = Site(tmp_path, "")
    site.write(value)
    config = {"die.at": "1501", "offset.flush.interval.ms": "1", "max.poll.records": "100"}
    code, said = site.run(["--topic-directory", "topics"], **config)
    assert code == 0, said
    assert (site.out / "died").exists()
    assert site.committed() == {0: RECORDS}
    assert set(site.delivered(0)) == set(range(RECORDS)) - set(BAD)
    letters = letters_of(site)
    assert sorted({int(context(letter)["offset"] or b"") for letter in letters}) == BAD
    for letter in letters:
        offset = int(context(letter)["offset"] or b"")
        assert (letter.key, letter.value) == (b"k%d" % offset, value(offset))
        assert context(letter)["topic"] == site.topic.encode()
        assert context(letter)["stage"] == (b"VALUE_CONVERTER" if offset % 10 == 3 else b"TASK_PUT")
