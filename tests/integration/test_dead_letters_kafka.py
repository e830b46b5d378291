from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.refusing_site import RECORDS, Site, context
from tests.kafka.topics import consume, create_topic

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def value(offset: int) -> bytes:
    return (
        b"no JSON" if offset % 10 == 3 else b'{"refuse":  %s}' % (b"true" if offset % 25 == 0 else b"false")
    )


def is_bad(offset: int) -> bool:
    return offset % 10 == 3 or offset % 25 == 0


@pytest.fixture
def site(tmp_path: Path, bootstrap: str) -> Site:
    return Site(tmp_path, bootstrap)


def test_bad_records_of_a_topic_become_dead_letters(site: Site) -> None:
    # A record is delivered again if the generation could not commit what it had delivered.
    site.produce(value)
    code, said = site.run(["--bootstrap-servers", site.bootstrap])
    assert code == 0, said
    assert site.committed() == {0: RECORDS, 1: RECORDS}
    letters = consume(site.bootstrap, site.letters)
    # The broker of a busy machine may take more than ten seconds to confirm a topic's id, without which no task commits.
    is_once = "left for the next generation" not in said
    for partition in range(2):
        delivered = site.delivered(partition)
        good = [offset for offset in range(RECORDS) if not is_bad(offset)]
        assert (delivered if is_once else sorted(set(delivered))) == good, said
        own = [letter for letter in letters if context(letter)["partition"] == b"%d" % partition]
        offsets = [int(context(letter)["offset"] or b"") for letter in own]
        bad = [offset for offset in range(RECORDS) if is_bad(offset)]
        assert sorted(offsets if is_once else set(offsets)) == bad, said
    for letter in letters:
        offset = int(context(letter)["offset"] or b"")
        assert (letter.key, letter.value) == (b"k%d" % offset, value(offset))
        assert letter.timestamp == 1_600_000_000_000 + offset
        assert list(letter.headers[:2]) == [("h", b"%d" % offset), ("h", None)]
        stage = b"VALUE_CONVERTER" if offset % 10 == 3 else b"TASK_PUT"
        assert context(letter)["stage"] == stage
        assert context(letter)["topic"] == site.topic.encode()


@pytest.mark.extended
def test_bad_records_of_a_topic_directory_are_written_to_the_configured_cluster(site: Site) -> None:
    site.write(value)
    directory = ["--topic-directory", "topics"]
    code, said = site.run(directory, **{"producer.override.bootstrap.servers": site.bootstrap})
    assert code == 0, said
    assert site.committed() == {0: RECORDS}
    letters = consume(site.bootstrap, site.letters)
    assert sorted(letter.value or b"" for letter in letters) == sorted(
        value(offset) for offset in range(RECORDS) if is_bad(offset)
    )


@pytest.mark.extended
def test_dead_letter_refused_by_kafka_prevents_the_commit(site: Site) -> None:
    site.write(value)
    create_topic(site.bootstrap, site.letters, config={"max.message.bytes": "10"})
    override = {"producer.override.bootstrap.servers": site.bootstrap}
    code, said = site.run(["--topic-directory", "topics"], **override)
    assert code == 1, said
    assert "raise max.message.bytes of the topic" in said
    assert site.committed().get(0, 0) == 0
