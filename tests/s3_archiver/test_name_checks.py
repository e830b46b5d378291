from __future__ import annotations

import logging

import pytest
from botocore.utils import is_valid_endpoint_url, is_valid_ipv6_endpoint_url

from sinksdk import ConfigException, TopicPartition
from sinksdk.connectors.s3_archiver.config import S3ArchiverConfig
from sinksdk.connectors.s3_archiver.verify.check import verify
from tests.s3_archiver.fake_s3 import FakeS3
from tests.s3_archiver.support import MINIMAL, bench, config, records
from tests.s3_archiver.test_owner import connector

ROLE = {
    "s3.credentials.provider.class": "AwsAssumeRoleCredentialsProvider",
    "s3.credentials.provider.sts.role.arn": "arn:aws:iam::123456789012:role/writer",
}
TIMED = {"partitioner.class": "TimeBasedPartitioner", "partition.duration.ms": "3600000"}


def problems(**keys: str) -> list[str]:
    dotted = {key.replace("_", "."): text for key, text in keys.items()}
    return S3ArchiverConfig.check({**MINIMAL, **dotted})[1]


@pytest.mark.parametrize(
    ("name", "expected_text"),
    [
        ("s3://archive", "set it to 'archive'"),
        ("s3a://archive/", "set it to 'archive'"),
        ("archive/prefix", "set it to 'archive', and 'topics.dir' to the prefix, 'prefix'"),
        ("s3://archive/a/b/", "set it to 'archive', and 'topics.dir' to the prefix, 'a/b'"),
        ("https://archive.s3.amazonaws.com", "set it to 'archive'"),
        (
            "https://archive.s3.eu-west-1.amazonaws.com/x",
            "set it to 'archive', and 'topics.dir' to the prefix, 'x', and 's3.region' to 'eu-west-1'",
        ),
        ("https://my.archive.s3-eu-west-1.amazonaws.com", "set it to 'my.archive', and 's3.region'"),
        ("https://s3.amazonaws.com/archive", "set it to 'archive'"),
        ("s3.amazonaws.com/archive/a/b", "set it to 'archive', and 'topics.dir' to the prefix, 'a/b'"),
        ("archive.s3.amazonaws.com/a", "set it to 'archive', and 'topics.dir' to the prefix, 'a'"),
        (
            "https://minio:9000/archive/raw",
            "set it to 'archive', and 'topics.dir' to the prefix, 'raw', and 'store.url' to 'https://minio:9000'",
        ),
        ("http://minio:9000", "it is an address, which 'store.url' takes"),
        ("https://s3.eu-west-1.amazonaws.com/", "it is an address, which 'store.url' takes"),
        (" archive", "remove the spaces around it: 'archive'"),
        ("ar chive", "it must be 3 to 255 letters"),
        ("ab", "it must be 3 to 255 letters"),
        ("arn:aws:s3:eu-west-1:archive", "it must be 3 to 255 letters"),
    ],
)
def test_an_invalid_bucket_name_is_refused(name: str, expected_text: str) -> None:
    (problem,) = problems(s3_bucket_name=name)

    assert problem.startswith("'s3.bucket.name': ")
    assert expected_text in problem


@pytest.mark.parametrize(
    "name",
    [
        *("archive", "my.archive-2", "Old_Bucket", "mine-a1b2c3-s3alias"),
        "arn:aws:s3:us-west-2:123456789012:accesspoint/mine",
        "arn:aws-cn:s3-outposts:cn-north-1:123456789012:outpost/op-1/accesspoint/mine",
    ],
)
def test_bucket_names_and_access_points_are_accepted(name: str) -> None:
    assert problems(s3_bucket_name=name) == []


@pytest.mark.parametrize("folder", ["'..'/YYYY", "YYYY/'..'/MM", "'.'/dd", "YYYY/'a\tb'"])
def test_a_path_format_outside_of_the_topics_folder_is_refused(folder: str) -> None:
    (problem,) = problems(path_format=folder, **{key.replace(".", "_"): text for key, text in TIMED.items()})

    assert problem.startswith("'path.format': ")


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("directory.delim", "/../"),
        ("file.delim", "/./"),
        ("tombstone.encoded.partition", "../x"),
        ("format.bytearray.extension", "/../x"),
    ],
)
def test_settings_that_create_dot_folders_are_refused(key: str, text: str) -> None:
    keys = {
        **MINIMAL,
        "format.class": "ByteArrayFormat",
        "behavior.on.null.values": "write",
        "store.kafka.keys": "true",
        key: text,
    }
    (problem,) = S3ArchiverConfig.check(keys)[1]

    assert problem.startswith(f"'{key}': ")


@pytest.mark.parametrize("topic", ["../../x", "a/b", "a+0+1", "..", "x" * 250])
def test_an_invalid_topic_name_is_refused(topic: str) -> None:
    with pytest.raises(ConfigException, match="is not a valid topic name"):
        config(topics=topic)
    made = connector(FakeS3())
    made.start(config())
    with pytest.raises(ConfigException, match="is not a valid topic name"):
        made.subscribed([topic])


@pytest.mark.parametrize(
    ("pattern", "expected_text"),
    [
        ("YYYY/MM/DD", "the day of the month is dd"),
        ("YYYY/MM/dd/hh", "the hour of the day is HH"),
        ("YYYY/mm/dd", "the month is MM"),
        ("YYYY/MM/dd/HH/MM", "the minute is mm"),
        ("xxxx/MM/dd", "the year is yyyy"),
        ("'hour'=HH", "the same hours of all days"),
        ("'year'=YYYY/'month'=MM/'day'=dd/'hour'=HH/'minute'=mm", None),
        ("YYYY-DDD", None),
        ("YYYY/MM/dd/hh a", None),
        ("xxxx-'W'ww", None),
        ("'DD hh mm'/YYYY", None),
    ],
)
def test_probably_mistaken_path_format_letters_are_a_warning(pattern: str, expected_text: str | None) -> None:
    warnings = S3ArchiverConfig.parse({**MINIMAL, **TIMED, "path.format": pattern}).warnings()
    of_letters = [text for text in warnings if text.startswith("'path.format'")]

    assert len(of_letters) == (expected_text is not None)
    assert (expected_text or "") in "".join(of_letters)


@pytest.mark.parametrize("key", ["store.url", "s3.proxy.url"])
@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("http://[x", "is not a URL"),
        ("http://127.0.0.1:99999", "has a port that is not a number from 1 to 65535"),
        ("http://minio:port", "has a port that is not a number from 1 to 65535"),
        ("http://minio:0", "has a port that is not a number from 1 to 65535"),
        ("http://127.0.0.1 :9000", "contains a space or a control character"),
        ("http://min\tio:9000", "contains a space or a control character"),
        ("minio:9000", "does not begin with http:// or https://"),
        ("http://:9000", "names no host"),
        ("http://a..b", "has the invalid host name 'a..b'"),
        ("http://u:pass-word@[x", "is not a URL"),
    ],
)
def test_an_invalid_address_is_refused(key: str, address: str, why: str) -> None:
    # The error of botocore names no key, and urlsplit itself raises an exception.
    [problem] = S3ArchiverConfig.check({**MINIMAL, key: address})[1]
    shown = address.replace("pass-word", "********")
    assert problem.startswith(f"'{key}': {shown!r} {why}: write it like http")


@pytest.mark.parametrize(
    "address",
    ["http://[::1]:9000", "https://minio.example", "http://127.0.0.1:9000/", "http://proxy-1:3128/s3"],
)
def test_a_valid_address_is_accepted(address: str) -> None:
    for key in ("store.url", "s3.proxy.url"):
        assert S3ArchiverConfig.check({**MINIMAL, key: address})[1] == []
    assert is_valid_endpoint_url(address) or is_valid_ipv6_endpoint_url(address)


@pytest.mark.parametrize("host", ["my_minio", "b\u00fccher.example"])
def test_a_host_name_unsupported_by_botocore_is_refused(host: str) -> None:
    # Compose creates host names with underscores; a proxy may have one.
    address = f"http://{host}:9000"
    assert not is_valid_endpoint_url(address)
    [problem] = S3ArchiverConfig.check({**MINIMAL, "store.url": address})[1]
    assert problem.startswith(f"'store.url': botocore refuses the host name {host!r}: ")
    assert S3ArchiverConfig.check({**MINIMAL, "s3.proxy.url": address})[1] == []


REGION = "is not a region name ("


@pytest.mark.parametrize(
    ("keys", "expected_text"),
    [
        ({"s3.region": ""}, f"'s3.region': '' {REGION}"),
        ({"s3.region": "us east 1"}, f"'s3.region': 'us east 1' {REGION}"),
        ({"s3.region": "EU-WEST-1"}, "lower-case letters, digits and hyphens): write it like eu-west-1"),
        ({"s3.region": "eu-west-1 "}, "write it like eu-west-1"),
        ({"s3.region": "", "store.url": "http://minio:9000"}, f"'s3.region': '' {REGION}letters, digits"),
        ({"s3.region": "eu_1", "store.url": "http://minio:9000"}, f"'s3.region': 'eu_1' {REGION}letters"),
        (
            {**ROLE, "s3.credentials.provider.sts.region": "EU-WEST-1"},
            "'s3.credentials.provider.sts.region': 'EU-",
        ),
    ],
    ids=str,
)
def test_an_invalid_region_is_refused(keys: dict[str, str], expected_text: str) -> None:
    [problem] = S3ArchiverConfig.check({**MINIMAL, **keys})[1]
    assert expected_text in problem


@pytest.mark.parametrize(
    "keys",
    [
        {"s3.region": "us-gov-west-1"},
        {"s3.region": "eusc-de-east-1"},
        {"s3.region": "auto", "store.url": "https://account.r2.example"},
        {"s3.region": "RegionOne", "store.url": "https://swift.example"},
        {**ROLE, "s3.credentials.provider.sts.region": ""},
    ],
    ids=str,
)
def test_regions_of_every_store_are_accepted(keys: dict[str, str]) -> None:
    assert S3ArchiverConfig.check({**MINIMAL, **keys})[1] == []


@pytest.mark.parametrize(
    ("keys", "is_warned"),
    [
        ({"store.url": "https://s3.eu-central-1.amazonaws.com", "s3.region": "us-east-1"}, True),
        ({"store.url": "https://s3.dualstack.eu-west-1.amazonaws.com"}, True),
        ({"store.url": "https://bucket.s3-eu-west-1.amazonaws.com"}, True),
        ({"store.url": "https://s3.eu-central-1.wasabisys.com"}, True),
        (
            {"s3.bucket.name": "arn:aws:s3:eu-west-1:123456789012:accesspoint/a", "s3.region": "eu-west-2"},
            True,
        ),
        ({"store.url": "https://s3.eu-central-1.amazonaws.com", "s3.region": "eu-central-1"}, False),
        ({"store.url": "http://minio.example:9000"}, False),
        ({"store.url": "https://s3.my-company.example"}, False),
        ({"store.url": "https://s3-fips.us-gov-west-1.amazonaws.com"}, True),
        ({"store.url": "https://s3.amazonaws.com"}, False),
        ({}, False),
    ],
    ids=str,
)
def test_a_region_that_differs_from_the_endpoints_is_a_warning(
    keys: dict[str, str], *, is_warned: bool
) -> None:
    warnings = S3ArchiverConfig.parse({**MINIMAL, **keys}).warnings()

    assert any("requests are signed" in text for text in warnings) is is_warned


def test_topics_whose_files_readers_skip_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    # Spark and pyarrow skip names that begin with _ or a dot.
    assert any("_schemas" in text for text in config(topics="_schemas,orders").warnings())
    assert config(topics="orders").warnings() == []

    made = connector(FakeS3())
    raw = {key: text for key, text in MINIMAL.items() if key != "topics"}
    made.start(S3ArchiverConfig.parse({**raw, "topics.regex": ".*"}))
    with caplog.at_level(logging.WARNING):
        made.subscribed(["_schemas", "orders"])
        made.subscribed(["_schemas", "orders"])
    assert [line.count("_schemas") for line in caplog.messages] == [1]


@pytest.mark.parametrize("folder", ["", "  "])
def test_an_empty_topics_dir_archives_at_the_top_of_the_bucket(folder: str) -> None:
    tp = TopicPartition("orders", 0)
    settings = config({"topics.dir": folder})
    made = bench(tp, settings=settings)
    made.harness.deliver(tp, records(tp, 3))
    made.harness.revoke(tp)

    assert made.visible() == ["orders/partition=0/orders+0+0000000000.avro"]
    assert settings.layout().marker("orders") == "_sinksdk/orders.json"
    assert settings.layout().topic_of_marker("_sinksdk/orders.json") == "orders"
    report = verify(settings, made.s3, lambda: made.harness.committed)
    assert (report.problems, sum(part.records for part in report.partitions)) == ([], 3)


@pytest.mark.parametrize("key", ["s3.endpoint", "s3.endpoint.url"])
def test_an_endpoint_under_another_sinks_key_is_used_as_store_url(key: str) -> None:
    # If such a key were ignored, files would go to AWS.
    assert S3ArchiverConfig.parse({**MINIMAL, key: "http://minio:9000"}).store_url == "http://minio:9000"


def test_a_static_credentials_provider_is_accepted_only_with_access_keys() -> None:
    provider = {"s3.credentials.provider.class": "com.example.AwsAccessKeyCredentialsProvider"}
    keys = {"aws.access.key.id": "k", "aws.secret.access.key": "s"}

    assert S3ArchiverConfig.parse({**MINIMAL, **provider, **keys}).keys_of_access() == ("k", "s")
    assert any(
        "it provides an access key" in text for text in S3ArchiverConfig.check({**MINIMAL, **provider})[1]
    )


@pytest.mark.parametrize(
    ("keys", "found", "why"),
    [
        ({"topics.dir": "d" * 500}, "t" * 249, "S3 allows 1,024"),
        ({"directory.delim": "-"}, "a-b", "its files would be in another folder"),
    ],
)
def test_a_topic_with_invalid_file_keys_is_refused_before_its_marker_is_claimed(
    keys: dict[str, str], found: str, why: str
) -> None:
    # The topics of topics.regex are known only with the subscription, and another connector may archive one
    # of them.
    named = {name: text for name, text in MINIMAL.items() if name != "topics"}
    s3 = FakeS3()
    made = connector(s3)
    made.start(S3ArchiverConfig.parse({**named, "topics.regex": ".*", **keys}))

    made.subscribed(["orders"])
    taken = s3.visible()
    with pytest.raises(ConfigException, match=why):
        made.subscribed(["orders", "ships", found])
    assert s3.visible() == taken


@pytest.mark.parametrize(
    ("name", "expected_text"),
    [
        ("archive.s3.amazonaws.com", "the bucket is 'archive'"),
        ("my.archive.s3.eu-west-1.amazonaws.com", "the bucket is 'my.archive'"),
        ("s3.amazonaws.com", "it does not name a bucket"),
        ("archive", None),
        ("archive.example.com", None),
        ("my.s3.archive", None),
    ],
)
def test_a_bucket_named_like_an_s3_host_is_a_warning(name: str, expected_text: str | None) -> None:
    warnings = [text for text in config({"s3.bucket.name": name}).warnings() if "'s3.bucket.name'" in text]

    assert len(warnings) == (expected_text is not None)
    assert (expected_text or "") in "".join(warnings)
