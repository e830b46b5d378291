"""Configurations as anybody may see them: without secrets."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

HIDDEN: Final = "********"
"""What stands for a secret."""

_NAMES: Final = re.compile(
    r"password|passphrase|secret|token|credential|private|jaas|user\.?info|api\.?key", re.IGNORECASE
)
_HARMLESS: Final = re.compile(r"provider|\.class$|source$", re.IGNORECASE)  # names of classes, not secrets
_REFERENCE: Final = re.compile(r"\$\{[^}]*\}")


def redacted(config: Mapping[str, str], secrets: Collection[str] = ()) -> dict[str, str]:
    """A configuration whose secrets are hidden. References to secrets stay: they tell nothing.

    Args:
        config: as written.
        secrets: keys that are secret whatever their names; those whose names say so are hidden in any case.
    """
    return {
        key: HIDDEN if (key in secrets or _sounds_secret(key)) and not _REFERENCE.fullmatch(value) else value
        for key, value in config.items()
    }


def _sounds_secret(key: str) -> bool:
    return bool(_NAMES.search(key)) and not _HARMLESS.search(key)
