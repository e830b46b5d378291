"""The origin: the files of a folder, which only grow.

Replace them by your origin. It has parts (files, tables, shards) with positions:
reading from a position returns the same records again, in the same order.
"""

import os
from itertools import islice
from pathlib import Path

from sinksdk import ConnectException

START = 0


def parts(folder: Path) -> list[str]:
    """Return the names of the files that exist now."""
    return sorted(path.name for path in folder.glob("*.jsonl"))


def read(folder: Path, part: str, position: int, most: int) -> list[tuple[bytes, int]]:
    """Return the next records of a part, each with the position after it."""
    found = []
    with (folder / part).open("rb") as file:
        if os.fstat(file.fileno()).st_size < position:
            message = (
                f"{folder / part} was read up to byte {position} and is shorter now"
            )
            raise ConnectException(f"{message}: files may only grow; use another name")
        file.seek(position)
        for line in islice(file, most):
            if not line.endswith(b"\n"):
                break  # the line is not complete yet
            position += len(line)
            found.append((line.removesuffix(b"\n"), position))
    return found
