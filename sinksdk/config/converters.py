"""Keys that configure the converters of keys and values."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from pydantic import BaseModel, Field, SecretStr, field_validator

from sinksdk.errors import ConfigException
from sinksdk.settings.addresses import address_problem
from sinksdk.settings.converter_keys import client_settings
from sinksdk.values.declared import declared_shape, is_connects

_CONNECT: Final = "org.apache.kafka.connect"

CONVERTERS: Final[Mapping[str, str]] = {
    f"{_CONNECT}.converters.ByteArrayConverter": "bytes",
    f"{_CONNECT}.storage.StringConverter": "string",
    f"{_CONNECT}.json.JsonConverter": "json",
    "io.confluent.connect.avro.AvroConverter": "avro",
    f"{_CONNECT}.converters.ShortConverter": "short",
    f"{_CONNECT}.converters.IntegerConverter": "integer",
    f"{_CONNECT}.converters.LongConverter": "long",
    f"{_CONNECT}.converters.FloatConverter": "float",
    f"{_CONNECT}.converters.DoubleConverter": "double",
    f"{_CONNECT}.converters.BooleanConverter": "boolean",
}

CredentialsSource = Literal["URL", "USER_INFO"]


def converter_kind(name: str) -> str:
    kind = CONVERTERS.get(name, name)
    if kind not in CONVERTERS.values():
        known = ", ".join(CONVERTERS.values())
        nearest = difflib.get_close_matches(name, [*CONVERTERS, *CONVERTERS.values()], n=1, cutoff=0.8)
        raise ConfigException(
            f"unknown converter '{name}': use one of {known} (or Connect's class names)"
            f"{''.join(f'; did you mean {one!r}?' for one in nearest)}"
        )
    return kind


@dataclass(frozen=True, slots=True)
class RegistryAddress:
    """A schema registry and its login.

    Args:
        urls: separated by commas; may contain a password.
        user_info: ``user:password``; by default that of the URL, if any.
    """

    urls: str = field(repr=False)
    user_info: str | None = field(default=None, repr=False)
    client: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    replaces_nulls: bool = True

    def __str__(self) -> str:
        return ", ".join(map(_without_password, self.urls.split(",")))


def _without_password(url: str) -> str:
    head, separator, rest = url.strip().partition("://")
    return f"{head}{separator}{rest.rpartition('@')[2]}"


@dataclass(frozen=True, slots=True)
class ConverterSpec:
    """One converter.

    Args:
        schemas_enable: whether the JSON converter expects Connect's envelope; None unwraps it if it is
            present.
        gives_json: whether Avro values whose schema has no Arrow type become JSON texts, not objects.
        fills_items: whether nulls in Avro arrays and maps become defaults, as in JSON that Connect writes.
        reads_headers: whether a header of the record may contain the id of an Avro schema.
    """

    kind: str = "bytes"
    is_key: bool = False
    encoding: str = "UTF-8"
    schemas_enable: bool | None = None
    registry: RegistryAddress | None = None
    schema: str = ""
    replaces_null: bool = True
    gives_json: bool = False
    fills_items: bool = False
    reads_headers: bool = True


_HOW = (
    "bytes, string, json, avro, short, integer, long, float, double or boolean, or Connect's class name of it"
)
_ENVELOPE = (
    "JSON: `true` requires Connect's envelope with `schema` and `payload` and reads its payload; `false` "
    "reads the document as it is. If not set, the payload of a document that is exactly an envelope is read."
)
_SCHEMA = (
    "JSON: the schema, as Spark's DDL (`carrier STRING, dep_delay DOUBLE`) or in Avro's JSON. Values become "
    "[typed](typed-values.md); a value that does not match the schema is a bad record."
)
_CONTENT = (
    "JSON: the schema of values without an envelope, a `struct` in the JSON of Connect's envelopes "
    "(KIP-1054). It replaces `schemas.enable`."
)
_REPLACE_NULL = (
    "JSON: whether a field that is null or missing gets its schema's default (KIP-581); with false it stays "
    "null, which only a field with `optional` may be."
)
_IGNORE_DEFAULT = (
    "Avro: whether a null stays null although its type has a `connect.default`, which Connect's sources "
    "write for a column with a default. Otherwise the default is read, as by Connect's sinks."
)
_DESERIALIZER = (
    "Avro: position of the schema's id: `DualSchemaIdDeserializer`, in a header of the record if it has one, "
    "else before the datum; or `PrefixSchemaIdDeserializer`, always before the datum. Confluent's class "
    "names are accepted, too."
)
_URLS = "Avro: URLs of the schema registry, separated by commas."
_SOURCE = "Avro: source of the registry's user and password: its `URL`, or `USER_INFO`."
_USER_INFO = "Avro: `user:password` for the registry, with `USER_INFO`."
_ENCODING = "String: the text's encoding."

_SCHEMA_IDS = "io.confluent.kafka.serializers.schema.id."
SchemaIdDeserializer = Literal["DualSchemaIdDeserializer", "PrefixSchemaIdDeserializer"]


def _field(key: str, default: Any, description: str, **options: Any) -> Any:
    return Field(default=default, alias=key, description=description, **options)


class ConverterSettings(BaseModel):
    # A flat model: each key of Connect's is a field, so that pydantic names the key in its errors.
    key_converter: str = _field("key.converter", "bytes", f"Converter of keys: {_HOW}.")
    key_converter_schemas_enable: bool | None = _field("key.converter.schemas.enable", None, _ENVELOPE)
    key_converter_schema: str = _field("key.converter.schema", "", _SCHEMA)
    key_converter_schema_content: str = _field("key.converter.schema.content", "", _CONTENT)
    key_converter_replace_null_with_default: bool = _field(
        "key.converter.replace.null.with.default", True, _REPLACE_NULL
    )
    key_converter_ignore_default_for_nullables: bool = _field(
        "key.converter.ignore.default.for.nullables", False, _IGNORE_DEFAULT
    )
    key_converter_schema_registry_url: str = _field(
        "key.converter.schema.registry.url", "", _URLS, repr=False
    )
    key_converter_schema_id_deserializer: SchemaIdDeserializer = _field(
        "key.converter.schema.id.deserializer", "DualSchemaIdDeserializer", _DESERIALIZER
    )
    key_converter_credentials_source: CredentialsSource = _field(
        "key.converter.basic.auth.credentials.source", "URL", _SOURCE
    )
    key_converter_user_info: SecretStr | None = _field("key.converter.basic.auth.user.info", None, _USER_INFO)
    key_converter_encoding: str = _field("key.converter.converter.encoding", "UTF-8", _ENCODING)
    value_converter: str = _field("value.converter", "bytes", f"Converter of values: {_HOW}.")
    value_converter_schemas_enable: bool | None = _field("value.converter.schemas.enable", None, _ENVELOPE)
    value_converter_schema: str = _field("value.converter.schema", "", _SCHEMA)
    value_converter_schema_content: str = _field("value.converter.schema.content", "", _CONTENT)
    value_converter_replace_null_with_default: bool = _field(
        "value.converter.replace.null.with.default", True, _REPLACE_NULL
    )
    value_converter_ignore_default_for_nullables: bool = _field(
        "value.converter.ignore.default.for.nullables", False, _IGNORE_DEFAULT
    )
    value_converter_schema_registry_url: str = _field(
        "value.converter.schema.registry.url", "", _URLS, repr=False
    )
    value_converter_schema_id_deserializer: SchemaIdDeserializer = _field(
        "value.converter.schema.id.deserializer", "DualSchemaIdDeserializer", _DESERIALIZER
    )
    value_converter_credentials_source: CredentialsSource = _field(
        "value.converter.basic.auth.credentials.source", "URL", _SOURCE
    )
    value_converter_user_info: SecretStr | None = _field(
        "value.converter.basic.auth.user.info", None, _USER_INFO
    )
    value_converter_encoding: str = _field("value.converter.converter.encoding", "UTF-8", _ENCODING)

    def converter_spec(self, *, is_key: bool) -> ConverterSpec:
        """Return the converter that the engine applies to keys, or to values.

        A connector that itself applies the configured one returns ``bytes`` here.
        """
        return self.named_converter(is_key=is_key)

    def named_converter(self, *, is_key: bool) -> ConverterSpec:
        """Return the configured converter. Raises ConfigException for an unknown name."""
        side = "key_converter" if is_key else "value_converter"
        content: str = getattr(self, f"{side}_schema_content")
        return ConverterSpec(
            converter_kind(getattr(self, side)),
            is_key=is_key,
            encoding=getattr(self, f"{side}_encoding"),
            schemas_enable=None if content else getattr(self, f"{side}_schemas_enable"),
            registry=self._registry(side),
            schema=content or getattr(self, f"{side}_schema"),
            replaces_null=getattr(self, f"{side}_replace_null_with_default"),
            reads_headers=getattr(self, f"{side}_schema_id_deserializer").startswith("Dual"),
        )

    @field_validator(
        "key_converter_schema_id_deserializer", "value_converter_schema_id_deserializer", mode="before"
    )
    @classmethod
    def _without_package(cls, given: Any) -> Any:
        name = given.removeprefix(_SCHEMA_IDS) if isinstance(given, str) else given
        return name or "DualSchemaIdDeserializer"

    def takes_framing(self, *, is_key: bool) -> bool:
        return self.converter_spec(is_key=is_key).kind == "avro"

    def _registry(self, side: str) -> RegistryAddress | None:
        urls: str = getattr(self, f"{side}_schema_registry_url")
        user_info: SecretStr | None = getattr(self, f"{side}_user_info")
        if getattr(self, f"{side}_credentials_source") == "URL":
            user_info = None
        if not urls:
            return None
        prefix = f"{side.replace('_', '.')}."
        client = client_settings(self.converter_keys(prefix))
        return RegistryAddress(
            urls,
            user_info.get_secret_value() if user_info else None,
            client,
            replaces_nulls=not getattr(self, f"{side}_ignore_default_for_nullables"),
        )

    def converter_keys(self, _prefix: str, /) -> Mapping[str, str]:
        """Return a converter's keys without prefix, references resolved; none if not parsed from text."""
        return {}

    def needs_registry(self) -> bool:
        """Whether the converters need a schema registry. Raises ConfigException for an unknown name."""
        return any(self.converter_spec(is_key=is_key).kind == "avro" for is_key in (True, False))

    def converter_problems(self) -> Iterator[str]:
        """Yield problems of the converters, as sentences that name their keys."""
        for is_key, side in ((True, "key"), (False, "value")):
            try:
                spec = self.named_converter(is_key=is_key)
            except ConfigException as error:
                yield f"'{side}.converter': {error}"
                continue
            if spec.kind == "string":
                yield from _encoding_problems(f"{side}.converter", spec.encoding)
            if spec.schema:
                content: str = getattr(self, f"{side}_converter_schema_content")
                yield from _schema_problems(f"{side}.converter", spec, content=content)
                if content and getattr(self, f"{side}_converter_schema"):
                    yield f"'{side}.converter.schema.content' and '{side}.converter.schema': set one of them"
            if spec.kind == "avro":
                source: str = getattr(self, f"{side}_converter_credentials_source")
                is_given = getattr(self, f"{side}_converter_user_info") is not None
                yield from _registry_problems(f"{side}.converter", spec.registry)
                yield from _credentials_problems(f"{side}.converter", source, is_given=is_given)
                yield from _client_problems(f"{side}.converter", spec.registry)


def _encoding_problems(converter: str, encoding: str) -> Iterator[str]:
    try:
        "text".encode(encoding)
    except (LookupError, UnicodeError):
        yield f"'{converter}.converter.encoding': unknown text encoding '{encoding}'"


def _schema_problems(converter: str, spec: ConverterSpec, *, content: str) -> Iterator[str]:
    key = f"'{converter}.schema.content'" if content else f"'{converter}.schema'"
    if spec.kind != "json":
        yield f"{key} applies only with '{converter}' json, but it is {spec.kind}"
    elif spec.schemas_enable:
        yield f"{key}: with '{converter}.schemas.enable' true each record has its own schema; set only one"
    try:
        if content and not is_connects(content):
            yield f'{key}: it must be a struct in the JSON of Connect\'s envelopes: {{"type":"struct", …}}'
        else:
            declared_shape(spec.schema)
    except ConfigException as error:
        yield f"{key}: {error}"


_EXAMPLE: Final = "https://registry.example:8081"
_ISSUER: Final = "bearer.auth.issuer.endpoint.url"


def _registry_problems(converter: str, registry: RegistryAddress | None) -> Iterator[str]:
    key = f"'{converter}.schema.registry.url'"
    if registry is None:
        yield f"{key} is required by the Avro converter and not set"
        return
    for url in registry.urls.split(","):
        if why := address_problem(url.strip(), _EXAMPLE):
            yield f"{key}: {why}"


def _client_problems(converter: str, registry: RegistryAddress | None) -> Iterator[str]:
    client = dict(registry.client if registry is not None else ())
    for key in ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location"):
        if key in client and not client[key].startswith("/"):
            yield f"'{converter}.schema.registry.{key}' must be an absolute path, the same on every executor"
    if _ISSUER in client and (why := address_problem(client[_ISSUER], "https://login.example/token")):
        yield f"'{converter}.{_ISSUER}': {why}"
    if "proxy" in client and address_problem(client["proxy"], ""):
        yield (
            f"'{converter}.proxy.host' and '{converter}.proxy.port' must be a host name and a port, as in "
            f"proxy.example and 3128"
        )
    if "ssl.key.location" in client and "ssl.certificate.location" not in client:
        yield f"'{converter}.schema.registry.ssl.key.location' needs '….ssl.certificate.location'"
    needed = {
        "STATIC_TOKEN": ("bearer.auth.token",),
        "OAUTHBEARER": (_ISSUER, "bearer.auth.client.id", "bearer.auth.client.secret"),
    }.get(client.get("bearer.auth.credentials.source", ""), ())
    yield from (
        f"'{converter}.{key}' is required with '{converter}.bearer.auth.credentials.source' and not set"
        for key in needed
        if key not in client
    )
    if needed and registry is not None and registry.user_info is not None:
        yield (
            f"'{converter}.basic.auth.user.info' and '{converter}.bearer.auth.credentials.source' both set a "
            f"login: keep one"
        )


def _credentials_problems(converter: str, source: str, *, is_given: bool) -> Iterator[str]:
    user_info, wanted = f"'{converter}.basic.auth.user.info'", f"'{converter}.basic.auth.credentials.source'"
    if source == "USER_INFO" and not is_given:
        yield f"{user_info} is required with {wanted} USER_INFO and not set"
    if source == "URL" and is_given:
        yield f"{user_info} applies only with {wanted} USER_INFO: set that, too"
