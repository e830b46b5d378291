"""Parameters of repeated tests: ``make test`` tries the first ones, ``make test-all`` all of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def extended_after(count: int, cases: Iterable[Any]) -> list[Any]:
    parameters = list(cases)
    return [*parameters[:count], *(_extended(case) for case in parameters[count:])]


def _extended(case: Any) -> Any:
    if hasattr(case, "marks"):  # a case that pytest.param has created
        return pytest.param(*case.values, id=case.id, marks=[*case.marks, pytest.mark.extended])
    values = case if type(case) is tuple else (case,)
    return pytest.param(*values, marks=pytest.mark.extended)
