"""Verdicts on keys of Connect's and Confluent's converters, including the registry client's settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from sinksdk.compatibility import Verdict

# The verdicts follow SchemaRegistryClientConfig, AbstractKafkaSchemaSerDeConfig, KafkaAvroDeserializerConfig,
# AvroDataConfig, JsonConverterConfig and StringConverterConfig. Keys that a converter lacks have no effect in
# Connect either.
_same, _differs = Verdict.same, Verdict.differs
_ignored, _unsupported = Verdict.ignored, Verdict.unsupported

NAMESPACE: Final = "schema.registry."
_URL: Final = "schema.registry.url"
_PEM: Final = "PEM"
# Keys with the same name in the registry's client.
_CLIENT_KEYS: Final[tuple[str, ...]] = (
    *("ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.key.password"),
    *("bearer.auth.credentials.source", "bearer.auth.token", "bearer.auth.issuer.endpoint.url"),
    *("bearer.auth.client.id", "bearer.auth.client.secret", "bearer.auth.scope"),
    *("bearer.auth.logical.cluster", "bearer.auth.identity.pool.id"),
)

_NOT_PEM: Final = (
    "only PEM files are read: export the certificates (keytool -exportcert -rfc, or openssl pkcs12), and set "
)
_TLS: Final = _ignored("OpenSSL has its own protocols and ciphers")
_WRITER: Final = _ignored("it concerns writing: nothing is written to the schema registry")
_CACHE: Final = _ignored("each schema is fetched once and kept")
_PATIENCE: Final = _ignored("a request may take 10 s, and is retried for 'errors.retry.timeout'")
_JAVA: Final = _ignored("it concerns Java classes; records are read by their schema")
_SUBJECTS: Final = _ignored("schemas are found by the id in the record")
_LATEST: Final = _unsupported(
    "records are read with the schema with which they were written, never with a later one: remove it"
)
RULES: Final = _unsupported(
    "rules of schemas are not executed, so that encrypted fields stay encrypted: remove it, and decrypt or "
    "migrate values elsewhere"
)
_OTHER_TYPES: Final = _unsupported("schemas keep their types and names: remove it, or set it to ")
_CLAIMS: Final = _ignored("the registry checks the token's claims")


def _only(value: str) -> Verdict:
    verdict = Verdict(_OTHER_TYPES.meaning, f"{_OTHER_TYPES.why}{value}")
    return verdict.when({value: _same(), value.upper(): _same()})


REGISTRY_KEYS: Final[Mapping[str, Verdict]] = {
    # trust and authentication
    **dict.fromkeys(
        ("ssl.ca.location", "ssl.certificate.location"), _same("a PEM file; named as in librdkafka")
    ),
    "ssl.key.location": _same("a PEM file; named as in librdkafka"),
    "ssl.key.password": _same("of the PEM file"),
    "ssl.truststore.location": _unsupported(f"{_NOT_PEM}'{{side}}.schema.registry.ssl.ca.location'"),
    "ssl.keystore.location": _unsupported(
        f"{_NOT_PEM}'{{side}}.schema.registry.ssl.certificate.location' and '….ssl.key.location'"
    ),
    "ssl.truststore.certificates": _unsupported(
        "write the certificates to a PEM file, and name that in '{side}.schema.registry.ssl.ca.location'"
    ),
    "ssl.keystore.certificate.chain": _unsupported(
        "write it to a PEM file, and name that in '{side}.schema.registry.ssl.certificate.location'"
    ),
    "ssl.keystore.key": _unsupported(
        "write it to a PEM file, and name that in '{side}.schema.registry.ssl.key.location'"
    ),
    "ssl.truststore.type": _ignored("it applies only with 'ssl.truststore.location'"),
    "ssl.keystore.type": _ignored("it applies only with 'ssl.keystore.location'"),
    "ssl.truststore.password": _ignored("a PEM file of certificates has no password"),
    "ssl.keystore.password": _ignored("the password of a PEM file is 'ssl.key.password'"),
    "ssl.endpoint.identification.algorithm": _ignored("the server's name is always verified"),
    **dict.fromkeys(
        (
            *("ssl.protocol", "ssl.enabled.protocols", "ssl.provider", "ssl.cipher.suites"),
            *("ssl.keymanager.algorithm", "ssl.trustmanager.algorithm", "ssl.secure.random.implementation"),
            *("ssl.allow.dn.changes", "ssl.allow.san.changes"),
        ),
        _TLS,
    ),
    "ssl.*": _unsupported("it is not applied, and trust may depend on it: remove it"),
    "bearer.auth.credentials.source": _unsupported(
        "use STATIC_TOKEN, OAUTHBEARER or OAUTHBEARER_AZURE_IMDS, with its keys"
    ).when(dict.fromkeys(("STATIC_TOKEN", "OAUTHBEARER", "OAUTHBEARER_AZURE_IMDS"), _same())),
    **dict.fromkeys(
        (key for key in _CLIENT_KEYS if key.startswith("bearer.") and "source" not in key), _same()
    ),
    **dict.fromkeys(("bearer.auth.scope.claim.name", "bearer.auth.sub.claim.name"), _CLAIMS),
    "bearer.auth.cache.expiry.buffer.seconds": _ignored("a token is renewed after 80 % of its lifetime"),
    "bearer.auth.*": _unsupported("it is not applied, and authentication may depend on it: remove it"),
    "proxy.host": _same("with 'proxy.port'"),
    "proxy.port": _same("with 'proxy.host'"),
    "url.randomize": _ignored("a request goes to the first URL and, if it fails, to the next one"),
    "sasl.*": _ignored("it applies only with 'basic.auth.credentials.source' SASL_INHERIT"),
    "request.header.*": _unsupported(
        "headers are not sent: remove it, and log in with 'basic.auth.user.info' or 'bearer.auth.token'"
    ),
    # the converter's values
    "use.latest.version": _LATEST.when({"false": _same(), "FALSE": _same()}),
    "use.latest.with.metadata": _LATEST,
    "latest.compatibility.strict": _ignored("it applies only with 'use.latest.version'"),
    "rule.executors": RULES,
    "rule.executors.*": _ignored("it applies only with 'rule.executors'"),
    "rule.actions": RULES,
    "rule.actions.*": _ignored("it applies only with 'rule.actions'"),
    "rule.service.loader.enable": _differs("rules of schemas are never executed").when(
        {"false": _same(), "FALSE": _same()}
    ),
    "context.name.strategy": _unsupported(
        "ids are looked up in one context: put it into the URL, as in https://registry/contexts/.mine"
    ).when({"NullContextNameStrategy": _same()}),
    "specific.avro.reader": _ignored("there are no Java classes; records are read by their schema"),
    "avro.use.logical.type.converters": _ignored("logical types are always understood"),
    "enhanced.avro.schema.support": _differs("schemas keep their names, also those of enums and of unions"),
    "scrub.invalid.names": _only("false"),
    "generalized.sum.type.support": _only("false"),
    "flatten.unions": _only("false"),
    "flatten.singleton.unions": _only("true"),
    "ignore.default.for.nullables": _same().when(
        dict.fromkeys(
            ("true", "TRUE"),
            _differs("nulls stay null in the files, too; Confluent's formats write the default instead"),
        )
    ),
    # no effect on reading
    **dict.fromkeys(("connect.meta.data", "discard.type.doc.default", "allow.optional.map.keys"), _WRITER),
    **dict.fromkeys(
        (
            *("auto.register.schemas", "normalize.schemas", "propagate.schema.tags", "use.schema.id"),
            *("id.compatibility.strict", "schema.format", "schema.reflection", "avro.reflection.allow.null"),
            *("avro.remove.java.properties", "key.schema.id.serializer", "value.schema.id.serializer"),
        ),
        _WRITER,
    ),
    **dict.fromkeys(("specific.avro.key.type", "specific.avro.value.type"), _JAVA),
    **dict.fromkeys(
        ("*subject.name.strategy", "reference.subject.name.strategy", "subject.name.strategy"), _SUBJECTS
    ),
    **dict.fromkeys(
        (
            *("schemas.cache.size", "schemas.cache.config", "schema.cache.size", "max.schemas.per.subject"),
            *("latest.cache.size", "latest.cache.ttl.sec", "missing.cache.size", "missing.id.cache.ttl.sec"),
            *("missing.version.cache.ttl.sec", "missing.schema.cache.ttl.sec"),
        ),
        _CACHE,
    ),
    **dict.fromkeys(
        (
            *("http.connect.timeout.ms", "http.read.timeout.ms", "max.retries", "retries.wait.ms"),
            *("retries.max.wait.ms", "srclient.http.connect.timeout.ms", "srclient.http.read.timeout.ms"),
        ),
        _PATIENCE,
    ),
}

OTHER_KEYS: Final[Mapping[str, Verdict]] = {
    "schemas.cache.size": _CACHE,
    "decimal.format": _ignored("it concerns writing; both formats can be read"),
    "converter.type": _ignored("Connect sets it by itself"),
    "type": _ignored("Connect sets it by itself"),
    **dict.fromkeys(
        (
            *("enhanced.protobuf.schema.support", "generate.index.for.unions", "int.for.enums"),
            *("optional.for.nullables", "optional.for.proto2", "generate.struct.for.nulls"),
            *("wrapper.for.nullables", "wrapper.for.raw.primitives", "specific.protobuf.*", "derive.type"),
            *("reference.lookup.only", "skip.known.types", "type.property", "use.optional.for.nonrequired"),
            *("object.additional.properties", "oneof.for.nullables", "json.*"),
        ),
        _ignored("it applies only with the converter of Protobuf or JSON Schema, which has its own verdict"),
    ),
}

_NOT_AVRO: Final = _ignored("it applies only with the Avro converter")
_UNKNOWN: Final = _unsupported("the registry's client has no such key: remove it")


def converter_rules(values: Mapping[str, object]) -> Mapping[str, Verdict]:
    found: dict[str, Verdict] = {}
    for side in ("key.converter", "value.converter"):
        is_avro = str(values.get(side, "")).strip().rpartition(".")[2] in ("avro", "AvroConverter")
        for key, verdict in {**REGISTRY_KEYS, **_pem_rules(values, side)}.items():
            # Confluent's client accepts keys with and without the registry's namespace.
            names = (f"{side}.{key}", f"{side}.{NAMESPACE}{key}")
            found |= dict.fromkeys(names, _of_side(verdict, side) if is_avro else _NOT_AVRO)
        found |= {f"{side}.{key}": verdict for key, verdict in OTHER_KEYS.items()}
        found[f"{side}.{NAMESPACE}*"] = _UNKNOWN if is_avro else _NOT_AVRO
    return found


def _of_side(verdict: Verdict, side: str) -> Verdict:
    return Verdict(verdict.meaning, verdict.why.replace("{side}", side), verdict.cases)


def _pem_rules(values: Mapping[str, object], side: str) -> Mapping[str, Verdict]:
    found = {}
    for store, location in (("truststore", "ssl.ca.location"), ("keystore", "ssl.certificate.location")):
        if _is_pem(values, side, store):
            found[f"ssl.{store}.location"] = _same(f"a PEM file, as 'ssl.{location.partition('.')[2]}'")
            found[f"ssl.{store}.type"] = _same()
    return found


def _is_pem(values: Mapping[str, object], side: str, store: str) -> bool:
    names = (f"{side}.{prefix}ssl.{store}" for prefix in (NAMESPACE, ""))
    return any(
        str(values.get(f"{name}.type", "")).strip().upper() == _PEM
        or str(values.get(f"{name}.location", "")).endswith((".pem", ".crt"))
        for name in names
    )


def client_settings(keys: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    given = {key.removeprefix(NAMESPACE): text for key, text in keys.items() if key != _URL and text.strip()}
    found = {key: given[key] for key in _CLIENT_KEYS if key in given}
    for store, location in (("truststore", "ssl.ca.location"), ("keystore", "ssl.certificate.location")):
        if f"ssl.{store}.location" in given:
            found.setdefault(location, given[f"ssl.{store}.location"])
    if "ssl.certificate.location" not in found:
        found.pop("ssl.key.password", None)
    if "bearer.auth.credentials.source" not in found:
        found = {key: text for key, text in found.items() if not key.startswith("bearer.")}
    else:
        # confluent-kafka's client requires both keys, Confluent's Java client neither.
        found.setdefault("bearer.auth.logical.cluster", "")
        if found["bearer.auth.credentials.source"] == "OAUTHBEARER":
            found.setdefault("bearer.auth.scope", "")
    if "proxy.host" in given:
        host = given["proxy.host"]
        found["proxy"] = f"http://{quote(host, safe=':[]')}:{given.get('proxy.port', '')}".rstrip(":")
    return tuple(sorted(found.items()))


CONVERTER_KEYS: Final[Mapping[str, Verdict]] = {
    **{
        f"value.converter.{key}": _of_side(verdict, "value.converter")
        for key, verdict in REGISTRY_KEYS.items()
    },
    **{f"value.converter.{key}": verdict for key, verdict in OTHER_KEYS.items()},
}
