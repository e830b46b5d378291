"""Checks of buckets, endpoints and regions, which operators often mistype."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from sinksdk.config import address_problem

_BUCKET: Final = re.compile(r"[a-zA-Z0-9._-]{3,255}")
_ARN: Final = re.compile(r"arn:[a-z-]+:(?:s3|s3-outposts|s3-object-lambda):(?P<region>[a-z0-9-]*):\d{12}:\S+")
_REGION: Final = re.compile(
    r"(?:^|\.)s3(?:-fips|-accesspoint)?[.-](?:dualstack\.)?(?P<region>[a-z]{2}(?:-[a-z]+)+-\d+)\."
)
# Hosts of S3, with or without a bucket's name in front.
_HOST: Final = re.compile(
    r"(?:(?P<bucket>.+)\.)?s3(?:[.-][a-z0-9.-]+)?\.amazonaws\.com(?:\.cn)?", re.IGNORECASE
)
_ANY_REGION: Final = re.compile(r"(?![0-9]+$)(?!-)[a-zA-Z0-9-]{1,63}(?<!-)")
_AWS_REGION: Final = re.compile(r"(?![0-9]+$)(?!-)[a-z0-9-]{1,63}(?<!-)")


def bucket_problem(name: str) -> str:
    if _BUCKET.fullmatch(name) or _ARN.fullmatch(name):
        return ""
    if name != name.strip():
        return f"take the space at its ends out, as in '{name.strip()}'"
    bucket, others = _taken_apart(name)
    if not bucket and others:
        return "it is an address, which is 'store.url': name the bucket"
    if not _BUCKET.fullmatch(bucket):
        return "it has 3 to 255 letters, digits, dots, hyphens and underscores, or is an access point's ARN"
    return ", and ".join([f"it is the bucket's name only: set it to '{bucket}'", *others])


def _taken_apart(name: str) -> tuple[str, list[str]]:
    """Split a URL into the bucket and advice on the keys for its other parts."""
    scheme, _, rest = name.rpartition("://")
    host, _, path = rest.strip("/").partition("/")
    of_s3 = _HOST.fullmatch(host)
    others = []
    if of_s3 is None and not scheme.lower().startswith("http"):
        bucket, prefix = host, path
    else:
        bucket, prefix = (of_s3["bucket"], path) if of_s3 and of_s3["bucket"] else path.partition("/")[::2]
        region = _REGION.search(host.lower())
        others += [f"'s3.region' to '{region['region']}'"] if of_s3 and region else []
        others += [f"'store.url' to '{scheme}://{host}'"] if not of_s3 else []
    return bucket, [*([f"'topics.dir' to the prefix, '{prefix}'"] if prefix else []), *others]


def bucket_warning(name: str) -> Iterator[str]:
    if found := _HOST.fullmatch(name):
        what = f"the bucket is '{found['bucket']}'" if found["bucket"] else "it is no bucket"
        yield f"'s3.bucket.name' is the name of a host of S3: {what}, unless a bucket is called so"


def endpoint_problem(url: str) -> str:
    why = address_problem(url, "https://minio.example:9000")
    host = "" if why else urlsplit(url).hostname or ""
    if why or re.fullmatch(r"[a-z0-9.:%-]+", host):
        return why
    return (
        f"the host name {host!r} has characters besides letters, digits, dots and hyphens, which botocore "
        f"refuses: give the host another name"
    )


def region_problem(region: str, *, is_aws: bool) -> str:
    # AWS's names are in lower case; an S3-compatible store may have any, as OpenStack's RegionOne.
    if (_AWS_REGION if is_aws else _ANY_REGION).fullmatch(region):
        return ""
    letters = "lower-case letters" if is_aws else "letters"
    lower = region.strip().lower()
    example = lower if is_aws and _AWS_REGION.fullmatch(lower) else "eu-central-1"
    return f"{region!r} is no region, whose name has {letters}, digits and hyphens: write it like {example}"


def region_warning(bucket: str, url: str, region: str) -> Iterator[str]:
    arn = _ARN.fullmatch(bucket)
    host = _REGION.search((urlsplit(url).hostname or "").lower())
    for where, found in (("'store.url'", host), ("the ARN in 's3.bucket.name'", arn)):
        named = found["region"] if found else ""
        if named and named != region:
            yield (
                f"'s3.region' is {region} and {where} is of {named}: requests are signed for the first, and "
                f"S3 may refuse them"
            )
