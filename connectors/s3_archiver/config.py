"""Configuration of the archiver. Confluent's key names where they have one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, ClassVar, Final, Literal, NamedTuple
from urllib.parse import quote, urlsplit

from pydantic import Field, SecretStr, ValidationInfo, field_validator

from sinksdk import BatchPolicy, ConfigException, ConnectorConfig, Converted, Verdict
from sinksdk.config import NameList, address_problem, time_zone
from sinksdk.connectors.s3_archiver.advice import (
    bucket_problem,
    bucket_warning,
    endpoint_problem,
    hidden_warning,
    letters_warnings,
    path_problem,
    region_problem,
    region_warning,
    topic_problem,
)
from sinksdk.connectors.s3_archiver.client import Abilities, Checksum
from sinksdk.connectors.s3_archiver.compat import COMPATIBILITY, ENDPOINTS, OTHER_DEFAULTS
from sinksdk.connectors.s3_archiver.contents import OLDER_PARTITIONER
from sinksdk.connectors.s3_archiver.folders import folder_problems, key_problems, partitioner
from sinksdk.connectors.s3_archiver.formats.keys import FormatConfig
from sinksdk.connectors.s3_archiver.layout import Layout
from sinksdk.connectors.s3_archiver.limits import MOST_OPEN_FILES, MOST_RUNS, Limits
from sinksdk.connectors.s3_archiver.relatives import translate

_ASSUME_ROLE: Final = "AwsAssumeRoleCredentialsProvider"
_LONGEST_FOLDER: Final = 512  # bytes of 'topics.dir'; topic, folder and file follow


class Keys(NamedTuple):
    """An access key; empty texts ask the default chain."""

    key_id: str = ""
    secret: str = ""


class Role(NamedTuple):
    """A role to assume, for an hour at a time.

    Args:
        session: what its uses are logged under, or empty.
        external_id: what the role's trust may ask for, or empty.
        region: of the STS endpoint.
    """

    arn: str
    session: str
    external_id: str
    region: str


class AccessConfig(ConnectorConfig):
    """Bucket, endpoint, credentials and the way there."""

    s3_bucket_name: str = Field(
        min_length=1, alias="s3.bucket.name", description="Bucket the archive is written to."
    )
    s3_region: str = Field(default="us-west-2", alias="s3.region", description="The bucket's AWS region.")
    store_url: str = Field(
        default="",
        alias="store.url",
        description="Address of an S3-compatible endpoint, as in `https://minio.example:9000`; "
        "AWS's own if not set. Bodies sent over plain http to another machine are signed, which is slow.",
    )
    s3_path_style_access: bool = Field(
        default=True,
        alias="s3.path.style.access.enabled",
        description="Put the bucket into the path, not into the host name.",
    )
    s3_wan_mode: bool = Field(
        default=False,
        alias="s3.wan.mode",
        description="Upload through S3's transfer acceleration, which the bucket must allow; needs AWS's "
        "own S3 and `s3.path.style.access.enabled=false`.",
    )
    aws_access_key_id: str = Field(
        default="",
        alias="aws.access.key.id",
        description="Access key; without it boto3's default chain is used (environment, profile, role).",
    )
    aws_secret_access_key: SecretStr | None = Field(
        default=None, alias="aws.secret.access.key", description="Secret of the access key."
    )
    s3_credentials_provider: str = Field(
        default="",
        alias="s3.credentials.provider.class",
        description="`AwsAssumeRoleCredentialsProvider` assumes the role that is named below with the keys "
        "above, or with what the default chain finds. Otherwise only the default chain.",
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
        alias="s3.proxy.url",
        description="Proxy on the way to S3, as in `http://proxy.example:3128`; HTTPS_PROXY of the "
        "environment if not set.",
    )
    s3_proxy_user: str = Field(default="", alias="s3.proxy.user", description="User name for the proxy.")
    s3_proxy_password: SecretStr | None = Field(
        default=None, alias="s3.proxy.password", description="Password for the proxy."
    )

    def problems(self) -> list[str]:
        """What is wrong between fields."""
        return [*super().problems(), *self._access_problems()]

    def _access_problems(self) -> Iterator[str]:
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
                "'aws.access.key.id' and 'aws.secret.access.key' must be set both, or neither (then the "
                "default credential chain is used)"
            )
        if self._assumes_role != bool(self.sts_role_arn):
            yield (
                "'s3.credentials.provider.sts.role.arn' and AwsAssumeRoleCredentialsProvider as "
                "'s3.credentials.provider.class' must be set both, or neither"
            )
        if self.s3_proxy_url and (why := address_problem(self.s3_proxy_url, "http://proxy.example:3128")):
            yield f"'s3.proxy.url': {why}"
        has_user = bool(self.s3_proxy_user)
        if has_user != bool(self.s3_proxy_password) or (has_user and not self.s3_proxy_url):
            yield "'s3.proxy.user' and 's3.proxy.password' must be set both, with 's3.proxy.url', or none"
        if self.s3_wan_mode and (self.store_url or self.s3_path_style_access):
            yield (
                "'s3.wan.mode' needs AWS's own S3 and the bucket in the host name: take 'store.url' out, and "
                "set 's3.path.style.access.enabled' to false"
            )

    @property
    def _assumes_role(self) -> bool:
        return self.s3_credentials_provider.rpartition(".")[2] == _ASSUME_ROLE

    def keys_of_access(self) -> Keys:
        """The access key, or empty texts."""
        secret = self.aws_secret_access_key
        return Keys(self.aws_access_key_id, secret.get_secret_value() if secret else "")

    def role(self) -> Role | None:
        """The role to assume, if any."""
        if not self._assumes_role:
            return None
        return Role(
            self.sts_role_arn,
            self.sts_role_session_name,
            self.sts_role_external_id,
            self.sts_region or self.s3_region,
        )

    def proxy(self) -> str:
        """The proxy's URL with user and password in it; empty without a proxy."""
        if not self.s3_proxy_user or self.s3_proxy_password is None:
            return self.s3_proxy_url
        address = urlsplit(self.s3_proxy_url)
        user, password = quote(self.s3_proxy_user, ""), quote(self.s3_proxy_password.get_secret_value(), "")
        return address._replace(netloc=f"{user}:{password}@{address.netloc.rpartition('@')[2]}").geturl()


MIB = 1024 * 1024

_MAX_TAGS = 10  # S3's limit for one object
_OWN_TAGS = ("startOffset", "endOffset", "recordCount")


class S3ArchiverConfig(AccessConfig, FormatConfig):
    """Configuration of the S3 Avro archiver."""

    compatibility: ClassVar[Mapping[str, Verdict]] = COMPATIBILITY
    other_defaults: ClassVar[Mapping[str, str]] = OTHER_DEFAULTS

    topics_dir: str = Field(
        default="topics",
        alias="topics.dir",
        description="Prefix of all keys; one archive owns it per topic. Empty: no prefix.",
    )
    directory_delim: str = Field(
        default="/", min_length=1, alias="directory.delim", description="Separates folders in keys."
    )
    file_delim: str = Field(
        default="+",
        min_length=1,
        alias="file.delim",
        description="Separates topic, partition and start offset in a file's name.",
    )
    filename_offset_zero_pad_width: int = Field(
        default=10,
        ge=0,
        le=19,
        alias="filename.offset.zero.pad.width",
        description="Digits of the start offset in a file's name.",
    )
    flush_size: int | None = Field(
        default=None,
        ge=1,
        alias="flush.size",
        description="Records of a topic partition, exactly, after which its open files end, unless another "
        "rule ends them sooner. A partition is read once this many records wait in it, or when the schedule, "
        "the interval, a flush or a close is due. It may be left out where `rotate.schedule.interval.ms` is "
        "set, or `rotate.interval.ms` with folders by time.",
    )
    flush_bytes: int = Field(
        default=-1,
        ge=-1,
        alias="flush.bytes",
        description="End the open files of a topic partition once this many bytes (as encoded and "
        "compressed) are in one of them; may be exceeded by about a tenth. -1: never.",
    )
    rotate_schedule_interval_ms: int = Field(
        default=-1,
        ge=-1,
        alias="rotate.schedule.interval.ms",
        description="End files at every multiple of so many milliseconds after midnight and at midnight, by "
        "the wall clock, also when no record arrives. Still exactly-once. -1: never.",
    )
    timezone: str = Field(
        default="UTC",
        alias="timezone",
        description="Time zone of folders by time, and whose midnight `rotate.schedule.interval.ms` counts "
        "from: a name like `Europe/Berlin`, or an offset like `+05:30` or `UTC+08:00`.",
    )
    partitioner_class: str = Field(
        default="DefaultPartitioner",
        alias="partitioner.class",
        description="Folders below the topic's: `DefaultPartitioner` (`partition=0`), `DailyPartitioner`, "
        "`HourlyPartitioner`, `TimeBasedPartitioner` (`path.format`), `FieldPartitioner` "
        "(`partition.field.name`) or `FieldAndTimeBasedPartitioner` (fields, then time); also with the "
        "package of Confluent's class.",
    )
    path_format: str = Field(
        default="",
        alias="path.format",
        description="Folders by time in Joda-Time's letters, as in `'year'=YYYY/'month'=MM/'day'=dd`, for "
        "TimeBasedPartitioner and FieldAndTimeBasedPartitioner.",
    )
    partition_duration_ms: int = Field(
        default=-1,
        ge=-1,
        alias="partition.duration.ms",
        description="Milliseconds that `path.format` is written of: local time is cut to a multiple of them.",
    )
    locale: str = Field(
        default="",
        alias="locale",
        description="Language of months, weekdays and halves of the day as text (`MMM`, `EEE`, `a`): English "
        "only. Numbers are the same in all languages.",
    )
    timestamp_extractor: str = Field(
        default="Wallclock",
        alias="timestamp.extractor",
        description="What folders by time are of: `Wallclock`, when a record is archived; `Record`, its "
        "Kafka timestamp; or `RecordField`, a field of its value.",
    )
    timestamp_field: str = Field(
        default="timestamp",
        alias="timestamp.field",
        description="The field for `RecordField`, as in `meta.created`: milliseconds since 1970 as a number "
        "or text, text in ISO 8601 (in UTC unless it says otherwise), or a timestamp.",
    )
    partition_field_name: NameList = Field(
        default=(),
        alias="partition.field.name",
        description="Fields of the value that folders are made of, as in `country,meta.shop`: text, whole "
        "numbers and booleans; a null is the folder `country=null`.",
    )
    partition_field_format_path: bool = Field(
        default=True,
        alias="partition.field.format.path",
        description="With FieldAndTimeBasedPartitioner: folders are `country=DE`; false: `DE`.",
    )
    rotate_interval_ms: int = Field(
        default=-1,
        ge=-1,
        alias="rotate.interval.ms",
        description="End the files of a topic partition before a record whose timestamp (as "
        "`timestamp.extractor` finds it) is so many milliseconds after that of their first one, and read the "
        "partition after that time at the latest. Without folders by time it has no effect. -1: never.",
    )
    rotate_file_on_partition_change: bool = Field(
        default=False,
        alias="rotate.file.on.partition.change",
        description="With `rotate.interval.ms`: end files also whenever the next record is of another "
        "folder. Records whose folders take turns then make a file each. (Confluent: true.)",
    )
    partitioner_max_open_files: int = Field(
        default=-1,
        ge=-1,
        le=MOST_OPEN_FILES,
        alias="partitioner.max.open.files",
        description=f"Files of a topic partition that may be open at a time; then all of them end. "
        f"-1: {MOST_OPEN_FILES:,}.",
    )
    partitioner_buffer_bytes: int = Field(
        default=256 * MIB,
        ge=16 * MIB,
        alias="partitioner.buffer.bytes",
        description="Bytes that all open files of a task hold in memory at most. Beyond them the largest is "
        "sent as a part, and where none is large enough for that, the files of a topic partition end.",
    )
    s3_part_size: int = Field(
        default=8 * MIB,
        ge=5 * MIB,
        le=5 * 1024 * MIB,
        alias="s3.part.size",
        description="Bytes of one part of a multipart upload, and the memory an open file takes at most; up "
        "to two parts of a task are on their way besides. A file can have 10,000 parts. (Confluent: 25 MiB.)",
    )
    s3_part_retries: int = Field(
        default=3,
        ge=0,
        alias="s3.part.retries",
        description="Attempts, after the first, within one request to S3. After them the archiver retries "
        "from memory for `errors.retry.timeout`.",
    )
    s3_retry_backoff_ms: int = Field(
        default=200,
        ge=1,
        alias="s3.retry.backoff.ms",
        description="Milliseconds before the first of these further attempts at a commit; doubles each time.",
    )
    s3_sse_algorithm: Literal["", "AES256", "aws:kms", "aws:kms:dsse"] = Field(
        default="", alias="s3.ssea.name", description="Server-side encryption; the bucket's own if not set."
    )
    s3_sse_kms_key_id: str = Field(
        default="", alias="s3.sse.kms.key.id", description="KMS key for `aws:kms`; the account's if not set."
    )
    s3_acl_canned: Literal[
        "",
        "private",
        "public-read",
        "public-read-write",
        "authenticated-read",
        "aws-exec-read",
        "bucket-owner-read",
        "bucket-owner-full-control",
    ] = Field(default="", alias="s3.acl.canned", description="Canned ACL of each object.")
    s3_storage_class: str = Field(
        default="",
        alias="s3.storage.class",
        description="Storage class of each object, as in `STANDARD_IA`; the bucket's own if not set.",
    )
    s3_object_tagging: bool = Field(
        default=False,
        alias="s3.object.tagging",
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
        alias="s3.checksum",
        description="Checksum that the endpoint verifies of each object: `full`, the CRC32 of the whole; "
        "`composite`, the CRC32 of each part; `none`, the MD5 of each part, for endpoints that know no "
        "additional checksums. `auto`: the first of them that the endpoint takes at the start.",
    )
    s3_conditional_writes: Literal["auto", "true", "false"] = Field(
        default="auto",
        alias="s3.conditional.writes",
        description="Whether the endpoint refuses to complete an upload over an existing object "
        "(`If-None-Match`). `false`: the archiver looks for an object before it completes an upload. `auto`: "
        "tried at the start.",
    )

    @classmethod
    def _supplemented(cls, applied: dict[str, Any]) -> dict[str, Any]:
        """An older partitioner's name stands for three keys, other sinks' endpoint for 'store.url'."""
        name = str(applied.get("partitioner.class", ""))
        if name.endswith(OLDER_PARTITIONER[0]):
            applied["partitioner.class"] = name.replace(*OLDER_PARTITIONER)
            applied["partition.field.format.path"] = "false"
            applied.setdefault("partition.field.name", applied.get("partition.field", ""))
        for key in ENDPOINTS:
            if applied.get(key):
                applied.setdefault("store.url", applied[key])
        return super()._supplemented(applied)

    @classmethod
    def translated(cls, raw: Mapping[str, str], /) -> Converted:
        """Aiven's, Lenses' and Confluent Cloud's keys, by those of the archiver."""
        return translate(raw)

    @field_validator("timezone", "partitioner_class", "timestamp_extractor", "timestamp_field")
    @classmethod
    def _default_where_empty(cls, name: str, info: ValidationInfo) -> str:
        """An exported configuration holds every key, also those without a value."""
        return name or str(cls.model_fields[str(info.field_name)].default)

    def problems(self) -> list[str]:
        """What is wrong between fields."""
        return [
            *super().problems(),
            *self._name_problems(),
            *self._storage_problems(),
            *self._rotation_problems(),
            *folder_problems(self),
            *self.format_problems(),
            *self._field_problems(),
        ]

    def warnings(self) -> list[str]:
        """Letters of folders, regions and names of topics that may not be meant."""
        kind = partitioner(self.partitioner_class)
        has_format = kind is not None and kind.has_time and kind.pattern is None
        return [
            *super().warnings(),
            *(letters_warnings(self.path_format) if has_format else ()),
            *bucket_warning(self.s3_bucket_name),
            *region_warning(self.s3_bucket_name, self.store_url, self.s3_region),
            *hidden_warning(self.topics),
        ]

    def _name_problems(self) -> Iterator[str]:
        if why := bucket_problem(self.s3_bucket_name):
            yield f"'s3.bucket.name': {why}"
        for key, text in (
            ("directory.delim", f"x{self.directory_delim}x"),
            ("file.delim", f"x{self.file_delim}x"),
            ("tombstone.encoded.partition", self.tombstone_encoded_partition),
            ("format.bytearray.extension", f"x{self.format_bytearray_extension}"),
        ):
            if why := path_problem(text):
                yield f"'{key}': {why}"
        yield from (f"'topics': {why}" for topic in self.topics if (why := topic_problem(topic)))

    def _storage_problems(self) -> Iterator[str]:
        if why := _folder_problem(self.topics_dir):
            yield f"'topics.dir' must be a folder's name, or several with slashes between them: {why}"
        else:
            yield from key_problems(self)
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
                    f"object, and {', '.join(_OWN_TAGS)} are three of them"
                )

    def _rotation_problems(self) -> Iterator[str]:
        if self.flush_bytes == 0:
            yield "'flush.bytes' must be at least 1, or -1 for no limit"
        if self.rotate_schedule_interval_ms == 0:
            yield "'rotate.schedule.interval.ms' must be at least 1, or -1 for no schedule"
        if self.rotate_interval_ms == 0:
            yield "'rotate.interval.ms' must be at least 1, or -1 for never"
        if self.partitioner_max_open_files == 0:
            yield f"'partitioner.max.open.files' must be at least 1, or -1 for {MOST_OPEN_FILES:,}"
        try:
            time_zone(self.timezone)
        except ValueError as error:
            yield f"'timezone': {error}: take Area/City, UTC, or an offset like +05:30"
        has_schedule = self.rotate_schedule_interval_ms >= 1
        if self.flush_size is None and not has_schedule and self.record_interval() is None:
            yield (
                "'flush.size' is required and not set: nothing else says when a partition is read. Leave it "
                "out only with 'rotate.schedule.interval.ms', or 'rotate.interval.ms' and folders by time"
            )

    def _field_problems(self) -> Iterator[str]:
        """Folders by fields of Avro behind transforms: some values are framed still, others are JSON."""
        with suppress(ConfigException):
            is_mixed = self.has_transforms and self.takes_bytes and self.value_spec().kind == "avro"
            if is_mixed and self.reads_fields:
                yield (
                    "'partitioner.class': folders by fields of Avro values cannot be made of whole records "
                    "behind 'transforms': set 'archive.content' to value, or take the transforms out"
                )

    def policy(self) -> BatchPolicy:
        """When a partition's records are worth a file.

        With ``rotate.interval.ms`` a partition is read after that interval at the latest, whether or not the
        schedule is due: else records would lie in Kafka that belong into a file which should have ended.
        """
        schedule, interval = self.schedule(), self.record_interval()
        wait = None if interval is None else interval / 1000
        if schedule is not None and (wait is None or (schedule.max_wait or 0) <= wait):
            return replace(schedule, max_records=self.flush_size)
        return BatchPolicy(max_records=self.flush_size, max_wait=wait)

    def schedule(self) -> BatchPolicy | None:
        """When ``rotate.schedule.interval.ms`` ends files; None without it."""
        if self.rotate_schedule_interval_ms < 1:
            return None
        return BatchPolicy(max_wait=self.rotate_schedule_interval_ms / 1000, align_to=self.timezone)

    def record_interval(self) -> int | None:
        """``rotate.interval.ms`` where folders are by time; None without it, or without those."""
        kind = partitioner(self.partitioner_class)
        by_time = kind is not None and kind.has_time
        return self.rotate_interval_ms if by_time and self.rotate_interval_ms >= 1 else None

    def limits(self) -> Limits:
        """What ends the open files of a topic partition, besides the schedule."""
        most = self.partitioner_max_open_files
        return Limits(
            records=self.flush_size,
            bytes=_set(self.flush_bytes),
            interval=self.record_interval(),
            is_of_one_folder=self.rotate_file_on_partition_change,
            files=min(MOST_OPEN_FILES if most == -1 else most, MOST_OPEN_FILES // self.views),
            buffered=self.partitioner_buffer_bytes,
            runs=MOST_RUNS // self.views,
        )

    def layout(self) -> Layout:
        """Where things are in the bucket."""
        return Layout(
            self.topics_dir if self.topics_dir.strip() else "",
            self.directory_delim,
            self.file_delim,
            self.filename_offset_zero_pad_width,
            self.format_bytearray_extension,
        )

    def creation_options(self) -> dict[str, str]:
        """Arguments of CreateMultipartUpload."""
        options = {
            "ServerSideEncryption": self.s3_sse_algorithm,
            "SSEKMSKeyId": self.s3_sse_kms_key_id,
            "ACL": self.s3_acl_canned,
            "StorageClass": self.s3_storage_class,
        }
        return {name: value for name, value in options.items() if value}

    def abilities(self) -> Abilities:
        """What uploads may ask of the endpoint; what is `auto` is found at the start, see the connector."""
        checksum = Checksum.FULL if self.s3_checksum == "auto" else Checksum(self.s3_checksum)
        return Abilities(checksum, self.s3_conditional_writes != "false")

    def tags(self) -> dict[str, str]:
        """Further tags of each object. Raises ValueError for a text that is no list of ``name:value``."""
        tags = {}
        for pair in filter(None, (pair.strip() for pair in self.s3_object_tags.split(","))):
            name, separator, value = pair.partition(":")
            if not separator or not name.strip():
                raise ValueError(f"'{pair}' is not of the form name:value")
            tags[name.strip()] = value.strip()
        return tags


def _folder_problem(name: str) -> str:
    """What keeps a text from being the folder of an archive; empty if nothing does."""
    if not name.strip():
        return ""
    parts = name.split("/")
    if not name.strip("/"):
        return "leave it empty for archives at the top of the bucket"
    if not (parts[0] and parts[-1]):
        return f"write it without slashes at its ends, as '{name.strip('/')}'"
    if "" in parts:
        return "'' is no folder, and tools that list folders would not find what lies below it"
    if why := path_problem(name):
        return why
    size = len(name.encode())
    return f"it has {size:,} bytes, and an object's key has 1,024 at most" if size > _LONGEST_FOLDER else ""


def _set(number: int) -> int | None:
    """-1 is no limit."""
    return None if number == -1 else number
