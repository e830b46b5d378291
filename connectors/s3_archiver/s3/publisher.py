"""Completes or aborts finished uploads by their tokens; all calls are idempotent."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from functools import partial
from typing import Final

from sinksdk import ConnectException, Token
from sinksdk.connectors.s3_archiver.archive.header import FileHeader
from sinksdk.connectors.s3_archiver.s3.client import S3, Checksum, Location, Part
from sinksdk.connectors.s3_archiver.s3.errors import (
    NO_SUCH_UPLOAD,
    NOT_IMPLEMENTED,
    S3Error,
    S3TransientError,
)
from sinksdk.connectors.s3_archiver.s3.requests import Connect, Together, together
from sinksdk.connectors.s3_archiver.s3.settings import UploadSettings
from sinksdk.connectors.s3_archiver.s3.upload import NONCE
from sinksdk.support.s3 import CONFLICT, PRECONDITION_FAILED

log = logging.getLogger(__name__)

_ONE_BY_ONE: Final = 2  # up to this number of files in a group, each upload is checked without a listing

# Uploads that a listing reads, in five requests; uploads beyond these are checked one by one.
_LONGEST_LISTING: Final = 5_000


class UploadExpired(ConnectException):
    """A committed upload is gone, and so is its object: :attr:`token` can never be published.

    :attr:`visible` lists the files of its group that are published or can still be.
    """

    def __init__(self, message: str, token: Token, visible: Sequence[Token] = ()) -> None:
        super().__init__(message)
        self.token = token
        self.visible = visible

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.token, self.visible)


class ForeignObject(ConnectException):
    """The key holds an object of another writer."""


def location_of(token: Token) -> Location:
    return Location(token.data["bucket"], token.data["key"])


def view_of(token: Token) -> str:
    """Return ``keys`` or ``headers``; empty for values and records."""
    view: str = token.data.get("view", "")
    return view


def groups_of(tokens: Sequence[Token]) -> list[list[Token]]:
    grouped = itertools.groupby(tokens, key=lambda token: token.data.get("group") or [token.data["start"]])
    return [list(group) for _, group in grouped]


def complete(s3: S3, token: Token) -> None:
    # An endpoint that ignores the condition would overwrite another writer's object, so it is checked first.
    has_conditions = not token.data.get("unconditional", False)
    if not has_conditions and is_visible(s3, token):
        return
    try:
        _complete(s3, token, if_absent=has_conditions)
    except S3Error as error:
        if error.code not in (NO_SUCH_UPLOAD, PRECONDITION_FAILED, NOT_IMPLEMENTED):
            raise
        if is_visible(s3, token):  # an earlier attempt has completed the upload, but its response was lost
            return
        if error.code == PRECONDITION_FAILED:
            raise S3TransientError(
                f"{location_of(token)} disappeared while it was published", CONFLICT
            ) from error
        if error.code == NO_SUCH_UPLOAD:
            raise UploadExpired(_expired(token), token) from error
        if not has_conditions:
            raise
        # The endpoint does not support conditions (501).
        _complete(s3, token, if_absent=False)


def _complete(s3: S3, token: Token, *, if_absent: bool) -> None:
    s3.complete_upload(
        location_of(token),
        token.id,
        [Part(*part) for part in token.data["parts"]],
        size=token.data["size"],
        crc32=token.data["crc32"],
        if_absent=if_absent,
        checksum=Checksum(token.data.get("checksum", Checksum.FULL)),
    )


def expect_visible(s3: S3, token: Token) -> None:
    if not is_visible(s3, token):
        raise UploadExpired(_expired(token), token)


def is_replaced(s3: S3, token: Token, connector: str) -> bool:
    """Return whether the connector has archived another file under the token's key."""
    # The connector has withdrawn the token's commit since, but an older copy of the store still has it.
    existing = s3.head(location_of(token))
    if existing is None or existing.metadata.get(NONCE) == token.data["nonce"]:
        return False
    try:
        return FileHeader.of_object(existing.metadata).connector == connector
    except ValueError:
        return False


def is_visible(s3: S3, token: Token) -> bool:
    location = location_of(token)
    existing = s3.head(location)
    if existing is None:
        return False
    nonce = existing.metadata.get(NONCE)
    if nonce == token.data["nonce"]:
        return True
    raise ForeignObject(
        f"{location} cannot be published: the key holds another object, of {existing.size} bytes, "
        f"{f'written by the upload with nonce {nonce}' if nonce else 'not written by this archiver'}, but "
        f"the commit is for the upload with nonce {token.data['nonce']}. Nothing was overwritten. If the "
        f"store was restored from an older copy, 'sinksdk offsets recover CONFIG' commits the records in the "
        f"archive. Otherwise find the writer that uses this prefix, and move its object away; the next start "
        f"then publishes this one"
    )


def _expired(token: Token) -> str:
    start, end = token.data.get("start", "?"), token.data.get("end", "?")
    which = f"{token.data.get('records')} records" if "group" in token.data else "the records"
    return (
        f"the multipart upload {token.id} of {location_of(token)} was committed but disappeared before it "
        f"was published, and the object does not exist: {which} of offsets [{start}, {end}) are not in the "
        f"archive; they and later records are read from the source again. If a lifecycle rule aborts "
        f"incomplete uploads, make it wait longer than the connector may be down"
    )


def abort(s3: S3, token: Token) -> None:
    # A part in flight during the first abort may arrive afterwards: the abort is repeated until S3 does not
    # know the upload.
    for _ in range(3):
        try:
            s3.abort_upload(location_of(token), token.id)
        except S3Error as error:
            if error.code == NO_SUCH_UPLOAD:
                return
            raise
    # Some stores report success for every abort, so there are at most three.


class Publisher:
    """Publishes and discards tokens, also those of predecessors that wrote to another endpoint."""

    def __init__(self, config: UploadSettings, connect: Connect, together: Together = together) -> None:
        self._config = config
        self._connect = connect
        self._together = together
        self._clients: dict[str, S3] = {}
        self._visible: set[str] = set()  # ids of published uploads whose commits are not yet complete
        self._lists_uploads = True

    def publish(self, tokens: Sequence[Token]) -> None:
        for group in groups_of(tokens):
            if len(group) == 1:
                self._complete(group[0])
            else:
                self._publish_group(group)
        self._visible.difference_update(token.id for token in tokens)

    def _publish_group(self, group: Sequence[Token]) -> None:
        # All uploads are checked before the first is completed: an expired one would otherwise leave readers
        # with part of a group until the rest is archived again.
        try:
            left = [token for token in group if token.id not in self._visible]
            listed = self._listed(left)
            self._together(
                [partial(self._expect_publishable, token) for token in left if token.id not in listed]
            )
            self._together([partial(self._complete, token) for token in group])
        except UploadExpired as error:
            raise UploadExpired(str(error), error.token, self._settled(group)) from error

    def _listed(self, tokens: Sequence[Token]) -> set[str]:
        """Return the upload ids that ListMultipartUploads reports, in one or two requests per group."""
        # Unreported uploads are checked singly: some stores deny the listing, MinIO returns one key.
        found: set[str] = set()
        if not self._lists_uploads or len(tokens) <= _ONE_BY_ONE:
            return found
        bucket, keys = tokens[0].data["bucket"], sorted(token.data["key"] for token in tokens)
        same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(keys[0], keys[-1], strict=False))
        prefix = "".join(letter for letter, _ in same)
        s3, wanted = self._client(tokens[0]), {token.id for token in tokens}

        def collect() -> None:
            for pending in itertools.islice(s3.list_uploads(bucket, prefix), _LONGEST_LISTING):
                if pending.upload_id in wanted:
                    found.add(pending.upload_id)
                    if found == wanted:
                        return

        try:
            self._together([collect])
        except S3Error as error:
            log.info("cannot list uploads below %s: %s", Location(bucket, prefix), error)
        self._lists_uploads = bool(found)
        return found

    def _expect_publishable(self, token: Token) -> None:
        s3 = self._client(token)
        try:
            if s3.part_sizes(location_of(token), token.id) is not None:
                return
        except S3Error as error:
            log.info("cannot check the upload to %s before completing it: %s", location_of(token), error)
            return
        expect_visible(s3, token)
        self._visible.add(token.id)

    def _settled(self, group: Sequence[Token]) -> list[Token]:
        # The uploads are aborted before the check, because a late predecessor might complete one after it.
        self._together([partial(abort, self._client(token), token) for token in group])
        visible: list[Token] = []

        def check(token: Token) -> None:
            if is_visible(self._client(token), token):
                visible.append(token)

        self._together([partial(check, token) for token in group])
        return [token for token in group if token in visible]

    def _complete(self, token: Token) -> None:
        s3 = self._client(token)
        if token.id not in self._visible:
            complete(s3, token)
            self._visible.add(token.id)
        if self._config.s3_object_tagging:
            self._tag(s3, token)

    def discard(self, tokens: Sequence[Token]) -> None:
        refused: list[S3Error] = []

        def give_up(token: Token) -> None:
            try:
                abort(self._client(token), token)
            except S3Error as error:
                # For example, the bucket was deleted: the other uploads are still aborted.
                refused.append(error)

        self._together([partial(give_up, token) for token in tokens])
        if refused:
            raise refused[0]

    def replaced(self, tokens: Sequence[Token], connector: str) -> list[Token] | None:
        """Give up a commit of an older copy of the store whose records were archived again.

        Return the tokens of visible files; None if the commit may still be published.
        """
        if not any(is_replaced(self._client(token), token, connector) for token in tokens):
            return None
        self.discard(tokens)  # discarded before the check, as in _settled
        kept = [t for t in tokens if not is_replaced(self._client(t), t, connector)]
        return [token for token in kept if is_visible(self._client(token), token)]

    def _client(self, token: Token) -> S3:
        endpoint = token.data["endpoint"]
        if endpoint not in self._clients:
            self._clients[endpoint] = self._connect(self._config, endpoint)
        return self._clients[endpoint]

    def _tag(self, s3: S3, token: Token) -> None:
        # Confluent's sink also tags an object with the last record's offset.
        tags = {
            "startOffset": str(token.data["start"]),
            "endOffset": str(token.data["end"] - 1),
            "recordCount": str(token.data["records"]),
        }
        location = location_of(token)
        try:
            s3.tag(location, self._config.tags() | tags)
        except S3Error as error:
            if self._config.s3_tagging_error == "fail":
                raise
            log.warning("%s is archived but not tagged: %s", location, error)
