from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from sinksdk import ConfigException, ConnectorConfig
from sinksdk.connectors.s3_archiver.config import S3ArchiverConfig
from sinksdk.connectors.s3_archiver.verify.kafka_log import KafkaLog
from sinksdk.source.config import SourceConnectorConfig
from sinksdk.topics.kafka import KafkaClient, client
from sinksdk.topics.kafka.client import read_client_file, translated
from sinksdk.topics.kafka.cluster import Cluster
from sinksdk.topics.kafka.consumer import Consumer, has_feature
from sinksdk.topics.kafka.reader import PROPERTIES


def read(folder: Path, text: str) -> dict[str, str]:
    file = folder / "client.properties"
    file.write_text(text, encoding="utf-8")
    return read_client_file(file)


def refused(folder: Path, text: str) -> str:
    with pytest.raises(ConfigException) as caught:
        read(folder, text)
    return str(caught.value)


def test_properties_file_is_read_as_by_kafkas_tools(tmp_path: Path) -> None:
    # Regression: byte order marks, comments, escapes and values that end in a backslash were read wrongly.
    text = (
        "\ufeffsecurity.protocol=SASL_SSL\n# in C:\\\nsasl.mechanism=PLAIN\nssl.truststore.location=C\\:\\\\\n"
        "client.id : me\n"
    )

    assert read(tmp_path, text) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "ssl.truststore.location": "C:\\",
        "client.id": "me",
    }


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("security.protocol SSL", "line 2 has no '=': 'security.protocol …'"),
        ("security.protocol", "line 2 has no '=': 'security.protocol …'"),
        ("=SSL", "line 2 has no key in front of '='"),
        (": SSL", "line 2 has no key in front of ':'"),
    ],
)
def test_line_without_a_key_or_separator_is_refused_without_its_value(
    tmp_path: Path, line: str, problem: str
) -> None:
    # The value may be a secret.
    message = refused(tmp_path, f"client.id=me\n{line}\n")

    assert message == f"the Kafka client properties {tmp_path / 'client.properties'}: {problem}"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("security.protocl", "security.protocol"),
        ("security_protocol", "security.protocol"),
        ("Security.Protocol", "security.protocol"),
        ("sasl.mechanisms", "sasl.mechanism"),
        ("sasl.jaas", "sasl.jaas.config"),
        ("sasl.jaas.config.file", "sasl.jaas.config"),
        ("ssl.trustore.location", "ssl.truststore.location"),
        ("ssl.endpoint.identification.algorithms", "ssl.endpoint.identification.algorithm"),
    ],
)
def test_a_misspelt_security_setting_is_refused(tmp_path: Path, written: str, meant: str) -> None:
    # Kafka's clients ignore unknown settings: records would be sent unencrypted.
    message = refused(tmp_path, f"client.id=me\n{written}=x\n")

    assert message.endswith(
        f"line 2: '{written}' is not a setting of Kafka's clients: did you mean '{meant}'?"
    )


def test_properties_file_reports_all_problems(tmp_path: Path) -> None:
    assert len(refused(tmp_path, "what\n=x\nssl.key.passwort=x\n").splitlines()) == 3


def test_settings_of_plugins_are_accepted(tmp_path: Path) -> None:
    text = "ssl.spiffe.socket=/s\nsasl.username=a\nsasl.password=b\nlibrdkafka.sasl.mechanisms=PLAIN\nfetch.min.byte=1\n"

    assert read(tmp_path, text).keys() == {
        *(
            "ssl.spiffe.socket",
            "sasl.username",
            "sasl.password",
            "librdkafka.sasl.mechanisms",
            "fetch.min.byte",
        )
    }


def test_references_are_resolved_after_escapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A backslash in an environment variable is no escape.
    monkeypatch.setenv("KEY_PASSWORD", "a\\tb")

    assert read(tmp_path, "ssl.key.password=${env:KEY_PASSWORD}")["ssl.key.password"] == "a\\tb"


PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="ada" password="p\\"w;x" ;'
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required password='secret' username=ada;"


@pytest.mark.parametrize(("jaas", "password"), [(PLAIN, 'p"w;x'), (SCRAM, "secret")])
def test_jaas_user_and_password_are_translated(jaas: str, password: str) -> None:
    found = translated({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas})

    assert found == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ada",
        "sasl.password": password,
    }


CONSUMER = {
    "check.crcs": ("true", "check.crcs", "true"),
    "client.dns.lookup": ("use_all_dns_ips", "client.dns.lookup", "use_all_dns_ips"),
    "client.rack": ("eu-1", "client.rack", "eu-1"),
    "connections.max.idle.ms": ("540000", "connections.max.idle.ms", "540000"),
    "enable.metrics.push": ("false", "enable.metrics.push", "false"),
    "fetch.max.bytes": ("104857600", "fetch.max.bytes", "104857600"),
    "fetch.max.wait.ms": ("200", "fetch.wait.max.ms", "200"),
    "fetch.min.bytes": ("100000", "fetch.min.bytes", "100000"),
    "isolation.level": ("read_uncommitted", "isolation.level", "read_uncommitted"),
    "max.partition.fetch.bytes": ("52428800", "fetch.message.max.bytes", "52428800"),
    "metadata.max.age.ms": ("300000", "metadata.max.age.ms", "300000"),
    "metadata.recovery.rebootstrap.trigger.ms": ("1000", "metadata.recovery.rebootstrap.trigger.ms", "1000"),
    "metadata.recovery.strategy": ("REBOOTSTRAP", "metadata.recovery.strategy", "REBOOTSTRAP"),
    "receive.buffer.bytes": ("65536", "socket.receive.buffer.bytes", "65536"),
    "reconnect.backoff.max.ms": ("2000", "reconnect.backoff.max.ms", "2000"),
    "reconnect.backoff.ms": ("50", "reconnect.backoff.ms", "50"),
    "request.timeout.ms": ("40000", "socket.timeout.ms", "40000"),
    "retry.backoff.max.ms": ("2000", "retry.backoff.max.ms", "2000"),
    "retry.backoff.ms": ("200", "retry.backoff.ms", "200"),
    "send.buffer.bytes": ("131072", "socket.send.buffer.bytes", "131072"),
    "socket.connection.setup.timeout.ms": ("10000", "socket.connection.setup.timeout.ms", "10000"),
}
"""Settings of Java's consumer: a value, librdkafka's name, and the value there."""


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    # A process logs each warning once.
    client._warn_once.cache_clear()
    return lambda: [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("key", CONSUMER)
def test_consumer_settings_are_translated(key: str) -> None:
    value, name, there = CONSUMER[key]
    found = translated({"bootstrap.servers": "127.0.0.1:1", key: value})

    assert found == {"bootstrap.servers": "127.0.0.1:1", name: there}
    with Consumer({**PROPERTIES, **found}):
        pass


@pytest.mark.parametrize("key", ["receive.buffer.bytes", "send.buffer.bytes", "connections.max.idle.ms"])
def test_minus_one_is_translated_to_zero(key: str, warnings: Callable[[], list[str]]) -> None:
    assert list(translated({key: "-1"}).values()) == ["0"]
    assert warnings() == []


@pytest.mark.parametrize(
    ("key", "wanted", "taken"),
    [
        ("fetch.max.bytes", "2147483647", "2147483135"),
        ("fetch.max.bytes", "1024", "1000000"),
        ("request.timeout.ms", "600000", "300000"),
        ("retry.backoff.ms", "0", "1"),
    ],
)
def test_number_outside_librdkafkas_range_is_clamped_with_a_warning(
    key: str, wanted: str, taken: str, warnings: Callable[[], list[str]]
) -> None:
    found = translated({key: wanted})

    assert list(found.values()) == [taken]
    assert warnings() == [f"Kafka's '{key}' is {wanted}, which librdkafka does not accept: {taken} is used"]
    with Consumer({**PROPERTIES, **found}):
        pass


def test_value_that_is_not_a_number_is_refused() -> None:
    with pytest.raises(ConfigException, match=r"'fetch.max.wait.ms' is 'soon', but must be a whole number"):
        translated({"fetch.max.wait.ms": "soon"})


def test_settings_without_a_librdkafka_counterpart_are_omitted(warnings: Callable[[], list[str]]) -> None:
    java = {
        "auto.offset.reset": "latest",
        "enable.auto.commit": "true",
        "group.id": "mine",
        "interceptor.classes": "a.B",
        "key.deserializer": "a.C",
        "linger.ms": "5",
        "max.poll.records": "5",
        "partition.assignment.strategy": "a.D",
        "session.timeout.ms": "60000",
        "client.id": "me",
    }

    assert translated(java) == {"client.id": "me"}
    assert warnings() == []


def test_unknown_setting_is_logged_once_without_its_value(warnings: Callable[[], list[str]]) -> None:
    for _ in range(2):
        found = translated({"fetch.min.byte": "secret", "librdkafka.queued.min.messages": "7"})
        assert found == {"queued.min.messages": "7"}

    (told,) = warnings()
    assert told.startswith("'fetch.min.byte' was supplied but isn't a known config of Kafka's clients")
    assert "'librdkafka.fetch.min.byte'" in told
    assert "secret" not in told


def test_security_setting_without_a_counterpart_is_logged(warnings: Callable[[], list[str]]) -> None:
    assert translated({"ssl.enabled.protocols": "TLSv1.3", "ssl.truststore.password": "secret"}) == {}

    (told,) = warnings()
    assert told.startswith("Kafka's 'ssl.enabled.protocols' has no effect")


def test_other_clients_get_no_consumer_settings() -> None:
    client = KafkaClient("here:9092")
    written = {key: value for key, (value, _, _) in CONSUMER.items()}
    written |= {"librdkafka.queued.min.messages": "7", "librdkafka.statistics.interval.ms": "0"}
    complaints = logging.getLogger("tests.librdkafka")
    said: list[str] = []
    complaints.addHandler(handler := logging.Handler())
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]

    found = client.librdkafka(written, consumes=False)
    producer = Producer({**found, "bootstrap.servers": "127.0.0.1:1", "log_level": 4, "logger": complaints})
    producer.poll(0.1)

    assert [line for line in said if "CONFWARN" in line] == []
    assert found["socket.timeout.ms"] == "40000"


KERBEROS = (
    'com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true keyTab="/etc/me.keytab" '
    'principal="me@EXAMPLE.COM";'
)


@pytest.mark.parametrize("mechanism", [{}, {"sasl.mechanism": "GSSAPI"}])
def test_kerberos_is_refused_when_librdkafka_lacks_it(
    mechanism: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Kerberos is Java's default mechanism, but the wheels are built without it.
    client = KafkaClient("here:9092")
    java = {"security.protocol": "SASL_SSL", "sasl.jaas.config": KERBEROS, **mechanism}

    monkeypatch.setattr("sinksdk.topics.kafka.client.has_feature", lambda name: name != "sasl_gssapi")
    with pytest.raises(
        ConfigException, match=r"GSSAPI.*Kerberos.*libsasl2.*pip install .*--no-binary confluent-kafka"
    ):
        client.librdkafka(java)

    monkeypatch.setattr("sinksdk.topics.kafka.client.has_feature", lambda name: name == "sasl_gssapi")
    found = client.librdkafka(java)
    assert found["sasl.kerberos.keytab"] == "/etc/me.keytab"
    assert found["sasl.kerberos.principal"] == "me@EXAMPLE.COM"


def test_mechanisms_other_than_gssapi_need_no_kerberos() -> None:
    client = KafkaClient("here:9092")

    assert client.librdkafka({"sasl.mechanism": "GSSAPI"})
    assert client.librdkafka({"security.protocol": "SASL_SSL", "librdkafka.sasl.mechanisms": "SCRAM-SHA-512"})


def test_has_feature_reports_librdkafkas_build_features() -> None:
    assert has_feature("sasl_scram")
    assert not has_feature("sasl_pigeon")


def test_librdkafka_oauth_method_is_accepted_with_a_java_login_module() -> None:
    java = {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required ;",
        "librdkafka.sasl.oauthbearer.method": "oidc",
    }

    assert translated(java) == {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc"}


def test_pem_stores_are_translated() -> None:
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


def test_translation_reports_all_problems_with_remedies() -> None:
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
def test_librdkafka_user_without_the_prefix_is_refused(further: dict[str, str]) -> None:
    # Regression: "sasl.username and sasl.password must be set", though they were.
    with pytest.raises(
        ConfigException, match=r"not settings of Kafka's clients.*sasl\.jaas\.config.*librdkafka\."
    ) as caught:
        translated({"sasl.username": "ada", "sasl.password": "secret", **further})

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("understood", [{"sasl.jaas.config": PLAIN}, {"librdkafka.sasl.username": "ada"}])
def test_librdkafka_user_without_the_prefix_is_ignored_if_another_user_is_set(
    understood: dict[str, str],
) -> None:
    assert translated({"sasl.username": "eve", **understood})["sasl.username"] == "ada"


def test_refused_property_is_reported_with_librdkafkas_reason() -> None:
    # Regression: the message was KafkaError{code=_INVALID_ARG,val=-186,str=...}.
    properties = {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "CARRIER_PIGEON"}

    for make in (Cluster, KafkaLog):
        with pytest.raises(
            ConfigException,
            match=r"(does not accept its properties|properties are invalid): Invalid value",
        ) as caught:
            make(properties)
        assert "KafkaError{" not in str(caught.value)


def test_prefixed_librdkafka_settings_take_precedence(tmp_path: Path) -> None:
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


def test_secret_references_are_resolved_where_the_client_is_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("ssl.key.password=${env:KEY_PASSWORD}\n")
    monkeypatch.setenv("KEY_PASSWORD", "open sesame")
    client = KafkaClient("here:9092", str(file))

    assert "sesame" not in repr(client)
    assert client.librdkafka()["ssl.key.password"] == "open sesame"


def test_missing_properties_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigException, match=r"gone\.properties cannot be read: No such file"):
        KafkaClient("here:9092", str(tmp_path / "gone.properties")).librdkafka()


CODE = {
    "librdkafka.plugin.library.paths": "/tmp/library.so",
    "librdkafka.ssl.engine.location": "/tmp/library.so",
    "librdkafka.ssl.providers": "/tmp/library",
    "librdkafka.sasl.kerberos.kinit.cmd": "touch /tmp/here",
    "sasl.kerberos.kinit.cmd": "touch /tmp/here",
}


@pytest.mark.parametrize("key", CODE)
def test_a_connector_cannot_have_its_client_load_libraries_or_run_commands(key: str) -> None:
    # Every user who may create connectors over REST could run code.
    with pytest.raises(
        ConfigException, match=f"'{key}' cannot be set by a connector's configuration"
    ) as error:
        KafkaClient("localhost:1").librdkafka({key: CODE[key]})
    assert "--kafka-config" in str(error.value)
    operator = KafkaClient("localhost:1", properties=((key, CODE[key]),)).librdkafka()
    assert not key.startswith("librdkafka.") or operator[key.removeprefix("librdkafka.")] == CODE[key]


@pytest.mark.parametrize("prefix", ["consumer.override.", "producer.override.", "admin.override."])
@pytest.mark.parametrize("key", CODE)
@pytest.mark.parametrize("model", [S3ArchiverConfig, SourceConnectorConfig])
def test_configuration_that_would_run_code_is_refused_before_it_is_stored(
    model: type[ConnectorConfig | SourceConnectorConfig], prefix: str, key: str
) -> None:
    problems = model.check({"name": "c", "connector.class": "x:Y", "topics": "t", prefix + key: CODE[key]})[1]
    assert any(problem.startswith(f"'{prefix}{key}' is unsupported: it ") for problem in problems)


@pytest.mark.parametrize(
    "override",
    [
        {"librdkafka.sasl.kerberos.principal": "me; touch /tmp/here"},
        {"librdkafka.sasl.kerberos.keytab": '/tmp/"$(touch /tmp/here)"'},
        {"librdkafka.sasl.kerberos.principal": "-c/tmp/here"},
        {"sasl.kerberos.service.name": "kafka`id`"},
        {"sasl.jaas.config": 'com.sun.Krb5LoginModule required principal="me|id" keyTab="/k";'},
    ],
)
def test_a_connector_cannot_put_a_command_into_its_kerberos_login(override: dict[str, str]) -> None:
    # librdkafka inserts principal and key table into the shell command for kinit.
    with pytest.raises(ConfigException, match="has characters that are special in the shell"):
        KafkaClient("localhost:1").librdkafka(override)
    KafkaClient("localhost:1").librdkafka(
        {"librdkafka.sasl.kerberos.principal": "kafka/host.example@REALM.EXAMPLE"}
    )
