"""What becomes of uploads after the commit: they are made visible, or aborted."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sinksdk import Token
from sinksdk.connectors.s3_archiver import upload
from sinksdk.connectors.s3_archiver.client import S3, Connect
from sinksdk.connectors.s3_archiver.errors import S3Error

if TYPE_CHECKING:
    from sinksdk.connectors.s3_archiver.config import S3ArchiverConfig

log = logging.getLogger(__name__)


class Publisher:
    """Publishes and discards tokens, also of predecessors that wrote to another endpoint.

    Args:
        config: credentials and tags.
        connect: makes clients.
    """

    def __init__(self, config: S3ArchiverConfig, connect: Connect) -> None:
        self._config = config
        self._connect = connect
        self._clients: dict[str, S3] = {}

    def publish(self, tokens: Sequence[Token]) -> None:
        """Make each object visible. Idempotent.

        Raises:
            S3Trouble: try again later.
            ForeignObject: somebody else's object is at a key.
            UploadExpired: an upload is gone and its object is not there.
            S3Error: refused.
        """
        for token in tokens:
            s3 = self._client(token)
            upload.complete(s3, token)
            if self._config.s3_object_tagging:
                self._tag(s3, token)

    def discard(self, tokens: Sequence[Token]) -> None:
        """Abort each upload. Idempotent. One that is refused (its bucket is gone) holds up no other one.

        Raises:
            S3Trouble: try again later.
            S3Error: some were refused, the others are aborted.
        """
        refused: S3Error | None = None
        for token in tokens:
            try:
                upload.abort(self._client(token), token)
            except S3Error as error:
                refused = refused or error
        if refused is not None:
            raise refused

    def _client(self, token: Token) -> S3:
        endpoint = token.data["endpoint"]
        if endpoint not in self._clients:
            self._clients[endpoint] = self._connect(self._config, endpoint)
        return self._clients[endpoint]

    def _tag(self, s3: S3, token: Token) -> None:
        """Tag a visible object, as Confluent's sink does after its commit."""
        tags = {
            "startOffset": str(token.data["start"]),
            "endOffset": str(token.data["end"] - 1),
            "recordCount": str(token.data["records"]),
        }
        location = upload.location_of(token)
        try:
            s3.tag(location, self._config.tags() | tags)
        except S3Error as error:
            if self._config.s3_tagging_error == "fail":
                raise
            log.warning("%s is archived but not tagged: %s", location, error)
