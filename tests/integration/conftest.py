from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from sinksdk.spark.context import start_spark
from tests.integration.standalone import Standalone, running

if TYPE_CHECKING:
    from pyspark import SparkContext


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkContext]:
    # Four tasks run at a time; all tests share the session, which takes seconds to start.
    spark = start_spark("sinksdk-tests", "local[4,4]")
    yield spark
    spark.stop()


@pytest.fixture(scope="session")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with running(tmp_path_factory.mktemp("standalone")) as cluster:
        yield cluster
