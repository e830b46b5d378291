"""Checks of the names in keys of the archive."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")

# Spark, Athena and pyarrow.dataset skip files whose names begin with these.
_HIDDEN: Final = ("_", ".")


def path_problem(name: str) -> str:
    wrong = [part for part in name.split("/") if part in (".", "..")]
    if wrong:
        return f"'{wrong[0]}' is no folder, and tools that list folders would not find what lies below it"
    return "it has control characters" if _CONTROL.search(name) else ""


def topic_problem(topic: str) -> str:
    if _TOPIC.fullmatch(topic) and topic not in (".", ".."):
        return ""
    return (
        f"'{topic}' cannot be the name of a topic: a name has up to 249 letters, digits, dots, hyphens and "
        f"underscores, and keys of files are made of it"
    )


def hidden_warning(topics: Iterable[str]) -> Iterator[str]:
    hidden = sorted(topic for topic in topics if topic.startswith(_HIDDEN))
    if hidden:
        yield (
            f"files of {', '.join(hidden)} have names that begin with '_' or '.', as the topic's: Spark, "
            f"Athena and pyarrow.dataset skip them without a word (docs/read-an-archive.md says how they are "
            f"read)"
        )
