"""Run all benchmarks, and print one table (``make bench``)."""

from __future__ import annotations

import sys

from benchmarks import encoding, folders, formats, generation, memory, open_files, parquet, upload
from benchmarks.table import Row, show


def encoding_rows() -> list[Row]:
    return [
        Row.ratio(
            f"encoding: {row['shape']}, {row['what']}, against {row['against']}",
            f"{row['records_per_second'] / 1e3:,.0f} k records/s",
            row["ratio"],
            least=row["target"],
        )
        if row["ratio"]
        else Row(
            f"encoding: {row['shape']}, {row['what']}", f"{row['records_per_second'] / 1e3:,.0f} k records/s"
        )
        for row in encoding.measure()
    ]


def format_rows() -> list[Row]:
    return [
        Row(f"formats: {row.shape}, {row.what}", f"{row.cpu:.3f} CPU s/M")
        if row.ratio is None
        else Row.ratio(
            f"formats: {row.shape}, {row.what}, against record mode",
            f"{row.cpu:.3f} CPU s/M",
            row.ratio,
            most=row.most,
        )
        for row in formats.measure()
    ]


def upload_rows() -> list[Row]:
    return [
        Row.ratio(
            f"upload: {row.name}, against boto3's upload_part ({row.requests} requests)",
            f"{row.speed:,.0f} MB/s, {row.cpu:.2f} CPU s/GB",
            row.ratio,
            least=1.5 if row.name == "archiver" else None,
        )
        for row in upload.run()
    ]


def memory_rows() -> list[Row]:
    peaks = memory.peaks()
    rows = [
        Row.limit(
            f"memory: worker's peak at flush.size {size:,}",
            f"{peak / 1e6:,.0f} MB",
            is_met=peak < 250e6,
            target="250 MB",
        )
        for size, peak in peaks.items()
    ]
    spread = max(peaks.values()) / min(peaks.values())
    return [*rows, Row.ratio("memory: largest peak against smallest", "", spread, most=1.1)]


if __name__ == "__main__":
    rows: list[Row] = []
    for name, part in {
        "encoding": encoding_rows,
        "formats": format_rows,
        "folders": folders.measure,
        "open files": open_files.measure,
        "parquet": parquet.measure,
        "whole generations": generation.measure,
        "upload": upload_rows,
        "memory": memory_rows,
    }.items():
        print(f"measuring: {name} …", file=sys.stderr, flush=True)
        rows += part()
    show(rows)
