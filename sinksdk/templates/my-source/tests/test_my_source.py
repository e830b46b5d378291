"""The source is exactly once under crashes, zombies, stops and faults."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple

import pytest
from sinksdk import ConnectException
from sinksdk.testing import FaultPlan, check_source

from my_source import (
    MySourceConfig,
    MySourceConnector,
    MySourceTask,
    origin,
)


class Origin(NamedTuple):
    """A folder, and the injected faults of its reads."""

    folder: Path
    faults: FaultPlan


class Task(MySourceTask):
    """A task whose reads fail as planned."""

    def __init__(self, origin: Origin) -> None:
        super().__init__()
        self.faults = origin.faults

    def read(self, part: str, position: int, most: int) -> list[tuple[bytes, int]]:
        read = super().read
        return self.faults.run("origin", lambda: read(part, position, most))


def new_folder(faults: FaultPlan) -> Origin:
    folder = Path(mkdtemp())
    (folder / "a.jsonl").write_text("a-1\na-2\na-3\n")
    (folder / "b.jsonl").write_text("b-1\nb-")
    return Origin(folder, faults)


def append(to: Origin) -> None:
    with (to.folder / "b.jsonl").open("a") as file:
        file.write("2\n")


def add(to: Origin) -> None:
    (to.folder / "c.jsonl").write_text("c-1\nc-2\n")


def expected(of: Origin) -> Iterator[bytes]:
    """The records that the topic must hold in the end."""
    for path in sorted(of.folder.glob("*.jsonl")):
        yield from path.read_bytes().splitlines()


def configs(
    of: Origin,
    tasks: int,
) -> list[MySourceConfig]:
    keys = {"name": "test", "topic": "lines", "folder": str(of.folder)}
    # A minute, so that a stop that does not end the pause fails the test.
    keys |= {"poll.interval.ms": "60000", "batch.records": "4"}
    own = MySourceConnector().task_configs(tasks)
    parse = MySourceConfig.parse
    return [parse({**keys, **more}) for more in own]


def test_each_line_is_written_once_while_files_grow() -> None:
    check_source(
        Task,
        expected=expected,
        origin=new_folder,
        task_configs=configs,
        changes=[append, add],
        clean_up=lambda origin: shutil.rmtree(origin.folder),
    )


def test_a_file_that_shrinks_is_an_error(tmp_path: Path) -> None:
    # Reading on in the middle of lines that were read would lose lines.
    (tmp_path / "a.jsonl").write_text("a-1\n")
    with pytest.raises(ConnectException, match="is shorter now"):
        origin.read(tmp_path, "a.jsonl", position=8, most=10)
