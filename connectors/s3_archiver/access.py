"""Where S3 is and whose rights it is used with: the part of the configuration that makes a client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple
from urllib.parse import quote, urlsplit

from pydantic import Field, SecretStr

from sinksdk import ConnectorConfig

_ASSUME_ROLE: Final = "AwsAssumeRoleCredentialsProvider"


class Keys(NamedTuple):
    """An access key; empty texts ask the default chain."""

    key_id: str = ""
    secret: str = ""


class Role(NamedTuple):
    """A role to assume, for an hour at a time.

    Args:
        arn: its name.
        session: what its uses are logged under, or empty.
        external_id: what the role's trust may ask for, or empty.
        region: whose STS is asked.
    """

    arn: str
    session: str
    external_id: str
    region: str


class AccessConfig(ConnectorConfig):
    """Bucket, endpoint, credentials and the way there."""

    s3_bucket_name: str = Field(
        min_length=3, max_length=255, alias="s3.bucket.name", description="Bucket the archive is written to."
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
        description="Access key; without it boto3's default chain is asked (environment, profile, role).",
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
        description="What its uses are logged under; boto's own choice if not set.",
    )
    sts_role_external_id: str = Field(
        default="",
        alias="s3.credentials.provider.sts.role.external.id",
        description="External id that the role's trust asks for.",
    )
    sts_region: str = Field(
        default="",
        alias="s3.credentials.provider.sts.region",
        description="Region whose STS is asked; `s3.region` if not set.",
    )
    s3_proxy_url: str = Field(
        default="",
        alias="s3.proxy.url",
        description="Proxy on the way to S3, as in `http://proxy.example:3128`; HTTPS_PROXY of the "
        "environment if not set.",
    )
    s3_proxy_user: str = Field(default="", alias="s3.proxy.user", description="Who asks the proxy.")
    s3_proxy_password: SecretStr | None = Field(
        default=None, alias="s3.proxy.password", description="The proxy's password for that user."
    )

    def problems(self) -> list[str]:
        """What is wrong between fields."""
        return [*super().problems(), *self._access_problems()]

    def _access_problems(self) -> Iterator[str]:
        if not _is_address(self.store_url):
            yield "'store.url' must be an address like https://minio.example:9000"
        if bool(self.aws_access_key_id) != bool(self.aws_secret_access_key):
            yield (
                "'aws.access.key.id' and 'aws.secret.access.key' must be set both, or neither (then the "
                "default credential chain is asked)"
            )
        if self._assumes_role != bool(self.sts_role_arn):
            yield (
                "'s3.credentials.provider.sts.role.arn' and AwsAssumeRoleCredentialsProvider as "
                "'s3.credentials.provider.class' must be set both, or neither"
            )
        if not _is_address(self.s3_proxy_url):
            yield "'s3.proxy.url' must be an address like http://proxy.example:3128"
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


def _is_address(text: str) -> bool:
    """Whether it is empty, or the URL of a host."""
    address = urlsplit(text)
    return not text or (address.scheme in ("http", "https") and bool(address.hostname))
