"""When files end, and how many are open: settings, and the limits that follow from them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from pydantic import Field

from sinksdk import BatchPolicy
from sinksdk.config import time_zone
from sinksdk.connectors.s3_archiver.partitioners.settings import LayoutSettings, PartitionerSettings
from sinksdk.connectors.s3_archiver.s3.settings import MIB, UploadSettings

MOST_OPEN_FILES: Final = 1_000  # one commit holds the tokens of all open files

_BUFFER_BYTES: Final = 256 * 1024 * 1024
MOST_RUNS: Final = 500_000  # makes a token of 1 MB


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits that end a group of files, besides the schedule and a close; None for no limit.

    Args:
        bytes: of any of its files, about.
        interval: milliseconds between the timestamps of its first record and of the first one beyond it.
        is_of_one_folder: with an interval, end also before the first record of another folder.
        buffered: bytes that all open files of a task hold in memory.
        runs: of neighbouring records that go to the same file: tokens hold their offsets.
    """

    records: int | None = None
    bytes: int | None = None
    interval: int | None = None
    is_of_one_folder: bool = False
    files: int | None = None
    buffered: int = _BUFFER_BYTES
    runs: int = MOST_RUNS


class FlushSettings(LayoutSettings):
    """Files end by count, by size, and by the wall clock."""

    flush_size: int | None = Field(
        default=None,
        ge=1,
        description="Exact number of records after which the open files of a topic partition end, unless "
        "another rule ends them sooner. A partition is read once this many records wait in it, or when the "
        "schedule, the interval, a flush or a close is due. Optional if `rotate.schedule.interval.ms` is "
        "set, or `rotate.interval.ms` with folders by time.",
    )
    flush_bytes: int = Field(
        default=-1,
        ge=-1,
        description="End the open files of a topic partition once one of them has this many bytes (encoded "
        "and compressed); a file may have about a tenth more. -1: never.",
    )
    rotate_schedule_interval_ms: int = Field(
        default=-1,
        ge=-1,
        description="End files by the wall clock: at midnight, and at every multiple of this many "
        "milliseconds after it, also when no record arrives. Still exactly-once. -1: never.",
    )


class GroupSettings(PartitionerSettings, FlushSettings):
    """Files end by the timestamps of records, by folders, and by memory."""

    rotate_interval_ms: int = Field(
        default=-1,
        ge=-1,
        description="End the files of a topic partition before a record whose timestamp (from "
        "`timestamp.extractor`) is this many milliseconds after that of their first record; also the "
        "longest time until the partition is read. Without folders by time it has no effect. -1: never.",
    )
    rotate_file_on_partition_change: bool = Field(
        default=False,
        description="With `rotate.interval.ms`: also end files whenever the next record is of another "
        "folder. Records that alternate between folders then get a file each. (Confluent: true.)",
    )
    partitioner_max_open_files: int = Field(
        default=-1,
        ge=-1,
        le=MOST_OPEN_FILES,
        description=f"Most files of a topic partition that are open at a time; at this number all of them "
        f"end. -1: {MOST_OPEN_FILES:,}.",
    )
    partitioner_buffer_bytes: int = Field(
        default=256 * MIB,
        ge=16 * MIB,
        description="Most bytes that all open files of a task hold in memory. Beyond it, the largest file is "
        "sent as a part; if none is large enough for a part, the files of a topic partition end.",
    )

    def rotation_problems(self) -> Iterator[str]:
        if self.flush_bytes == 0:
            yield "'flush.bytes' must be at least 1, or -1 for no limit"
        if self.rotate_schedule_interval_ms == 0:
            yield "'rotate.schedule.interval.ms' must be at least 1, or -1 for no schedule"
        if self.rotate_interval_ms == 0:
            yield "'rotate.interval.ms' must be at least 1, or -1 for never"
        if self.partitioner_max_open_files == 0:
            yield f"'partitioner.max.open.files' must be at least 1, or -1 for {MOST_OPEN_FILES:,}"
        try:
            time_zone(self.timezone)
        except ValueError as error:
            yield f"'timezone': {error}: use Area/City, UTC, or an offset like +05:30"
        has_schedule = self.rotate_schedule_interval_ms >= 1
        if self.flush_size is None and not has_schedule and self.record_interval() is None:
            yield (
                "'flush.size' is required and not set: no other setting determines when a partition is read. "
                "It is optional only with 'rotate.schedule.interval.ms', or 'rotate.interval.ms' and folders "
                "by time"
            )

    def policy(self) -> BatchPolicy:
        # A partition is read after ``rotate.interval.ms`` at the latest, even if no schedule is due:
        # otherwise records would stay in Kafka after the time at which their file should end.
        schedule, interval = self.schedule(), self.record_interval()
        wait = None if interval is None else interval / 1000
        if schedule is not None and (wait is None or (schedule.max_wait or 0) <= wait):
            return replace(schedule, max_records=self.flush_size)
        return BatchPolicy(max_records=self.flush_size, max_wait=wait)

    def schedule(self) -> BatchPolicy | None:
        if self.rotate_schedule_interval_ms < 1:
            return None
        return BatchPolicy(max_wait=self.rotate_schedule_interval_ms / 1000, align_to=self.timezone)

    def record_interval(self) -> int | None:
        kind = self.partitioner
        by_time = kind is not None and kind.has_time
        return self.rotate_interval_ms if by_time and self.rotate_interval_ms >= 1 else None

    def limits(self) -> Limits:
        most = self.partitioner_max_open_files
        return Limits(
            records=self.flush_size,
            bytes=None if self.flush_bytes == -1 else self.flush_bytes,
            interval=self.record_interval(),
            is_of_one_folder=self.rotate_file_on_partition_change,
            files=min(MOST_OPEN_FILES if most == -1 else most, MOST_OPEN_FILES // self.views),
            buffered=self.partitioner_buffer_bytes,
            runs=MOST_RUNS // self.views,
        )


class FileSettings(UploadSettings, GroupSettings):
    """All settings of files: where they lie, when they end, what they hold, how they are uploaded."""
