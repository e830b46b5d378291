"""The properties file of Kafka's clients.

Kafka's clients ignore what they do not know. A security setting that is lost so would send passwords and
records over the network in the clear: what looks like one, and is none, is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from sinksdk.errors import ConfigException
from sinksdk.settings.properties import Property, read_properties
from sinksdk.settings.references import resolve_references

_CLOSE: Final = 0.85  # how alike a misspelt key is, by difflib
SECURITY: Final = frozenset(
    {
        "security.protocol",
        "security.providers",
        *("sasl.mechanism", "sasl.jaas.config", "sasl.client.callback.handler.class"),
        *(
            f"sasl.kerberos.{name}"
            for name in (
                "kinit.cmd",
                "min.time.before.relogin",
                "service.name",
                "ticket.renew.jitter",
                "ticket.renew.window.factor",
            )
        ),
        *(
            f"sasl.login.{name}"
            for name in (
                "callback.handler.class",
                "class",
                "connect.timeout.ms",
                "read.timeout.ms",
                "refresh.buffer.seconds",
                "refresh.min.period.seconds",
                "refresh.window.factor",
                "refresh.window.jitter",
                "retry.backoff.max.ms",
                "retry.backoff.ms",
            )
        ),
        *(
            f"sasl.oauthbearer.{name}"
            for name in (
                "assertion.algorithm",
                "assertion.claim.aud",
                "assertion.claim.exp.seconds",
                "assertion.claim.iss",
                "assertion.claim.jti.include",
                "assertion.claim.nbf.seconds",
                "assertion.claim.sub",
                "assertion.file",
                "assertion.private.key.file",
                "assertion.private.key.passphrase",
                "assertion.template.file",
                "client.credentials.client.id",
                "client.credentials.client.secret",
                "clock.skew.seconds",
                "expected.audience",
                "expected.issuer",
                "header.urlencode",
                "jwks.endpoint.refresh.ms",
                "jwks.endpoint.retry.backoff.max.ms",
                "jwks.endpoint.retry.backoff.ms",
                "jwks.endpoint.url",
                "jwt.retriever.class",
                "jwt.validator.class",
                "scope",
                "scope.claim.name",
                "sub.claim.name",
                "token.endpoint.url",
            )
        ),
        *(
            f"ssl.{name}"
            for name in (
                "cipher.suites",
                "client.auth",
                "enabled.protocols",
                "endpoint.identification.algorithm",
                "engine.factory.class",
                "key.password",
                "keymanager.algorithm",
                "keystore.certificate.chain",
                "keystore.key",
                "keystore.location",
                "keystore.password",
                "keystore.type",
                "protocol",
                "provider",
                "secure.random.implementation",
                "trustmanager.algorithm",
                "truststore.certificates",
                "truststore.location",
                "truststore.password",
                "truststore.type",
            )
        ),
    }
)
"""Security settings of Kafka 4.1's clients."""


def read_client_file(path: Path) -> dict[str, str]:
    """Its settings, references in them resolved.

    Raises:
        ConfigException: it cannot be read, a reference cannot be resolved, or lines of it set nothing: all
            of these at once.
    """
    where = f"the Kafka client properties {path}"
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise ConfigException(f"{where} cannot be read: {why}") from None
    found = list(read_properties(text, where))
    problems = [f"{where}: {problem}" for entry in found for problem in _problems(entry)]
    if problems:
        raise ConfigException(problems)
    return {entry.key: resolve_references(entry.value) for entry in found}


def client_properties(properties: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Settings that stand in no file, references in them resolved. Raises ConfigException as above."""
    written = dict(properties)
    problems = [
        f"the Kafka client properties: '{key}' is no setting of Kafka's clients: did you mean '{meant}'?"
        for key in written
        if (meant := _meant(key))
    ]
    if problems:
        raise ConfigException(problems)
    return {key: resolve_references(value) for key, value in written.items()}


def _problems(entry: Property) -> Iterator[str]:
    if not entry.key:
        yield f"line {entry.line} has no key in front of '{entry.separator}'"
    elif not entry.separator:
        # Not its value: it may be a secret.
        yield f"line {entry.line} has no '=': '{entry.key} …'"
    elif meant := _meant(entry.key):
        yield f"line {entry.line}: '{entry.key}' is no setting of Kafka's clients: did you mean '{meant}'?"


def _meant(key: str) -> str:
    """The security setting that a key misspells; empty if it is none, or may be somebody else's."""
    if key in SECURITY:
        return ""
    written = key.lower().replace("_", ".")
    known = sorted(SECURITY)
    longer = [name for name in known if written.startswith(f"{name}.")]
    shorter = [name for name in known if name.startswith(f"{written}.")]
    return [*get_close_matches(written, known, n=1, cutoff=_CLOSE), *longer, *shorter, ""][0]
