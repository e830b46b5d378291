"""Stores schemas next to the data, so that an archive can be read without its registry."""

from __future__ import annotations

import json
import logging

from sinksdk.connectors.s3_archiver.archive.layout import Layout
from sinksdk.connectors.s3_archiver.s3.client import S3, Location
from sinksdk.connectors.s3_archiver.s3.errors import NO_SUCH_KEY, NOT_IMPLEMENTED, S3Error

log = logging.getLogger(__name__)


class SchemaFiles:
    """Writes each schema once, to ``<topics.dir>/_sinksdk/schemas/<id>.avsc``."""

    def __init__(self, s3: S3, bucket: str, layout: Layout) -> None:
        self._s3 = s3
        self._bucket = bucket
        self._layout = layout

    def __call__(self, schema_id: str, definition: bytes) -> None:
        location = Location(self._bucket, self._layout.schema(schema_id))
        if self._is_written(location, definition):
            return
        found = self._read(location)
        if found is None or _parsed(found) != _parsed(definition):
            # An existing file stays. The archive then holds ids of two registries, and only files of values
            # have their schemas.
            log.warning(
                "%s holds another schema than the one that the registry has under this id: 'topics.dir' is "
                "used with two registries. Files of values hold their own schema, and can be read all the "
                "same; choose another 'topics.dir' to keep the schemas apart",
                location,
            )

    def _is_written(self, location: Location, definition: bytes) -> bool:
        try:
            return self._s3.put_if_absent(location, definition)
        except S3Error as error:
            if error.code != NOT_IMPLEMENTED:
                raise
        if self._read(location) is not None:  # a store without conditions
            return False
        self._s3.put(location, definition)
        return True

    def _read(self, location: Location) -> bytes | None:
        try:
            with self._s3.read(location) as content:
                return content.read()
        except S3Error as error:
            if error.code == NO_SUCH_KEY:
                return None
            raise


def _parsed(definition: bytes) -> object:
    try:
        found: object = json.loads(definition)
    except ValueError:
        return None
    return found
