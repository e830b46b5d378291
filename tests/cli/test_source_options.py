"""The options for topics."""

from __future__ import annotations

import pytest

from sinksdk import ConfigException
from sinksdk.cli.options import SourceOptions


@pytest.mark.parametrize(
    "servers",
    [
        "127.0.0.1:9092",
        "broker-1.example:9092,broker_2:19092",
        " a:1 , b:65535 ,",
        "[::1]:9092",
        "[fe80::1%eth0]:9092,a:1",
    ],
)
def test_addresses_with_a_port_are_accepted(servers: str) -> None:
    SourceOptions(bootstrap_servers=servers).topics()


@pytest.mark.parametrize(
    ("servers", "wrong"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("a:9092,b", "b"),
        ("a:", "a:"),
        (":9092", ":9092"),
        ("a:kafka", "a:kafka"),
        ("a:0", "a:0"),
        ("a:65536", "a:65536"),
        ("a:9092/", "a:9092/"),
        ("::1:9092", "::1:9092"),
        ("[::1]", "[::1]"),
        ("SSL://a:9092", "SSL://a:9092"),
        ("a b:9092", "a b:9092"),
    ],
)
def test_an_address_without_a_port_is_refused(servers: str, wrong: str) -> None:
    # Regression: without a port, librdkafka connects to port 9092.
    with pytest.raises(ConfigException) as caught:
        SourceOptions(bootstrap_servers=servers).topics()

    assert str(caught.value) == f"--bootstrap-servers: '{wrong}' is not HOST:PORT, as in broker.example:9092"


@pytest.mark.parametrize("servers", [",", " "])
def test_an_empty_address_is_refused(servers: str) -> None:
    with pytest.raises(ConfigException, match="--bootstrap-servers is empty: give HOST:PORT"):
        SourceOptions(bootstrap_servers=servers).topics()


def test_kafka_config_is_refused_without_a_cluster() -> None:
    with pytest.raises(ConfigException, match="--kafka-config needs --bootstrap-servers"):
        SourceOptions("topics", kafka_config="client.properties").topics()
