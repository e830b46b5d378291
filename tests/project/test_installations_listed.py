"""Tests run every installation that the documentation names."""

from __future__ import annotations

import tomllib

import pytest

from tests.helpers.installations import (
    INSTALLATIONS,
    NOT_RUN,
    ROOT,
    RUN_BY,
    extras_named,
    others_named,
)
from tests.project.test_docs import functions

PAGES = [
    str(path.relative_to(ROOT))
    for folder in ("docs", "sinksdk/templates")
    for path in sorted((ROOT / folder).rglob("*.md"))
]


@pytest.mark.parametrize("page", ["README.md", *PAGES])
def test_each_documented_installation_is_tested(page: str) -> None:
    text = (ROOT / page).read_text()
    listed = [row for row in INSTALLATIONS if page in row.pages]

    assert extras_named(text) == {frozenset(row.extras.split(",")) for row in listed}
    left_out = {package for where, package in NOT_RUN if where == page}
    assert others_named(text) == {package for row in listed for package in row.others} | left_out


def test_each_extra_is_tested() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    by_name = {extra for row in INSTALLATIONS for extra in row.extras.split(",")}
    (everything,) = (extras_named(one) for one in declared["all"])

    assert {frozenset(declared) - {"all"}} == everything
    assert set(declared) - by_name == {"all"}


def test_each_listed_test_exists() -> None:
    listed = [test for row in INSTALLATIONS for test in row.tests]

    assert sorted(listed) == sorted(name for name in functions(RUN_BY) if name.startswith("test_"))
    assert all(extras_named((ROOT / page).read_text()) for row in INSTALLATIONS for page in row.pages)


def test_installations_are_parsed_from_prose_and_commands() -> None:
    text = """`pip install
'sinksdk[spark]'`, `sinksdk[s3]`, pip install . 'sinksdk[kafka,cli]' pytest
pip install --force-reinstall --no-binary confluent-kafka confluent-kafka, `pip install 'FILE.whl[cli]'`"""

    assert extras_named(text) == {frozenset(("spark",)), frozenset(("s3",)), frozenset(("kafka", "cli"))}
    assert others_named(text) == {"pytest", "confluent-kafka"}
