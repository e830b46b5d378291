"""Store URLs: references in them, and ``s3://bucket/prefix?option=value&…``."""

from __future__ import annotations

import difflib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import quote, unquote, urlsplit

from sinksdk.errors import ConfigException
from sinksdk.settings.references import references, resolve_references

S3_SCHEME: Final = "s3://"
_MASK: Final = "***"
_OPTIONS: Final = ("endpoint", "region", "path_style", "access_key_id", "secret_access_key", "session_token")


class Aside:
    """A URL with numbers in place of references, so that it can be parsed: a password may hold any character.

    A text that begins with a reference is that reference's value, parsed literally.

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
        """A part of the text with the references' values."""
        for number, value in self._values.items():
            part = part.replace(number, value)
        return part


@dataclass(frozen=True, slots=True, repr=False)
class S3Address:
    """A store's URL in its parts, references resolved.

    Args:
        bucket: must exist.
        prefix: of all keys of the store, without leading and trailing slashes; may be empty.
        endpoint: address of an S3 other than AWS's, as in ``http://host:9000``.
        region: AWS region, or the one that the endpoint expects; empty for boto3's default.
        is_path_style: the bucket is in the path, not in the host's name.
        access_key_id: with the next two, credentials; empty for boto3's default chain.
    """

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
        """The parts of a URL.

        Values of references (``${env:…}``) are used literally; the other parts may be percent-encoded. A
        ``+`` is a plus sign, as in many secrets.

        Raises:
            ConfigException: it is none, an option is unknown, or a reference cannot be resolved.
        """
        aside = Aside(text)
        path, _, query = aside.text.partition("?")
        bucket, _, prefix = path.removeprefix(S3_SCHEME).partition("/")
        bucket, prefix = aside.back(unquote(bucket)), aside.back(unquote(prefix))
        if not bucket:
            message = "a store on S3 must name its bucket: s3://BUCKET/PREFIX"
            raise ConfigException(message)
        options = {name: aside.back(unquote(value)) for name, value in _options(query)}
        if bool(options.get("access_key_id")) != bool(options.get("secret_access_key")):
            message = "a store on S3 needs both 'access_key_id' and 'secret_access_key', or neither"
            raise ConfigException(message)
        endpoint = options.get("endpoint", "")
        if endpoint and urlsplit(endpoint).scheme not in {"http", "https"}:
            message = f"the endpoint {endpoint!r} of a store on S3 must begin with http:// or https://"
            raise ConfigException(message)
        path_style = options.pop("path_style", "true" if endpoint else "false")
        if path_style.lower() not in ("true", "false"):
            message = f"option 'path_style' of a store on S3 must be true or false, not {path_style!r}"
            raise ConfigException(message)
        return cls(
            bucket=bucket,
            prefix=prefix.strip("/"),
            is_path_style=path_style.lower() == "true",
            **options,
        )

    def __str__(self) -> str:
        """The URL, secrets masked."""
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
            message = f"a store on S3 has no option '{name}'{hint}"
            raise ConfigException(message)
        yield name, value
