from __future__ import annotations

import pytest


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sinksdk.runtime.supervisor._JOB_POLL", 0.01)
    monkeypatch.setattr("sinksdk.runtime.supervisor._STORE_POLL", 0.01)
    monkeypatch.setattr("sinksdk.runtime.supervisor._GRACE", 0.3)
    monkeypatch.setattr("sinksdk.control.requests._POLL", 0.01)
