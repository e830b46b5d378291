"""``python -m property_tests.simulation``: replay one schedule, run schedules until stopped, or pin seeds."""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections import Counter

from property_tests.simulation import frame_schedule, schedule, source_schedule, watermark_schedule
from property_tests.simulation.runs import Run, run_all
from property_tests.simulation.seeds import ScheduleFailed

_EVERY = 10.0  # seconds between two progress lines
_COUNTED = ("records archived", "rows copied", "rows written", "rows inserted")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m property_tests.simulation", description=__doc__)
    parser.add_argument("--sources", action="store_true", help="schedules of a source, not of a sink")
    parser.add_argument("--frames", action="store_true", help="schedules of DataFrames that are written")
    parser.add_argument(
        "--watermarks", action="store_true", help="schedules of a sink that keeps its own offsets"
    )
    parser.add_argument("--seed", type=int, help="replay this schedule, and tell its story")
    parser.add_argument(
        "--from", type=int, dest="first", default=None, help="first seed (default: the clock's)"
    )
    parser.add_argument("--count", type=int, help="how many schedules (default: until stopped)")
    parser.add_argument("--pin", action="store_true", help="find for each mutation a seed that notices it")
    options = parser.parse_args()
    if options.pin:
        from property_tests.simulation.pins import pin_all  # noqa: PLC0415 - imports pytest

        pin_all()
        return 0
    run = schedule.run
    if options.sources:
        run = source_schedule.run
    elif options.frames:
        run = frame_schedule.run
    elif options.watermarks:
        run = watermark_schedule.run
    try:
        if options.seed is not None:
            _show(run(options.seed))
        else:
            _soak(run, int(time.time()) if options.first is None else options.first, options.count)
    except ScheduleFailed as error:
        print(error)
        return 1
    except KeyboardInterrupt:
        return 0
    return 0


def _soak(run: Run, first: int, count: int | None) -> None:
    seeds = itertools.count(first) if count is None else iter(range(first, first + count))
    started = shown = time.monotonic()
    happened: Counter[str] = Counter()
    print(f"schedules from seed {first} on", flush=True)
    for some in run_all(seeds, run):
        happened += some
        if time.monotonic() - shown > _EVERY:
            shown = time.monotonic()
            schedules, records = happened["schedules"], sum(map(happened.__getitem__, _COUNTED))
            print(f"{shown - started:7.0f} s  {schedules:,} schedules, {records:,} records", flush=True)
    _show(happened)


def _show(happened: Counter[str]) -> None:
    for what, times in sorted(happened.items()):
        print(f"{times:>11,}  {what}")


if __name__ == "__main__":
    sys.exit(main())
