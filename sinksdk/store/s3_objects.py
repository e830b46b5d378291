"""The objects below one prefix of a bucket, and the conditional requests a store makes on them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from botocore import exceptions as boto

from sinksdk.store.base import Lost
from sinksdk.store.s3_address import S3Address
from sinksdk.store.s3_errors import CONDITION_FAILED, MISSING, NO_ANSWER, answered, code_of, refused

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import ObjectTypeDef

T = TypeVar("T")

# Values are small. A request that takes longer is made again: a task that waits here cannot see that
# it shall close.
_CONNECT_TIMEOUT: Final = 3  # seconds
_READ_TIMEOUT: Final = 5  # seconds
MOST_CONNECTIONS: Final = 20
"""How many a process has at most."""


class Found(NamedTuple):
    """An object as it stands there."""

    body: bytes
    etag: str


class Listed(NamedTuple):
    """An object in a listing."""

    name: str
    size: int


class Objects:
    """Requests on objects by their names below the prefix. Each is made once, whatever becomes of it.

    All raise :class:`Lost` when there was no answer, or one that passes, and :class:`StoreRefused`.
    """

    def __init__(self, address: S3Address) -> None:
        self._address = address
        self._prefix = f"{address.prefix}/" if address.prefix else ""

    def read(self, name: str) -> Found | None:
        """An object, None where there is none."""

        def request(s3: S3Client) -> Found:
            answer = s3.get_object(Bucket=self._address.bucket, Key=self._prefix + name)
            with answer["Body"] as body:
                return Found(body.read(), answer["ETag"])

        return self._ask("GetObject", name, request, MISSING)

    def etag(self, name: str) -> str | None:
        """An object's ETag, None where there is none."""

        def request(s3: S3Client) -> str:
            return s3.head_object(Bucket=self._address.bucket, Key=self._prefix + name)["ETag"]

        return self._ask("HeadObject", name, request, MISSING)

    def create(self, name: str, body: bytes) -> str | None:
        """Write an object where there is none: its ETag, None where there is one."""

        def request(s3: S3Client) -> str:
            return s3.put_object(
                Bucket=self._address.bucket,
                Key=self._prefix + name,
                Body=body,
                ContentType="application/json",
                IfNoneMatch="*",
            )["ETag"]

        return self._ask("PutObject", name, request, CONDITION_FAILED)

    def replace(self, name: str, body: bytes, etag: str) -> str | None:
        """Write an object if it still has this ETag: its new one, None where it has another or is gone."""

        def request(s3: S3Client) -> str:
            return s3.put_object(
                Bucket=self._address.bucket,
                Key=self._prefix + name,
                Body=body,
                ContentType="application/json",
                IfMatch=etag,
            )["ETag"]

        return self._ask("PutObject", name, request, CONDITION_FAILED | MISSING)

    def remove(self, name: str, etag: str | None) -> bool:
        """Delete an object if it still has this ETag (None: whatever it has)."""

        def request(s3: S3Client) -> bool:
            if etag is None:
                s3.delete_object(Bucket=self._address.bucket, Key=self._prefix + name)
            else:
                s3.delete_object(Bucket=self._address.bucket, Key=self._prefix + name, IfMatch=etag)
            return True

        return bool(self._ask("DeleteObject", name, request, CONDITION_FAILED | MISSING))

    def list(self, prefix: str) -> list[Listed]:
        """Objects whose names begin with a prefix."""

        def request(s3: S3Client) -> list[Listed]:
            pages = s3.get_paginator("list_objects_v2").paginate(
                Bucket=self._address.bucket, Prefix=self._prefix + prefix
            )
            return list(_listed(self._prefix, (item for page in pages for item in page.get("Contents", ()))))

        return self._ask("ListObjectsV2", prefix, request, frozenset()) or []

    def _ask(
        self, operation: str, name: str, request: Callable[[S3Client], T], means_no: frozenset[str]
    ) -> T | None:
        """Make a request. None when S3 answers with one of the codes that mean no."""
        where = f"s3://{self._address.bucket}/{self._prefix}{name}"
        try:
            return request(_client(replace(self._address, bucket="", prefix=""), os.getpid()))
        except boto.ClientError as failure:
            if code_of(failure) in means_no:
                return None
            raise answered(failure, operation, where) from failure
        except NO_ANSWER as failure:
            raise Lost(f"{operation} of {where}: {failure}") from failure
        except (boto.BotoCoreError, ValueError) as failure:  # no credentials, an impossible name
            raise refused(type(failure).__name__, str(failure), operation, where) from failure


def _listed(prefix: str, items: Iterator[ObjectTypeDef]) -> Iterator[Listed]:
    for item in items:
        yield Listed(item["Key"].removeprefix(prefix), item["Size"])


@lru_cache(maxsize=8)  # a session and a client cost about half a second
def _client(address: S3Address, _process: int) -> S3Client:
    """One client per process, for all buckets: a forked one must not share its parent's connections."""
    import boto3  # noqa: PLC0415 - 0.2 s that only a process which talks to S3 should pay
    from botocore.config import Config  # noqa: PLC0415 - as above

    session = boto3.session.Session(
        aws_access_key_id=address.access_key_id or None,
        aws_secret_access_key=address.secret_access_key or None,
        aws_session_token=address.session_token or None,
        region_name=address.region or None,
    )
    return session.client(
        "s3",
        endpoint_url=address.endpoint or None,
        config=Config(
            s3={"addressing_style": "path" if address.is_path_style else "virtual"},
            retries={"mode": "standard", "total_max_attempts": 1},  # the store asks again itself
            max_pool_connections=MOST_CONNECTIONS,
            connect_timeout=_CONNECT_TIMEOUT,
            read_timeout=_READ_TIMEOUT,
            tcp_keepalive=True,
            request_checksum_calculation="when_required",  # older MinIO and Ceph do not know them
            response_checksum_validation="when_required",
        ),
    )
