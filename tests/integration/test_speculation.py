from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.archive_site import Site, ended, site
from tests.integration.slow_archiver import SLOW
from tests.integration.standalone import Standalone

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.nightly]

PARTITIONS, RECORDS, FILE = 2, 60_000, 10_000

SETTINGS = {
    "connector_class": "slow_archiver:SlowOnceArchiver",
    "tasks_max": PARTITIONS,
    "flush_size": FILE,
}
TWICE = """
    -- every second one goes, and the others come twice
    SELECT r.* FROM records AS r LATERAL VIEW explode(sequence(1, 2)) AS copy WHERE offset % 2 = 0
"""

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
    "spark.speculation.multiplier": "1.2",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.efficiency.enabled": "false",
}


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Site]:
    with site(tmp_path) as made:
        shutil.copy(Path(__file__).with_name("slow_archiver.py"), tmp_path)
        made.configure(**SETTINGS)
        made.produce(PARTITIONS, RECORDS)
        yield made


def noted(archive: Site, what: str) -> list[tuple[int, int, str]]:
    lines = (archive.folder / f"{what}.txt").read_text().splitlines()
    return [(int(partition), int(process), detail) for partition, process, detail in map(str.split, lines)]


@pytest.mark.parametrize("query", [None, TWICE], ids=["plain", "with a transform"])
def test_one_of_two_speculative_copies_publishes(
    archive: Site, standalone: Standalone, query: str | None
) -> None:
    # The second copy takes the task over and fences the first.
    if query:
        archive.configure(**SETTINGS, records_sql=query)
    conf = [text for key, value in SPECULATION.items() for text in ("--conf", f"{key}={value}")]

    code, output = ended(archive.start("--until-caught-up", *conf, master=standalone.url))

    assert code == 0, output
    assert "error" not in output.lower(), output
    copies = [(process, pace) for partition, process, pace in noted(archive, "opened") if partition == SLOW]
    assert [pace for _, pace in copies] == ["slow", "fast"]
    (slow, _), (fast, _) = copies
    assert slow != fast
    published = [
        (process, key) for partition, process, key in noted(archive, "published") if partition == SLOW
    ]
    assert len({key for _, key in published}) == len(published) == RECORDS // FILE
    assert published[-1][0] == fast
    assert archive.committed() == dict.fromkeys(range(PARTITIONS), RECORDS)
    if query:
        for rows in archive.archived().values():
            assert [row["offset"] for row in rows] == [offset // 2 * 2 for offset in range(RECORDS)]
    else:
        code, output = archive.verify()
        assert code == 0, output
    assert archive.uploads_with_data() == []
