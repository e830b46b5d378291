"""Owner markers: one small object per topic that says whose archive this is.

Commits live in a store, the archive in a bucket. Whoever has lost the store, or points a second
connector at the same prefix, would archive the topic a second time beside the first; the marker
stops that before any data is written.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final

from sinksdk import ConfigException
from sinksdk.connector import ConnectorIdentity
from sinksdk.connectors.s3_archiver.client import S3, Location
from sinksdk.connectors.s3_archiver.errors import NO_SUCH_KEY, NOT_IMPLEMENTED, S3Error
from sinksdk.connectors.s3_archiver.layout import Layout

_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Owners:
    """Claims topics for a connector.

    Args:
        s3: the endpoint.
        bucket: the archive's bucket.
        layout: where markers are.
        identity: who claims.
    """

    s3: S3
    bucket: str
    layout: Layout
    identity: ConnectorIdentity

    def claim(self, topics: Iterable[str]) -> None:
        """Mark topics as this connector's, or find them so.

        Raises:
            ConfigException: others own some of them; all are named.
            S3Trouble: try again later.
            S3Error: refused.
        """
        problems = [problem for topic in topics if (problem := self._claim(topic))]
        if problems:
            raise ConfigException(problems)

    def release(self) -> None:
        """Give up the topics that are this connector's, because it is deleted: archived files stay.

        Uploads are not looked for here. What the connector has begun is known by its tokens: by now the
        runtime has had them published or discarded. A list of what is there would show uploads of whoever
        owns the topic next as well, if this process is late.

        Raises:
            S3Trouble: try again later.
            S3Error: refused.
        """
        for marker in list(self.s3.list(self.bucket, self.layout.markers())):
            topic = self.layout.marked(marker.key)
            location = Location(self.bucket, marker.key)
            if topic is not None and self._read(location) == self._own():
                self.s3.delete(location)

    def _claim(self, topic: str) -> str | None:
        """What stands in the way, if anything."""
        location = Location(self.bucket, self.layout.marker(topic))
        marker = self._read(location)
        if marker is None:
            self._write(location)
            # Read it back, whatever the answer was: it may have been lost, another connector may have
            # been first, and some stores ignore the condition.
            marker = self._read(location)
        if marker is None:
            return f"{location}, the owner marker of topic {topic}, is gone after it was written: start again"
        return None if marker == self._own() else self._refusal(topic, location, marker)

    def _own(self) -> dict[str, Any]:
        return {"format": _FORMAT, **asdict(self.identity)}

    def _read(self, location: Location) -> dict[str, Any] | None:
        try:
            with self.s3.read(location) as content:
                found = json.loads(content.read())
        except S3Error as error:
            if error.code == NO_SUCH_KEY:
                return None
            raise
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    def _write(self, location: Location) -> None:
        body = json.dumps(self._own(), indent=2).encode()
        try:
            self.s3.put_if_absent(location, body)
        except S3Error as error:
            if error.code != NOT_IMPLEMENTED:
                raise
            self.s3.put(location, body)  # no conditions here; we have just seen that it is absent

    def _refusal(self, topic: str, location: Location, marker: dict[str, Any]) -> str:
        mine = self.identity
        where = f"{self.layout.folder(topic)} in bucket {self.bucket}"
        if marker.get("format") != _FORMAT:
            return (
                f"{location}, the owner marker of topic {topic}, cannot be read: it is damaged, or was "
                f"written by a newer version"
            )
        if marker["connector"] != mine.connector:
            whose = f"connector '{marker['connector']}'"
        elif marker["store_id"] != mine.store_id:
            whose = (
                f"a connector of the same name whose commits are in another store (id {marker['store_id']}, "
                f"this one is {mine.store_id})"
            )
        else:
            whose = "an earlier connector of the same name, which was deleted"
        return (
            f"the archive of topic {topic} under {where} belongs to {whose}: writing there would archive its "
            f"records twice. Start with that connector's store, or choose another 'topics.dir'; if nobody "
            f"writes there any more and you want to go on in this place, delete the marker {location} (and "
            f"set the offsets to where the archive ends)"
        )
