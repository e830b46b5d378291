"""Write whole records, ``archive.content=record``, to Avro files."""

from __future__ import annotations

import pyarrow as pa

from sinksdk import DataException, TopicPartition
from sinksdk.connectors.s3_archiver.archive.header import FileHeader
from sinksdk.connectors.s3_archiver.formats.base import Encoded, OneKind
from sinksdk.connectors.s3_archiver.formats.codecs import codec
from sinksdk.connectors.s3_archiver.formats.container import BLOCK_BYTES, ContainerWriter
from sinksdk.connectors.s3_archiver.formats.encoder import EncodedRows, RecordEncoder, without_bad_headers
from sinksdk.connectors.s3_archiver.formats.schema import RECORD_SCHEMA, sync_marker


class RecordAvro(OneKind):
    def __init__(self, codec_name: str, level: int | None = None, block_bytes: int | None = None) -> None:
        self._codec = codec_name, level
        self._block_bytes = block_bytes or BLOCK_BYTES
        self._encoders: dict[TopicPartition, RecordEncoder] = {}

    @property
    def extension(self) -> str:
        return ".avro"

    @property
    def columns(self) -> None: ...

    def encode(self, partition: TopicPartition, batch: pa.RecordBatch) -> Encoded[EncodedRows]:
        encoder = self._encoders.get(partition)
        if encoder is None:
            encoder = self._encoders[partition] = RecordEncoder(partition)
        try:
            return Encoded(encoder.encode(batch), {})
        except DataException:
            good, bad = without_bad_headers(partition, batch)
            return Encoded(encoder.encode(good), bad)

    def begin(self, header: FileHeader, key: str, kind: object) -> ContainerWriter:  # noqa: ARG002 - of the protocol
        return ContainerWriter(
            RECORD_SCHEMA, codec(*self._codec), header.to_metadata(), sync_marker(key), self._block_bytes
        )
