from __future__ import annotations

from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.helpers.archive_to_read import PAGE, code, copied, objects


def test_the_keys_in_the_docs_equal_the_archivers() -> None:
    page = PAGE.read_text()
    named = {line.split("`")[1] for line in page.splitlines() if line.startswith("| `")}
    assert len(named) == 4
    made = set(objects())
    assert named - made == {"by-day/orders/shop=1/date=2024-02-29/orders+0+0000000000.snappy.parquet"}
    assert "by-day/orders/shop=1/date=2024-02-29/orders+0+0000000003.snappy.parquet" in made


@pytest.mark.slow
def test_duckdb_pyarrow_and_fastavro_read_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from examples.demo.endpoint import S3Endpoint  # noqa: PLC0415 - fast tests do not need moto

    copied(tmp_path)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    with S3Endpoint(()) as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint.url)
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "any")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any")
        endpoint.create_bucket("archive")
        client = boto3.client("s3")
        for key, data in objects().items():
            client.put_object(Bucket="archive", Key=key, Body=data)
        client.close()
        text, aws = code(of_spark=False), 'S3FileSystem(region="us-east-1")'
        assert text.count(aws) == 1
        here = f"S3FileSystem(endpoint_override={endpoint.url!r})"
        exec(compile(text.replace(aws, here), str(PAGE), "exec", dont_inherit=True), names)  # noqa: S102 - our own page
        names["client"].close()

    assert names["by_shop"] == [(0, 1, 20), (1, 1, 30)]
    assert names["with_keys"] == [(f"k{number}", 10 * number) for number in range(6)]
    assert sorted(names["orders"].to_pylist(), key=lambda row: row["shop"]) == [
        {"shop": 0, "total": 20},
        {"shop": 1, "total": 30},
    ]
    assert names["totals"] == {number: 10 * number for number in range(6)}
