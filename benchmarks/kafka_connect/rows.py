"""The comparison's rows of the table."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from benchmarks.kafka_connect.measure import Measured
from benchmarks.table import Row

OURS = "sinksdk"
TARGET = 5.0  # times fewer CPU seconds than Kafka Connect


def topic_rows(what: str, rounds: Mapping[str, Sequence[Measured]]) -> list[Row]:
    """One topic with one codec: each side, then the ratios, each the median of the rounds' own.

    Args:
        what: the values' shape, and the codec.
        rounds: what was measured, round by round, by side.
    """
    sides = [Row(f"{what}: {side}", described(found)) for side, found in rounds.items()]
    peers = [side for side in rounds if side != OURS]
    return sides + [
        Row.ratio(
            f"{what}: CPU of {peer}, against {OURS}'s",
            "",
            statistics.median(
                theirs.cpu_per_million / ours.cpu_per_million
                for theirs, ours in zip(rounds[peer], rounds[OURS], strict=True)
            ),
            least=TARGET,
        )
        for peer in peers
    ]


def described(found: Sequence[Measured]) -> str:
    """Speed, CPU and files, medians of the rounds."""
    speed = statistics.median(one.speed for one in found)
    cpu = statistics.median(one.cpu_per_million for one in found)
    return f"{speed / 1e3:,.0f} k records/s, {cpu:.1f} CPU s/M, {files(found[-1])}"


def files(found: Measured) -> str:
    """How many data files, and how large they are."""
    if not found.files:
        return "no files"
    return f"{len(found.files)} files of {statistics.mean(found.files) / 1e6:.1f} MB"


def profile_rows(what: str, reading: Sequence[Measured], whole: Sequence[Measured]) -> list[Row]:
    """Where sinksdk's CPU seconds go: reading, everything else.

    Args:
        what: the values' shape, and the codec.
        reading: see :class:`benchmarks.kafka_connect.archiver.Floor`.
        whole: the archiver itself.
    """

    def cpu(found: Sequence[Measured]) -> float:
        return statistics.median(one.cpu_per_million for one in found)

    read, total = cpu(reading), cpu(whole)
    parts = {
        "reading the topic into Arrow batches": read,
        "encoding, compressing, uploading, committing": total - read,
    }
    return [
        Row(f"  of sinksdk, {what}: {name}", f"{seconds:.1f} CPU s/M", f"{seconds / total:.0%}")
        for name, seconds in parts.items()
    ]


def start_rows(ready: Mapping[str, float], first: Mapping[str, Measured]) -> list[Row]:
    """What a new process costs: until it answers, and more for its first topic than for later ones."""
    return [
        Row(
            f"start: {side}",
            f"{cpu:.1f} CPU s until ready, {sum(first[side].cpu.values()):.1f} for the first "
            f"{first[side].records / 1e6:.1f} M records",
        )
        for side, cpu in ready.items()
    ]


def slope_rows(
    what: str, short: Mapping[str, Sequence[Measured]], long: Mapping[str, Sequence[Measured]]
) -> list[Row]:
    """What a run costs whatever its length, and what each further record costs: from two lengths.

    Args:
        what: the values' shape, and the codec.
        short: a short topic, round by round, by side.
        long: a long one.
    """
    slopes = {
        side: statistics.median(slope(*pair) for pair in zip(short[side], long[side], strict=True))
        for side in long
    }
    return [
        Row(
            f"{what}, further records: {side}",
            f"{each:.1f} CPU s/M, and {fixed(long[side][-1], each):.1f} CPU s a run",
            "" if side == OURS else f"{each / slopes[OURS]:.2f} x",
        )
        for side, each in slopes.items()
    ]


def slope(short: Measured, long: Measured) -> float:
    """CPU seconds for a million further records."""
    seconds = sum(long.cpu.values()) - sum(short.cpu.values())
    return seconds / (long.records - short.records) * 1e6


def fixed(run: Measured, each: float) -> float:
    """CPU seconds of a run that its records do not explain."""
    return sum(run.cpu.values()) - each * run.records / 1e6


def memory_rows(found: Mapping[str, Sequence[Measured]]) -> list[Row]:
    """Peak memory of each side, the largest of all topics."""
    return [
        Row(f"memory: {side}, all processes", f"{max(one.peak for one in measured) / 1e6:,.0f} MB")
        for side, measured in found.items()
    ]


def rebalance_rows(calm: Mapping[str, Measured], forced: Mapping[str, Measured]) -> list[Row]:
    """Records read twice, without and with a rebalance in the middle."""
    return [
        Row(
            f"read twice: {side}",
            f"{calm[side].read_twice:,} without, {forced[side].read_twice:,} with a forced rebalance",
            f"{forced[side].read_twice / forced[side].records:.0%} of all",
        )
        for side in forced
    ]
