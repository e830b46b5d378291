from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple

import pytest

from sinksdk import ConfigException, SinkRecord, SinkRecords
from sinksdk.connector import ConnectorIdentity
from sinksdk.connectors.s3_archiver import S3ArchiverConnector
from sinksdk.connectors.s3_archiver.config import S3ArchiverConfig
from sinksdk.connectors.s3_archiver.files.settings import Limits
from sinksdk.connectors.s3_archiver.s3.client import Location
from sinksdk.connectors.s3_archiver.s3.requests import connect
from sinksdk.connectors.s3_archiver.task import S3ArchiverTask
from sinksdk.connectors.s3_archiver.verify.check import verify
from sinksdk.store import open_store
from sinksdk.testing import SinkTaskHarness
from tests.s3_archiver import support
from tests.s3_archiver.support import TP, Turns, records
from tests.s3_servers import servers

pytestmark = [pytest.mark.extended, pytest.mark.slow]


class Server(NamedTuple):
    url: str
    found: dict[str, str]


@pytest.fixture(
    scope="module",
    params=[
        (servers.s3proxy, {"s3.checksum": "none", "s3.conditional.writes": "false"}),
        (servers.s3mock, {"s3.checksum": "composite", "s3.conditional.writes": "true"}),
    ],
    ids=["S3Proxy", "S3Mock"],
)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    serving: Callable[[], AbstractContextManager[str]]
    serving, found = request.param
    with serving() as url:
        yield Server(url, found)


@pytest.fixture
def config(server: Server, request: pytest.FixtureRequest) -> S3ArchiverConfig:
    keys = {
        "store.url": server.url,
        "aws.access.key.id": servers.KEY_ID,
        "aws.secret.access.key": servers.SECRET,
        "topics.dir": request.node.name.partition("[")[0],
        "s3.part.size": str(5 * 1024 * 1024),
        "flush.size": "4",
    }
    return support.config(keys)


def started(config: S3ArchiverConfig) -> S3ArchiverConnector:
    made = S3ArchiverConnector()
    made.identity = ConnectorIdentity("store-1", "archive", "first")
    made.start(config)
    made.subscribed(config.topics)
    return made


def harness(config: S3ArchiverConfig, found: dict[str, str], **grouping: object) -> SinkTaskHarness:
    update = {"s3_checksum": found["s3.checksum"], "s3_conditional_writes": found["s3.conditional.writes"]}
    made = SinkTaskHarness(lambda: S3ArchiverTask(**grouping), config.model_copy(update=update))  # type: ignore[arg-type] # as given
    made.start()
    made.assign(TP)
    return made


def empty_values(count: int) -> SinkRecords:
    made = [SinkRecord(*TP, offset=offset, key=b"k", value=b"", timestamp=1) for offset in range(count)]
    return SinkRecords.of(TP, made)


def test_the_start_detects_the_endpoints_abilities_and_leaves_only_the_marker(
    server: Server, config: S3ArchiverConfig, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        made = started(config)

    assert made.task_configs(2) == [server.found, server.found]
    assert f"'s3.checksum={server.found['s3.checksum']}'" in caplog.text
    keys = [found.key for found in connect(config).list("bucket", f"{config.topics_dir}/")]
    assert keys == [f"{config.topics_dir}/_sinksdk/orders.json"]
    assert list(connect(config).list_uploads("bucket", f"{config.topics_dir}/")) == []


@pytest.mark.parametrize(
    "grouping", [{}, {"folders": Turns(2), "limits": Limits(records=4)}], ids=["one file at a time", "groups"]
)
def test_files_are_archived_published_and_verified(
    server: Server, config: S3ArchiverConfig, grouping: dict[str, object]
) -> None:
    folder = f"{config.topics_dir}-{len(grouping)}"
    config = config.model_copy(update={"topics_dir": folder})
    started(config)
    made = harness(config, server.found, **grouping)
    made.deliver(TP, records(count=6))
    made.deliver(TP, records(count=2, first=6, size=6 * 1024 * 1024))
    made.revoke(TP)

    committed = made.committed[TP]
    assert (committed.offset, committed.tokens) == (8, ())
    report = verify(config, connect(config), lambda: made.committed)
    assert report.problems == []
    assert [(found.records, found.overlaps) for found in report.partitions] == [(8, 0)]


def test_an_empty_file_is_published(server: Server, config: S3ArchiverConfig) -> None:
    values = {"format.class": "ByteArrayFormat", "format.bytearray.separator": "", "value.converter": "bytes"}
    raw = {
        "store.url": server.url,
        "aws.access.key.id": servers.KEY_ID,
        "aws.secret.access.key": servers.SECRET,
        "topics.dir": config.topics_dir,
    }
    config = support.config(raw | values)
    made = harness(config, server.found)
    made.deliver(TP, empty_values(3))
    made.revoke(TP)

    key = f"{config.topics_dir}/orders/partition=0/orders+0+0000000000.bin"
    info = connect(config).head(Location("bucket", key))
    assert info is not None
    assert (info.size, made.committed[TP].tokens) == (0, ())


def test_another_writers_object_is_never_overwritten(server: Server, config: S3ArchiverConfig) -> None:
    # At an endpoint that ignores the condition, the archiver checks for an object before it completes an
    # upload.
    started(config)
    s3 = connect(config)
    where = Location("bucket", f"{config.topics_dir}/orders/partition=0/orders+0+0000000000.avro")
    s3.put(where, b"somebody else's")
    made = harness(config, server.found)
    made.deliver(TP, records(count=4))
    made.revoke(TP)

    with s3.read(where) as content:
        assert content.read() == b"somebody else's"
    (outcome,) = made.worker.outcomes()
    assert outcome.failure is not None
    assert "cannot be published: the key holds another object" in outcome.failure.message


@pytest.mark.parametrize("checksum", ["full", "composite"])
def test_an_unsupported_checksum_is_refused_at_the_start(
    server: Server, config: S3ArchiverConfig, checksum: str
) -> None:
    config = config.model_copy(update={"s3_checksum": checksum})
    if checksum == server.found["s3.checksum"]:
        started(config)
        return
    with pytest.raises(ConfigException, match=f"'s3.checksum' = {checksum}.*set 's3.checksum' to auto"):
        started(config)
    assert list(connect(config).list_uploads("bucket", f"{config.topics_dir}/")) == []


def test_the_store_says_which_condition_is_missing(server: Server) -> None:
    # Without the condition two drivers could own one connector.
    url = (
        f"s3://{servers.BUCKET}/state?endpoint={server.url}&access_key_id={servers.KEY_ID}"
        f"&secret_access_key={servers.SECRET}&region=us-east-1"
    )
    if server.found["s3.conditional.writes"] == "true":
        open_store(url, create=True).close()
        return
    with pytest.raises(ConfigException, match=r"does not honour If-None-Match.*a store in PostgreSQL"):
        open_store(url, create=True)
