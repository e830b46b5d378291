"""Which database a store's URL means, references resolved."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import SQLAlchemyError

from sinksdk.errors import ConfigException
from sinksdk.store.aside import Aside

SQLITE: Final = "sqlite"
POSTGRESQL: Final = "postgresql"
_DRIVERS: Final = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}


def sql_address(text: str) -> URL:
    """The database of a URL: of SQLite with an absolute path, of PostgreSQL with the driver psycopg.

    What a reference (``${env:…}``) stands for is taken as it is; what is written out may be
    percent-encoded.

    Raises:
        ConfigException: it is no URL, of another kind of database, or a reference cannot be resolved.
    """
    aside = Aside(text)
    try:
        url = _back(make_url(aside.text), aside)
    except (SQLAlchemyError, ValueError):
        # Neither the text nor the parser's words: they may hold a password.
        message = "the store's URL cannot be understood; name a file as sqlite:///FILE"
        raise ConfigException(message) from None
    if url.get_backend_name() not in _DRIVERS:
        raise ConfigException(
            f"store {url.render_as_string()} cannot be opened: a store is sqlite:///FILE, "
            f"postgresql://USER@HOST/DATABASE or s3://BUCKET/PREFIX"
        )
    url = url.set(drivername=_DRIVERS.get(url.drivername, url.drivername))
    return _absolute(url) if url.get_backend_name() == SQLITE else url


def _absolute(url: URL) -> URL:
    if not url.database or url.database == ":memory:":
        message = f"store {url}: a database in memory dies with its process; name a file, sqlite:///FILE"
        raise ConfigException(message)
    return url.set(database=str(Path(url.database).absolute()))


def _back(url: URL, aside: Aside) -> URL:
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
