"""Temporary certificates for the tests' brokers."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from benchmarks.certificate import make_certificate


class Certificate(NamedTuple):
    """PEM files.

    Args:
        authority: what a client trusts.
        keystore: a server's key and certificate in one file, as Kafka expects them.
    """

    authority: Path
    keystore: Path


def certificate(folder: Path) -> Certificate:
    keystore, authority = make_certificate(folder), folder / "ca.pem"
    _, begin, trusted = keystore.read_text().partition("-----BEGIN CERTIFICATE-----")
    authority.write_text(begin + trusted)
    return Certificate(authority, keystore)
