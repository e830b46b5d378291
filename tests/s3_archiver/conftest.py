from __future__ import annotations

import pytest

from tests.s3_archiver.beside import Late
from tests.s3_archiver.fake_s3 import FakeS3


@pytest.fixture
def s3() -> FakeS3:
    return FakeS3()


@pytest.fixture
def late() -> Late:
    return Late()
