"""Detects secrets by the names of their keys, and removes them from texts by their values."""

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
_NAMES: Final = re.compile(
    r"password|passphrase|secret|token|credential|private|jaas|user\.?info|api[._-]?key|authorization",
    re.IGNORECASE,
)
_HARMLESS: Final = re.compile(r"\.class$|source$", re.IGNORECASE)  # names of classes, not secrets
_PROVIDER: Final = re.compile(r"\w*[._]?providers?", re.IGNORECASE)  # credentials.provider, config.providers
_STEP: Final = re.compile(r"^(transforms|predicates|config\.providers)\.[^.]+\.")
_IN_URL: Final = re.compile(r"(?<=://)(?P<user>[^\s:/@]*):(?P<password>[^\s/]+)(?=@)")  # up to the last @
_SHORTEST: Final = 8  # shorter values may be common words


def sounds_secret(key: str) -> bool:
    # A transform's or a provider's name is no secret, but a key after it may be:
    # credentials.provider.secret.key.
    key = _PROVIDER.sub("", _STEP.sub("", key))
    return bool(_NAMES.search(key)) and not _HARMLESS.search(key)


def without_passwords_in_urls(text: str) -> str:
    return _IN_URL.sub(rf"\g<user>:{HIDDEN}", text)


def passwords_in(text: str) -> list[str]:
    found = [match.group("password") for match in _IN_URL.finditer(text)]
    found += [password.partition("@")[0] for password in found]  # a URL may have several hosts
    if "LoginModule" in text:
        found += [value for option, value in jaas_options(text) if option == "password"]
    return [password for password in found if "${" not in password]


class Secrets:
    def __init__(self) -> None:
        self._instead: dict[str, str] = {}
        self._longest_first: tuple[tuple[str, str], ...] = ()
        self._lock = threading.Lock()

    def add(self, values: Mapping[str, str]) -> None:
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
        for value, instead in self._longest_first:
            if value in text:
                text = text.replace(value, instead)
        # UTF-8 cannot encode lone surrogates ("\ud800", from JSON or file names).
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


_STANDARD_FIELDS: Final = frozenset(logging.makeLogRecord({}).__dict__) - {"exc_text", "stack_info"}
_UNPRINTABLE: Final = "<exception str() failed>"  # Python itself writes this for such an exception
_DEEPEST: Final = 8


@functools.cache  # two threads may call it at the same time, which is harmless
def _hide_in_log_records() -> None:
    # Filters, handlers, formatters and loggers may belong to a program or a connector: only Logger.handle
    # sees each record, with `extra`, before all of them.
    before = logging.Logger.handle

    def handle(self: logging.Logger, record: logging.LogRecord) -> None:
        _hide_in(record)
        before(self, record)

    logging.Logger.handle = handle  # type: ignore[method-assign] # logging has no hook there


def _hide_in(record: logging.LogRecord) -> None:
    with suppress(Exception):  # the handler reports arguments that do not fit the message
        message = record.getMessage()
        if isinstance(record.msg, str) and (hidden := SECRETS.hide(message)) != message:
            record.msg, record.args = hidden, None
    # Some formatters write arguments as fields, and Python prints arguments that do not fit the message.
    record.msg, record.args = _hidden(record.msg), _hidden(record.args)
    for name, value in list(record.__dict__.items()):
        if name not in _STANDARD_FIELDS:
            record.__dict__[name] = _hidden(value)
    if isinstance(record.exc_info, tuple) and (error := record.exc_info[1]) is not None:
        trace = "".join(traceback.format_exception(error)).rstrip("\n")
        if SECRETS.hide(shown := f"{trace}{error!r}") != shown:
            record.exc_text = SECRETS.hide(trace)  # the lines of code in a trace may hold a secret
            record.exc_info = None
            with suppress(Exception):  # an exception group's class may raise anything; exc_text is set
                copy = _Copies().whole(error)
                record.exc_info = (type(copy), copy, copy.__traceback__)


def _hidden(value: Any, depth: int = 0) -> Any:
    """Return the value itself if no text in it contains a secret, else a copy without them."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    try:
        if depth > _DEEPEST:
            pass  # the value is treated as one text, whatever it contains
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
    def __init__(self) -> None:
        self._copies: dict[int, BaseException] = {}
        self._created: list[tuple[BaseException, BaseException]] = []

    def whole(self, error: BaseException) -> BaseException:
        found = self._copy(error)
        for original, copy in self._created:  # _copy appends the causes during the loop
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
        # The copy's class derives from a class of Python: an exception's own constructor may require any
        # arguments.
        base = next(each for each in kind.__mro__ if each.__module__ == "builtins")
        own: dict[str, Any] = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
        if isinstance(error, BaseExceptionGroup):
            members = [self._copy(each) for each in error.exceptions]
            copy: BaseException = type(kind.__name__, (base,), own)(SECRETS.hide(error.message), members)
        else:
            text = _UNPRINTABLE
            with suppress(Exception):  # the error's own __str__ may raise anything
                text = SECRETS.hide(str(error))
            own["__str__"] = lambda _: text
            try:
                copy = type(kind.__name__, (base,), own)(text)
            except TypeError:  # UnicodeDecodeError requires other arguments than a text
                copy = type(kind.__name__, (Exception,), own)(text)
        self._copies[id(error)] = copy
        self._created.append((error, copy))
        return copy


class WithoutSecrets(logging.Formatter):
    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self._formatter = formatter

    def format(self, record: logging.LogRecord) -> str:
        # _hide_in does not hide secrets that became known after the record was created.
        return SECRETS.hide(self._formatter.format(record))
