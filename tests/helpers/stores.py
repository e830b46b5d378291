"""Stores with options that :func:`sinksdk.store.open_store` lacks."""

from __future__ import annotations

from typing import Any

from sqlalchemy.engine import URL

from sinksdk.store.addresses import S3Address, parse_address
from sinksdk.store.s3 import S3Store
from sinksdk.store.sql import SqlStore


def sql_address(url: str) -> URL:
    address = parse_address(url)
    assert not isinstance(address, S3Address)
    return address


def sql_store(url: str, **options: Any) -> SqlStore:
    return SqlStore(sql_address(url), **options)


def s3_store(url: str, **options: Any) -> S3Store:
    address = parse_address(url)
    assert isinstance(address, S3Address)
    return S3Store(address, **options)
