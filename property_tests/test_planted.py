"""Mutations use public names only, so that private code can be reorganised without them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from property_tests import simulation

MODULES = sorted(
    path
    for path in Path(simulation.__file__).parent.glob("*.py")
    if path.stem.endswith(("mutations", "planted"))
)


def private_names(source: str) -> list[str]:
    """Return private names that a module imports, patches or calls and does not define itself."""
    tree = ast.parse(source)
    own = {
        node.name if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else node.attr
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
        or (isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store))
    }
    return [name for name in _names(tree) if _is_private(name) and name not in own]


def _names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield from node.name.split(".")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            yield node.value


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_mutations_use_no_private_names(path: Path) -> None:
    assert private_names(path.read_text()) == []


def test_all_modules_of_mutations_are_read() -> None:
    assert {path.stem for path in MODULES} >= {
        "mutations",
        "source_mutations",
        "frame_mutations",
        "watermark_mutations",
        "planted",
    }


@pytest.mark.parametrize(
    "source",
    [
        'patch.setattr(Generations, "_fence", None)',
        "self._commits.clear()",
        "from sinksdk.topics.memory import _Transaction",
        "import sinksdk._records",
        "ledger._successor(None, plan, 0)",
    ],
)
def test_private_names_are_found(source: str) -> None:
    assert private_names(source)


def test_own_private_names_are_allowed() -> None:
    assert not private_names(
        "def _changed(): ...\nclass A:\n    def b(self): self._c = _changed(); self._c()"
    )
