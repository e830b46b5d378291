"""Whose rights requests to S3 are made with: given keys, the default chain, or a role that is assumed."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import botocore.session
from botocore.config import Config
from botocore.credentials import (
    AssumeRoleCredentialFetcher,
    CredentialProvider,
    CredentialResolver,
    DeferredRefreshableCredentials,
)

from sinksdk.connectors.s3_archiver.access import Keys, Role

if TYPE_CHECKING:
    from botocore.credentials import Credentials
    from botocore.session import Session

ASSUME_ROLE: Final = "AssumeRole"
"""STS's operation, as its errors name it."""


def session(keys: Keys, role: Role | None = None, proxy: str = "") -> Session:
    """A botocore session with these rights. Nothing is asked for before the first request.

    Args:
        keys: what to begin with.
        role: what to assume with them.
        proxy: URL of the proxy on the way to STS, or empty.
    """
    made = botocore.session.get_session()
    if keys.key_id:
        made.set_credentials(keys.key_id, keys.secret)
    if role is None:
        return made
    assuming = botocore.session.get_session()
    assuming.register_component("credential_provider", CredentialResolver([_AssumedRole(made, role, proxy)]))
    return assuming


class _AssumedRole(CredentialProvider):
    """Assumes the role when keys are needed, and again before they expire."""

    METHOD = "assume-role"

    def __init__(self, source: Session, role: Role, proxy: str) -> None:
        super().__init__()
        self._source = source
        self._role = role
        self._proxy = proxy

    def load(self) -> Credentials | None:
        source = self._source
        own = source.get_credentials()
        if own is None:
            return None  # as any provider that has none: the request fails with NoCredentialsError
        proxies = {"http": self._proxy, "https": self._proxy} if self._proxy else None
        wanted = {"RoleSessionName": self._role.session, "ExternalId": self._role.external_id}
        fetcher = AssumeRoleCredentialFetcher(
            client_creator=partial(
                source.create_client, region_name=self._role.region, config=Config(proxies=proxies)
            ),
            source_credentials=own,
            role_arn=self._role.arn,
            extra_args={name: value for name, value in wanted.items() if value},
        )
        return DeferredRefreshableCredentials(fetcher.fetch_credentials, self.METHOD)
