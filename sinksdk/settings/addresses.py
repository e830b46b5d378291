"""Checks of hosts, addresses and ``file:`` URLs, so that problems name their key before a client fails."""

from __future__ import annotations

import re
from ipaddress import IPv6Address, ip_address
from typing import Final
from urllib.parse import unquote, urlsplit

from sinksdk.support.confidential import without_passwords_in_urls

_SCHEMES: Final = ("http", "https")
_LABEL: Final = re.compile(r"(?!-)[\w-]{1,63}(?<!-)")
_LONGEST_HOST: Final = 253


def is_loopback_host(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def address_problem(address: str, example: str) -> str:
    why = _problem(address)
    return f"{without_passwords_in_urls(address)!r} {why}: write it like {example}" if why else ""


def local_path(text: str) -> str:
    if not text.startswith("file:"):
        return text
    try:
        url = urlsplit(text)
    except ValueError as error:
        # The message continues a sentence.
        raise ValueError(f"is not a URL ({error})") from None
    if url.netloc not in {"", "localhost"}:
        raise ValueError(f"must be on this host, not on {url.netloc!r}")
    return unquote(url.path)


def _problem(address: str) -> str:
    if re.search(r"[\s\x00-\x1f\x7f]", address):
        return "contains a space or a control character"
    try:
        url = urlsplit(address)
        host = url.hostname or ""
        is_host = _is_host(host, in_brackets="[" in url.netloc.rpartition("@")[2])
    except ValueError:
        return "is not a URL"
    if url.scheme not in _SCHEMES:
        return "does not begin with http:// or https://"
    if not is_host:
        return "names no host" if not host else f"has the invalid host name {host!r}"
    try:
        has_port = url.port != 0
    except ValueError:
        has_port = False
    return "" if has_port else "has a port that is not a number from 1 to 65535"


def _is_host(host: str, *, in_brackets: bool) -> bool:
    if in_brackets:
        return bool(IPv6Address(host))
    labels = host.removesuffix(".").split(".")
    return len(host) <= _LONGEST_HOST and all(_LABEL.fullmatch(label) for label in labels)
