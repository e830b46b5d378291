"""``python -m property_tests.soak_server``: a server with 20 connectors under outages, for six minutes."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from property_tests.soak_server.scene import CONNECTORS, HourFailed, run_freezes, run_hour


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m property_tests.soak_server", description=__doc__)
    parser.add_argument("--outage", type=float, default=30.0, help="seconds that each is away (30)")
    parser.add_argument(
        "--pause", type=float, default=15.0, help="seconds between two troubles at least (15)"
    )
    parser.add_argument(
        "--freezes", type=int, default=0, help="only freeze the broker, so many times for 20 to 70 s (0)"
    )
    parser.add_argument("--connectors", type=int, default=0, help="how many (20, or 30 with --freezes)")
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="soak-server-"))
    print(f"the server's log: {folder / 'server.log'}", flush=True)
    try:

        def tell(line: str) -> None:
            print(line, flush=True)

        if asked.freezes:
            happened = run_freezes(folder, tell, connectors=asked.connectors or 30, freezes=asked.freezes)
        else:
            connectors = asked.connectors or CONNECTORS
            happened = run_hour(folder, tell, outage=asked.outage, pause=asked.pause, connectors=connectors)
    except HourFailed as error:
        print(error)
        return 1
    for what, times in sorted(happened.counts.items()):
        print(f"{times:>11,}  {what}")
    print(f"{len(happened.log):>11,}  lines of the server's log, of them")
    for (level, words), times in happened.shapes("WARNING", "ERROR", "CRITICAL").most_common():
        print(f"{times:>11,}  {level} {words}")
    print("every record is archived, each once; no connector needed a hand")
    return 0


if __name__ == "__main__":
    sys.exit(main())
