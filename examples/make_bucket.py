"""Creates a bucket once an S3 endpoint responds: ``python examples/make_bucket.py URL BUCKET``."""

import sys
import time

import boto3
from botocore.exceptions import EndpointConnectionError

PATIENCE = 60.0  # seconds


def make_bucket(endpoint: str, bucket: str) -> None:
    s3 = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",  # noqa: S106 - moto accepts anything
    )
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            s3.create_bucket(Bucket=bucket)
        except EndpointConnectionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return


if __name__ == "__main__":
    make_bucket(*sys.argv[1:])
