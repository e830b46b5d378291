"""Store URLs: references in them, those of databases, and ``s3://bucket/prefix?option=value&…``."""

from __future__ import annotations

import difflib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import quote, unquote, urlsplit

from sinksdk.errors import ConfigException
from sinksdk.settings.references import references, resolve_references

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

SQLITE: Final = "sqlite"
_DRIVERS: Final = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}
S3_SCHEME: Final = "s3://"
_MASK: Final = "***"
_OPTIONS: Final = ("endpoint", "region", "path_style", "access_key_id", "secret_access_key", "session_token")


class _Aside:
    """A URL with numbers in place of references, so that it can be parsed."""

    def __init__(self, text: str) -> None:
        self._values: dict[str, str] = {}
        for reference in references(text):
            # A password may contain any character, so each reference gets a number instead.
            number = str(uuid.uuid4().int)
            self._values[number] = resolve_references(reference)
            text = text.replace(reference, number, 1)
        self.text = text

    def back(self, part: str) -> str:
        for number, value in self._values.items():
            part = part.replace(number, value)
        return part


def parse_address(text: str) -> S3Address | URL:
    """Parse a store's URL. Raises ConfigException, also for references that cannot be resolved."""
    url = resolve_references(text) if text.startswith("${") else text
    if "://" not in url:
        raise ConfigException(f"'{text}' is not the URL of a store; give one such as sqlite:///FILE")
    return S3Address.parse(url) if url.startswith(S3_SCHEME) else _sql_address(url)


def absolute_store_url(text: str) -> str:
    address = parse_address(text)
    if isinstance(address, S3Address) or address.get_backend_name() != SQLITE:
        return text
    path = Path(str(address.database))
    if not path.parent.is_dir():
        raise ConfigException(f"cannot create the store {text}: the folder {path.parent} does not exist")
    return address.render_as_string(hide_password=False)


@dataclass(frozen=True, slots=True, repr=False)
class S3Address:
    """A store's URL in its parts, references resolved; boto3 chooses empty regions and credentials."""

    bucket: str
    prefix: str = ""
    endpoint: str = ""
    region: str = ""
    is_path_style: bool = False
    access_key_id: str = ""
    secret_access_key: str = ""
    session_token: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a URL; all parts but values of references may be percent-encoded."""
        aside = _Aside(text)
        path, _, query = aside.text.partition("?")
        bucket, _, prefix = path.removeprefix(S3_SCHEME).partition("/")
        bucket, prefix = aside.back(unquote(bucket)), aside.back(unquote(prefix))
        if not bucket:
            raise ConfigException("a store on S3 must name its bucket: s3://BUCKET/PREFIX")
        # A plus sign does not stand for a blank, because many secrets contain one.
        options = {name: aside.back(unquote(value)) for name, value in _options(query)}
        if bool(options.get("access_key_id")) != bool(options.get("secret_access_key")):
            raise ConfigException(
                "a store on S3 needs both 'access_key_id' and 'secret_access_key', or neither"
            )
        endpoint = options.get("endpoint", "")
        if endpoint and urlsplit(endpoint).scheme not in {"http", "https"}:
            raise ConfigException(
                f"the endpoint {endpoint!r} of a store on S3 must begin with http:// or https://"
            )
        path_style = options.pop("path_style", "true" if endpoint else "false")
        if path_style.lower() not in ("true", "false"):
            raise ConfigException(
                f"option 'path_style' of a store on S3 must be true or false, not {path_style!r}"
            )
        return cls(
            bucket=bucket,
            prefix=prefix.strip("/"),
            is_path_style=path_style.lower() == "true",
            **options,
        )

    def __str__(self) -> str:
        is_usual = self.is_path_style == bool(self.endpoint)
        given = {
            "endpoint": self.endpoint,
            "region": self.region,
            "path_style": "" if is_usual else str(self.is_path_style).lower(),
            "access_key_id": self.access_key_id,
            "secret_access_key": _MASK if self.secret_access_key else "",
            "session_token": _MASK if self.session_token else "",
        }
        query = "&".join(f"{name}={quote(value, safe='/:*')}" for name, value in given.items() if value)
        path = f"{S3_SCHEME}{self.bucket}" + (f"/{quote(self.prefix)}" if self.prefix else "")
        return f"{path}?{query}" if query else path

    __repr__ = __str__


def _options(query: str) -> Iterator[tuple[str, str]]:
    for pair in filter(None, query.split("&")):
        name, _, value = pair.partition("=")
        if name not in _OPTIONS:
            nearest = difflib.get_close_matches(name, _OPTIONS, n=1)
            hint = f"; did you mean '{nearest[0]}'?" if nearest else f"; there are {', '.join(_OPTIONS)}"
            raise ConfigException(f"a store on S3 has no option '{name}'{hint}")
        yield name, value


def _sql_address(text: str) -> URL:
    from sqlalchemy.engine import make_url  # noqa: PLC0415 - workers with a store on S3 do not load it
    from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415 - as above

    aside = _Aside(text)
    try:
        url = _back(make_url(aside.text), aside)
    except (SQLAlchemyError, ValueError):
        # The message contains neither the URL nor the parser's text, because both may hold a password.
        raise ConfigException("the store's URL cannot be parsed; give one such as sqlite:///FILE") from None
    if url.get_backend_name() not in _DRIVERS:
        raise ConfigException(
            f"store {url.render_as_string()} cannot be opened: a store is sqlite:///FILE, "
            f"postgresql://USER@HOST/DATABASE or s3://BUCKET/PREFIX"
        )
    url = url.set(drivername=_DRIVERS.get(url.drivername, url.drivername))
    return _absolute(url) if url.get_backend_name() == SQLITE else url


def _absolute(url: URL) -> URL:
    if not url.database or url.database == ":memory:":
        raise ConfigException(
            f"store {url}: a database in memory ends with its process; use a file, sqlite:///FILE"
        )
    # Other processes have other working directories.
    return url.set(database=str(Path(url.database).absolute()))


def _back(url: URL, aside: _Aside) -> URL:
    return url.set(
        username=None if url.username is None else aside.back(url.username),
        password=None if url.password is None else aside.back(str(url.password)),
        host=None if url.host is None else aside.back(url.host),
        port=None if url.port is None else int(aside.back(str(url.port))),
        database=None if url.database is None else aside.back(url.database),
        query={
            name: aside.back(value) if isinstance(value, str) else tuple(map(aside.back, value))
            for name, value in url.query.items()
        },
    )
