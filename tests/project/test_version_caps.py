from __future__ import annotations

import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


@pytest.mark.parametrize(("extra", "package"), [("spark", "pyspark"), ("kafka", "confluent-kafka")])
def test_package_whose_private_parts_are_used_is_capped_after_the_tested_minor(
    extra: str, package: str
) -> None:
    extras = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    (requirement,) = [each for each in map(Requirement, extras[extra]) if each.name == package]
    tested = Version(version(package))
    assert tested in requirement.specifier
    assert f"{tested.major}.{tested.minor + 1}.0" not in requirement.specifier
