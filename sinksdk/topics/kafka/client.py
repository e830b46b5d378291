"""Translates client properties of Kafka's own tools for librdkafka."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from sinksdk.errors import ConfigException
from sinksdk.settings.client_overrides import override_problems
from sinksdk.settings.model import ConfigModel
from sinksdk.settings.properties import Property, read_properties
from sinksdk.settings.references import resolve_references
from sinksdk.support.jaas import jaas_options
from sinksdk.topics.kafka.consumer import has_feature

# Kafka's clients ignore unknown properties: a misspelt security setting could send passwords and records over
# the network unencrypted, so keys that resemble one are refused.
_SIMILAR: Final = 0.85  # difflib's similarity of a misspelt key and the intended one


def _names(table: str) -> frozenset[str]:
    # "#" begins a comment.
    return frozenset(name for line in table.splitlines() for name in line.partition("#")[0].split())


SECURITY: Final = _names("""
    security.protocol security.providers
    sasl.client.callback.handler.class sasl.jaas.config sasl.mechanism
    sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.service.name
    sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
    sasl.login.callback.handler.class sasl.login.class
    sasl.login.connect.timeout.ms sasl.login.read.timeout.ms
    sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds
    sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
    sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms
    sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.file
    sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds
    sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include
    sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub
    sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase
    sasl.oauthbearer.assertion.template.file
    sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret
    sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.header.urlencode
    sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
    sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.url
    sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
    sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class
    sasl.oauthbearer.scope sasl.oauthbearer.scope.claim.name
    sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url
    ssl.cipher.suites ssl.client.auth ssl.enabled.protocols ssl.endpoint.identification.algorithm
    ssl.engine.factory.class ssl.key.password ssl.keymanager.algorithm
    ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password
    ssl.keystore.type ssl.protocol ssl.provider ssl.secure.random.implementation
    ssl.trustmanager.algorithm ssl.truststore.certificates ssl.truststore.location
    ssl.truststore.password ssl.truststore.type
""")


def read_client_file(path: Path) -> dict[str, str]:
    where = f"the Kafka client properties {path}"
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigException(f"{where} cannot be read: {why}") from None
    found = list(read_properties(text, where))
    problems = [f"{where}: {problem}" for entry in found for problem in _problems(entry)]
    if problems:
        raise ConfigException(problems)
    return {entry.key: resolve_references(entry.value) for entry in found}


def client_properties(properties: Iterable[tuple[str, str]]) -> dict[str, str]:
    written = dict(properties)
    problems = [
        f"the Kafka client properties: '{key}' is not a setting of Kafka's clients: did you mean '{meant}'?"
        for key in written
        if (meant := _suggestion(key))
    ]
    if problems:
        raise ConfigException(problems)
    return {key: resolve_references(value) for key, value in written.items()}


def _problems(entry: Property) -> Iterator[str]:
    if not entry.key:
        yield f"line {entry.line} has no key in front of '{entry.separator}'"
    elif not entry.separator:
        # The message omits the value, which may be a secret.
        yield f"line {entry.line} has no '=': '{entry.key} …'"
    elif meant := _suggestion(entry.key):
        yield f"line {entry.line}: '{entry.key}' is not a setting of Kafka's clients: did you mean '{meant}'?"


def _suggestion(key: str) -> str:
    if key in SECURITY:
        return ""
    written = key.lower().replace("_", ".")
    known = sorted(SECURITY)
    longer = [name for name in known if written.startswith(f"{name}.")]
    shorter = [name for name in known if name.startswith(f"{written}.")]
    return [*get_close_matches(written, known, n=1, cutoff=_SIMILAR), *longer, *shorter, ""][0]


log = logging.getLogger(__name__)

PREFIX: Final = "librdkafka."

GSSAPI: Final = "GSSAPI"

_SAME: Final = _names("""
    bootstrap.servers security.protocol sasl.mechanism sasl.kerberos.service.name check.crcs client.id
    client.dns.lookup client.rack enable.metrics.push isolation.level metadata.recovery.strategy
    ssl.cipher.suites ssl.key.password
""")
_RENAMED: Final[Mapping[str, str]] = {
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}


class _Number(NamedTuple):
    name: str
    least: int
    most: int


_INT: Final = 2_147_483_647
_NUMBERS: Final[Mapping[str, _Number]] = {
    "connections.max.idle.ms": _Number("connections.max.idle.ms", 0, _INT),
    # The value must be at least message.max.bytes, which has this default. Kafka returns one larger batch in
    # any case.
    "fetch.max.bytes": _Number("fetch.max.bytes", 1_000_000, 2_147_483_135),
    "fetch.max.wait.ms": _Number("fetch.wait.max.ms", 0, 300_000),
    "fetch.min.bytes": _Number("fetch.min.bytes", 0, _INT),
    "max.partition.fetch.bytes": _Number("fetch.message.max.bytes", 1, 1_000_000_000),
    "metadata.max.age.ms": _Number("metadata.max.age.ms", 1, 86_400_000),
    "metadata.recovery.rebootstrap.trigger.ms": _Number("metadata.recovery.rebootstrap.trigger.ms", 0, _INT),
    "receive.buffer.bytes": _Number("socket.receive.buffer.bytes", 0, 100_000_000),
    "reconnect.backoff.max.ms": _Number("reconnect.backoff.max.ms", 0, 3_600_000),
    "reconnect.backoff.ms": _Number("reconnect.backoff.ms", 0, 3_600_000),
    "request.timeout.ms": _Number("socket.timeout.ms", 10, 300_000),
    "retry.backoff.max.ms": _Number("retry.backoff.max.ms", 1, 300_000),
    "retry.backoff.ms": _Number("retry.backoff.ms", 1, 300_000),
    "sasl.kerberos.min.time.before.relogin": _Number("sasl.kerberos.min.time.before.relogin", 0, 86_400_000),
    "send.buffer.bytes": _Number("socket.send.buffer.bytes", 0, 100_000_000),
    "socket.connection.setup.timeout.ms": _Number("socket.connection.setup.timeout.ms", 1_000, _INT),
}
# Java's -1 (never, or the system's default) is librdkafka's 0.
_OFF: Final = frozenset({"connections.max.idle.ms", "receive.buffer.bytes", "send.buffer.bytes"})

_SPECIAL: Final = _names("""
    sasl.jaas.config ssl.endpoint.identification.algorithm
    ssl.keystore.location ssl.keystore.password ssl.keystore.type
    ssl.truststore.location ssl.truststore.password ssl.truststore.type
""")

_MEANINGLESS: Final = _names("""
    # Translated from sasl.jaas.config, or settings of brokers.
    sasl.username sasl.password ssl.client.auth
    # The reader chooses offsets itself and joins no group.
    auto.commit.interval.ms auto.offset.reset enable.auto.commit exclude.internal.topics
    allow.auto.create.topics group.id group.instance.id group.protocol group.remote.assignor
    heartbeat.interval.ms max.poll.interval.ms max.poll.records partition.assignment.strategy
    session.timeout.ms share.acknowledgement.mode
    # Java classes.
    auto.include.jmx.reporter config.providers interceptor.classes key.deserializer
    key.serializer metric.reporters metrics.num.samples metrics.recording.level
    metrics.sample.window.ms partitioner.class value.deserializer value.serializer
    # Settings of producers, which have their own translation, and of tools.
    acks batch.size bootstrap.controllers buffer.memory compression.gzip.level
    compression.lz4.level compression.type compression.zstd.level delivery.timeout.ms
    enable.idempotence linger.ms max.block.ms max.in.flight.requests.per.connection
    max.request.size metadata.max.idle.ms partitioner.adaptive.partitioning.enable
    partitioner.availability.timeout.ms partitioner.ignore.keys retries transaction.timeout.ms
    transaction.two.phase.commit.enable transactional.id
    # librdkafka has one setting where Java has two.
    default.api.timeout.ms socket.connection.setup.timeout.max.ms
""")
"""Settings of Kafka 4.1's clients that have no effect here, or are translated elsewhere."""

_ONLY_OF_CONSUMERS: Final = _names("""
    auto.commit.interval.ms auto.offset.reset check.crcs coordinator.query.interval.ms
    enable.auto.commit enable.auto.offset.store enable.partition.eof fetch.error.backoff.ms
    fetch.max.bytes fetch.message.max.bytes fetch.min.bytes fetch.queue.backoff.ms fetch.wait.max.ms
    group.id group.instance.id group.protocol group.protocol.type group.remote.assignor
    heartbeat.interval.ms isolation.level max.partition.fetch.bytes max.poll.interval.ms
    max.poll.records partition.assignment.strategy queued.max.messages.kbytes queued.min.messages
    session.timeout.ms share.acknowledgement.mode
""")
# With one of these librdkafka settings, sasl.jaas.config is only for Java.
_OWN_LOGINS: Final = frozenset({"sasl.username", "sasl.oauthbearer.method", "sasl.oauthbearer.config"})

_JAAS_LOGIN: Final = re.compile(r"\b(?:Plain|Scram)LoginModule\b")


def translated(java: Mapping[str, str]) -> dict[str, str]:
    own = {key.removeprefix(PREFIX): value for key, value in java.items() if key.startswith(PREFIX)}
    problems: list[str] = []
    found = {key: value for key, value in java.items() if key in _SAME}
    found |= {name: java[key] for key, name in _RENAMED.items() if key in java}
    found |= _numbers(java, problems)
    if "ssl.endpoint.identification.algorithm" in java:
        # In Java an empty text switches off the check of the host's name.
        found["ssl.endpoint.identification.algorithm"] = (
            java["ssl.endpoint.identification.algorithm"] or "none"
        )
    found |= _login(java, own, problems)
    found |= _stores(java, own, problems)
    if problems:
        raise ConfigException(problems)
    _warn_of_unknown(java)
    return {**found, **own}


def without_consumers_own(properties: Mapping[str, str]) -> dict[str, str]:
    # librdkafka warns about each of them.
    return {key: value for key, value in properties.items() if key not in _ONLY_OF_CONSUMERS}


def uses_kerberos(properties: Mapping[str, str]) -> bool:
    mechanism = properties.get("sasl.mechanisms") or properties.get("sasl.mechanism") or GSSAPI
    return properties.get("security.protocol", "").upper().startswith("SASL") and mechanism == GSSAPI


def _numbers(java: Mapping[str, str], problems: list[str]) -> dict[str, str]:
    found = {}
    for key, (name, least, most) in _NUMBERS.items():
        if key not in java:
            continue
        try:
            wanted = int(java[key])
        except ValueError:
            problems.append(f"'{key}' is '{java[key]}', but must be a whole number")
            continue
        if wanted == -1 and key in _OFF:
            wanted = 0
        taken = min(max(wanted, least), most)
        if taken != wanted:
            _warn_once(f"Kafka's '{key}' is {wanted}, which librdkafka does not accept: {taken} is used")
        found[name] = str(taken)
    return found


def _warn_of_unknown(java: Mapping[str, str]) -> None:
    for key in java.keys() - _SAME - _RENAMED.keys() - _NUMBERS.keys() - _SPECIAL - _MEANINGLESS:
        if key.startswith(PREFIX):
            continue
        if key in SECURITY:
            _warn_once(
                f"Kafka's '{key}' has no effect: librdkafka has no such setting; prefix librdkafka's own "
                f"settings with '{PREFIX}'"
            )
        else:
            _warn_once(
                f"'{key}' was supplied but isn't a known config of Kafka's clients: it has no effect; a "
                f"setting of librdkafka's own is written '{PREFIX}{key}'"
            )


@cache
def _warn_once(message: str) -> None:
    log.warning("%s", message)


def _login(java: Mapping[str, str], own: Mapping[str, str], problems: list[str]) -> dict[str, str]:
    jaas = java.get("sasl.jaas.config", "")
    if not jaas and "sasl.username" not in own and java.keys() & {"sasl.username", "sasl.password"}:
        problems.append(
            f"'sasl.username' and 'sasl.password' are not settings of Kafka's clients: write both into "
            f"'sasl.jaas.config', as for Kafka's own tools, or write '{PREFIX}sasl.username' and "
            f"'{PREFIX}sasl.password'"
        )
    mechanism = own.get("sasl.mechanisms") or own.get("sasl.mechanism") or java.get("sasl.mechanism")
    if not jaas:
        return {}
    options = dict(jaas_options(jaas))
    if (mechanism or GSSAPI) == GSSAPI and "Krb5LoginModule" in jaas:
        names = {"principal": "sasl.kerberos.principal", "keyTab": "sasl.kerberos.keytab"}
        return {name: options[option] for option, name in names.items() if option in options}
    if mechanism == GSSAPI or own.keys() & _OWN_LOGINS:
        return {}
    if not _JAAS_LOGIN.search(jaas) or options.keys() != {"username", "password"}:
        problems.append(
            f"'sasl.jaas.config' is supported only for PlainLoginModule and ScramLoginModule with username "
            f"and password; for other mechanisms add librdkafka's own settings, such as "
            f"'{PREFIX}sasl.username' or '{PREFIX}sasl.oauthbearer.method'"
        )
        return {}
    return {"sasl.username": options["username"], "sasl.password": options["password"]}


def _stores(java: Mapping[str, str], own: Mapping[str, str], problems: list[str]) -> dict[str, str]:
    found = {}
    trust, key = java.get("ssl.truststore.location"), java.get("ssl.keystore.location")
    if trust and not own.keys() & {"ssl.ca.location", "ssl.ca.pem"}:
        if _store_type(java, "ssl.truststore") == "PEM":
            found["ssl.ca.location"] = trust
        else:
            problems.append(
                f"'ssl.truststore.location' is not a PEM file, the only format librdkafka reads: export the "
                f"certificates (keytool -exportcert -rfc) and set '{PREFIX}ssl.ca.location' to the file, "
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
                f"-importkeystore -deststoretype PKCS12) and set ssl.keystore.type=PKCS12, or set PEM files "
                f"with '{PREFIX}ssl.certificate.location' and '{PREFIX}ssl.key.location'"
            )
    return found


def _store_type(java: Mapping[str, str], prefix: str) -> str:
    return java.get(f"{prefix}.type", "JKS").upper()


BOOTSTRAP: Final = "bootstrap.servers"
_NO_KERBEROS: Final = (
    f"'sasl.mechanism' is {GSSAPI} (Kerberos, the default), but the installed confluent-kafka is built "
    f"without Kerberos, as all its wheels are. Install librdkafka and its headers, in confluent-kafka's "
    f"version and built with libsasl2, then run: pip install --force-reinstall --no-binary confluent-kafka "
    f"confluent-kafka"
)


@dataclass(frozen=True, slots=True)
class KafkaClient:
    """A cluster's address and its clients' properties. Pickled to the executors.

    Args:
        properties_file: each process reads it, so it must exist on every host.
    """

    bootstrap_servers: str
    properties_file: str = ""
    properties: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def librdkafka(
        self, overrides: Mapping[str, str] | None = None, *, consumes: bool = True
    ) -> dict[str, str]:
        """Return librdkafka's properties; ``overrides`` are Java's. Raises ConfigException."""
        found = translated(self._properties(overrides))
        if problems := override_problems(overrides or {}, found):
            raise ConfigException(problems)
        if uses_kerberos(found) and not has_feature("sasl_gssapi"):
            raise ConfigException(_NO_KERBEROS)
        return found if consumes else without_consumers_own(found)

    def _properties(self, overrides: Mapping[str, str] | None) -> dict[str, str]:
        written = (
            read_client_file(Path(self.properties_file))
            if self.properties_file
            else client_properties(self.properties)
        )
        return {**written, BOOTSTRAP: self.bootstrap_servers, **(overrides or {})}


PRODUCER: Final = "producer.override."

_OF_PRODUCERS: Final[Mapping[str, Any]] = {
    "log_level": 2,  # librdkafka also reports an unreachable broker as an error
    "linger.ms": 5,
    "delivery.timeout.ms": 120_000,  # the default of Kafka's own producer
    "message.max.bytes": 100_000_000,  # the topic's limit decides, so the client's is high
    "queue.buffering.max.kbytes": 262_144,
    "partitioner": "murmur2_random",  # Java's producers choose partitions in the same way
}
_DURABLE: Final[Mapping[str, Any]] = {"acks": "all", "enable.idempotence": True}
_TRANSLATED: Final[Mapping[str, str]] = {
    "batch.size": "batch.size",
    "compression.type": "compression.type",
    "delivery.timeout.ms": "delivery.timeout.ms",
    "linger.ms": "linger.ms",
    "max.request.size": "message.max.bytes",
}


def producer_properties(config: ConfigModel, kafka: KafkaClient) -> dict[str, Any]:
    overrides = config.overrides(PRODUCER)
    own = {_TRANSLATED[key]: value for key, value in overrides.items() if key in _TRANSLATED}
    return {**_OF_PRODUCERS, **kafka.librdkafka(overrides, consumes=False), **own, **_DURABLE}
