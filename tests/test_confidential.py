"""Secrets in the log lines of a process."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

EMBEDDED = """
import logging, sys
logging.basicConfig(level="INFO", stream=sys.stdout, format="%(name)s %(message)s")
from pydantic import SecretStr
from sinksdk import ConnectorConfig
class Config(ConnectorConfig):
    password: SecretStr
config = Config.parse({"name": "c", "connector.class": "x:Y", "topics": "t", "password": "hunter2hunter2"})
log = logging.getLogger("my_sink")
log.info("login with %s", config.password.get_secret_value())
log.info("a percent sign, %d and hunter2hunter2", 7)
try:
    raise ValueError(f"no login: {config.password.get_secret_value()}")
except ValueError:
    log.exception("stop failed")
log.info("as before: %(key)s", {"key": 1})
"""


def test_secrets_are_hidden_in_log_lines_of_a_program_that_configures_logging_itself() -> None:
    """A connector's own lines and stack traces, under logging.basicConfig; sinksdk's formatter has no part in it."""
    printed = subprocess.run(
        [sys.executable, "-c", EMBEDDED], capture_output=True, text=True, check=True
    ).stdout
    assert "hunter2" not in printed
    assert "my_sink login with ********" in printed
    assert "my_sink a percent sign, 7 and ********" in printed
    assert "ValueError: no login: ********" in printed
    assert "Traceback" in printed
    assert "my_sink as before: 1" in printed
