"""The REST interface answers what its OpenAPI description says, whatever it is asked: tried by schemathesis.

Bounded, in well under a minute, and without chance: but which requests are made also depends on the constants in
all modules that are loaded (hypothesis tries those, too), so the whole suite asks other things than this file alone.
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

KNOWN = {
    "name": "archive",
    "plugin": "s3-archiver",
    "task": "0",
}
"""What is there to be asked for: half of the requests are for it."""

CONFIG = {
    "name": "archive",
    "connector.class": "s3-archiver",
    "topics": "orders",
    "s3.bucket.name": "bucket",
    "flush.size": "1000",
}


class Emptied(MemoryStore):
    """Begins anew before each request: what one has deleted is there for the next one."""

    def begin_anew(self) -> None:
        for key in self.list(""):
            row = self._read(key)
            if row is not None and key.startswith("connectors/"):
                self.delete(key, row.version)
        Herder(self).create("archive", CONFIG, "STOPPED")
        run_a_little(self)
        has_stopped(self)  # else who alters offsets waits until the driver has been silent for a while


STORE = Emptied()


schema = schemathesis.openapi.from_asgi("/openapi.json", create_app(STORE))


@schema.hook
def map_path_parameters(_: Any, parameters: dict[str, Any] | None) -> dict[str, Any] | None:
    """Half of the names are of something that is there."""
    if not parameters:
        return parameters
    return {
        name: KNOWN.get(name, value) if len(str(value)) % 2 else value for name, value in parameters.items()
    }


@schema.parametrize()
@settings(
    max_examples=25, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)
def test_what_is_answered_is_described(case: schemathesis.Case) -> None:
    """Codes, content types, headers and bodies; never a 500; what is malformed is a 4xx, other methods a 405."""
    STORE.begin_anew()
    case.call_and_validate(
        excluded_checks=[
            # What has the right form may still say nothing that can be done: a configuration with problems.
            checks.positive_data_acceptance,
        ],
    )
