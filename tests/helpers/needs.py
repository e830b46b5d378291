"""Programs that a test needs besides Python's packages: a missing one skips the test, or fails it in CI."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def missing(what: str, how: str) -> NoReturn:
    # A skip would hide something in CI.
    message = f"{what} is not there: {how}"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)
