from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.kafka_connect.kip275.__main__ import Played, table
from benchmarks.kafka_connect.kip275.scene import Life, Loss, lives, losses


def test_a_journal_is_divided_at_each_open(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    journal.write_text("open 0\nopen 1\nput 0 0 10\nput 1 0 5\nput 0 10 20\nopen 0\nput 0 0 20\n")
    assert lives(journal) == {
        0: [Life([(0, 10), (10, 20)]), Life([(0, 20)])],
        1: [Life([(0, 5)])],
    }


def test_a_missing_journal_has_no_processes(tmp_path: Path) -> None:
    assert lives(tmp_path / "journal") == {}


def test_only_delivered_records_count_as_read_again() -> None:
    played = {0: [Life([(0, 70)]), Life([(40, 60), (60, 100)])]}
    assert losses(played, played, {0: 40}) == {0: Loss(delivered=70, committed=40, read_again=30)}


def test_a_commit_at_the_position_causes_no_rereads() -> None:
    played = {0: [Life([(0, 70)]), Life([(70, 100)])]}
    assert losses(played, played, {0: 70}) == {0: Loss(delivered=70, committed=70, read_again=0)}


def test_a_partition_that_was_kept_lost_nothing() -> None:
    seen, played = {0: [Life([(0, 70)])]}, {0: [Life([(0, 70), (70, 100)])]}
    assert losses(played, seen, {0: 0}) == {0: Loss(70, 0, 0, is_kept=True)}


def test_a_second_rebalance_is_another_scene() -> None:
    played = {0: [Life(), Life(), Life()]}
    with pytest.raises(ValueError, match="partition 0 was opened 3 times"):
        losses(played, played, {0: 0})


def test_a_start_away_from_the_commit_is_reported() -> None:
    played = {0: [Life([(0, 70)]), Life([(60, 100)])]}
    with pytest.raises(ValueError, match="committed up to 70 and was read again from 60"):
        losses(played, played, {0: 70})


def test_the_table_has_a_column_per_system() -> None:
    made = table({"a": Played({0: Loss(7, 0, 7)}, 1), "b": Played({0: Loss(7, 0, 0, is_kept=True)}, 2)})
    assert [list(column.cells) for column in made.columns] == [
        ["1", "all", "files at the end"],
        ["7", "", ""],
        ["0", "", ""],
        ["7", "7", "1"],
        ["7", "", ""],
        ["kept open", "", ""],
        ["0", "0", "2"],
    ]
