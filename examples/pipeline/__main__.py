"""Files → a topic → Avro files on S3: ``python -m examples.pipeline``. See docs/pipeline.md."""

import argparse
import contextlib
import json
import shlex
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from botocore.exceptions import BotoCoreError

from examples.make_bucket import make_bucket
from examples.pipeline.check import Archive, Lines, differences, lines_of
from examples.pipeline.readings import Readings
from examples.pipeline.rest import Rest
from examples.pipeline.service import Service

HERE = Path(__file__).parent
POLL = 2.0  # seconds between two polls


def main() -> None:
    sys.stdout.reconfigure(line_buffering=True)  # also without a terminal
    options = arguments()
    pipeline = Pipeline(options)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C
    verdict: list[str] = []
    try:
        pipeline.start_s3()
        if not options.check:
            pipeline.run()
        verdict = pipeline.compare()
    except KeyboardInterrupt:
        print("closing; run the same command to continue")
    finally:
        pipeline.stop()
    sys.exit("\n".join(verdict) or 0)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.pipeline")
    add = parser.add_argument
    add("--lines", type=int, default=100_000, help="number of lines to write to the input (%(default)s)")
    add("--rate", type=int, default=5_000, help="lines per second (%(default)s)")
    add("--input", type=Path, metavar="DIR", help="directory of your own *.jsonl* files; no input is written")
    add("--follow", action="store_true", help="run until Ctrl-C, also when everything is archived")
    add("--check", action="store_true", help="only compare the archive with the input")
    add(
        "--work",
        type=Path,
        default="build/pipeline",
        metavar="DIR",
        help="directory for all files (%(default)s)",
    )
    add(
        "--bootstrap-servers",
        metavar="HOST:PORT",
        help="Kafka with a topic 'lines'; by default a topic directory",
    )
    add(
        "--s3",
        metavar="URL",
        help="an S3 endpoint; by default a local moto. Bucket and keys are in archive.json",
    )
    add("--s3-port", type=int, default=5556, help="port of moto (%(default)s)")
    add("--port", type=int, default=8083, help="port of the server (%(default)s)")
    add("--master", default="local[4]", metavar="URL", help="Spark's master (%(default)s)")
    add(
        "--server-options",
        type=shlex.split,
        default=[],
        help="more options of the server, such as '--kafka-config FILE'",
    )
    return parser.parse_args()


class Pipeline:
    """A server that runs both connectors, and a local S3 unless one is given."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        work: Path = options.work.resolve()
        self.folder: Path = (options.input or work / "input").resolve()
        for folder in (self.folder, work / "topics"):
            folder.mkdir(parents=True, exist_ok=True)
        self.endpoint = options.s3 or f"http://127.0.0.1:{options.s3_port}"
        self.source = configuration("files.json", {"directory": str(self.folder)})
        self.sink = configuration("archive.json", {"store.url": self.endpoint})
        self.archive = Archive(self.sink)
        self.rest = Rest(f"http://127.0.0.1:{options.port}")
        self.is_configured, self.shown = False, ""

        s3 = ["examples.pipeline.s3", str(options.s3_port), str(work / "s3.state")]
        topics = ["--topic-directory", str(work / "topics")]
        if options.bootstrap_servers:
            topics = ["--bootstrap-servers", options.bootstrap_servers]
        server = ["sinksdk", "server", *topics, "--store", f"sqlite:///{work}/store.sqlite"]
        server += ["--master", options.master, "--port", str(options.port), *options.server_options]
        self.services = [Service("server", server, work)]
        if not options.s3:
            self.services.insert(0, Service("s3", s3, work))

    def start_s3(self) -> None:
        if not self.options.s3:
            self.services[0].ensure()
            make_bucket(self.endpoint, self.archive.bucket)

    def run(self) -> None:
        """Run until each line is archived; restart services that have died."""
        readings = Readings(self.folder, 0 if self.options.input else self.options.lines, self.options.rate)
        readings.start()
        is_over = False
        while not is_over:
            for service in self.services:
                service.ensure()
            is_growing = readings.is_alive() or self.options.follow
            with contextlib.suppress(OSError, BotoCoreError):  # they may be starting
                is_over = self.is_archived() and not is_growing
            time.sleep(POLL)

    def is_archived(self) -> bool:
        """Print the progress, and return whether each line is archived."""
        if not self.is_configured:
            self.rest.configure(self.source)
            self.rest.configure(self.sink)
            self.is_configured = True
        lines = sum(len(lines) for lines in self.lines().values())
        offsets = self.rest.end_of_topics(self.sink)
        files, records = self.archive.count()
        shown = f"{lines:9,} lines in files {offsets:9,} in the topic {records:9,} archived in {files} files"
        if shown != self.shown:
            print(shown)
        self.shown = shown
        return lines == records

    def compare(self) -> list[str]:
        """Return the differences between the archive and the files."""
        files = self.lines()
        found = differences(files, self.archive.contents())
        if not found:
            lines = sum(map(len, files.values()))
            print(f"The archive is the input: {lines:,} lines of {len(files)} files, each once and in order.")
        return found

    def lines(self) -> dict[str, Lines]:
        return lines_of(self.folder, self.source["file.pattern"])

    def stop(self) -> None:
        """Stop the server first: it flushes and commits. A check stops only what it has started."""
        for service in reversed(self.services):
            if service.process or not self.options.check:
                service.stop()


def configuration(name: str, changes: Mapping[str, str]) -> dict[str, str]:
    written = json.loads((HERE / name).read_text())
    return {**written["config"], "name": written["name"], **changes}


if __name__ == "__main__":
    main()
