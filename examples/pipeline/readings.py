"""Input files: readings of three sensors, which grow while they are read."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

SENSORS = 3
PAUSE = 0.2  # seconds between two writes


class Readings(threading.Thread):
    """Appends a number of lines per second. The content is determined, so a restart completes a partial
    file."""

    def __init__(self, folder: Path, lines: int, rate: int) -> None:
        super().__init__(daemon=True)
        self.folder, self.rate = folder, rate
        self.shares = [len(range(sensor, lines, SENSORS)) for sensor in range(SENSORS)]

    def run(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        growing = [self.growing(sensor) for sensor in range(SENSORS)]
        while growing:
            growing = [file for file in growing if next(file, None)]
            time.sleep(PAUSE)

    def growing(self, sensor: int) -> Iterator[Path]:
        text = "".join(reading(sensor, second) for second in range(self.shares[sensor])).encode()
        step = int(
            len(reading(sensor, 0)) * self.rate * PAUSE / SENSORS
        )  # mostly ends in the middle of a line
        path = self.folder / f"sensor-{sensor}.jsonl"
        with path.open("ab", buffering=0) as file:
            for at in range(file.tell(), len(text), step):
                file.write(text[at : at + step])
                yield path


def reading(sensor: int, second: int) -> str:
    return json.dumps({"sensor": sensor, "second": second, "celsius": 20 + second % 7}) + "\n"
