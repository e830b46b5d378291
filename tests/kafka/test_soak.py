"""A short ``make soak-kafka``, and the faults that a soak detects."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from property_tests.soak_kafka import soak as soaking
from property_tests.soak_kafka.soak import differences, soak
from tests.kafka.topics import Read

THERE = [Read("t", 0, offset, 7, b"k%d" % offset, b"v", ()) for offset in range(3)]


@pytest.mark.nightly
@pytest.mark.spark
def test_soak_archive_equals_a_consumers_records_despite_kills() -> None:
    # Broker, driver and Python worker are killed at least once each.
    happened = soak(20_261_121, 20, print, least=("broker", "driver", "worker"))

    assert happened["records archived"] == happened["records to archive"] > 1_000
    assert happened["transactions committed"]
    assert happened["transactions aborted"]


@dataclass
class Site:
    archive: list[Read]
    verified: tuple[int, str] = (0, "")
    left: list[str] = field(default_factory=list)
    bootstrap: str = ""
    topic: str = "t"

    def archived(self) -> list[Read]:
        return self.archive

    def verify_with_kafka(self) -> tuple[int, str]:
        return self.verified

    def uploads_with_data(self) -> list[str]:
        return self.left


def found(site: Any, confirmed: set[bytes], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(soaking, "consume", lambda _bootstrap, _topic: THERE)
    return list(differences(site, confirmed, Counter()))


@pytest.mark.extended
def test_soak_accepts_a_complete_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(Site(THERE), {b"k1"}, monkeypatch) == []


@pytest.mark.parametrize(
    ("site", "words"),
    [
        (Site(THERE[1:]), "1 records differ"),
        (Site([*THERE, THERE[2]]), "1 records differ"),
        (Site([*THERE[:2], THERE[2]._replace(value=b"other")]), "2 records differ"),
        (Site(THERE, verified=(1, "wrong: t-0")), "verify ended with exit code 1:\nwrong: t-0"),
        (Site(THERE, left=["topics/t/x"]), "uploads are left that hold data: ['topics/t/x']"),
    ],
    ids=["lost", "twice", "changed", "verify", "uploads"],
)
def test_soak_detects_faults(site: Site, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (difference,) = found(site, set(), monkeypatch)

    assert words in difference


def test_soak_distinguishes_a_loss_of_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    (difference,) = found(Site(THERE), {b"k1", b"gone"}, monkeypatch)

    assert "the broker has lost 1 records" in difference
