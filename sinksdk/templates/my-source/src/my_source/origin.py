"""Where the records come from: the files of a folder, which only grow.

Put your origin in the place of these. It has parts (files, tables, shards), and in each
a position: reading from a position gives the same records again, in the same order.
"""

import os
from itertools import islice
from pathlib import Path

from sinksdk import ConnectException

START = 0


def parts(folder: Path) -> list[str]:
    """What there is to read now."""
    return sorted(path.name for path in folder.glob("*.jsonl"))


def read(folder: Path, part: str, position: int, most: int) -> list[tuple[bytes, int]]:
    """The next records of a part, each with the position behind it."""
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
                break  # its end is not written yet
            position += len(line)
            found.append((line.removesuffix(b"\n"), position))
    return found
