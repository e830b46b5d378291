"""A connector's store and bucket as version 62c36d0 left them (tests/fixtures/store_62c36d0/README.md).

S3 chooses upload ids: uploads are created again with their metadata and parts, and the store's texts get the
new ids, endpoint and bucket.
"""

from __future__ import annotations

import base64
import json
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "fixtures" / "store_62c36d0"
CONNECTOR = "archive"
_ENDPOINT, _BUCKET = "http://S3", "BUCKET"


def in_s3() -> dict[str, Any]:
    kept: dict[str, Any] = json.loads((FOLDER / "s3.json").read_text())
    for item in kept["objects"]:
        item["body"] = base64.b64decode(item["body"])
    for upload in kept["uploads"]:
        upload["parts"] = [base64.b64decode(part) for part in upload["parts"]]
    return kept


def restore_store(file: Path, instead: Mapping[str, str] | None = None) -> None:
    dump = (FOLDER / "store.sql").read_text()
    for old, new in (instead or {}).items():
        dump = dump.replace(old, new)
    with closing(sqlite3.connect(file)) as database:
        database.executescript(dump)


def restore_topics(folder: Path) -> None:
    shutil.copytree(FOLDER / "topics", folder)


def restore_s3(s3: Any, endpoint: str, bucket: str) -> dict[str, str]:
    # The result maps texts of the store to their replacements.
    kept = in_s3()
    for item in kept["objects"]:
        s3.put_object(
            Bucket=bucket,
            Key=item["key"],
            Body=item["body"],
            ContentType=item["type"],
            Metadata=item["metadata"],
        )
    instead = {_ENDPOINT: endpoint, f'"{_BUCKET}"': f'"{bucket}"', f"s3://{_BUCKET}/": f"s3://{bucket}/"}
    for upload in kept["uploads"]:
        where = {"Bucket": bucket, "Key": upload["key"]}
        begun = s3.create_multipart_upload(
            **where,
            Metadata=upload["metadata"],
            ContentType="application/avro",
            ChecksumAlgorithm="CRC32",
            ChecksumType="FULL_OBJECT",
        )
        for number, part in enumerate(upload["parts"], 1):
            s3.upload_part(
                **where, UploadId=begun["UploadId"], PartNumber=number, Body=part, ChecksumAlgorithm="CRC32"
            )
        instead[upload["id"]] = begun["UploadId"]
    return instead
