"""Tests of the example source with the kit, which searches for schedules that a source does not survive."""

import gzip
import shutil
from pathlib import Path
from tempfile import mkdtemp

from examples.file_source import FileConfig, FileSource, FileTask
from sinksdk.testing import check_source


def new_directory(faults: object) -> Path:
    directory = Path(mkdtemp())
    (directory / "a.log").write_text("a-1\na-2\na-3\na-4\n")
    (directory / "b.log").write_text("b-1\nb-2\n")
    return directory


def rotate(directory: Path) -> None:
    (directory / "a.log").rename(directory / "a.log.1")
    (directory / "a.log").write_text("c-1\nc-2\n")


def copy_and_truncate(directory: Path) -> None:
    with (directory / "b.log").open("a") as file:
        file.write("b-3\n")
    shutil.copy(directory / "b.log", directory / "b.log.1")
    (directory / "b.log").write_text("d-1\n")


def pack(directory: Path) -> None:
    (directory / "a.log.1.gz").write_bytes(gzip.compress((directory / "a.log.1").read_bytes()))
    (directory / "a.log.1").unlink()


def configs(directory: Path, tasks: int) -> list[FileConfig]:
    common = {"name": "files", "topic": "lines", "directory": str(directory)}
    quick = {"poll.interval.ms": "1", "batch.records": "2"}
    return [FileConfig.parse({**common, **quick, **keys}) for keys in FileSource().task_configs(tasks)]


def test_the_file_source_is_exactly_once() -> None:
    """Under crashes, zombies, stops and faults, while files are rotated, truncated and compressed."""
    lines = ["a-1", "a-2", "a-3", "a-4", "b-1", "b-2", "b-3", "c-1", "c-2", "d-1"]
    check_source(
        lambda directory: FileTask(),
        expected=[line.encode() for line in lines],
        origin=new_directory,
        task_configs=configs,
        changes=[rotate, copy_and_truncate, pack],
        clean_up=shutil.rmtree,
        cases=100,
    )
