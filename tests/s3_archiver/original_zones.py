"""``python -m tests.s3_archiver.original_zones`` stores Joda-Time's time zones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from tests.s3_archiver.original_lines import ask_java

ANSWERS: Final = Path(__file__).with_name("original_zones.json")
UNKNOWN: Final = "!"

_OFFSETS: Final = (
    *("+00:00", "-00:00", "+0000", "+00", "-00", "+05:30", "-03:00", "+08", "-08", "+8", "-8", "+0530"),
    *("-0330", "+05:3", "+053", "+05:30:15", "+053015", "+05:3015", "+0530:15", "+23:59", "+24:00", "+19:00"),
    *("+05:60", "+05:59:60", "+99:00", "+05:30:00", "-05:00:00", "-00:30", "-00:00:30", "+01:", "+0", "+"),
    *("+\u0661\u0662:00", "\u221205:30", "+05:30 ", "+05.30", "+5:30"),
)
NAMES: Final = (
    *("UTC", "UT", "GMT", "Z", "z", "utc", "Zulu", "UCT", "Universal", "Etc/UTC", "Etc/GMT", "Greenwich", ""),
    *(
        "GMT0",
        "GMT+0",
        "GMT-0",
        "UTC+0",
        " UTC",
        "UTC ",
        "Z+08:00",
        "utc+08:00",
        "GMT +08:00",
        "05:30",
        "UTC5",
    ),
    *("EST", "MST", "HST", "EST5EDT", "PST8PDT", "PST", "CST", "IST", "JST", "CET", "MET", "WET", "EET"),
    *("Etc/GMT+8", "Etc/GMT-14", "US/Eastern", "Asia/Kolkata", "Asia/Calcutta", "Europe/Berlin", "Berlin"),
    *("europe/berlin", "EUROPE/BERLIN", "Europe/Kyiv", "America/Argentina/Buenos_Aires", "Mars/Phobos"),
    *("Australia/Lord_Howe", "Pacific/Apia", "Asia/Kathmandu", "America/Havana", "America/St_Johns"),
    *("posix/UTC", "posixrules", "localtime", "Factory", "right/UTC"),
    *(prefix + offset for prefix in ("", "UTC", "GMT", "UT") for offset in _OFFSETS),
)


def ask() -> dict[str, str]:
    """Return the name and the offsets in January and July 2026, in milliseconds.

    Raises MavenError if the jar is unavailable.
    """
    return dict(zip(NAMES, ask_java("Zones.java", NAMES), strict=True))


if __name__ == "__main__":
    ANSWERS.write_text(json.dumps(ask(), indent=1) + "\n")
