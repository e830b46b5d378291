"""What tests of drivers share."""

from __future__ import annotations

import pytest


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver looks at its tasks, and for what is wanted of it, all the time."""
    monkeypatch.setattr("sinksdk.runtime.supervisor._LOOK", 0.01)
    monkeypatch.setattr("sinksdk.runtime.supervisor._ASK", 0.01)
    monkeypatch.setattr("sinksdk.runtime.supervisor._GRACE", 0.3)
    monkeypatch.setattr("sinksdk.control.requests._LOOK", 0.01)
