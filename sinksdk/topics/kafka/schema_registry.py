"""Fetches writers' schemas from a schema registry with Confluent's HTTP interface."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sinksdk.config.converters import RegistryAddress
from sinksdk.errors import ConfigException, DataException, RetriableException
from sinksdk.values.avro_schema import AvroSchema, parse_schema, schema_json
from sinksdk.values.framing import guid_of, name_of

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
    from confluent_kafka.schema_registry.error import SchemaRegistryError

T = TypeVar("T")

_TIMEOUT: Final = 10.0  # seconds for one request
_UNKNOWN_FOR: Final = 30.0  # seconds until an unknown id is requested again: bad records may come in millions
_MOST_UNKNOWN: Final = 10_000  # unknown ids that are remembered

_NOT_FOUND: Final = (40401, 40402, 40403)  # the registry's codes for a missing subject, version, schema
_TRANSIENT: Final = (408, 425, 429)
_SERVER_ERROR: Final = 500
_INSTALL: Final = "Avro needs packages that are not installed: pip install 'sinksdk[kafka]'"


def connect(address: RegistryAddress) -> SchemaRegistry:
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient  # noqa: PLC0415 - slow to load
    except ImportError as error:
        raise ConfigException(_INSTALL) from error
    settings: dict[str, Any] = {
        "url": address.urls,
        "timeout": _TIMEOUT,
        "max.retries": 0,
        **dict(address.client),
    }
    if address.user_info is not None:
        settings["basic.auth.user.info"] = address.user_info
    try:
        client = SchemaRegistryClient(settings)
    except OSError as error:  # ssl.SSLError is an OSError
        files = [f"{key} {settings[key]}" for key in settings if key.endswith(".location")]
        raise ConfigException(
            f"the schema registry {address} cannot be used: a certificate or key is missing or not PEM "
            f"({', '.join(files)}): {error}"
        ) from error
    except ValueError as error:
        reason = (
            "user and password are both in the URL and in basic.auth.user.info, or not written user:password"
        )
        raise ConfigException(f"the schema registry {address} cannot be used: {reason}") from error
    return SchemaRegistry(client, str(address), replaces_nulls=address.replaces_nulls)


class SchemaRegistry:
    """Parsed schemas by id, each fetched once. The engine retries; the client does not."""

    def __init__(
        self,
        client: SchemaRegistryClient,
        name: str,
        now: Callable[[], float] = time.monotonic,
        *,
        replaces_nulls: bool = True,
    ) -> None:
        self._client = client
        self._name = name
        self._now = now
        self._replaces_nulls = replaces_nulls
        self._schemas: dict[int, AvroSchema] = {}
        self._unknown: dict[int, tuple[float, str]] = {}

    def __call__(self, schema_id: int) -> AvroSchema:
        if schema_id not in self._schemas:
            until, why = self._unknown.get(schema_id, (0.0, ""))
            if why and self._now() < until:
                raise DataException(why)
            try:
                self._schemas[schema_id] = self._fetch(schema_id)
            except DataException as error:
                if len(self._unknown) >= _MOST_UNKNOWN:
                    self._unknown.clear()
                self._unknown[schema_id] = (self._now() + _UNKNOWN_FOR, str(error))
                raise
        return self._schemas[schema_id]

    def _fetch(self, schema_id: int) -> AvroSchema:
        guid, what = guid_of(schema_id), f"schema {name_of(schema_id)}"
        send: Callable[[], Schema] = (
            partial(self._client.get_schema, schema_id)
            if guid is None
            else partial(self._client.get_schema_by_guid, str(guid))
        )
        schema = self._request(what, send)
        if schema.schema_type not in (None, "AVRO"):
            raise DataException(
                f"{what} of the schema registry {self._name} is not Avro: {schema.schema_type}"
            )
        references = tuple(self._references(schema).values())
        try:
            return parse_schema(schema.schema_str or "", references, replaces_nulls=self._replaces_nulls)
        except DataException as error:
            raise DataException(
                f"{what} of the schema registry {self._name} cannot be read: {error}"
            ) from error

    def _references(self, schema: Schema) -> dict[str, Any]:
        found: dict[str, Any] = {}
        waiting: list[Any] = list(schema.references or ())
        while waiting:
            reference = waiting.pop()
            if reference.name in found:
                continue
            what = f"version {reference.version} of subject {reference.subject}"
            # Deleted versions are requested too, because records written with them still exist.
            subject, version = reference.subject, reference.version
            send = partial(self._client.get_version, subject, version, deleted=True)
            other = self._request(what, send).schema
            found[str(reference.name)] = _definition(other, f"{what} of the schema registry {self._name}")
            waiting += other.references or ()
        return found

    def _request(self, what: str, send: Callable[[], T]) -> T:
        from confluent_kafka.schema_registry.error import SchemaRegistryError  # noqa: PLC0415 - slow to load

        try:
            return send()
        except SchemaRegistryError as error:
            raise self._translated(what, error) from error
        except Exception as error:  # no response, or a response of another server
            why = f"{type(error).__name__}: {error}"
            raise RetriableException(
                f"the schema registry {self._name} does not return {what}: {why}"
            ) from error

    def _translated(self, what: str, error: SchemaRegistryError) -> Exception:
        status, code = error.http_status_code, error.error_code
        if code in _NOT_FOUND:
            return DataException(f"the schema registry {self._name} has no {what}: {error}")
        if status in _TRANSIENT or status >= _SERVER_ERROR:
            return RetriableException(f"the schema registry {self._name} cannot return {what} now: {error}")
        return ConfigException(
            f"the schema registry {self._name} refuses to return {what}: {error}; check its URL, user "
            f"and password"
        )


def _definition(schema: Schema, what: str) -> Any:
    try:
        return schema_json(schema.schema_str or "")
    except ValueError as error:
        raise DataException(f"{what} is not JSON: {error}") from error
