"""Configurations as anybody may see them: without secrets."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Final

from sinksdk.control.checks import load_class
from sinksdk.errors import ConfigException
from sinksdk.support.confidential import HIDDEN, sounds_secret, without_passwords_in_urls

_REFERENCE: Final = re.compile(r"\$\{[^}]*\}")


def redacted(config: Mapping[str, str]) -> dict[str, str]:
    """A configuration whose secrets are hidden. References to secrets stay: they tell nothing.

    A key is secret if its name says so, or if its connector declares it so (a field of type ``SecretStr``).

    Args:
        config: as written.
    """
    secret = _declared_secret(config.get("connector.class", ""))
    return {
        key: _shown(value, is_secret=key in secret or sounds_secret(key)) for key, value in config.items()
    }


def with_secrets(config: Mapping[str, str], before: Mapping[str, str]) -> dict[str, str]:
    """What is meant by a configuration that was read redacted, changed, and sent back.

    Args:
        config: as it came; a value that is as it was shown stands for the one there was.
        before: as it was.
    """
    shown = redacted(before)
    return {key: before[key] if shown.get(key) == value else value for key, value in config.items()}


def still_hidden(config: Mapping[str, str]) -> list[str]:
    """A sentence for each value that nobody knows: it was read redacted, and there is none to keep."""
    return [
        f"'{key}' is hidden, and there is no value of it to keep: write it"
        for key, value in config.items()
        if HIDDEN in value
    ]


def _shown(value: str, *, is_secret: bool) -> str:
    if is_secret and not _REFERENCE.fullmatch(value):
        return HIDDEN
    return without_passwords_in_urls(value)


def _declared_secret(connector_class: str) -> frozenset[str]:
    try:
        return _secret_keys(connector_class)
    except ConfigException:
        return frozenset()  # it is not installed here: the names of its keys must do


@functools.lru_cache(maxsize=256)
def _secret_keys(connector_class: str) -> frozenset[str]:
    return load_class(connector_class).config_class.secret_keys()
