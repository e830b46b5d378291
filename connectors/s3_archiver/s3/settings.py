"""Settings of the connection to S3 and of uploads, and checks of names that operators often mistype."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple
from urllib.parse import quote, urlsplit

from pydantic import ConfigDict, Field, SecretStr

from sinksdk import ConnectorConfig
from sinksdk.config import address_problem
from sinksdk.connectors.s3_archiver.s3.client import Abilities, Checksum

_ASSUME_ROLE: Final = "AwsAssumeRoleCredentialsProvider"


class Keys(NamedTuple):
    """An access key; empty for the default chain."""

    key_id: str = ""
    secret: str = ""


class Role(NamedTuple):
    """A role to assume, for an hour at a time."""

    arn: str
    session: str  # the session's name in AWS's logs; may be empty
    external_id: str  # an id that some trust policies require; may be empty
    region: str  # region of the STS endpoint


class AccessSettings(ConnectorConfig):
    """Bucket, endpoint, credentials and proxy."""

    # The key of a field without an alias is its name, with dots.
    model_config = ConfigDict(alias_generator=lambda name: name.replace("_", "."))

    s3_bucket_name: str = Field(min_length=1, description="Bucket the archive is written to.")
    s3_region: str = Field(default="us-west-2", description="The bucket's AWS region.")
    store_url: str = Field(
        default="",
        description="Address of an S3-compatible endpoint, such as `https://minio.example:9000`; AWS's own "
        "if not set. Bodies sent over plain http to another machine are signed, which is slow.",
    )
    s3_path_style_access: bool = Field(
        default=True,
        alias="s3.path.style.access.enabled",
        description="Put the bucket into the path, not into the host name.",
    )
    s3_wan_mode: bool = Field(
        default=False,
        description="Upload through S3's transfer acceleration, which the bucket must allow; needs AWS's "
        "own S3 and `s3.path.style.access.enabled=false`.",
    )
    aws_access_key_id: str = Field(
        default="",
        description="Access key; boto3's default chain (environment, profile, role) if not set.",
    )
    aws_secret_access_key: SecretStr | None = Field(default=None, description="Secret of the access key.")
    s3_credentials_provider: str = Field(
        default="",
        alias="s3.credentials.provider.class",
        description="`AwsAssumeRoleCredentialsProvider` assumes the role of "
        "`s3.credentials.provider.sts.role.arn` with the access key, or with credentials of the default "
        "chain. If not set, no role is assumed.",
    )
    sts_role_arn: str = Field(
        default="", alias="s3.credentials.provider.sts.role.arn", description="Role to assume."
    )
    sts_role_session_name: str = Field(
        default="",
        alias="s3.credentials.provider.sts.role.session.name",
        description="Session name, under which AWS logs the role's uses; boto3 chooses one if not set.",
    )
    sts_role_external_id: str = Field(
        default="",
        alias="s3.credentials.provider.sts.role.external.id",
        description="External id that the role's trust policy requires.",
    )
    sts_region: str = Field(
        default="",
        alias="s3.credentials.provider.sts.region",
        description="Region of the STS endpoint; `s3.region` if not set.",
    )
    s3_proxy_url: str = Field(
        default="",
        description="Proxy on the way to S3, as in `http://proxy.example:3128`; HTTPS_PROXY of the "
        "environment if not set.",
    )
    s3_proxy_user: str = Field(default="", description="User name for the proxy.")
    s3_proxy_password: SecretStr | None = Field(default=None, description="Password for the proxy.")

    def access_problems(self) -> Iterator[str]:
        if self.store_url and (why := endpoint_problem(self.store_url)):
            yield f"'store.url': {why}"
        for key, region in (
            ("s3.region", self.s3_region),
            *([("s3.credentials.provider.sts.region", self.sts_region)] if self.sts_region else []),
        ):
            is_aws = not self.store_url or key != "s3.region"
            if why := region_problem(region, is_aws=is_aws):
                yield f"'{key}': {why}"
        if bool(self.aws_access_key_id) != bool(self.aws_secret_access_key):
            yield (
                "'aws.access.key.id' and 'aws.secret.access.key' must both be set, or neither (the default "
                "credential chain is then used)"
            )
        if self._assumes_role != bool(self.sts_role_arn):
            yield (
                "'s3.credentials.provider.sts.role.arn' and AwsAssumeRoleCredentialsProvider as "
                "'s3.credentials.provider.class' must both be set, or neither"
            )
        if self.s3_proxy_url and (why := address_problem(self.s3_proxy_url, "http://proxy.example:3128")):
            yield f"'s3.proxy.url': {why}"
        has_user = bool(self.s3_proxy_user)
        if has_user != bool(self.s3_proxy_password) or (has_user and not self.s3_proxy_url):
            yield "'s3.proxy.user' and 's3.proxy.password' must both be set, with 's3.proxy.url', or neither"
        if self.s3_wan_mode and (self.store_url or self.s3_path_style_access):
            yield (
                "'s3.wan.mode' needs AWS's own S3 and the bucket in the host name: remove 'store.url', and "
                "set 's3.path.style.access.enabled' to false"
            )

    @property
    def _assumes_role(self) -> bool:
        return self.s3_credentials_provider.rpartition(".")[2] == _ASSUME_ROLE

    def keys_of_access(self) -> Keys:
        secret = self.aws_secret_access_key
        return Keys(self.aws_access_key_id, secret.get_secret_value() if secret else "")

    def role(self) -> Role | None:
        if not self._assumes_role:
            return None
        return Role(
            self.sts_role_arn,
            self.sts_role_session_name,
            self.sts_role_external_id,
            self.sts_region or self.s3_region,
        )

    def proxy(self) -> str:
        if not self.s3_proxy_user or self.s3_proxy_password is None:
            return self.s3_proxy_url
        address = urlsplit(self.s3_proxy_url)
        user, password = quote(self.s3_proxy_user, ""), quote(self.s3_proxy_password.get_secret_value(), "")
        return address._replace(netloc=f"{user}:{password}@{address.netloc.rpartition('@')[2]}").geturl()


MIB = 1024 * 1024

_MAX_TAGS = 10  # tags of one object: S3's limit
_OWN_TAGS = ("startOffset", "endOffset", "recordCount")


class UploadSettings(AccessSettings):
    """Multipart uploads and the objects that they become."""

    s3_part_size: int = Field(
        default=8 * MIB,
        ge=5 * MIB,
        le=5 * 1024 * MIB,
        description="Bytes of one part of a multipart upload, and the most memory of an open file; up to two "
        "more parts of a task are in memory while they are sent. A file can have 10,000 parts. (Confluent: "
        "25 MiB.)",
    )
    s3_part_retries: int = Field(
        default=3,
        ge=0,
        description="Retries within one request to S3. When they are used up, the archiver retries from "
        "memory for `errors.retry.timeout`.",
    )
    s3_retry_backoff_ms: int = Field(
        default=200,
        ge=1,
        description="Milliseconds before the archiver's first retry of a commit; doubles with each retry.",
    )
    s3_sse_algorithm: Literal["", "AES256", "aws:kms", "aws:kms:dsse"] = Field(
        default="", alias="s3.ssea.name", description="Server-side encryption; the bucket's own if not set."
    )
    s3_sse_kms_key_id: str = Field(default="", description="KMS key for `aws:kms`; the account's if not set.")
    s3_acl_canned: Literal[
        "",
        "private",
        "public-read",
        "public-read-write",
        "authenticated-read",
        "aws-exec-read",
        "bucket-owner-read",
        "bucket-owner-full-control",
    ] = Field(default="", description="Canned ACL of each object.")
    s3_storage_class: str = Field(
        default="",
        description="Storage class of each object, as in `STANDARD_IA`; the bucket's own if not set.",
    )
    s3_object_tagging: bool = Field(
        default=False,
        description="Tag each object with startOffset, endOffset (of its last record) and recordCount once "
        "it is visible.",
    )
    s3_object_tags: str = Field(
        default="",
        alias="s3.object.tagging.key.value.pairs",
        description="Further tags with `s3.object.tagging`: `name:value, name:value`.",
    )
    s3_tagging_error: Literal["ignore", "fail"] = Field(
        default="ignore",
        alias="s3.object.behavior.on.tagging.error",
        description="Whether an object that cannot be tagged fails its partition or is only logged.",
    )
    s3_checksum: Literal["auto", "full", "composite", "none"] = Field(
        default="auto",
        description="Checksum that the endpoint verifies of each object: `full`, the CRC32 of the whole; "
        "`composite`, the CRC32 of each part; `none`, the MD5 of each part, for endpoints without "
        "additional checksums. `auto`: the first of these that the endpoint accepts at the start.",
    )
    s3_conditional_writes: Literal["auto", "true", "false"] = Field(
        default="auto",
        description="Whether the endpoint refuses to complete an upload over an existing object "
        "(`If-None-Match`). `false`: the archiver checks for an existing object before it completes an "
        "upload. `auto`: tested at the start.",
    )

    def upload_problems(self) -> Iterator[str]:
        if self.s3_sse_kms_key_id and not self.s3_sse_algorithm.startswith("aws:kms"):
            yield "'s3.sse.kms.key.id' needs 's3.ssea.name' to be 'aws:kms'"
        try:
            tags = self.tags()
        except ValueError as error:
            yield f"'s3.object.tagging.key.value.pairs': {error}"
        else:
            if len(tags) > _MAX_TAGS - len(_OWN_TAGS):
                yield (
                    f"'s3.object.tagging.key.value.pairs' has {len(tags)} tags; S3 allows {_MAX_TAGS} on an "
                    f"object, and the archiver sets three ({', '.join(_OWN_TAGS)})"
                )

    def creation_options(self) -> dict[str, str]:
        options = {
            "ServerSideEncryption": self.s3_sse_algorithm,
            "SSEKMSKeyId": self.s3_sse_kms_key_id,
            "ACL": self.s3_acl_canned,
            "StorageClass": self.s3_storage_class,
        }
        return {name: value for name, value in options.items() if value}

    def abilities(self) -> Abilities:
        # With `auto` the connector tests the endpoint, and sets the result in the configuration of its tasks.
        checksum = Checksum.FULL if self.s3_checksum == "auto" else Checksum(self.s3_checksum)
        return Abilities(checksum, self.s3_conditional_writes != "false")

    def tags(self) -> dict[str, str]:
        tags = {}
        for pair in filter(None, (pair.strip() for pair in self.s3_object_tags.split(","))):
            name, separator, value = pair.partition(":")
            if not separator or not name.strip():
                raise ValueError(f"'{pair}' is not of the form name:value")
            tags[name.strip()] = value.strip()
        return tags


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
        return f"remove the spaces around it: '{name.strip()}'"
    bucket, others = _split_url(name)
    if not bucket and others:
        return "it is an address, which 'store.url' takes: set it to the bucket's name"
    if not _BUCKET.fullmatch(bucket):
        return (
            "it must be 3 to 255 letters, digits, dots, hyphens and underscores, or the ARN of an access "
            "point"
        )
    return ", and ".join([f"it must be the bucket's name alone: set it to '{bucket}'", *others])


def _split_url(name: str) -> tuple[str, list[str]]:
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
        guess = f"the bucket is '{found['bucket']}'" if found["bucket"] else "it does not name a bucket"
        yield f"'s3.bucket.name' is a host name of S3: {guess}, unless a bucket really has this name"


def endpoint_problem(url: str) -> str:
    why = address_problem(url, "https://minio.example:9000")
    host = "" if why else urlsplit(url).hostname or ""
    if why or re.fullmatch(r"[a-z0-9.:%-]+", host):
        return why
    return f"botocore refuses the host name {host!r}: use a name of letters, digits, dots and hyphens only"


def region_problem(region: str, *, is_aws: bool) -> str:
    # AWS's names of regions are in lower case; an S3-compatible store may have any, such as OpenStack's
    # RegionOne.
    if (_AWS_REGION if is_aws else _ANY_REGION).fullmatch(region):
        return ""
    letters = "lower-case letters" if is_aws else "letters"
    lower = region.strip().lower()
    example = lower if is_aws and _AWS_REGION.fullmatch(lower) else "eu-central-1"
    return f"{region!r} is not a region name ({letters}, digits and hyphens): write it like {example}"


def region_warning(bucket: str, url: str, region: str) -> Iterator[str]:
    arn = _ARN.fullmatch(bucket)
    host = _REGION.search((urlsplit(url).hostname or "").lower())
    for where, found in (("'store.url'", host), ("the ARN in 's3.bucket.name'", arn)):
        named = found["region"] if found else ""
        if named and named != region:
            yield (
                f"'s3.region' is {region}, but {where} names region {named}: requests are signed for "
                f"{region}, and S3 may refuse them"
            )
