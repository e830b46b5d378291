"""Encoded rows, one after another in one buffer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from sinksdk.connectors.s3_archiver.formats.columns import Longs

# The offsets have 64 bits, because 2 GiB of rows overflow 32 bits.
BYTES: Final = pa.large_binary()


def borders_of(lengths: Longs) -> Longs:
    """Return where each piece begins, and where the last one ends."""
    borders = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=borders[1:])
    return borders


@dataclass(frozen=True, slots=True, eq=False)
class EncodedRows:
    data: memoryview
    # Row i has the bytes data[borders[i] : borders[i + 1]].
    borders: Longs

    def __len__(self) -> int:
        return len(self.borders) - 1

    def slice(self, start: int, stop: int) -> EncodedRows:
        return EncodedRows(self.data, self.borders[start : stop + 1])

    @property
    def payload(self) -> memoryview:
        return self.data[int(self.borders[0]) : int(self.borders[-1])]

    @property
    def nbytes(self) -> int:
        return int(self.borders[-1] - self.borders[0])


NO_ROWS: Final = EncodedRows(memoryview(b""), np.zeros(1, np.int64))
