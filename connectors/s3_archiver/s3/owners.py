"""Owner markers: one small object per topic names the connector that archives it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final

from sinksdk import ConfigException
from sinksdk.connector import ConnectorIdentity
from sinksdk.connectors.s3_archiver.archive.layout import Layout
from sinksdk.connectors.s3_archiver.s3.client import S3, Location
from sinksdk.connectors.s3_archiver.s3.errors import NOT_IMPLEMENTED, S3Error
from sinksdk.connectors.s3_archiver.s3.requests import read_if_there

_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Owners:
    s3: S3
    bucket: str
    layout: Layout
    identity: ConnectorIdentity

    def claim(self, topics: Iterable[str]) -> None:
        """Mark topics as this connector's; the ConfigException names all topics of others."""
        problems = [problem for topic in topics if (problem := self._claim(topic))]
        if problems:
            raise ConfigException(problems)

    def release(self) -> None:
        # The markers stay: a late process would delete those of the topics' next owner. Instead an object
        # that no other connector writes says that this incarnation owns nothing. Nor are uploads listed and
        # aborted: they might be the next owner's.
        body = json.dumps(self._own(), indent=2).encode()
        self.s3.put(Location(self.bucket, self.layout.released(self.identity.incarnation)), body)

    def topics(self) -> list[str]:
        """Return topics whose marker names a connector of this name, in any store."""
        found = []
        for each in list(self.s3.list(self.bucket, self.layout.markers())):
            topic = self.layout.topic_of_marker(each.key)
            marker = self._read(Location(self.bucket, each.key)) if topic is not None else None
            if topic is not None and marker and marker.get("connector") == self.identity.connector:
                found.append(topic)
        return found

    def take_over(self, topics: Iterable[str]) -> None:
        """Replace other connectors' markers: an operator says that this one owns the archive."""
        for topic in topics:
            location = Location(self.bucket, self.layout.marker(topic))
            marker = self._read(location)
            if marker is not None and marker != self._own():
                self._replace(location, marker)
        self.claim(topics)  # raises an error if another connector has written a marker since

    def _claim(self, topic: str) -> str | None:
        location = Location(self.bucket, self.layout.marker(topic))
        marker = self._read(location)
        if marker is None:
            self._write(location, self.s3.put_if_absent)
        elif marker != self._own() and self._is_released(marker):
            self._replace(location, marker)
        else:
            return None if marker == self._own() else self._refusal(topic, location, marker)
        # The marker is read back whatever the response was: the response may be lost, another connector may
        # have been first, and some stores ignore the condition.
        marker = self._read(location)
        if marker is None:
            return (
                f"{location}, the owner marker of topic {topic}, disappeared after it was written: start "
                f"again"
            )
        return None if marker == self._own() else self._refusal(topic, location, marker)

    def _own(self) -> dict[str, Any]:
        return {"format": _FORMAT, **asdict(self.identity)}

    def _read(self, location: Location) -> dict[str, Any] | None:
        body = read_if_there(self.s3, location)
        if body is None:
            return None
        try:
            found = json.loads(body)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    def _is_released(self, marker: dict[str, Any]) -> bool:
        incarnation = marker.get("incarnation")
        if marker.get("format") != _FORMAT or not isinstance(incarnation, str):
            return False
        return self._read(Location(self.bucket, self.layout.released(incarnation))) == marker

    def _replace(self, location: Location, marker: dict[str, Any]) -> None:
        found = self.s3.head(location)
        if found is not None and self._read(location) == marker:
            self._write(location, partial(self.s3.put_if_match, etag=found.etag))

    def _write(self, location: Location, write: Callable[[Location, bytes], bool]) -> None:
        body = json.dumps(self._own(), indent=2).encode()
        try:
            write(location, body)
        except S3Error as error:
            if error.code != NOT_IMPLEMENTED:
                raise
            # The store has no conditional writes; the marker was read just before.
            self.s3.put(location, body)

    def _refusal(self, topic: str, location: Location, marker: dict[str, Any]) -> str:
        mine = self.identity
        where = f"{self.layout.folder(topic)} in bucket {self.bucket}"
        if marker.get("format") != _FORMAT:
            return (
                f"{location}, the owner marker of topic {topic}, cannot be read: it is damaged, or was "
                f"written by a newer version"
            )
        if marker["connector"] != mine.connector:
            owner = f"connector '{marker['connector']}'"
        elif marker["store_id"] != mine.store_id:
            owner = (
                f"a connector of the same name whose commits are in another store (id {marker['store_id']}, "
                f"this one is {mine.store_id})"
            )
        else:
            owner = "an earlier connector of the same name, which was deleted"
        return (
            f"the archive of topic {topic} under {where} belongs to {owner} (owner marker {location}): "
            f"writing there would archive its records twice. Start with that connector's store, or choose "
            f"another 'topics.dir'. If that store is lost, no other connector writes there, and you want to "
            f"continue this archive: 'sinksdk offsets recover CONFIG' takes it over, and commits its records"
        )
