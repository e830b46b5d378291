"""A task's process ends when its parent, Spark's daemon, is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

DAEMON = """
import os, sys, time
from sinksdk.worker.source_task import end_with_parent

if os.fork() == 0:
    end_with_parent()
    end_with_parent()  # the next task in a process that is used again
    print(os.getpid(), flush=True)
time.sleep(60)
"""


def is_there(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"  # dead, but its parent has not waited for it


def test_a_process_ends_soon_after_its_parent_was_killed() -> None:
    daemon = subprocess.Popen([sys.executable, "-c", DAEMON], stdout=subprocess.PIPE, text=True)
    assert daemon.stdout is not None
    with daemon.stdout:
        child = int(daemon.stdout.readline())
        time.sleep(0.2)
        assert is_there(child)
        daemon.kill()
        daemon.wait()
        give_up = time.monotonic() + 10
        while is_there(child) and time.monotonic() < give_up:
            time.sleep(0.05)
        is_left = is_there(child)
    if is_left:
        os.kill(child, signal.SIGKILL)
    assert not is_left
