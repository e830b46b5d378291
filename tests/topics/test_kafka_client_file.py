"""The properties file of Kafka's clients: no setting of it is lost without a word."""

from __future__ import annotations

from pathlib import Path

import pytest

from sinksdk import ConfigException
from sinksdk.topics.kafka.client import read_client_file


def read(folder: Path, text: str) -> dict[str, str]:
    file = folder / "client.properties"
    file.write_text(text, encoding="utf-8")
    return read_client_file(file)


def refused(folder: Path, text: str) -> str:
    with pytest.raises(ConfigException) as caught:
        read(folder, text)
    return str(caught.value)


def test_it_is_read_as_kafkas_own_tools_read_it(tmp_path: Path) -> None:
    """Regression: a byte order mark, a comment or value that ends in a backslash, escapes."""
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
def test_a_line_that_sets_nothing_is_refused(tmp_path: Path, line: str, problem: str) -> None:
    """With the file's name and the line's number, but not with a value: it may be a secret."""
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
    """Kafka's clients ignore what they do not know: records would go over the network in the clear."""
    message = refused(tmp_path, f"client.id=me\n{written}=x\n")

    assert message.endswith(f"line 2: '{written}' is no setting of Kafka's clients: did you mean '{meant}'?")


def test_everything_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    """One round for the operator, not one per line."""
    assert len(refused(tmp_path, "what\n=x\nssl.key.passwort=x\n").splitlines()) == 3


def test_settings_of_others_are_let_through(tmp_path: Path) -> None:
    """Login modules and engine factories may have settings of their own; librdkafka's are its business."""
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


def test_a_reference_is_looked_up_after_escapes_were_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an environment variable holds is no properties file: its backslashes stay."""
    monkeypatch.setenv("KEY_PASSWORD", "a\\tb")

    assert read(tmp_path, "ssl.key.password=${env:KEY_PASSWORD}")["ssl.key.password"] == "a\\tb"
