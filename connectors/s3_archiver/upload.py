"""A multipart upload of one object in two phases: fed part by part, made visible after the commit.

Writing and sending are apart: :meth:`Upload.write` only takes bytes and never fails, :meth:`Upload.send`
does the requests and may be called again after it raised, for nothing is forgotten before S3 has it.
A full part travels while the next one is filled, one of an upload at a time: so parts end in their order.
"""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sinksdk import ConnectException, Token
from sinksdk.connectors.s3_archiver import crc, upload
from sinksdk.connectors.s3_archiver.client import S3, Abilities, Checksum, Connect, Location, Part
from sinksdk.connectors.s3_archiver.errors import (
    CONFLICT,
    NO_SUCH_UPLOAD,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    S3Error,
    S3Trouble,
)
from sinksdk.connectors.s3_archiver.layout import FileHeader
from sinksdk.connectors.s3_archiver.part import PartBuffer, PartPool, PartRequest, Together, together

if TYPE_CHECKING:
    from sinksdk.connectors.s3_archiver.config import S3ArchiverConfig


MAX_PARTS: Final = 10_000
"""Most parts S3 allows in one upload."""

LEAST_PART: Final = 5 * 1024 * 1024
"""Fewest bytes of a part that is not the last."""

NONCE: Final = "sinksdk-nonce"
"""Object metadata that identifies the upload that made an object."""

_ONE_BY_ONE: Final = 2
"""Files of a group that are not worth a listing."""

_LONGEST_LISTING: Final = 5_000
"""Uploads of others and our own, in five requests, after which the rest is looked at one by one."""

Chunk = bytes | bytearray | memoryview


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


class Upload:
    """One object on its way to S3: nothing of it is visible before :func:`complete`.

    Begin with :meth:`create`, note the token durably, say :meth:`noted`, then :meth:`send`.

    Args:
        pool: has the buffers that parts are collected in, and sends them.
        nonce: a random text that no other upload has.
        metadata: object metadata besides the nonce, ASCII.
        abilities: what the endpoint can do with it.
    """

    # More than ten attributes: the object, the part that is filled, the one on its way, those that S3 has.

    def __init__(
        self,
        s3: S3,
        location: Location,
        pool: PartPool,
        nonce: str,
        metadata: Mapping[str, str],
        *,
        abilities: Abilities = Abilities(),  # noqa: B008 - immutable
    ) -> None:
        self._s3 = s3
        self._abilities = abilities
        self.location = location
        self._pool = pool
        self._buffer = pool.take()
        self._request: PartRequest | None = None
        self._metadata = {**metadata, NONCE: nonce}
        self._backlog: deque[memoryview] = deque()
        self._parts: list[Part] = []
        self._crc32 = 0
        self._id: str | None = None
        self.is_noted = False
        """Whether a successor knows of it, so that it may hold data."""
        self.size = 0
        self.is_finished = False

    @property
    def has_full_part(self) -> bool:
        """Whether more than one part is here: time to :meth:`send`."""
        return bool(self._backlog)

    @property
    def is_sending(self) -> bool:
        """Whether a part is on its way, or has failed there."""
        return self._request is not None

    @property
    def has_failed_part(self) -> bool:
        """Whether a part has to be sent again: time to :meth:`send`, too."""
        return self._request is not None and self._request.is_due

    @property
    def held(self) -> int:
        """Bytes of memory that its data takes, without a part on its way."""
        return self._buffer.held + sum(map(len, self._backlog))

    @property
    def sendable(self) -> int:
        """Bytes that :meth:`send_early` would send now."""
        filled = self._buffer.filled
        return filled if filled >= min(LEAST_PART, self._pool.capacity) else 0

    @property
    def is_at_limit(self) -> bool:
        """Whether the object should end soon, because S3 allows no more parts."""
        return max(len(self._parts), self.size // self._pool.capacity) >= MAX_PARTS - 100

    @property
    def token(self) -> Token:
        """What it takes to abort it; once finished, also to complete it."""
        if self._id is None:
            raise ValueError(f"the upload to {self.location} was not created yet")
        data: dict[str, Any] = {
            "endpoint": self._s3.endpoint,
            "bucket": self.location.bucket,
            "key": self.location.key,
            "nonce": self._metadata[NONCE],
        }
        if self._abilities.checksum is not Checksum.FULL:
            data["checksum"] = self._abilities.checksum.value
        if not self._abilities.has_conditions:
            data["unconditional"] = True
        if self.is_finished:
            data |= {
                "size": self.size,
                "crc32": crc.encode(self._crc32),
                "parts": [[part.etag, part.crc32] for part in self._parts],
            }
        return Token(self._id, data)

    def create(self) -> None:
        """Begin at S3, without data. Does nothing the second time.

        Raises:
            S3Trouble: try again; a lost answer leaves an empty upload, which costs nothing.
            S3Error: refused.
        """
        if self._id is None:
            self._id = self._s3.create_upload(self.location, self._metadata, self._abilities.checksum)

    def noted(self) -> None:
        """The token is durable: from now on data may be sent."""
        self.is_noted = True

    def write(self, data: Chunk) -> None:
        """Take bytes into memory. Never fails; what is beyond the part's end waits for :meth:`send`."""
        piece = memoryview(data).cast("B")
        self.size += len(piece)
        if not self._backlog:
            piece = self._buffer.fill(piece)
        if len(piece):
            self._backlog.append(memoryview(bytes(piece)))  # the caller's buffer may be used again

    def send(self) -> None:
        """Send what fills parts. After an error: call again, nothing is lost and nothing goes twice.

        Raises:
            S3Trouble: try again later; the next call reports a part that failed on its way.
            S3Error: refused; the upload cannot be finished.
        """
        if self.has_failed_part:
            self._collect()
        while self._backlog:
            if self._buffer.is_full:
                self._send_part(is_last=False)
            rest = self._buffer.fill(self._backlog[0])
            if len(rest):
                self._backlog[0] = rest
            else:
                self._backlog.popleft()

    def send_early(self) -> None:
        """Send what there is as a part, if it is enough for one, so that its memory is free.

        Raises:
            S3Trouble: try again later.
            S3Error: refused; the upload cannot be finished.
        """
        self.send()
        if self.sendable:
            self._send_part(is_last=False)

    def check(self) -> None:
        """Raise what a part failed with on its way, once; :meth:`send` sends it again.

        Raises:
            S3Trouble: try again.
            S3Error: refused; the upload cannot be finished.
        """
        if self._request is not None:
            self._request.check()

    def finish(self) -> None:
        """Send everything; it holds no data any more. Does nothing the second time.

        Raises:
            S3Trouble: try again later.
            S3Error: refused; the upload cannot be finished.
        """
        if self.is_finished:
            return
        self.send()
        # An upload has at least one part: of an object without bytes it is an empty one.
        if self._buffer.filled or not (self._parts or self.is_sending):
            self._send_part(is_last=True)
        self._collect()
        self.is_finished = True

    def wait(self) -> None:
        """Return when no part is on its way."""
        if self._request is not None:
            self._request.wait()

    def abandon(self) -> None:
        """It will not be completed. A part in flight keeps its buffer until it has ended."""
        if self._request is not None:
            self._request.is_abandoned = True

    def _send_part(self, *, is_last: bool) -> None:
        """Send the buffer beside, if it may be; the last one is sent by who collects it."""
        if self._id is None or not self.is_noted:
            raise ValueError(
                f"the upload to {self.location} was not noted yet: its data could never be found again"
            )
        self._collect()
        buffer, self._buffer = self._buffer, PartBuffer(0) if is_last else self._pool.take()
        self._request = PartRequest(buffer, partial(self._put, self._id, len(self._parts) + 1))
        if not is_last and (not self._pool.begin(self._request) or self._request.is_over):
            self._collect()

    def _put(self, upload_id: str, number: int, buffer: PartBuffer) -> Part:
        crc32, checksum = crc.encode(buffer.crc32), self._abilities.checksum
        return self._s3.upload_part(self.location, upload_id, number, buffer.body(), crc32, checksum=checksum)

    def _collect(self) -> None:
        """Wait for the part on its way, if there is one; it counts from now on."""
        request = self._request
        if request is not None:
            self._parts.append(request.answer())
            self._crc32 = crc.combine(self._crc32, request.crc32, request.size)
            self._request = None
            self._pool.end(request)


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
    # Some stores answer every abort with success: three of them are enough.


log = logging.getLogger(__name__)


class Publisher:
    """Publishes and discards tokens, also of predecessors that wrote to another endpoint.

    Args:
        together: makes requests of a group's files at a time.
    """

    def __init__(self, config: S3ArchiverConfig, connect: Connect, together: Together = together) -> None:
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
            if s3.part_sizes(upload.location_of(token), token.id) is not None:
                return
        except S3Error as error:
            log.info("%s: cannot be looked at before it is published: %s", upload.location_of(token), error)
            return
        upload.expect_visible(s3, token)
        self._visible.add(token.id)

    def _settled(self, group: Sequence[Token]) -> list[Token]:
        """Which files of a group are visible, once none of the others can be any more.

        They are aborted first: somebody late might complete one that was not visible when we looked.
        """
        self._together([partial(upload.abort, self._client(token), token) for token in group])
        visible: list[Token] = []

        def look(token: Token) -> None:
            if upload.is_visible(self._client(token), token):
                visible.append(token)

        self._together([partial(look, token) for token in group])
        return [token for token in group if token in visible]

    def _complete(self, token: Token) -> None:
        s3 = self._client(token)
        if token.id not in self._visible:
            upload.complete(s3, token)
            self._visible.add(token.id)
        if self._config.s3_object_tagging:
            self._tag(s3, token)

    def discard(self, tokens: Sequence[Token]) -> None:
        """Abort each upload. Idempotent. One that is refused (its bucket is gone) holds up no other one.

        Raises:
            S3Trouble: try again later.
            S3Error: some were refused, the others are aborted.
        """
        refused: list[S3Error] = []

        def give_up(token: Token) -> None:
            try:
                upload.abort(self._client(token), token)
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
        if not any(upload.is_replaced(self._client(token), token, connector) for token in tokens):
            return None
        self.discard(tokens)  # before the look: somebody late might complete one after it
        kept = [t for t in tokens if not upload.is_replaced(self._client(t), t, connector)]
        return [token for token in kept if upload.is_visible(self._client(token), token)]

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
