"""``python -m property_tests.soak_kafka``: kill broker, driver, executors and workers for some minutes."""

from __future__ import annotations

import argparse
import sys
import time

from property_tests.soak_kafka.soak import KINDS, SoakFailed, soak

_MASTERS = ("local[2]", "local-cluster[2,1,1024]")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m property_tests.soak_kafka", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="how long to kill (default: 5)")
    parser.add_argument("--seed", type=int, default=None, help="of kills and records (default: the clock's)")
    options = parser.parse_args()
    seed = int(time.time()) if options.seed is None else options.seed
    print(f"seed {seed}, {options.minutes:g} minutes", flush=True)
    try:
        happened = soak(seed, options.minutes * 60, lambda line: print(line, flush=True), _MASTERS, KINDS)
    except SoakFailed as error:
        print(error)
        return 1
    for what, times in sorted(happened.items()):
        print(f"{times:>11,}  {what}")
    print("what a consumer reads is archived, each record once, byte for byte; no upload is left")
    return 0


if __name__ == "__main__":
    sys.exit(main())
