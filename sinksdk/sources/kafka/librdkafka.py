"""Kafka's client properties as Java has them, translated for librdkafka.

Connection and security mean the same to both, under mostly the same names. What concerns only the
reading of records is Spark's business and left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from sinksdk.errors import ConfigException

PREFIX: Final = "librdkafka."
"""Keys that begin so are for librdkafka as they are, less the prefix."""

_SAME: Final = frozenset(
    {
        "bootstrap.servers",
        "security.protocol",
        "sasl.mechanism",
        "sasl.kerberos.service.name",
        "client.id",
        "client.dns.lookup",
        "client.rack",
        "metadata.max.age.ms",
        "reconnect.backoff.ms",
        "reconnect.backoff.max.ms",
        "ssl.cipher.suites",
        "ssl.key.password",
    }
)
_RENAMED: Final[Mapping[str, str]] = {
    "request.timeout.ms": "socket.timeout.ms",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
_JAAS_LOGIN: Final = re.compile(r"\b(?:Plain|Scram)LoginModule\b")
_JAAS_OPTION: Final = re.compile(
    r"""\b(username|password)\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s;]+)"""
)


def translated(java: Mapping[str, str]) -> dict[str, str]:
    """The properties librdkafka understands, in its words.

    Raises:
        ConfigException: every security setting that has no counterpart, at once, each with what to do.
    """
    own = {key.removeprefix(PREFIX): value for key, value in java.items() if key.startswith(PREFIX)}
    problems: list[str] = []
    found = {key: value for key, value in java.items() if key in _SAME}
    found |= {name: java[key] for key, name in _RENAMED.items() if key in java}
    if "ssl.endpoint.identification.algorithm" in java:
        # Java switches the check of the host's name off with an empty text.
        found["ssl.endpoint.identification.algorithm"] = (
            java["ssl.endpoint.identification.algorithm"] or "none"
        )
    found |= _login(java, own, problems)
    found |= _stores(java, own, problems)
    if problems:
        raise ConfigException(problems)
    return {**found, **own}


def _login(java: Mapping[str, str], own: Mapping[str, str], problems: list[str]) -> dict[str, str]:
    """User and password of ``sasl.jaas.config``."""
    jaas = java.get("sasl.jaas.config", "")
    if not jaas and "sasl.username" not in own and java.keys() & {"sasl.username", "sasl.password"}:
        problems.append(
            f"'sasl.username' and 'sasl.password' are no settings of Kafka's clients: write both into "
            f"'sasl.jaas.config', which Spark's client needs as well; '{PREFIX}sasl.username' and "
            f"'{PREFIX}sasl.password' are for confluent-kafka only"
        )
    if (
        not jaas
        or "sasl.username" in own
        or own.get("sasl.mechanism", java.get("sasl.mechanism")) == "GSSAPI"
    ):
        return {}
    options = {match[1]: _unquoted(match[2]) for match in _JAAS_OPTION.finditer(jaas)}
    if not _JAAS_LOGIN.search(jaas) or options.keys() != {"username", "password"}:
        problems.append(
            f"'sasl.jaas.config' is understood for PlainLoginModule and ScramLoginModule with username "
            f"and password only; for other mechanisms add librdkafka's own settings, as in "
            f"'{PREFIX}sasl.username'"
        )
        return {}
    return {"sasl.username": options["username"], "sasl.password": options["password"]}


def _stores(java: Mapping[str, str], own: Mapping[str, str], problems: list[str]) -> dict[str, str]:
    """Files with certificates and keys."""
    found = {}
    trust, key = java.get("ssl.truststore.location"), java.get("ssl.keystore.location")
    if trust and not own.keys() & {"ssl.ca.location", "ssl.ca.pem"}:
        if _store_type(java, "ssl.truststore") == "PEM":
            found["ssl.ca.location"] = trust
        else:
            problems.append(
                f"'ssl.truststore.location' is no PEM file, which is all librdkafka reads: export the "
                f"certificates (keytool -exportcert -rfc) and name the file with '{PREFIX}ssl.ca.location', "
                f"or set ssl.truststore.type=PEM"
            )
    if key and not own.keys() & {"ssl.certificate.location", "ssl.certificate.pem", "ssl.keystore.location"}:
        kind = _store_type(java, "ssl.keystore")
        if kind == "PEM":
            found |= {"ssl.certificate.location": key, "ssl.key.location": key}
        elif kind == "PKCS12":
            found |= {
                "ssl.keystore.location": key,
                "ssl.keystore.password": java.get("ssl.keystore.password", ""),
            }
        else:
            problems.append(
                f"'ssl.keystore.location' is a JKS file, which librdkafka does not read: convert it (keytool "
                f"-importkeystore -deststoretype PKCS12) and set ssl.keystore.type=PKCS12, or name PEM files "
                f"with '{PREFIX}ssl.certificate.location' and '{PREFIX}ssl.key.location'"
            )
    return found


def _store_type(java: Mapping[str, str], prefix: str) -> str:
    return java.get(f"{prefix}.type", "JKS").upper()


def _unquoted(text: str) -> str:
    if text[:1] in {'"', "'"}:
        return re.sub(r"\\(.)", r"\1", text[1:-1])
    return text
