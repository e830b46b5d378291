"""Posts records in batches to an HTTP endpoint, as an array of JSON objects or as lines of JSON.

Each record has an id made of topic, partition and offset, so a retry, another attempt or a zombie posts it
with the same id. An endpoint that accepts each id once therefore has each record exactly once.
"""

import json
from base64 import b64encode
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from itertools import groupby
from typing import Any, Literal, NamedTuple
from urllib.parse import SplitResult, urlsplit, urlunsplit

from pydantic import Field, SecretStr

from sinksdk import (
    ConnectException,
    ConnectorConfig,
    DataException,
    RetriableException,
    SinkConnector,
    SinkRecord,
    SinkRecords,
    SinkTask,
    TopicPartition,
)

BAD_RECORD = (  # the endpoint rejects the content of the request
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
)
TRANSIENT = (  # transient, as is every 5xx
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.CONFLICT,  # it still processes a request with this key
    HTTPStatus.TOO_EARLY,
    HTTPStatus.TOO_MANY_REQUESTS,
)
CONTENT_TYPES = {"json": "application/json", "ndjson": "application/x-ndjson"}
LONGEST_WAIT = 86_400.0  # seconds


class WebhookConfig(ConnectorConfig):
    url: SecretStr = Field(
        alias="endpoint.url", description="URL to post to, http:// or https://. Never shown."
    )
    auth_name: str = Field(
        default="Authorization",
        alias="auth.header.name",
        pattern=r"^[A-Za-z0-9-]+$",
        description="Header for authentication.",
    )
    auth_value: SecretStr | None = Field(
        default=None,
        alias="auth.header.value",
        description="Value of that header, such as `Bearer …`. Never shown.",
    )
    body_format: Literal["json", "ndjson"] = Field(
        default="json",
        alias="body.format",
        description="`json`: an array of objects; `ndjson`: an object per line.",
    )
    batch_records: int | None = Field(
        default=None,
        ge=1,
        alias="batch.max.records",
        description="Maximum number of records of a request; by default `max.poll.records`.",
    )
    batch_bytes: int = Field(
        default=1_000_000, ge=100, alias="batch.max.bytes", description="Maximum size of a request's body."
    )
    timeout_ms: int = Field(
        default=30_000,
        ge=1,
        alias="http.timeout.ms",
        description="Milliseconds to wait for a response before the request is repeated.",
    )
    id_prefix: str = Field(
        default="",
        alias="id.prefix",
        pattern=r"^[A-Za-z0-9._:-]*$",
        description="Prefix of ids. With another prefix the endpoint accepts all records again.",
    )

    def problems(self) -> list[str]:
        found = [*super().problems(), *self.url_problems()]
        if self.auth_value and not is_one_line(self.auth_value.get_secret_value()):
            found.append("'auth.header.value' must be one line of ASCII characters")
        most = self.max_poll_records or SinkTask.max_poll_records or 0
        if self.batch_records and self.batch_records > most:
            found.append(f"'batch.max.records': a task receives {most} at a time; raise 'max.poll.records'")
        return found

    def url_problems(self) -> list[str]:
        try:
            url, _ = self.split_url(), self.split_url().port
        except ValueError as error:
            return [f"'endpoint.url': {error}"]
        if url.scheme not in ("http", "https") or not url.hostname:
            return ["'endpoint.url' must be http://host/path or https://host/path"]
        if url.username is not None:
            return ["'endpoint.url' contains a user name; use 'auth.header.value' for authentication"]
        return []

    def split_url(self) -> SplitResult:
        return urlsplit(self.url.get_secret_value())

    @property
    def origin(self) -> str:
        """The endpoint without its path, for messages: some paths are secrets."""
        url = self.split_url()
        return f"{url.scheme}://{url.netloc}"

    def connect(self) -> HTTPConnection:
        """The connection opens with the first request, and with the next one after `close`."""
        url = self.split_url()
        kind = HTTPSConnection if url.scheme == "https" else HTTPConnection
        return kind(url.hostname or "", url.port, timeout=self.timeout_ms / 1000)


def is_one_line(text: str) -> bool:
    return text.isascii() and text.isprintable()


class Event(NamedTuple):
    """A record as it is posted, or the reason why it cannot be."""

    id: str
    record: SinkRecord
    data: bytes
    problem: DataException | None = None


class WebhookTask(SinkTask):
    def start(self, config: WebhookConfig) -> None:
        self.config = config
        self.endpoint = config.connect()
        self.headers = {"Content-Type": CONTENT_TYPES[config.body_format]}
        if config.auth_value:
            self.headers[config.auth_name] = config.auth_value.get_secret_value()
        self.cuts: dict[TopicPartition, set[str]] = {}

    def put(self, records: SinkRecords) -> None:
        """Accepted records are durable, so the default `pre_commit` commits them."""
        events = list(self.events(records))
        cuts = self.cuts.setdefault(records.partition, set())
        done = 0
        try:
            with closing(self.endpoint):  # many servers close connections that are idle between two calls
                while done < len(events):
                    done += self.deliver(self.batch(events[done:], cuts), cuts)
        except RetriableException as error:
            error.accepted = whole_offsets_before(records, done)  # accepted records are not put again
            raise
        cuts.clear()

    def deliver(self, batch: Sequence[Event], cuts: set[str]) -> int:
        """Return how many are done: all, or 0 if the batch must be split in two."""
        try:
            self.post(batch)
        except DataException as error:
            if len(batch) > 1:
                cuts |= {batch[len(batch) // 2 - 1].id, batch[-1].id}  # cuts also hold after a retry
                return 0
            self.context.errant_record_reporter().report(batch[0].record, error)
        return len(batch)

    def events(self, records: SinkRecords) -> Iterator[Event]:
        """If a transform creates several records of an offset, the second one's id ends with `.1`."""
        for offset, same in groupby(records, lambda record: record.offset):
            for number, record in enumerate(same):
                suffix = f".{number}" if number else ""
                yield self.event(f"{self.config.id_prefix}{records.partition}-{offset}{suffix}", record)

    def event(self, name: str, record: SinkRecord) -> Event:
        columns = ("topic", "partition", "offset", "timestamp", "key", "value")
        content = {"id": name, **{column: getattr(record, column) for column in columns}}
        try:
            data = json.dumps(content, default=plain, allow_nan=False, separators=(",", ":")).encode()
        except (TypeError, ValueError, RecursionError) as error:
            return Event(name, record, b"", DataException(f"{name} cannot be written as JSON: {error}"))
        if len(data) + 2 > self.config.batch_bytes:
            problem = f"{name} has {len(data)} bytes, and 'batch.max.bytes' is {self.config.batch_bytes}"
            return Event(name, record, b"", DataException(problem))
        return Event(name, record, data)

    def batch(self, events: Sequence[Event], cuts: Collection[str]) -> Sequence[Event]:
        """Return the next request: as large as allowed, up to the next cut. An invalid record is alone."""
        size = 1
        for number, event in enumerate(events):
            size += len(event.data) + 1
            if number and (event.problem or size > self.config.batch_bytes):
                return events[:number]
            if event.problem or event.id in cuts or number + 1 == self.config.batch_records:
                return events[: number + 1]
        return events

    def post(self, batch: Sequence[Event]) -> None:
        """Raise DataException if the endpoint rejects a record of the batch."""
        first, last = batch[0], batch[-1]
        if first.problem:
            raise first.problem
        data = [event.data for event in batch]
        is_lines = self.config.body_format == "ndjson"
        body = b"".join(line + b"\n" for line in data) if is_lines else b"[" + b",".join(data) + b"]"
        key = first.id if first is last else f"{first.id}..{last.id}"
        url = self.config.split_url()
        target = urlunsplit(("", "", url.path or "/", url.query, ""))
        try:
            self.endpoint.request("POST", target, body, {**self.headers, "Idempotency-Key": key})
            response = self.endpoint.getresponse()
            content = response.read()
        except (OSError, HTTPException) as error:  # no connection, a time-out, or a partial response
            raise RetriableException(f"{self.config.origin}: {type(error).__name__}: {error}") from error
        judge(response, f"{self.config.origin}: {response.status} {response.reason}: {shortened(content)}")

    def close(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            self.cuts.pop(partition, None)


def judge(response: HTTPResponse, message: str) -> None:
    """Raise the exception that a response stands for."""
    if HTTPStatus.OK <= response.status < HTTPStatus.MULTIPLE_CHOICES:
        return
    if response.status in BAD_RECORD:
        raise DataException(message)
    if response.status in TRANSIENT or response.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        raise RetriableException(message, retry_after=seconds_in(response.getheader("Retry-After", "")))
    raise ConnectException(message)  # not found, access denied, moved: not a record's fault


def seconds_in(retry_after: str) -> float | None:
    """Return the seconds to wait, a day at most; None leaves the delay to the engine."""
    if retry_after.isdecimal():
        return min(float(retry_after), LONGEST_WAIT)
    try:
        until = parsedate_to_datetime(retry_after)
    except ValueError:
        return None
    until = until if until.tzinfo else until.replace(tzinfo=UTC)
    return min(max((until - datetime.now(UTC)).total_seconds(), 0.0), LONGEST_WAIT)


def whole_offsets_before(records: SinkRecords, row: int) -> int:
    """Exclude a partial offset: its other records would be numbered from 0 when they are put again."""
    offsets = records.offsets
    return int(offsets.searchsorted(offsets[row]))


def plain(value: Any) -> str:
    """Encode bytes in base64; write dates, decimals and other Avro types as text."""
    return b64encode(value).decode() if isinstance(value, bytes) else str(value)


def shortened(content: bytes) -> str:
    return " ".join(content[:200].decode(errors="replace").split())


class WebhookSink(SinkConnector):
    config_class, task_class = WebhookConfig, WebhookTask
