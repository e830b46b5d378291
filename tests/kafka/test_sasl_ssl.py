"""A broker that requires TLS and a password."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from sinksdk import ConnectException, TopicPartition
from sinksdk.connectors.s3_archiver.verify import kafka_log
from sinksdk.connectors.s3_archiver.verify.kafka_log import KafkaLog
from sinksdk.topics import Subscription
from sinksdk.topics.kafka import KafkaClient, KafkaSource
from tests.helpers.ports import free_port
from tests.helpers.tiers import extended_after
from tests.kafka.archive import KafkaSite, kafka_site
from tests.kafka.broker import serving
from tests.kafka.certificates import certificate
from tests.kafka.topics import consume, create_topic, produce

pytestmark = pytest.mark.slow

PASSWORD = 'open "sesame"; please'
LOGIN_MODULES = {"PLAIN": "plain.PlainLoginModule", "SCRAM-SHA-512": "scram.ScramLoginModule"}


class Guarded(NamedTuple):
    # One listener is for the test; the other one requires TLS and authentication.
    open: str
    locked: str
    authority: Path

    def properties(self, folder: Path, mechanism: str = "SCRAM-SHA-512") -> Path:
        path = folder / "client.properties"
        path.write_text(
            f"security.protocol=SASL_SSL\n"
            f"sasl.mechanism={mechanism}\n"
            f"sasl.jaas.config=org.apache.kafka.common.security.{LOGIN_MODULES[mechanism]} required \\\n"
            f'    username="archiver" password="${{env:KAFKA_PASSWORD}}";\n'
            f"ssl.truststore.type=PEM\n"
            f"ssl.truststore.location={self.authority}\n"
        )
        return path


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    files = certificate(tmp_path_factory.mktemp("certificates"))
    port = free_port(3)
    locked = port + 2  # the port in between is the controller's
    login = "listener.name.sasl_ssl.{}.sasl.jaas.config"
    module = "org.apache.kafka.common.security.{} required{};"
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{port},SASL_SSL://127.0.0.1:{locked},CONTROLLER://127.0.0.1:{port + 1}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port},SASL_SSL://127.0.0.1:{locked}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": ",".join(LOGIN_MODULES),
        login.format("plain"): module.format("plain.PlainLoginModule", ' user_archiver="plain secret"'),
        login.format("scram-sha-512"): module.format("scram.ScramLoginModule", ""),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(files.keystore),
    }
    with serving(settings, port=port) as broker:
        credential = UserScramCredentialUpsertion(
            "archiver", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), PASSWORD.encode()
        )
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for added in admin.alter_user_scram_credentials([credential]).values():
            added.result(60)
        create_topic(broker.bootstrap, "orders", 2)
        produce(broker.bootstrap, "orders", [b"%d" % n for n in range(500)])
        yield Guarded(broker.bootstrap, f"127.0.0.1:{locked}", files.authority)


@pytest.fixture
def site(tmp_path: Path, guarded: Guarded) -> Iterator[KafkaSite]:
    with kafka_site(tmp_path, guarded.locked, "orders") as made:
        made.configure(flush_size=100)
        yield made


@pytest.mark.parametrize(
    ("mechanism", "password"),
    extended_after(1, [("SCRAM-SHA-512", PASSWORD), ("PLAIN", "plain secret")]),
)
def test_driver_authenticates(
    guarded: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mechanism: str, password: str
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", password.replace('"', '\\"'))
    source = KafkaSource(KafkaClient(guarded.locked, str(guarded.properties(tmp_path, mechanism))))

    assert len(source.partitions(Subscription(("orders",)))) == 2


@pytest.mark.extended
@pytest.mark.spark
def test_tasks_and_verify_authenticate_without_showing_the_password(
    guarded: Guarded, site: KafkaSite, tmp_path: Path
) -> None:
    options = ["--kafka-config", str(guarded.properties(tmp_path))]
    env = {"KAFKA_PASSWORD": PASSWORD.replace('"', '\\"')}

    code, output = site.run("--until-caught-up", "--verbose", *options, env=env)

    assert code == 0, output
    assert site.archived() == consume(guarded.open, "orders")
    assert "sesame" not in output
    assert "sesame" not in (site.folder / "store.sqlite").read_bytes().decode(errors="replace")
    code, output = site.verify_with_kafka(*options, env=env)
    assert code == 0, output
    assert "500 records are the same" in output


def test_wrong_password_is_reported_before_spark_starts(
    guarded: Guarded, site: KafkaSite, tmp_path: Path
) -> None:
    env = {"KAFKA_PASSWORD": "not sesame at all"}

    code, output = site.run("--kafka-config", str(guarded.properties(tmp_path)), env=env)

    assert code == 2, output
    assert output.count("uthentication failed") == 1, output
    assert guarded.locked in output
    assert "Traceback" not in output
    assert "sesame" not in output


@pytest.mark.extended
def test_untrusted_certificate_is_reported(
    guarded: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "plain secret")
    other = certificate(tmp_path)
    path = guarded._replace(authority=other.authority).properties(tmp_path, "PLAIN")

    source = KafkaSource(KafkaClient(guarded.locked, str(path)))

    with pytest.raises(ConnectException):
        source.partitions(Subscription(("orders",)))
    assert "certificate verify failed" in source.cluster.refusal()


@pytest.mark.extended
def test_verify_reports_a_wrong_password(
    guarded: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_log, "_PATIENCE", 10.0)
    monkeypatch.setenv("KAFKA_PASSWORD", "not sesame at all")
    log = KafkaLog(KafkaClient(guarded.locked, str(guarded.properties(tmp_path))).librdkafka())

    with pytest.raises(ConnectException, match="uthentication failed") as caught:
        next(log.batches(TopicPartition("orders", 0), 1))

    assert "sesame" not in str(caught.value)
