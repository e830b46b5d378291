"""Configurations of Confluent's S3 sink, each run from the topics to a verified archive.

Changed are only the address of S3, and that files hold whole records.
"""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import time
import uuid
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import fastavro
import pyarrow as pa
import pytest

from sinksdk import TopicPartition
from sinksdk.connectors.s3_archiver.__main__ import main
from sinksdk.plugins.checks import check_file
from sinksdk.topics import write_records
from tests.integration.archive_site import Site, client, site
from tests.s3_archiver.corpus_files import change, place, set_variables
from tests.s3_archiver.corpus_verdicts import EXPECTED

pytestmark = [pytest.mark.extended, pytest.mark.spark, pytest.mark.slow]

PARTITIONS: Final = 2
PATIENCE_FOR_ALL: Final = 500.0  # seconds
ENDPOINT: Final = "the test's S3"
_ACCESS_KEY: Final = re.compile(r"Credential=(?P<key>[^/]+)/[^/]+/[^/]+/(?P<service>\w+)/")


@dataclass(frozen=True)
class Expectation:
    """What a configuration makes of the records of its topics.

    Args:
        topics: topics to write and archive.
        records: of each partition.
        files: records of each partition's files.
        codec: of their blocks.
        first_key: key of the first file of the first topic.
        keeps: keys that name S3 or credentials and stay unchanged.
        sets: further keys that name S3.
    """

    topics: tuple[str, ...]
    records: int
    files: tuple[int, ...]
    codec: str = "null"
    first_key: str = ""
    keeps: tuple[str, ...] = ()
    sets: Mapping[str, object] = field(default_factory=dict)


# The configuration that needs AWS's own S3 (transfer acceleration) is left out.
RUNS: Final = {
    "assumed_role": Expectation(
        ("shipments",), 1001, (1000, 1), keeps=("aws.access.key.id", "aws.secret.access.key")
    ),
    "client_overrides": Expectation(("firehose",), 300, (300,), "snappy"),
    "compatibility_full": Expectation(("contracts",), 4100, (4000, 100), "bzip2"),
    "dead_letters": Expectation(("telemetry",), 500, (500,), "deflate"),
    "every_default": Expectation(("signups",), 1100, (1000, 100)),
    "flat_map": Expectation(
        ("parcels",), 901, (900, 1), first_key="landing/parcels/partition=0/parcels+0+0000000000.avro"
    ),
    "keys_headers_tombstones": Expectation(("customers",), 1500, (1000, 500)),
    "minio": Expectation(
        ("readings",),
        2500,
        (1000, 1000, 500),
        "deflate",
        "raw/readings/partition=0/readings+0+0000000000.avro",
    ),
    "misspelt": Expectation(("orders",), 10, (10,)),
    "protobuf": Expectation(("rides",), 1501, (1500, 1)),
    "proxy": Expectation(
        ("scans",),
        600,
        (500, 100),
        "snappy",
        sets={"store.url": "http://storage.invalid:9000", "s3.proxy.url": ENDPOINT},
    ),
    "quickstart": Expectation(
        ("s3_topic",), 7, (3, 3, 1), first_key="topics/s3_topic/partition=0/s3_topic+0+0000000000.avro"
    ),
    "rest_answer": Expectation(("credit-notes", "invoices"), 800, (750, 50), "deflate"),
    "secrets_from_files": Expectation(
        ("payments",), 2001, (2000, 1), keeps=("aws.access.key.id", "aws.secret.access.key")
    ),
    "snappy_on_schedule": Expectation(("clicks",), 400, (400,), "snappy"),
    "sse_kms": Expectation(
        ("audit",), 1200, (1000, 200), first_key="topics/audit/partition=0/audit-0-0000000000000000000.avro"
    ),
    # With virtual-host addresses, the bucket's name would precede the host, which is an IP address here.
    "strimzi": Expectation(
        ("meters",), 1300, (1200, 100), "snappy", sets={"s3.path.style.access.enabled": True}
    ),
    "tenants_by_regex": Expectation(
        ("tenant-1.events", "tenant-22.events"),
        5001,
        (5000, 1),
        "snappy",
        "tenants/tenant-1.events/partition=0/tenant-1.events+0+0000000000.avro",
    ),
}


class Requests:
    def __init__(self, app: Callable[..., Any]) -> None:
        self.signers: set[tuple[str, str, str]] = set()
        self.roles: list[str] = []
        self.proxied: Counter[tuple[str, str]] = Counter()
        self._app = app

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        bucket = environ["PATH_INFO"].split("/")[1]
        if signed := _ACCESS_KEY.search(environ.get("HTTP_AUTHORIZATION", "")):
            self.signers.add((bucket, signed["service"], signed["key"]))
            if signed["service"] == "sts":
                self.roles.append(self._body(environ))
        if "HTTP_PROXY_AUTHORIZATION" in environ:
            self.proxied[environ["HTTP_HOST"], environ["HTTP_PROXY_AUTHORIZATION"]] += 1
            environ["HTTP_HOST"] = "127.0.0.1"  # otherwise moto would use the rest of the name as the bucket
        return self._app(environ, start_response)

    @staticmethod
    def _body(environ: dict[str, Any]) -> str:
        body: bytes = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
        environ["wsgi.input"] = io.BytesIO(body)
        return body.decode()


@dataclass(frozen=True)
class Corpus:
    sites: Mapping[str, Site]
    requests: Requests
    process: subprocess.Popen[bytes]

    def run(self, name: str) -> Site:
        made = self.sites[name]
        outcome = made.folder / "outcome.json"
        deadline = time.monotonic() + PATIENCE_FOR_ALL
        while not outcome.exists():
            assert time.monotonic() < deadline, f"{name} was not run in time"
            assert self.process.poll() is None or outcome.exists(), "the process that runs them has ended"
            time.sleep(0.05)
        found = json.loads(outcome.read_text())
        assert found["code"] == 0, found["output"]
        return made

    def keys(self, name: str) -> list[str]:
        made = self.run(name)
        listed = client(made.endpoint).list_objects_v2(Bucket=made.bucket).get("Contents", [])
        return sorted(item["Key"] for item in listed if item["Key"].endswith(".avro"))

    def file(self, name: str, key: str) -> tuple[str, int]:
        made = self.run(name)
        body = client(made.endpoint).get_object(Bucket=made.bucket, Key=key)["Body"].read()
        reader = fastavro.reader(io.BytesIO(body))
        return reader.metadata["avro.codec"], sum(1 for _ in reader)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Corpus]:
    folder = tmp_path_factory.mktemp("corpus")
    with site(folder) as first, pytest.MonkeyPatch.context() as monkeypatch:
        set_variables(monkeypatch)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAOFTHECHAIN")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", first.endpoint)
        requests = Requests(first.s3.app)
        first.s3.app = requests
        sites = {name: prepare(name, first) for name in sorted(RUNS)}
        folders = [str(made.folder) for made in sites.values()]
        with subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("run_several.py")), *folders],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        ) as process:
            yield Corpus(sites, requests, process)
            process.kill()


def prepare(name: str, first: Site) -> Site:
    expected, folder = RUNS[name], first.folder / name
    folder.mkdir()
    made = Site(folder, first.endpoint, first.s3, f"{name.replace('_', '-')}-{uuid.uuid4().hex[:8]}")
    client(made.endpoint).create_bucket(Bucket=made.bucket)
    for topic in (*expected.topics, "tenant-x.other"):
        for partition in range(PARTITIONS):
            write_records(made.topics, TopicPartition(topic, partition), rows(expected.records))
    where = {
        "s3.bucket.name": made.bucket,
        "store.url": made.endpoint,
        "aws.access.key.id": "key",
        "aws.secret.access.key": "secret",
        "archive.content": "record",
        **{key: made.endpoint if value is ENDPOINT else value for key, value in expected.sets.items()},
    }
    change(
        place(name, folder).rename(made.config),
        {key: value for key, value in where.items() if key not in expected.keeps},
    )
    return made


def rows(count: int) -> pa.Table:
    return pa.table(
        {
            "offset": range(count),
            "key": pa.array([b"key-%d" % offset for offset in range(count)], pa.binary()),
            "value": pa.array(
                [None if offset % 10 == 9 else b"\xff\x00%d" % offset for offset in range(count)]
            ),
            "headers": pa.array(
                [[{"key": "trace", "value": b"%d" % offset}] for offset in range(count)],
                pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
            ),
        }
    )


def test_every_configuration_that_would_start_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_variables(monkeypatch)

    def would_start(name: str) -> bool:
        change(placed := place(name, tmp_path), {"archive.content": "record"})
        found = check_file(placed)
        kinds = [found.raw.get(key, "").rpartition(".")[2] for key in ("format.class", "partitioner.class")]
        return found.is_startable and kinds[0] == "AvroFormat" and kinds[1] in ("", "DefaultPartitioner")

    own = {name for name in EXPECTED if not re.fullmatch(r"[eilr]\d\d", name)}
    assert {*RUNS, "accelerated"} == {name for name in own if would_start(name)}


@pytest.mark.parametrize("name", sorted(RUNS))
def test_a_configuration_of_confluents_is_archived_as_it_says(name: str, corpus: Corpus) -> None:
    expected, keys = RUNS[name], corpus.keys(name)
    found = {key: corpus.file(name, key) for key in keys}
    per_partition: dict[str, list[int]] = {}
    for key, (_, records) in found.items():
        per_partition.setdefault(key.rpartition("/")[0], []).append(records)
    assert list(per_partition.values()) == [list(expected.files)] * PARTITIONS * len(expected.topics)
    assert {folder.split("/")[-2] for folder in per_partition} == set(expected.topics)
    assert {codec for codec, _ in found.values()} == {expected.codec}
    assert not expected.first_key or keys[0] == expected.first_key


@pytest.mark.parametrize("name", sorted(RUNS))
def test_archived_values_equal_the_topics_byte_for_byte(
    name: str, corpus: Corpus, capsys: pytest.CaptureFixture[str]
) -> None:
    made = corpus.run(name)

    arguments = [str(made.config), "--store", made.store, "--topic-directory", str(made.topics)]
    code = main(["verify", *arguments])

    assert code == 0, "".join(capsys.readouterr())


def test_secrets_of_a_file_sign_the_requests_and_are_not_in_the_store(corpus: Corpus) -> None:
    made = corpus.run("secrets_from_files")

    assert {key for bucket, _, key in tuple(corpus.requests.signers) if bucket == made.bucket} >= {
        "AKIAFROMFILE"
    }
    assert b"AKIAFROMFILE" not in (made.folder / "store.sqlite").read_bytes()


def test_a_role_is_assumed_with_credentials_of_the_default_chain(corpus: Corpus) -> None:
    requests, bucket = corpus.requests, corpus.run("assumed_role").bucket

    assert {key for _, service, key in tuple(requests.signers) if service == "sts"} == {"AKIAOFTHECHAIN"}
    signers = {key for where, _, key in tuple(requests.signers) if where == bucket}
    assert signers - {"key"}  # the test adds this header itself
    assert "AKIAOFTHECHAIN" not in signers
    assert len(requests.roles) >= 2
    for asked in requests.roles:
        assert "role%2Farchive-writer" in asked
        assert "RoleSessionName=connect-shared-archive" in asked
        assert "ExternalId=c0ffee" in asked


def test_all_requests_go_through_the_authenticated_proxy(corpus: Corpus) -> None:
    corpus.run("proxy")

    (asked, times), *others = corpus.requests.proxied.items()

    assert asked == (
        "storage.invalid:9000",
        "Basic " + b64encode(b"connect:value-of-PROXY_PASSWORD").decode(),
    )
    assert times > 10
    assert others == []


def test_files_are_encrypted_and_tagged_as_configured(corpus: Corpus) -> None:
    encrypted, tagged = corpus.run("sse_kms"), corpus.run("rest_answer")
    s3 = client(encrypted.endpoint)

    head = s3.head_object(Bucket=encrypted.bucket, Key=corpus.keys("sse_kms")[0])
    assert head["ServerSideEncryption"] == "aws:kms"
    assert head["SSEKMSKeyId"].endswith("key/5f2f7b3e-6f0f-4a55-9a37-0e6a3f2c8d11")
    tags = s3.get_object_tagging(Bucket=tagged.bucket, Key=corpus.keys("rest_answer")[0])["TagSet"]
    assert {tag["Key"]: tag["Value"] for tag in tags} == {
        "team": "billing",
        "retention": "10y",
        "startOffset": "0",
        "endOffset": "749",
        "recordCount": "750",
    }
