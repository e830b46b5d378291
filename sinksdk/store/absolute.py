"""Stores' URLs that mean the same in another working directory."""

from __future__ import annotations

from pathlib import Path

from sinksdk.errors import ConfigException
from sinksdk.settings.references import resolve_references
from sinksdk.store import s3_address
from sinksdk.store.sql_address import SQLITE, sql_address


def absolute_store_url(text: str) -> str:
    """A store's URL that means the same in another working directory.

    Raises:
        ConfigException: it is no URL, or the folder of its file is not there.
    """
    url = resolve_references(text) if text.startswith("${") else text
    if "://" not in url:
        message = f"'{text}' is no store; name one as sqlite:///FILE"
        raise ConfigException(message)
    if url.startswith(s3_address.SCHEME):
        s3_address.S3Address.parse(url)
        return text
    address = sql_address(url)
    if address.get_backend_name() != SQLITE:
        return text
    path = Path(str(address.database))
    if not path.parent.is_dir():
        message = f"the store {text} cannot be made: there is no folder {path.parent}"
        raise ConfigException(message)
    return address.render_as_string(hide_password=False)
