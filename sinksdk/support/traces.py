"""Stack traces without frames of sinksdk and Spark."""

from __future__ import annotations

import re
import sysconfig
import traceback
from pathlib import Path
from typing import Final

_OWN: Final = Path(__file__).parent.parent
_STANDARD: Final = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
_MACHINERY: Final = re.compile(
    r"[/\\](?:(?:site|dist)-packages|pyspark\.zip|py4j[^/\\]*\.zip)[/\\]"
    r"(?:sinksdk|pyspark|py4j|IPython|ipykernel|pydantic\w*|sqlalchemy|boto\w*)[/\\]"
)
_INSTALLED: Final = re.compile(r"[/\\](?:site|dist)-packages[/\\]")
_FRAME: Final = re.compile(r'^( *)File "(.*?)", line \d+')
_HEADER: Final = "Traceback (most recent call last):"
_BETWEEN: Final = re.compile(
    r"(?<=\n)\n(?:The above exception was the direct cause of|During handling of the above).*\n\n"
)


def short_trace(error: BaseException) -> str:
    shown = traceback.TracebackException.from_exception(error)
    notes = getattr(error, "__notes__", ())
    shown.__notes__ = []
    *causes, last = _BETWEEN.sub("\0", "".join(shown.format())).split("\0")
    kept = [short for cause in causes if _has_frames(short := _without_machinery(cause))]
    kept.append(_without_machinery(last))
    kept += [short for note in notes if _has_frames(short := _without_machinery(note))]
    return "\n".join(kept)


def _has_frames(text: str) -> bool:
    return any(map(_FRAME.match, text.splitlines()))


def _without_machinery(text: str) -> str:
    kept: list[str] = []
    left_out: int | None = None  # indentation of the skipped frame; None: no frame is skipped
    for line in text.splitlines():
        frame = _FRAME.match(line)
        if frame is not None:
            left_out = len(frame[1]) if _is_machinery(frame[2]) else None
        elif left_out is not None and not line.startswith(" " * (left_out + 1)):
            left_out = None
        if left_out is None:
            if kept and kept[-1] == _HEADER and frame is None:
                kept.pop()  # a header whose frames were all skipped
            kept.append(line)
    return "\n".join(kept) + "\n"


def _is_machinery(file: str) -> bool:
    if Path(file).is_relative_to(_OWN) or _MACHINERY.search(file):
        return True
    return file.startswith(_STANDARD) and not _INSTALLED.search(file)
