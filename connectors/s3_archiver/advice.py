"""Checks of names, letters of ``path.format`` and regions that operators often write otherwise than meant."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import urlsplit

from sinksdk.config import address_problem

_BUCKET: Final = re.compile(r"[a-zA-Z0-9._-]{3,255}")
_ARN: Final = re.compile(r"arn:[a-z-]+:(?:s3|s3-outposts|s3-object-lambda):(?P<region>[a-z0-9-]*):\d{12}:\S+")
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_QUOTED: Final = re.compile(r"'[^']*'")
_REGION: Final = re.compile(
    r"(?:^|\.)s3(?:-fips|-accesspoint)?[.-](?:dualstack\.)?(?P<region>[a-z]{2}(?:-[a-z]+)+-\d+)\."
)
_HOST: Final = re.compile(
    r"(?:(?P<bucket>.+)\.)?s3(?:[.-][a-z0-9.-]+)?\.amazonaws\.com(?:\.cn)?", re.IGNORECASE
)
"""Hosts of S3, with a bucket's name in front or without."""
_ANY_REGION: Final = re.compile(r"(?![0-9]+$)(?!-)[a-zA-Z0-9-]{1,63}(?<!-)")
_AWS_REGION: Final = re.compile(r"(?![0-9]+$)(?!-)[a-z0-9-]{1,63}(?<!-)")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_HIDDEN: Final = ("_", ".")


def bucket_problem(name: str) -> str:
    """Return what keeps a text from being a bucket's name or an access point's ARN; empty if nothing does."""
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
    """The bucket in a URL, or in one without its scheme, and what its other parts are here."""
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
    """Yield a warning where a bucket is called as a host of S3."""
    if found := _HOST.fullmatch(name):
        what = f"the bucket is '{found['bucket']}'" if found["bucket"] else "it is no bucket"
        yield f"'s3.bucket.name' is the name of a host of S3: {what}, unless a bucket is called so"


def path_problem(name: str) -> str:
    """Return what keeps a text from being folders of a key; empty if nothing does."""
    wrong = [part for part in name.split("/") if part in (".", "..")]
    if wrong:
        return f"'{wrong[0]}' is no folder, and tools that list folders would not find what lies below it"
    return "it has control characters" if _CONTROL.search(name) else ""


def topic_problem(topic: str) -> str:
    """Return what keeps a text from being the name of a topic of Kafka; empty if nothing does."""
    if _TOPIC.fullmatch(topic) and topic not in (".", ".."):
        return ""
    return (
        f"'{topic}' cannot be the name of a topic: a name has up to 249 letters, digits, dots, hyphens and "
        f"underscores, and keys of files are made of it"
    )


def letters_warnings(pattern: str) -> Iterator[str]:
    """Yield what letters of ``path.format`` may not be meant."""
    letters = re.sub(r"[^a-zA-Z]", "", _QUOTED.sub("", pattern))
    of_day, of_hour = set("dDwe"), set("HkhK")
    if "D" in letters and ("M" in letters or "DD" in letters.replace("DDD", "")):
        yield "'path.format': D is the day of the year; the day of the month is dd"
    if set("hK") & set(letters) and "a" not in letters:
        yield "'path.format': h and K are hours of half a day, without a saying which half; the hour is HH"
    if "m" in letters and not of_hour & set(letters):
        yield "'path.format': m is the minute, and there is no hour; the month is MM"
    if re.search(r"[HkhK].*M", letters):
        yield "'path.format': M behind the hour is the month; the minute is mm"
    if "x" in letters and "w" not in letters:
        yield "'path.format': x is the year of the week, another one around New Year; the year is yyyy"
    if of_hour & set(letters) and not of_day & set(letters):
        yield "'path.format' has an hour and no day: the same hours of all days lie in one folder"


def endpoint_problem(url: str) -> str:
    """Return what keeps a text from being the URL of an S3 endpoint; empty if nothing does."""
    why = address_problem(url, "https://minio.example:9000")
    host = "" if why else urlsplit(url).hostname or ""
    if why or re.fullmatch(r"[a-z0-9.:%-]+", host):
        return why
    return (
        f"the host name {host!r} has characters besides letters, digits, dots and hyphens, which botocore "
        f"refuses: give the host another name"
    )


def region_problem(region: str, *, is_aws: bool) -> str:
    """Return what keeps a text from being a region's name; empty if nothing does.

    Args:
        is_aws: AWS's names are in lower case; an S3-compatible store may have any, as OpenStack's RegionOne.
    """
    if (_AWS_REGION if is_aws else _ANY_REGION).fullmatch(region):
        return ""
    letters = "lower-case letters" if is_aws else "letters"
    lower = region.strip().lower()
    example = lower if is_aws and _AWS_REGION.fullmatch(lower) else "eu-central-1"
    return f"{region!r} is no region, whose name has {letters}, digits and hyphens: write it like {example}"


def region_warning(bucket: str, url: str, region: str) -> Iterator[str]:
    """Yield a warning where the endpoint or the bucket's ARN names another region."""
    arn = _ARN.fullmatch(bucket)
    host = _REGION.search((urlsplit(url).hostname or "").lower())
    for where, found in (("'store.url'", host), ("the ARN in 's3.bucket.name'", arn)):
        named = found["region"] if found else ""
        if named and named != region:
            yield (
                f"'s3.region' is {region} and {where} is of {named}: requests are signed for the first, and "
                f"S3 may refuse them"
            )


def hidden_warning(topics: Iterable[str]) -> Iterator[str]:
    """Yield a warning of topics whose files Spark and pyarrow take for hidden ones."""
    hidden = sorted(topic for topic in topics if topic.startswith(_HIDDEN))
    if hidden:
        yield (
            f"files of {', '.join(hidden)} have names that begin with '_' or '.', as the topic's: Spark, "
            f"Athena and pyarrow.dataset skip them without a word (docs/read-an-archive.md says how they are "
            f"read)"
        )
