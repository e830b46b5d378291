"""Finished uploads are completed or aborted by their tokens; repeating a call changes nothing."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from functools import partial
from typing import Final

from sinksdk import ConnectException, Token
from sinksdk.connectors.s3_archiver.archive.header import FileHeader
from sinksdk.connectors.s3_archiver.s3.client import S3, Checksum, Location, Part
from sinksdk.connectors.s3_archiver.s3.connect import Connect
from sinksdk.connectors.s3_archiver.s3.errors import (
    CONFLICT,
    NO_SUCH_UPLOAD,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    S3Error,
    S3Trouble,
)
from sinksdk.connectors.s3_archiver.s3.requests import Together, together
from sinksdk.connectors.s3_archiver.s3.settings import UploadSettings
from sinksdk.connectors.s3_archiver.s3.upload import NONCE

_ONE_BY_ONE: Final = 2
"""Files of a group that are not worth a listing."""

_LONGEST_LISTING: Final = 5_000
"""Uploads of others and our own, in five requests, after which the rest is looked at one by one."""


class UploadExpired(ConnectException):
    """A committed upload is gone and its object is not there: what the commit covers is not archived.

    :attr:`token` cannot be published any more. Of its group, the files of :attr:`visible` are, and no other
    one will ever be.
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
    """Where a token's object is, or will be."""
    return Location(token.data["bucket"], token.data["key"])


def view_of(token: Token) -> str:
    """What a token's file holds of its records: ``keys``, ``headers``; empty for values, or for all."""
    view: str = token.data.get("view", "")
    return view


def groups_of(tokens: Sequence[Token]) -> list[list[Token]]:
    """A commit's tokens by group, in their order."""
    grouped = itertools.groupby(tokens, key=lambda token: token.data.get("group") or [token.data["start"]])
    return [list(group) for _, group in grouped]


def complete(s3: S3, token: Token) -> None:
    """Make a finished upload visible. Idempotent, whatever happened to earlier answers.

    Raises:
        S3Trouble: try again later.
        ForeignObject: the key holds an object of another writer.
        UploadExpired: the upload is gone and so is its object.
        S3Error: refused.
    """
    # An endpoint that ignores the condition would write over another one's object: look first.
    has_conditions = not token.data.get("unconditional", False)
    if not has_conditions and is_visible(s3, token):
        return
    try:
        _complete(s3, token, if_absent=has_conditions)
    except S3Error as error:
        if error.code not in (NO_SUCH_UPLOAD, PRECONDITION_FAILED, NOT_IMPLEMENTED):
            raise
        if is_visible(s3, token):  # an earlier attempt took effect and its answer was lost
            return
        if error.code == PRECONDITION_FAILED:
            raise S3Trouble(
                f"{location_of(token)} vanished while it was being published", CONFLICT
            ) from error
        if error.code == NO_SUCH_UPLOAD:
            raise UploadExpired(_expired(token), token) from error
        if not has_conditions:
            raise
        # The store knows no conditions (501); we have just looked, which is the best it allows.
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
    """Raise UploadExpired if a token's upload, which is gone, has not become its object."""
    if not is_visible(s3, token):
        raise UploadExpired(_expired(token), token)


def is_replaced(s3: S3, token: Token, connector: str) -> bool:
    """Whether the connector has archived another file under the token's key.

    It has done so after it had withdrawn the token's commit, of which only an older copy of the store knows.
    """
    there = s3.head(location_of(token))
    if there is None or there.metadata.get(NONCE) == token.data["nonce"]:
        return False
    try:
        return FileHeader.of_object(there.metadata).connector == connector
    except ValueError:
        return False


def is_visible(s3: S3, token: Token) -> bool:
    """Whether the token's own object is visible. Raises ForeignObject when another one is."""
    location = location_of(token)
    there = s3.head(location)
    if there is None:
        return False
    nonce = there.metadata.get(NONCE)
    if nonce == token.data["nonce"]:
        return True
    raise ForeignObject(
        f"{location} cannot be published: the key holds another object, of {there.size} bytes, "
        f"{f'written by upload nonce {nonce}' if nonce else 'not written by this archiver'}, where "
        f"upload nonce {token.data['nonce']} was committed. Nothing was overwritten. If the store was "
        f"restored from an older copy, 'sinksdk offsets recover CONFIG' commits what the archive holds. "
        f"Otherwise find out who writes under this prefix; move that object away, and this one is published "
        f"at the next start"
    )


def _expired(token: Token) -> str:
    start, end = token.data.get("start", "?"), token.data.get("end", "?")
    which = f"{token.data.get('records')} records" if "group" in token.data else "the records"
    return (
        f"the multipart upload {token.id} of {location_of(token)} was committed but is gone before it was "
        f"published, and the object is not there: {which} of offsets [{start}, {end}) are not in the "
        f"archive; they and what follows are read from the source again. If a lifecycle rule aborts "
        f"incomplete uploads, let it wait longer than the connector may be down"
    )


def abort(s3: S3, token: Token) -> None:
    """Free what an upload holds. Idempotent; an upload that is gone is as good.

    A part that was on its way while the first request was answered may arrive after it, so the
    upload is aborted until S3 no longer knows it.

    Raises:
        S3Trouble: try again later.
        S3Error: refused.
    """
    for _ in range(3):
        try:
            s3.abort_upload(location_of(token), token.id)
        except S3Error as error:
            if error.code == NO_SUCH_UPLOAD:
                return
            raise


log = logging.getLogger(__name__)


class Publisher:
    """Publishes and discards tokens, also of predecessors that wrote to another endpoint.

    Args:
        together: makes requests of a group's files at a time.
    """

    def __init__(self, config: UploadSettings, connect: Connect, together: Together = together) -> None:
        self._config = config
        self._connect = connect
        self._together = together
        self._clients: dict[str, S3] = {}
        self._visible: set[str] = set()  # uploads that are published, of commits that are not as a whole
        self._lists_uploads = True

    def publish(self, tokens: Sequence[Token]) -> None:
        """Make each object visible, group by group. Idempotent.

        Raises:
            S3Trouble: try again later.
            ForeignObject: a key holds an object of another writer.
            UploadExpired: an upload is gone and its object is not there.
            S3Error: refused.
        """
        for group in groups_of(tokens):
            if len(group) == 1:
                self._complete(group[0])
            else:
                self._publish_group(group)
        self._visible.difference_update(token.id for token in tokens)

    def _publish_group(self, group: Sequence[Token]) -> None:
        """Look at all uploads before the first of them is completed.

        One that has expired takes its siblings with it. Were they completed as long as it goes well, readers
        would see a part of a group for as long as it takes to archive the rest of it again.
        """
        try:
            left = [token for token in group if token.id not in self._visible]
            there = self._listed(left)
            self._together([partial(self._look, token) for token in left if token.id not in there])
            self._together([partial(self._complete, token) for token in group])
        except UploadExpired as error:
            raise UploadExpired(str(error), error.token, self._settled(group)) from error

    def _listed(self, tokens: Sequence[Token]) -> set[str]:
        """Uploads that a listing has: of a large group a request or two, where each file's own would be many.

        Those that it has not are looked at one by one. A listing may be refused, or be of one key only, as
        MinIO's: a store that lists none of them is not asked again.
        """
        found: set[str] = set()
        if not self._lists_uploads or len(tokens) <= _ONE_BY_ONE:
            return found
        bucket, keys = tokens[0].data["bucket"], sorted(token.data["key"] for token in tokens)
        same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(keys[0], keys[-1], strict=False))
        prefix = "".join(letter for letter, _ in same)
        s3, wanted = self._client(tokens[0]), {token.id for token in tokens}

        def ask() -> None:
            for pending in itertools.islice(s3.list_uploads(bucket, prefix), _LONGEST_LISTING):
                if pending.upload_id in wanted:
                    found.add(pending.upload_id)
                    if found == wanted:
                        return

        try:
            self._together([ask])
        except S3Error as error:
            log.info("%s: %s", Location(bucket, prefix), error)
        self._lists_uploads = bool(found)
        return found

    def _look(self, token: Token) -> None:
        """Raise UploadExpired if it can never be visible. Where nobody may look, completing it tells."""
        s3 = self._client(token)
        try:
            if s3.part_sizes(location_of(token), token.id) is not None:
                return
        except S3Error as error:
            log.info("%s: cannot be looked at before it is published: %s", location_of(token), error)
            return
        expect_visible(s3, token)
        self._visible.add(token.id)

    def _settled(self, group: Sequence[Token]) -> list[Token]:
        """Which files of a group are visible, once none of the others can be any more.

        They are aborted first: somebody late might complete one that was not visible when we looked.
        """
        self._together([partial(abort, self._client(token), token) for token in group])
        visible: list[Token] = []

        def look(token: Token) -> None:
            if is_visible(self._client(token), token):
                visible.append(token)

        self._together([partial(look, token) for token in group])
        return [token for token in group if token in visible]

    def _complete(self, token: Token) -> None:
        s3 = self._client(token)
        if token.id not in self._visible:
            complete(s3, token)
            self._visible.add(token.id)
        if self._config.s3_object_tagging:
            self._tag(s3, token)

    def discard(self, tokens: Sequence[Token]) -> None:
        """Abort each  Idempotent. One that is refused (its bucket is gone) holds up no other one.

        Raises:
            S3Trouble: try again later.
            S3Error: some were refused, the others are aborted.
        """
        refused: list[S3Error] = []

        def give_up(token: Token) -> None:
            try:
                abort(self._client(token), token)
            except S3Error as error:
                refused.append(error)

        self._together([partial(give_up, token) for token in tokens])
        if refused:
            raise refused[0]

    def replaced(self, tokens: Sequence[Token], connector: str) -> list[Token] | None:
        """Give up a commit that the connector has archived again since, as an older copy of the store has it.

        Returns:
            The tokens whose files are visible, no other one can be any more. None: it may still be published.

        Raises:
            S3Trouble: try again later.
            ForeignObject: a key holds an object of another writer.
            S3Error: refused.
        """
        if not any(is_replaced(self._client(token), token, connector) for token in tokens):
            return None
        self.discard(tokens)  # before the look: somebody late might complete one after it
        kept = [t for t in tokens if not is_replaced(self._client(t), t, connector)]
        return [token for token in kept if is_visible(self._client(token), token)]

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
        location = location_of(token)
        try:
            s3.tag(location, self._config.tags() | tags)
        except S3Error as error:
            if self._config.s3_tagging_error == "fail":
                raise
            log.warning("%s is archived but not tagged: %s", location, error)
