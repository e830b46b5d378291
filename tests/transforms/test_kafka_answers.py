"""The stored results equal those of Kafka's classes."""

from __future__ import annotations

import json
import re

import pytest

from tests.helpers.needs import missing
from tests.kafka.maven import MavenError
from tests.transforms.cases import CASES
from tests.transforms.kafka_answers import run_kafka, stored_results

_IDENTITY = re.compile(r"@[0-9a-f]+")


@pytest.mark.extended
@pytest.mark.slow
def test_stored_results_equal_kafkas() -> None:
    try:
        current = run_kafka(CASES)
    except MavenError as error:
        missing("Kafka Connect", f"its jars come from Maven Central: {error}")
    assert json.loads(_IDENTITY.sub("", current)) == json.loads(
        _IDENTITY.sub("", json.dumps(stored_results()))
    )
