"""Secrets: found by the names of their keys, and taken out of texts by their values.

Configurations are shown with :data:`HIDDEN` in a secret's place, or with its reference. Messages and stack
traces of other code may quote a value: :class:`Secrets` takes it out.
"""

from __future__ import annotations

import functools
import json
import logging
import re
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import quote, quote_plus

from sinksdk.support.jaas import jaas_options

HIDDEN: Final = "********"
"""What stands for a secret."""

_NAMES: Final = re.compile(
    r"password|passphrase|secret|token|credential|private|jaas|user\.?info|api[._-]?key|authorization",
    re.IGNORECASE,
)
_HARMLESS: Final = re.compile(r"\.class$|source$", re.IGNORECASE)  # names of classes, not secrets
_PROVIDER: Final = re.compile(r"\w*[._]?providers?", re.IGNORECASE)  # credentials.provider, config.providers
_STEP: Final = re.compile(r"^(transforms|predicates|config\.providers)\.[^.]+\.")
_IN_URL: Final = re.compile(r"(?<=://)(?P<user>[^\s:/@]*):(?P<password>[^\s/]+)(?=@)")  # up to the last @
_SHORTEST: Final = 8
"""Characters of a value that is looked for: shorter ones may be common words."""


def sounds_secret(key: str) -> bool:
    """Whether a key's name says that its value is a secret; what a user calls a transform does not.

    A provider's name is no secret. A key behind it may be: ``credentials.provider.secret.key``.
    """
    key = _PROVIDER.sub("", _STEP.sub("", key))
    return bool(_NAMES.search(key)) and not _HARMLESS.search(key)


def without_passwords_in_urls(text: str) -> str:
    """``https://user:password@host`` without the password."""
    return _IN_URL.sub(rf"\g<user>:{HIDDEN}", text)


def passwords_in(text: str) -> list[str]:
    """Passwords in URLs, and in JAAS configurations of Kafka's clients."""
    found = [match.group("password") for match in _IN_URL.finditer(text)]
    found += [password.partition("@")[0] for password in found]  # several hosts, each with its login
    if "LoginModule" in text:
        found += [value for option, value in jaas_options(text) if option == "password"]
    return [password for password in found if "${" not in password]


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
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    yield quote(value, safe="")
    yield quote(value)
    yield quote_plus(value)


SECRETS: Final = Secrets()
"""Those of the configurations in this process, for engine, status and logs."""


_OF_ALL_RECORDS: Final = frozenset(logging.makeLogRecord({}).__dict__) - {"exc_text", "stack_info"}
_UNPRINTABLE: Final = "<exception str() failed>"  # in Python's words
_DEEPEST: Final = 8
"""Containers in containers that are looked into."""


@functools.cache  # once; twice, if two threads are the first ones, would do no harm
def _hide_in_log_records() -> None:
    """Hide :data:`SECRETS` in all log records of this process, from the first secret on.

    A program that embeds sinksdk has filters, handlers and formatters of its own, maybe a factory of records,
    and a connector's code logs through its own loggers: only ``Logger.handle`` gets each record, with
    ``extra``, before all of them.
    """
    before = logging.Logger.handle

    def handle(self: logging.Logger, record: logging.LogRecord) -> None:
        _hide_in(record)
        before(self, record)

    logging.Logger.handle = handle  # type: ignore[method-assign] # logging has no hook there


def _hide_in(record: logging.LogRecord) -> None:
    """Replace secrets in a record's message, arguments, extra fields and exception."""
    with suppress(Exception):  # arguments that do not fit the message are the handler's to report
        message = record.getMessage()
        if isinstance(record.msg, str) and (hidden := SECRETS.hide(message)) != message:
            record.msg, record.args = hidden, None
    # Some formatters write arguments as fields, and Python prints those that do not fit.
    record.msg, record.args = _hidden(record.msg), _hidden(record.args)
    for name, value in list(record.__dict__.items()):
        if name not in _OF_ALL_RECORDS:
            record.__dict__[name] = _hidden(value)
    if isinstance(record.exc_info, tuple) and (error := record.exc_info[1]) is not None:
        trace = "".join(traceback.format_exception(error)).rstrip("\n")
        if SECRETS.hide(shown := f"{trace}{error!r}") != shown:
            record.exc_text = SECRETS.hide(trace)  # its lines of code may hold a secret, too
            record.exc_info = None
            with suppress(Exception):  # a group's own class may raise anything; the text is there
                copy = _Copies().whole(error)
                record.exc_info = (type(copy), copy, copy.__traceback__)


def _hidden(value: Any, depth: int = 0) -> Any:
    """The same value if no text in it has a secret; else its text, or its items, without."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    try:
        if depth > _DEEPEST:
            pass  # the whole is one text
        elif isinstance(value, (list, tuple, set, frozenset)):
            items = [_hidden(item, depth + 1) for item in value]
            is_same = all(new is old for new, old in zip(items, value, strict=True))
            return value if is_same else tuple(items) if isinstance(value, tuple) else items
        elif isinstance(value, Mapping):
            pairs = [(_hidden(key, depth + 1), _hidden(item, depth + 1)) for key, item in value.items()]
            is_same = all(key in value and value[key] is item for key, item in pairs)
            return value if is_same else dict(pairs)
        text = value if isinstance(value, str) else f"{value} {value!r}"
        return value if SECRETS.hide(text) == text else SECRETS.hide(str(value))
    except Exception:  # noqa: BLE001 - an object's own __str__ may raise anything
        return value


class _Copies:
    """Copies of exceptions for those who format them, with trace, notes, groups and chains of causes.

    Each class has the same name, but is another one, below the same class of Python's own: to create one of a
    connector's may take any arguments.
    """

    def __init__(self) -> None:
        self._copies: dict[int, BaseException] = {}
        self._created: list[tuple[BaseException, BaseException]] = []

    def whole(self, error: BaseException) -> BaseException:
        """Return the copy of an exception, linked to those of its causes."""
        found = self._copy(error)
        for original, copy in self._created:  # which grows meanwhile
            for note in getattr(original, "__notes__", ()):
                copy.add_note(SECRETS.hide(str(note)))
            if original.__cause__ is not None:
                copy.__cause__ = self._copy(original.__cause__)
            if original.__context__ is not None:
                copy.__context__ = self._copy(original.__context__)
            copy.__suppress_context__ = original.__suppress_context__
            copy.__traceback__ = original.__traceback__
        return found

    def _copy(self, error: BaseException) -> BaseException:
        if id(error) in self._copies:
            return self._copies[id(error)]
        kind = type(error)
        base = next(each for each in kind.__mro__ if each.__module__ == "builtins")
        own: dict[str, Any] = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
        if isinstance(error, BaseExceptionGroup):
            members = [self._copy(each) for each in error.exceptions]
            copy: BaseException = type(kind.__name__, (base,), own)(SECRETS.hide(error.message), members)
        else:
            text = _UNPRINTABLE
            with suppress(Exception):  # its own __str__ may raise anything
                text = SECRETS.hide(str(error))
            own["__str__"] = lambda _: text
            try:
                copy = type(kind.__name__, (base,), own)(text)
            except TypeError:  # UnicodeDecodeError has other arguments than a text
                copy = type(kind.__name__, (Exception,), own)(text)
        self._copies[id(error)] = copy
        self._created.append((error, copy))
        return copy


class WithoutSecrets(logging.Formatter):
    """Formats as another formatter does, without :data:`SECRETS`.

    Needed besides :func:`_hide_in` for secrets that are known since the record was created.
    """

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self._formatter = formatter

    def format(self, record: logging.LogRecord) -> str:
        """See the class."""
        return SECRETS.hide(self._formatter.format(record))
