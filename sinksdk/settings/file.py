"""Reads a connector's configuration from a file, in any of Connect's forms.

These are ``.properties``, flat JSON, JSON as for the REST interface, and Strimzi's resource.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sinksdk.errors import ConfigException
from sinksdk.settings.properties import read_properties
from sinksdk.settings.texts import Kind, as_text, kind_of

_STRIMZI = "KafkaConnector"
# Connect's response to GET has the last two.
_OUTER_KEYS = frozenset({"name", "config", "tasks", "type"})
_SPEC_KEYS = {"class": "connector.class", "tasksMax": "tasks.max"}


@dataclass(frozen=True, slots=True)
class ConfigFile:
    config: Mapping[str, str]
    problems: Sequence[str] = ()
    warnings: Sequence[str] = ()
    # Values that were lists or objects; the connector's class decides whether it accepts them.
    nested: Mapping[str, Kind] = field(default_factory=dict)


def read_config_file(path: str | os.PathLike[str]) -> ConfigFile:
    """Read a configuration file, references unresolved: ``MyConfig.parse(read_config_file(path).config)``.

    Raises:
        ConfigException: the file cannot be read, or is neither JSON nor properties.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigException(f"the configuration {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigException(
            f"the configuration {path} is not UTF-8: {error.reason} at byte {error.start}"
        ) from error
    if path.suffix == ".properties":
        return _from_properties(path, text)
    return _from_json(f"the configuration {path}", text)


def read_config(config: Mapping[str, Any] | str | os.PathLike[str]) -> ConfigFile:
    if isinstance(config, Mapping):
        return _from_document(config, [])
    if isinstance(config, str) and config.lstrip().startswith("{"):
        return _from_json("the configuration", config)
    return read_config_file(config)


def _from_properties(path: Path, text: str) -> ConfigFile:
    found = list(read_properties(text, f"the configuration {path}"))
    problems = [
        f"line {entry.line} has no key in front of '{entry.separator}'" for entry in found if not entry.key
    ]
    return ConfigFile({entry.key: entry.value for entry in found if entry.key}, problems)


def _from_json(what: str, text: str) -> ConfigFile:
    repeated: list[str] = []

    def as_dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        repeated.extend(key for key in found if sum(key == other for other, _ in pairs) > 1)
        return found

    try:
        # Numbers keep their text, because the configuration's model judges 1e5 or 1.0.
        document = json.loads(text, object_pairs_hook=as_dict, parse_int=str, parse_float=str)
    except ValueError as error:
        raise ConfigException(f"{what} is not a JSON document: {error}") from error
    if not isinstance(document, dict):
        raise ConfigException(
            f'{what} must be a JSON object: {{"name": "…", "config": {{"connector.class": "…", …}}}}'
        )
    # "_comment" keys are comments, and may be repeated.
    problems = [
        f"'{key}' is set more than once" for key in dict.fromkeys(repeated) if not key.startswith("_")
    ]
    return _from_document(document, problems)


def _from_document(document: Mapping[str, Any], problems: list[str]) -> ConfigFile:
    if document.get("kind") == _STRIMZI:
        return _from_strimzi(document, problems)
    if "config" not in document:
        return _file(document, problems)
    inner = document["config"]
    if not isinstance(inner, Mapping):
        return ConfigFile({}, [*problems, "'config' must be an object of keys and values"])
    name = document.get("name", inner.get("name"))
    if "name" in inner and inner["name"] != name:
        problems.append(
            f"the name is '{name}' next to 'config' and '{inner['name']}' in it; they must be the same"
        )
    warnings = [f"'{key}' next to 'config' has no effect" for key in document if key not in _OUTER_KEYS]
    return _file({**inner, "name": name}, problems, warnings)


def _from_strimzi(document: Mapping[str, Any], problems: list[str]) -> ConfigFile:
    metadata, spec = document.get("metadata"), document.get("spec")
    if not (isinstance(metadata, dict) and isinstance(spec, dict) and isinstance(spec.get("config"), dict)):
        return ConfigFile(
            {}, [*problems, "a KafkaConnector needs 'metadata' and 'spec' with a 'config' in it"]
        )
    # Strimzi puts name, class and number of tasks next to the configuration.
    outside = {"name": metadata.get("name")} | {
        key: spec.get(written) for written, key in _SPEC_KEYS.items() if written in spec
    }
    known = {"config", *_SPEC_KEYS}
    warnings = [f"'spec.{key}' has no effect" for key in spec if key not in known]
    return _file({**outside, **spec["config"]}, problems, warnings)


def _file(values: Mapping[str, Any], problems: Sequence[str], warnings: Sequence[str] = ()) -> ConfigFile:
    strange = [f"the key {key!r} must be a string" for key in values if not isinstance(key, str)]
    given = {key: value for key, value in values.items() if isinstance(key, str) and value is not None}
    nested = {key: kind for key, value in given.items() if (kind := kind_of(value)) is not None}
    config = {key: as_text(value) for key, value in given.items()}
    return ConfigFile(config, [*problems, *strange], warnings, nested)
