"""Programs that a test needs besides Python's packages: a missing one skips the test, or fails it in CI."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def missing(what: str, how: str) -> NoReturn:
    # In CI a skip would hide a missing program.
    message = f"{what} is not there: {how}"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)
