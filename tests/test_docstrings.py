from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_every_test_states_its_fact() -> None:
    """Each test function has a docstring, which says what is expected."""
    files = [path for folder in ("tests", "property_tests") for path in (ROOT / folder).rglob("test_*.py")]
    tests = [
        (path, node)
        for path in files
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
    assert len(tests) > 500
    assert [f"{path.name}::{node.name}" for path, node in tests if not ast.get_docstring(node)] == []
