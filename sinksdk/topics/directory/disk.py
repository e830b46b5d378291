"""File operations of writers: each is durable when it returns, even after a power failure."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


class Disk:
    """A file system. Raises OSError."""

    def make_folder(self, folder: Path) -> None:
        """Create a folder and its parents unless they exist."""
        if folder.is_dir():
            return
        self.make_folder(folder.parent)
        with suppress(FileExistsError):  # created meanwhile
            folder.mkdir()
        _sync(folder.parent)

    def write(self, path: Path, write: Callable[[Path], object]) -> None:
        """Write a file that is not visible to readers yet."""
        write(path)
        _sync(path)
        _sync(path.parent)

    def create(self, path: Path, content: bytes) -> bool:
        """Create a file with its whole content; False if one of its name exists.

        Of any number of writers, on any number of hosts that share the file system, one succeeds.
        """
        temporary = path.with_name(f"_{uuid.uuid4().hex}.tmp")
        try:
            self.write(temporary, lambda new: new.write_bytes(content))
            return self.link(temporary, path)
        finally:
            self.remove(temporary)

    def link(self, existing: Path, name: Path) -> bool:
        """Give a file a second name; False if that is taken."""
        try:
            os.link(existing, name)
        except FileExistsError:
            return False
        _sync(name.parent)
        return True

    def replace(self, path: Path, content: bytes) -> None:
        """Write a file, over another one of its name: readers see the old content or the new."""
        temporary = path.with_name(f"_{uuid.uuid4().hex}.tmp")
        self.write(temporary, lambda new: new.write_bytes(content))
        temporary.replace(path)
        _sync(path.parent)

    def read(self, path: Path) -> bytes | None:
        """None where there is no file."""
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None

    def names(self, folder: Path) -> list[str]:
        """What is in a folder; nothing if it does not exist."""
        try:
            return [path.name for path in folder.iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def remove(self, path: Path) -> None:
        """Remove a file, if it exists."""
        path.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
