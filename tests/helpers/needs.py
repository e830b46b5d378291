"""Programs that a test needs besides Python's packages. Where one is missing the test is skipped; in CI it fails."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def missing(what: str, how: str) -> NoReturn:
    """Skip the test that needs this, and say how to get it; in CI a skip would hide something."""
    message = f"{what} is not there: {how}"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)
