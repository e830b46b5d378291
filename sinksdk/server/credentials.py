"""Credentials and roles of the REST API's clients."""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
from collections.abc import Collection
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Final, NamedTuple

from sinksdk.errors import ConfigException

log = logging.getLogger(__name__)

# The user name with which basic authentication accepts any token as the password.
NAMELESS: Final = "token"


class Role(IntEnum):
    """Permissions of a client; each role includes the previous ones."""

    METRICS = 1
    """``GET /metrics`` and ``/health``, for Prometheus."""
    READ = 2
    """All GET requests, for dashboards."""
    WRITE = 3
    """All requests. Creating connectors means running code with the server's permissions."""


class Client(NamedTuple):
    name: str
    role: Role


class Login(NamedTuple):
    """A line of the credentials file; ``text`` is a token or ``user:password``."""

    text: str
    role: Role = Role.WRITE
    line: int = 0


@dataclass(frozen=True, slots=True)
class Credentials:
    tokens: Collection[Login] = ()
    users: Collection[Login] = ()

    @classmethod
    def read(cls, path: Path) -> Credentials:
        """Read a credentials file: a line is ``user:password``, a token, or a comment after ``#``.

        A line ``[metrics]``, ``[read]`` or ``[write]`` sets the role of the lines below it; the first role is
        ``write``.
        """
        try:
            lines = path.read_text(encoding="utf-8-sig").splitlines()
            mode = path.stat().st_mode
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigException(
                f"cannot read the credentials file {path}: {type(error).__name__}"
            ) from None
        role, found = Role.WRITE, list[Login]()
        for number, line in enumerate(map(str.strip, lines), 1):
            if line.startswith("[") and line.endswith("]"):
                role = _role(line[1:-1], f"credentials file {path}, line {number}")
            elif line and not line.startswith("#"):
                found.append(Login(line, role, number))
        if not found:
            raise ConfigException(f"the credentials file {path} is empty: add a token or user:password")
        if mode & 0o077:
            # Only a warning is logged, because Kubernetes mounts secrets with this mode, in a container
            # without other users.
            log.warning(
                "other users of this machine can read the credentials file %s (mode %04o): chmod 600 %s",
                *(path, mode & 0o777, path),
            )
        return cls(
            [login for login in found if ":" not in login.text],
            [login for login in found if ":" in login.text],
        )

    def client(self, header: str) -> Client | None:
        """Return the client of an ``Authorization`` header; None if it is invalid."""
        scheme, _, given = header.partition(" ")
        if scheme.lower() == "bearer":
            return _found(given.strip(), [(login.text, login) for login in self.tokens])
        if scheme.lower() == "basic":
            try:
                pair = base64.b64decode(given, validate=True).decode()
            except ValueError:  # not base64, ASCII or UTF-8
                return None
            # Browsers can ask for a user and password only.
            as_users = [(f"{NAMELESS}:{login.text}", login) for login in self.tokens]
            return _found(pair, [*((login.text, login) for login in self.users), *as_users])
        return None


def _role(name: str, where: str) -> Role:
    try:
        return Role[name.strip().upper()]
    except KeyError:
        raise ConfigException(f"{where}: unknown role [{name}]: use [metrics], [read] or [write]") from None


def _found(given: str, known: Collection[tuple[str, Login]]) -> Client | None:
    # All digests have the same length, and each is compared, so that the duration discloses nothing.
    equal = [login for text, login in known if hmac.compare_digest(_digest(given), _digest(text))]
    if not equal:
        return None
    login = max(equal, key=lambda login: login.role)
    user, colon, _ = login.text.partition(":")
    return Client(user if colon else f"token of line {login.line}", login.role)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
