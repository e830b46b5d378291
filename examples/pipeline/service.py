"""A process that keeps running when its starter is killed, and is found again by the next one."""

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO


class Service:
    """A Python module that runs once: while it lives, it holds a lock on the file with its process id.

    If its starter is killed, the next one finds it by the lock, and stops it at the end.
    """

    def __init__(self, name: str, command: Sequence[str], folder: Path) -> None:
        self.name, self.command = name, [sys.executable, "-m", *command]
        self.pid_file, self.log = folder / f"{name}.pid", folder / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def ensure(self) -> None:
        """Start the process unless it runs."""
        if self.process is not None and self.process.poll() is not None:  # reap the zombie process
            print(f"{self.name} exited with code {self.process.returncode}; its log is {self.log}")
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
                    pass_fds=[file.fileno()],  # the lock belongs to every process that has the file open
                    start_new_session=True,  # Ctrl-C reaches only the starter, which stops services in order
                )
            file.truncate(0)
            file.write(str(self.process.pid))
        print(f"{self.name} started: process {self.process.pid}")

    def stop(self) -> None:
        """Terminate the process and wait for its end."""
        with self.pid_file.open("a+") as file:
            if is_locked(file):
                file.seek(0)
                os.kill(int(file.read()), signal.SIGTERM)
                fcntl.flock(file, fcntl.LOCK_EX)
        if self.process is not None:
            self.process.wait()


def is_locked(file: TextIO) -> bool:
    """Whether another process has locked the file; otherwise lock it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
