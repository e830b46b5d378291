"""The source survives what happens to sources."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest
from sinksdk import ConnectException
from sinksdk.testing import check_source

from my_source import (
    MySourceConfig,
    MySourceConnector,
    MySourceTask,
    origin,
)


def new_folder(faults: object) -> Path:
    folder = Path(mkdtemp())
    (folder / "a.jsonl").write_text("a-1\na-2\na-3\n")
    (folder / "b.jsonl").write_text("b-1\nb-")
    return folder


def append(folder: Path) -> None:
    with (folder / "b.jsonl").open("a") as file:
        file.write("2\n")


def add(folder: Path) -> None:
    (folder / "c.jsonl").write_text("c-1\nc-2\n")


def expected(folder: Path) -> Iterator[bytes]:
    """What the topic must hold in the end."""
    for path in sorted(folder.glob("*.jsonl")):
        yield from path.read_bytes().splitlines()


def configs(
    folder: Path,
    tasks: int,
) -> list[MySourceConfig]:
    keys = {"name": "test", "topic": "lines", "folder": str(folder)}
    keys |= {"poll.interval.ms": "1", "batch.records": "4"}
    own = MySourceConnector().task_configs(tasks)
    parse = MySourceConfig.parse
    return [parse({**keys, **more}) for more in own]


def test_each_line_is_in_the_topic_once() -> None:
    """Crashes, zombies, stops and other numbers of tasks, while files grow."""
    check_source(
        lambda folder: MySourceTask(),
        expected=expected,
        origin=new_folder,
        task_configs=configs,
        changes=[append, add],
        clean_up=shutil.rmtree,
        cases=100,
    )


def test_a_file_that_shrinks_is_an_error(tmp_path: Path) -> None:
    """Reading on somewhere in the middle of what has been read would lose lines."""
    (tmp_path / "a.jsonl").write_text("a-1\n")
    with pytest.raises(ConnectException, match="is shorter now"):
        origin.read(tmp_path, "a.jsonl", position=8, most=10)
