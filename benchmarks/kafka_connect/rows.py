"""Build the comparison's rows of the table."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.kafka_connect.measure import Measured
from benchmarks.table import Row

OURS = "sinksdk"
LEAN, ICEBERG = "lean sink", "Iceberg's sink"
CPU_TARGETS: Final[Mapping[str, Sequence[float]]] = {
    LEAN: (2.5, 2.5, 1.8, 1.8),
    ICEBERG: (3.0, 3.0, 2.0, 2.5),
}
FASTER: Final = 1.5  # times the lean sink's records in a second
READING: Final = 1.7  # times the CPU seconds of counting in C
FLOOR_SHARE: Final = 0.6  # of all CPU seconds


@dataclass(frozen=True)
class Parts:
    """CPU seconds per million records of each part of archiving alone."""

    encoding: float
    codec: float
    sending: float

    @property
    def all(self) -> float:
        return self.encoding + self.codec + self.sending


def topic_rows(what: str, rounds: Mapping[str, Sequence[Measured]], column: int) -> list[Row]:
    sides = [Row(f"{what}: {side}", described(found)) for side, found in rounds.items()]

    def median(peer: str, ratio: Callable[[Measured, Measured], float]) -> float:
        return statistics.median(map(ratio, rounds[peer], rounds[OURS]))

    ratios = [
        Row.ratio(
            f"{what}: CPU of {peer}, against {OURS}'s",
            "",
            median(peer, lambda theirs, ours: theirs.cpu_per_million / ours.cpu_per_million),
            least=CPU_TARGETS[peer][column],
        )
        for peer in rounds
        if peer != OURS
    ]
    if LEAN in rounds:
        speed = median(LEAN, lambda theirs, ours: ours.speed / theirs.speed)
        ratios.append(Row.ratio(f"{what}: records/s of {OURS}, against {LEAN}'s", "", speed, least=FASTER))
    return sides + ratios


def described(found: Sequence[Measured]) -> str:
    speed = statistics.median(one.speed for one in found)
    cpu = statistics.median(one.cpu_per_million for one in found)
    return f"{speed / 1e3:,.0f} k records/s, {cpu:.1f} CPU s/M, {files(found[-1])}"


def files(found: Measured) -> str:
    if not found.files:
        return "no files"
    return f"{len(found.files)} files of {statistics.mean(found.files) / 1e6:.1f} MB"


def profile_rows(
    what: str,
    counting: Sequence[Measured],
    reading: Sequence[Measured],
    whole: Sequence[Measured],
    parts: Parts,
) -> list[Row]:
    # ``counting`` takes the messages from librdkafka in C and only counts them; ``reading`` makes Arrow
    # batches; ``whole`` is the archiver; ``parts`` are its other steps alone.
    def cpu(found: Sequence[Measured]) -> float:
        return statistics.median(one.cpu_per_million for one in found)

    count, read, total = cpu(counting), cpu(reading), cpu(whole)
    shares = {
        "reading the topic into Arrow batches": read,
        "encoding": parts.encoding,
        "the codec": parts.codec,
        "sending": parts.sending,
        "all else": total - read - parts.all,
    }
    floor = count + parts.all
    return [
        *(
            Row(f"  of {OURS}, {what}: {name}", f"{seconds:.2f} CPU s/M", f"{seconds / total:.0%}")
            for name, seconds in shares.items()
        ),
        Row.ratio(
            f"reading {what}, against messages only counted in C",
            f"{read:.2f}, {count:.2f} CPU s/M",
            read / count,
            most=READING,
        ),
        Row.ratio(
            f"{what}: counting in C, encoding, codec and sending alone, against {OURS}",
            f"{floor:.2f}, {total:.2f} CPU s/M",
            floor / total,
            least=FLOOR_SHARE,
        ),
    ]


def start_rows(ready: Mapping[str, float], first: Mapping[str, Measured]) -> list[Row]:
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
    # Two lengths separate the fixed cost of a run from that of each further record.
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
    seconds = sum(long.cpu.values()) - sum(short.cpu.values())
    return seconds / (long.records - short.records) * 1e6


def fixed(run: Measured, each: float) -> float:
    return sum(run.cpu.values()) - each * run.records / 1e6


def memory_rows(found: Mapping[str, Sequence[Measured]]) -> list[Row]:
    peaks = {side: max(one.peak for one in measured) for side, measured in found.items()}
    rows = [
        Row(f"memory: {side}, all processes", f"{peak / 1e6:,.0f} MB")
        for side, peak in peaks.items()
        if side != OURS or ICEBERG not in peaks
    ]
    if {OURS, ICEBERG} <= peaks.keys():
        ratio = peaks[OURS] / peaks[ICEBERG]
        what = f"memory: {OURS}, all processes, against {ICEBERG}"
        rows.append(Row.ratio(what, f"{peaks[OURS] / 1e6:,.0f} MB", ratio, most=1.0))
    return rows


def rebalance_rows(calm: Mapping[str, Measured], forced: Mapping[str, Measured]) -> list[Row]:
    return [
        Row(
            f"read twice: {side}",
            f"{calm[side].read_twice:,} without, {forced[side].read_twice:,} with a forced rebalance",
            f"{forced[side].read_twice / forced[side].records:.0%} of all",
        )
        for side in forced
    ]
