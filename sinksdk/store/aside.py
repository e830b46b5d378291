"""Keeps what references stand for out of the way while a URL is parsed: a password may hold anything."""

from __future__ import annotations

import uuid

from sinksdk.settings.references import references, resolve_references


class Aside:
    """A text with a number in each reference's place, which any part of a URL may hold.

    Args:
        text: as written. Where it begins with a reference, that is resolved before anything is parsed.

    Raises:
        ConfigException: a reference cannot be resolved.
    """

    def __init__(self, text: str) -> None:
        if text.startswith("${"):
            text = resolve_references(text)
        self._values: dict[str, str] = {}
        for reference in references(text):
            number = str(uuid.uuid4().int)
            self._values[number] = resolve_references(reference)
            text = text.replace(reference, number, 1)
        self.text = text

    def back(self, part: str) -> str:
        """A part of the text with the references' values in their places."""
        for number, value in self._values.items():
            part = part.replace(number, value)
        return part
