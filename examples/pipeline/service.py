"""A process that is to run, whatever happens to it or to us."""

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO


class Service:
    """A module of Python that is run once: while it lives, it holds a lock on the file with its process id.

    So whoever started it may be killed. The next one finds it running, and ends it in the end.
    """

    def __init__(self, name: str, command: Sequence[str], folder: Path) -> None:
        self.name, self.command = name, [sys.executable, "-m", *command]
        self.pid_file, self.log = folder / f"{name}.pid", folder / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def ensure(self) -> None:
        """Start it, unless it runs."""
        if self.process is not None and self.process.poll() is not None:  # what nobody asks for stays, dead
            print(f"{self.name} has ended with code {self.process.returncode}; its log is {self.log}")
            self.process = None
        with self.pid_file.open("a+") as file:
            if is_locked(file):
                return
            with self.log.open("ab") as log:
                self.process = subprocess.Popen(  # noqa: S603 - our own commands
                    self.command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=[file.fileno()],  # the lock is held by whoever has the file open
                    start_new_session=True,  # Ctrl-C is ours; we end it in its turn
                )
            file.truncate(0)
            file.write(str(self.process.pid))
        print(f"{self.name} is started: process {self.process.pid}")

    def stop(self) -> None:
        """Ask it to end, and wait until it has."""
        with self.pid_file.open("a+") as file:
            if is_locked(file):
                file.seek(0)
                os.kill(int(file.read()), signal.SIGTERM)
                fcntl.flock(file, fcntl.LOCK_EX)
        if self.process is not None:
            self.process.wait()


def is_locked(file: TextIO) -> bool:
    """Whether somebody else has locked the file; we have it otherwise."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
