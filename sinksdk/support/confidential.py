"""Secrets: found by the names of their keys, and taken out of texts by their values.

Configurations are shown with :data:`HIDDEN` in a secret's place, or with its reference. Messages and stack
traces of other code may quote a value: :class:`Secrets` takes it out.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import quote

HIDDEN: Final = "********"
"""What stands for a secret."""

_NAMES: Final = re.compile(
    r"password|passphrase|secret|token|credential|private|jaas|user\.?info|api[._-]?key|authorization",
    re.IGNORECASE,
)
_HARMLESS: Final = re.compile(r"provider|\.class$|source$", re.IGNORECASE)  # names of classes, not secrets
_STEP: Final = re.compile(r"^(transforms|predicates)\.[^.]+\.")
_IN_URL: Final = re.compile(r"(?<=://)(?P<user>[^\s:/@]*):(?P<password>[^\s/@]+)(?=@)")
_IN_JAAS: Final = re.compile(r"password=[\"']([^\"']+)")
_SHORTEST: Final = 8
"""Characters of a value that is looked for: shorter ones may be common words."""


def sounds_secret(key: str) -> bool:
    """Whether a key's name says that its value is a secret; what a user calls a transform does not."""
    key = _STEP.sub("", key)
    return bool(_NAMES.search(key)) and not _HARMLESS.search(key)


def without_passwords_in_urls(text: str) -> str:
    """``https://user:password@host`` without the password."""
    return _IN_URL.sub(rf"\g<user>:{HIDDEN}", text)


def passwords_in(text: str) -> list[str]:
    """Passwords in URLs, and in JAAS configurations of Kafka's clients."""
    found = [match.group("password") for match in _IN_URL.finditer(text)]
    return [password for password in (*found, *_IN_JAAS.findall(text)) if "${" not in password]


class Secrets:
    """Secret values, each with its replacement. Safe for threads."""

    def __init__(self) -> None:
        self._instead: dict[str, str] = {}
        self._longest_first: tuple[tuple[str, str], ...] = ()
        self._lock = threading.Lock()

    def add(self, values: Mapping[str, str]) -> None:
        """Add values with their replacements; values shorter than eight characters are left out."""
        forms = {
            form: instead
            for value, instead in values.items()
            if len(value) >= _SHORTEST
            for form in _forms(value)
        }
        with self._lock:
            if forms.keys() <= self._instead.keys():
                return
            self._instead = {**forms, **self._instead}
            self._longest_first = tuple(
                sorted(self._instead.items(), key=lambda item: len(item[0]), reverse=True)
            )
        _hide_in_log_records()

    def hide(self, text: str) -> str:
        r"""A text without the values, also where they are quoted as Python, JSON or a URL quotes them.

        Lone surrogates (``"\ud800"``, of JSON or a file's name) are escaped, as UTF-8 cannot hold them.
        """
        for value, instead in self._longest_first:
            if value in text:
                text = text.replace(value, instead)
        return text.encode(errors="backslashreplace").decode()


def _forms(value: str) -> Iterator[str]:
    yield value
    yield repr(value)[1:-1]
    yield json.dumps(value)[1:-1]
    yield quote(value, safe="")


SECRETS: Final = Secrets()
"""Those of the configurations in this process, for engine, status and logs."""


_INSTALLING: Final = threading.Lock()


def _hide_in_log_records() -> None:
    """Create all log records of this process without :data:`SECRETS`, from the first secret on.

    A program that embeds sinksdk has handlers and formatters of its own, and a connector's code logs through
    its own loggers: only the record's factory comes before all of them.
    """
    with _INSTALLING:
        before = logging.getLogRecordFactory()
        if isinstance(before, _Factory):
            return
        logging.setLogRecordFactory(_Factory(before))


class _Factory:
    """Makes log records as another factory does, and replaces secrets in message and stack trace."""

    def __init__(self, before: Callable[..., logging.LogRecord]) -> None:
        self._before = before

    def __call__(self, *arguments: Any, **named: Any) -> logging.LogRecord:
        record = self._before(*arguments, **named)
        with suppress(Exception):  # arguments that do not fit the message are the handler's to report
            message = record.getMessage()
            if (hidden := SECRETS.hide(message)) != message:
                record.msg, record.args = hidden, None
        if record.exc_info and record.exc_info[1] is not None:
            trace = "".join(traceback.format_exception(record.exc_info[1])).rstrip("\n")
            if (hidden := SECRETS.hide(trace)) != trace:
                record.exc_text = hidden  # which formatters take instead of formatting it themselves
        return record


class WithoutSecrets(logging.Formatter):
    """Formats as another formatter does, without :data:`SECRETS`.

    Needed besides :class:`_Factory` where a formatter reads the exception itself.
    """

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self._formatter = formatter

    def format(self, record: logging.LogRecord) -> str:
        """See the class."""
        return SECRETS.hide(self._formatter.format(record))
