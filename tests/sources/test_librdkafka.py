from __future__ import annotations

from pathlib import Path

import pytest

from sinksdk import ConfigException
from sinksdk.connectors.s3_archiver.kafka_log import KafkaLog
from sinksdk.sources.kafka import KafkaClient
from sinksdk.sources.kafka.cluster import Cluster
from sinksdk.sources.kafka.librdkafka import translated

PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="ada" password="p\\"w;x" ;'
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required password='secret' username=ada;"


@pytest.mark.parametrize(("jaas", "password"), [(PLAIN, 'p"w;x'), (SCRAM, "secret")])
def test_user_and_password_of_a_login_module_are_found(jaas: str, password: str) -> None:
    """In any order, quoted either way or not at all, with escapes."""
    found = translated({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas})

    assert found == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ada",
        "sasl.password": password,
    }


def test_what_concerns_only_reading_is_left_to_spark() -> None:
    """Librdkafka refuses properties it does not know."""
    assert translated({"fetch.max.bytes": "1", "max.poll.records": "5", "client.id": "me"}) == {
        "client.id": "me"
    }


def test_pem_files_are_named_in_librdkafkas_words() -> None:
    """A PEM truststore is a file of CA certificates; a PEM keystore holds certificate and key."""
    java = {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/ca.pem",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": "/me.pem",
        "ssl.key.password": "x",
        "ssl.endpoint.identification.algorithm": "",
    }

    assert translated(java) == {
        "ssl.ca.location": "/ca.pem",
        "ssl.certificate.location": "/me.pem",
        "ssl.key.location": "/me.pem",
        "ssl.key.password": "x",
        "ssl.endpoint.identification.algorithm": "none",
    }


def test_all_that_cannot_be_translated_is_said_at_once_with_what_to_do() -> None:
    """JKS files and login modules librdkafka does not have."""
    java = {
        "ssl.truststore.location": "/trust.jks",
        "ssl.keystore.location": "/key.jks",
        "sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required ;",
    }

    with pytest.raises(ConfigException) as caught:
        translated(java)

    assert len(caught.value.problems) == 3
    assert "secret" not in str(caught.value)
    assert all("librdkafka." in problem for problem in caught.value.problems)


@pytest.mark.parametrize("further", [{}, {"sasl.mechanism": "PLAIN"}])
def test_a_user_in_librdkafkas_words_without_the_prefix(further: dict[str, str]) -> None:
    """Regression: "sasl.username and sasl.password must be set", though they were."""
    with pytest.raises(
        ConfigException, match=r"no settings of Kafka's clients.*sasl\.jaas\.config.*librdkafka\."
    ) as caught:
        translated({"sasl.username": "ada", "sasl.password": "secret", **further})

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("understood", [{"sasl.jaas.config": PLAIN}, {"librdkafka.sasl.username": "ada"}])
def test_a_user_without_the_prefix_beside_one_that_is_understood(understood: dict[str, str]) -> None:
    """Nothing is missing then."""
    assert translated({"sasl.username": "eve", **understood})["sasl.username"] == "ada"


def test_properties_that_are_not_accepted_are_said_in_librdkafkas_words() -> None:
    """Regression: KafkaError{code=_INVALID_ARG,val=-186,str=...}."""
    properties = {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "CARRIER_PIGEON"}

    for make in (Cluster, KafkaLog):
        with pytest.raises(
            ConfigException, match="client properties are not accepted: Invalid value"
        ) as caught:
            make(properties)
        assert "KafkaError{" not in str(caught.value)


def test_librdkafkas_own_settings_win_and_reach_no_java_client(tmp_path: Path) -> None:
    """Keys with the prefix are the way out for whatever has no translation."""
    file = tmp_path / "client.properties"
    file.write_text(
        "# a comment\nsecurity.protocol=SSL\nssl.truststore.location=/trust.jks\n"
        "librdkafka.ssl.ca.location = /ca.pem\nbootstrap.servers=elsewhere:1\n"
    )
    client = KafkaClient("here:9092", str(file))

    assert client.librdkafka() == {
        "bootstrap.servers": "here:9092",
        "security.protocol": "SSL",
        "ssl.ca.location": "/ca.pem",
    }
    assert client.java({"client.id": "me"}) == {
        "bootstrap.servers": "here:9092",
        "security.protocol": "SSL",
        "ssl.truststore.location": "/trust.jks",
        "client.id": "me",
    }


def test_a_secret_named_by_reference_is_looked_up_where_a_client_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client itself holds only the file's name."""
    file = tmp_path / "client.properties"
    file.write_text("ssl.key.password=${env:KEY_PASSWORD}\n")
    monkeypatch.setenv("KEY_PASSWORD", "open sesame")
    client = KafkaClient("here:9092", str(file))

    assert "sesame" not in repr(client)
    assert client.java()["ssl.key.password"] == "open sesame"


def test_a_properties_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    """With its name."""
    with pytest.raises(ConfigException, match=r"gone\.properties cannot be read: No such file"):
        KafkaClient("here:9092", str(tmp_path / "gone.properties")).java()
