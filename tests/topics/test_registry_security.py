from __future__ import annotations

import base64
import json
import ssl
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from sinksdk import ConfigException, ConnectorConfig
from sinksdk.topics.kafka.schema_registry import SchemaRegistry, connect

SCHEMA = json.dumps({"schema": json.dumps("string")}).encode()
SIDES = ("key.converter", "value.converter")


class Server:
    def __init__(self, body: bytes = SCHEMA, context: ssl.SSLContext | None = None) -> None:
        self.asked: list[tuple[str, Mapping[str, str], str]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                size = int(self.headers["Content-Length"] or 0)
                server.asked.append((self.path, dict(self.headers), self.rfile.read(size).decode()))
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                self.do_GET()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_port
        self.url = f"http{'s' if context else ''}://127.0.0.1:{self.port}"

    @contextmanager
    def running(self) -> Iterator[Server]:
        thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    with Server().running() as running:
        yield running


def parsed(side: str = "value.converter", **keys: str) -> ConnectorConfig:
    # Two underscores in a name stand for a dot.
    own = {f"{side}.{key.replace('__', '.')}": text for key, text in keys.items()}
    return ConnectorConfig.parse({"name": "a", "topics": "t", side: "avro", **own})


def registry(side: str = "value.converter", **keys: str) -> SchemaRegistry:
    address = parsed(side, **keys).named_converter(is_key=side.startswith("key")).registry
    assert address is not None
    return connect(address)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("namespace", ["", "schema__registry__"])
def test_registry_request_has_a_static_token(server: Server, side: str, namespace: str) -> None:
    keys = {
        f"{namespace}bearer__auth__credentials__source": "STATIC_TOKEN",
        f"{namespace}bearer__auth__token": "t0ken",
        f"{namespace}bearer__auth__logical__cluster": "lsrc-1",
        f"{namespace}bearer__auth__identity__pool__id": "pool-1",
    }
    registry(side, schema__registry__url=server.url, **keys)(1)

    (_, headers, _) = server.asked[0]
    assert headers["Authorization"] == "Bearer t0ken"
    assert headers["target-sr-cluster"] == "lsrc-1"
    assert headers["Confluent-Identity-Pool-Id"] == "pool-1"


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("of_source", ["", "schema__registry__"])
@pytest.mark.parametrize("of_user", ["", "schema__registry__"])
def test_registry_request_has_user_and_password(
    server: Server, side: str, of_source: str, of_user: str
) -> None:
    # Confluent's client accepts each key with or without its namespace.
    keys = {
        f"{of_source}basic__auth__credentials__source": "USER_INFO",
        f"{of_user}basic__auth__user__info": "user:password",
    }
    registry(side, schema__registry__url=server.url, **keys)(1)

    (_, headers, _) = server.asked[0]
    assert headers["Authorization"] == f"Basic {base64.b64encode(b'user:password').decode()}"


def test_registry_proxy_keys_may_have_the_namespace(server: Server) -> None:
    keys = {"schema__registry__proxy__host": "127.0.0.1", "schema__registry__proxy__port": str(server.port)}
    registry(schema__registry__url="http://registry.example", **keys)(1)

    assert server.asked[0][0].startswith("http://registry.example/schemas/ids/1")


@pytest.mark.parametrize("namespace", ["", "schema.registry."])
def test_every_key_of_the_registrys_client_may_have_its_namespace(namespace: str) -> None:
    own = [key.removeprefix("schema.registry.") for key in DEFINED.split() if key != "schema.registry.url"]
    raw = {f"value.converter.{namespace}{key}": "x" for key in [*own, "url.randomize"]}
    options = ConnectorConfig.judge({"value.converter": "avro", **raw})

    assert [option.key for option in options if "no such key" in option.sentence] == []
    assert [option.key for option in options if option.verdict.meaning == "unknown"] == []


def test_namespaced_key_gets_the_verdict_of_the_plain_key() -> None:
    for key in ("basic.auth.credentials.source", "schema.registry.basic.auth.credentials.source"):
        raw = {"value.converter": "avro", f"value.converter.{key}": "SASL_INHERIT"}
        [option] = [one for one in ConnectorConfig.judge(raw) if one.key.endswith("source")]
        assert "use USER_INFO, and set 'value.converter.basic.auth.user.info'" in option.sentence


@pytest.mark.parametrize(
    ("value", "is_refused"), [("true", True), ("True", True), ("false", False), ("", False)]
)
def test_encrypted_fields_are_refused(value: str, *, is_refused: bool) -> None:
    # Connect would decrypt such values: csfle.enabled has the effect of rule.executors.
    _, problems = ConnectorConfig.check({"name": "a", "topics": "t", "csfle.enabled": value})
    assert [problem.startswith("'csfle.enabled' is unsupported: rules") for problem in problems] == (
        [True] if is_refused else []
    )


def test_registry_request_has_a_token_of_the_identity_provider(server: Server) -> None:
    # Confluent's Java client needs neither scope nor cluster.
    token = json.dumps({"access_token": "fresh", "expires_in": 300, "token_type": "Bearer"}).encode()
    with Server(token).running() as provider:
        registry(
            schema__registry__url=server.url,
            bearer__auth__credentials__source="OAUTHBEARER",
            bearer__auth__issuer__endpoint__url=f"{provider.url}/token",
            bearer__auth__client__id="c",
            bearer__auth__client__secret="s",
        )(1)

    assert parse_qs(provider.asked[0][2])["grant_type"] == ["client_credentials"]
    assert server.asked[0][1]["Authorization"] == "Bearer fresh"


def test_registry_request_uses_the_proxy(server: Server) -> None:
    registry(
        schema__registry__url="http://registry.invalid:8081",
        proxy__host="127.0.0.1",
        proxy__port=str(server.port),
    )(1)

    assert server.asked[0][0].startswith("http://registry.invalid:8081/schemas/ids/1")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    subprocess.run(
        [
            *(
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "rsa:2048",
                "-nodes",
                "-days",
                "2",
                "-subj",
                "/CN=registry",
            ),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(folder / "key.pem"), "-out", str(folder / "ca.pem")),
        ],
        check=True,
        capture_output=True,
    )
    (folder / "both.pem").write_text((folder / "key.pem").read_text() + (folder / "ca.pem").read_text())
    return folder


@pytest.fixture
def tls(certificates: Path) -> Iterator[Server]:
    # The registry requires the client's certificate.
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(certificates / "ca.pem"))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(certificates / "ca.pem", certificates / "key.pem")
    with Server(context=context).running() as running:
        yield running


@pytest.mark.parametrize("namespace", ["schema__registry__ssl__", "ssl__"])
def test_registry_tls_uses_ssl_ca_location_and_a_client_certificate(
    tls: Server, certificates: Path, namespace: str
) -> None:
    keys = {
        "ca__location": str(certificates / "ca.pem"),
        "certificate__location": str(certificates / "ca.pem"),
        "key__location": str(certificates / "key.pem"),
    }
    registry(schema__registry__url=tls.url, **{namespace + key: text for key, text in keys.items()})(1)

    assert tls.asked


def test_registry_tls_uses_javas_pem_stores(tls: Server, certificates: Path) -> None:
    # A PEM keystore has key and certificate (KIP-651).
    registry(
        schema__registry__url=tls.url,
        schema__registry__ssl__truststore__type="PEM",
        schema__registry__ssl__truststore__location=str(certificates / "ca.pem"),
        schema__registry__ssl__keystore__type="PEM",
        schema__registry__ssl__keystore__location=str(certificates / "both.pem"),
    )(1)

    assert tls.asked


def test_missing_certificate_is_named_with_its_key() -> None:
    with pytest.raises(ConfigException, match=r"is missing or not PEM \(ssl.ca.location /nowhere/ca.pem\)"):
        registry(schema__registry__url="https://127.0.0.1:1", ssl__ca__location="/nowhere/ca.pem")


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (
            {"schema__registry__ssl__truststore__location": "/etc/ca.jks"},
            "only PEM files are read.*set 'value.converter.schema.registry.ssl.ca.location'",
        ),
        (
            {"schema__registry__ssl__keystore__location": "/etc/me.p12"},
            "'value.converter.schema.registry.ssl.certificate.location'",
        ),
        ({"schema__registry__ssl__ca__location": "ca.pem"}, "must be an absolute path"),
        ({"ssl__engine__factory__class": "com.example.Engine"}, "trust may depend on it"),
        ({"bearer__auth__credentials__source": "SASL_OAUTHBEARER_INHERIT"}, "use STATIC_TOKEN, OAUTHBEARER"),
        (
            {"bearer__auth__credentials__source": "OAUTHBEARER"},
            "'value.converter.bearer.auth.client.id' is required",
        ),
        ({"bearer__auth__custom__provider__class": "com.example.P"}, "is unsupported"),
        ({"basic__auth__credentials__source": "SASL_INHERIT"}, "use USER_INFO"),
        ({"request__header__Authorization": "Bearer x"}, "headers are not sent"),
        ({"schema__registry__nothing": "x"}, "the registry's client has no such key"),
        ({"use__latest__version": "true"}, "with the schema with which they were written"),
        ({"use__latest__with__metadata": "a=b"}, "with the schema with which they were written"),
        ({"rule__executors": "encrypt"}, "rules of schemas are not executed"),
        ({"flatten__unions": "true"}, "or set it to false"),
        ({"scrub__invalid__names": "true"}, "or set it to false"),
        ({"generalized__sum__type__support": "true"}, "or set it to false"),
        ({"flatten__singleton__unions": "false"}, "or set it to true"),
        ({"context__name__strategy": "com.example.Strategy"}, "ids are looked up in one context"),
    ],
    ids=str,
)
def test_avro_converter_key_without_support_is_refused(keys: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigException, match=said):
        parsed(schema__registry__url="https://registry:8081", **keys)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(
    "key",
    [
        *(
            "schema.registry.ssl.truststore.location",
            "use.latest.version",
            "rule.executors",
            "flatten.unions",
        ),
        *("bearer.auth.credentials.source", "request.header.X", "schema.registry.anything"),
    ],
)
def test_avro_converter_keys_have_no_effect_on_other_converters(side: str, key: str) -> None:
    options = dict(ConnectorConfig.judge({side: "json", f"{side}.{key}": "true"}))

    assert options[f"{side}.{key}"].meaning == "ignored"


DEFINED = """
schema.registry.url max.schemas.per.subject normalize.schemas auto.register.schemas propagate.schema.tags
use.schema.id id.compatibility.strict use.latest.version use.latest.with.metadata latest.compatibility.strict
http.connect.timeout.ms http.read.timeout.ms max.retries retries.wait.ms retries.max.wait.ms latest.cache.size
latest.cache.ttl.sec schema.format rule.executors rule.actions rule.service.loader.enable
basic.auth.credentials.source basic.auth.user.info schema.registry.basic.auth.user.info
bearer.auth.credentials.source bearer.auth.token bearer.auth.issuer.endpoint.url bearer.auth.client.id
bearer.auth.client.secret bearer.auth.scope bearer.auth.scope.claim.name bearer.auth.sub.claim.name
bearer.auth.logical.cluster bearer.auth.identity.pool.id bearer.auth.cache.expiry.buffer.seconds
bearer.auth.custom.provider.class context.name.strategy key.subject.name.strategy value.subject.name.strategy
key.schema.id.serializer value.schema.id.serializer schema.reflection proxy.host proxy.port
specific.avro.reader specific.avro.key.type specific.avro.value.type avro.reflection.allow.null
avro.use.logical.type.converters avro.remove.java.properties
schemas.cache.size generalized.sum.type.support ignore.default.for.nullables enhanced.avro.schema.support
scrub.invalid.names connect.meta.data allow.optional.map.keys discard.type.doc.default flatten.singleton.unions
schema.registry.ssl.protocol schema.registry.ssl.provider schema.registry.ssl.cipher.suites
schema.registry.ssl.enabled.protocols schema.registry.ssl.keystore.type schema.registry.ssl.keystore.location
schema.registry.ssl.keystore.password schema.registry.ssl.key.password schema.registry.ssl.keystore.key
schema.registry.ssl.keystore.certificate.chain schema.registry.ssl.truststore.certificates
schema.registry.ssl.truststore.type schema.registry.ssl.truststore.location schema.registry.ssl.truststore.password
schema.registry.ssl.keymanager.algorithm schema.registry.ssl.trustmanager.algorithm
schema.registry.ssl.endpoint.identification.algorithm schema.registry.ssl.secure.random.implementation
schema.registry.ssl.engine.factory.class
"""
"""Keys of AvroConverterConfig, with those of the classes that it is made of."""


@pytest.mark.parametrize("side", SIDES)
def test_every_key_of_the_avro_converter_has_a_verdict(side: str) -> None:
    raw: dict[str, Any] = {f"{side}.{key}": "x" for key in DEFINED.split()}
    options = ConnectorConfig.judge({side: "io.confluent.connect.avro.AvroConverter", **raw})

    assert [option.key for option in options if option.verdict.meaning == "unknown"] == []


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(
    "key", ["schemas.enable", "schemas.cache.size", "decimal.format", "converter.encoding"]
)
def test_every_key_of_kafkas_converters_has_a_verdict(side: str, key: str) -> None:
    (_, option) = ConnectorConfig.judge({side: "json", f"{side}.{key}": "x"})

    assert option.verdict.meaning != "unknown"


def test_bearer_token_is_hidden_in_the_repr_of_a_configuration() -> None:
    config = parsed(
        schema__registry__url="https://registry",
        bearer__auth__credentials__source="STATIC_TOKEN",
        bearer__auth__token="t0ken",
    )
    assert "t0ken" not in repr(config)
    assert "t0ken" not in repr(config.named_converter(is_key=False))
