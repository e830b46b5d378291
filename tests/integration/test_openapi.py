"""Schemathesis sends requests that the OpenAPI description allows and some that it does not; each response is described.

Which requests it makes depends on the constants of all loaded modules (hypothesis tries them): the whole
suite sends others than this file alone.
"""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi import checks

from sinksdk.control.herder import Herder
from sinksdk.server.app import create_app
from tests.helpers.memory_store import MemoryStore
from tests.server.serving import has_stopped, run_a_little

pytestmark = pytest.mark.extended

# Half of the requests name something that exists.
KNOWN = {
    "name": "archive",
    "plugin": "s3-archiver",
    "task": "0",
}

CONFIG = {
    "name": "archive",
    "connector.class": "s3-archiver",
    "topics": "orders",
    "s3.bucket.name": "bucket",
    "flush.size": "1000",
}


class Emptied(MemoryStore):
    # The connectors are created again before each request, because the last one may have deleted them.
    def begin_anew(self) -> None:
        for key in self.list(""):
            row = self._read(key)
            if row is not None and key.startswith("connectors/"):
                self.delete(key, row.version)
        Herder(self).create("archive", CONFIG, "STOPPED")
        run_a_little(self)
        has_stopped(self)  # a request to alter offsets would wait until the driver counts as dead


STORE = Emptied()


schema = schemathesis.openapi.from_asgi("/openapi.json", create_app(STORE))


@schema.hook
def map_path_parameters(_: Any, parameters: dict[str, Any] | None) -> dict[str, Any] | None:
    if not parameters:
        return parameters
    return {
        name: KNOWN.get(name, value) if len(str(value)) % 2 else value for name, value in parameters.items()
    }


@schema.parametrize()
@settings(
    max_examples=25, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)
def test_responses_match_the_openapi_document(case: schemathesis.Case) -> None:
    STORE.begin_anew()
    case.call_and_validate(
        excluded_checks=[
            # A body of the right form may still be invalid: a configuration with problems.
            checks.positive_data_acceptance,
        ],
    )
