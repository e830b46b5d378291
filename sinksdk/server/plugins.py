"""``/connector-plugins``: lists installed connectors and validates configurations."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from fastapi import APIRouter

from sinksdk.config import ConfigKey
from sinksdk.errors import ConfigException
from sinksdk.plugins.checks import check_config, connector_type, load_class, redacted
from sinksdk.plugins.classes import plugins
from sinksdk.server.bodies import (
    ConfigDefinition,
    ConfigInfo,
    ConfigInfos,
    ConfigValue,
    Plugin,
    RawConfig,
    as_strings,
)
from sinksdk.server.errors import NotFoundException, errors
from sinksdk.server.parameters import Name, TheProviders
from sinksdk.settings.references import ConfigProviders

_KEY: Final = re.compile(r"'([\w.-]+)'")
_TYPES: Final = {
    "integer": "INT",
    "boolean": "BOOLEAN",
    "list": "LIST",
    "secret": "PASSWORD",
    "number": "DOUBLE",
    "class": "CLASS",
}
# Kafka Connect's groups in its order. Groups of transforms follow; a connector's own keys have none.
_GROUPS: Final = ("Common", "Transforms", "Predicates", "Error Handling")
_COMMON: Final = frozenset(
    {
        *("name", "connector.class", "tasks.max", "topics", "topics.regex", "key.converter"),
        *("value.converter", "header.converter", "config.action.reload"),
    }
)


def plugins_router(version: str) -> APIRouter:
    router = APIRouter(tags=["plugins"])

    @router.get("/connector-plugins", responses=errors())
    def installed() -> list[Plugin]:
        """List the connectors that ``connector.class`` may name."""
        return [
            Plugin.model_validate(
                {"class": plugin.name, "type": connector_type(plugin.name), "version": version}
            )
            for plugin in plugins()
        ]

    @router.get("/connector-plugins/{plugin}/config", responses=errors(404))
    def keys(plugin: Name) -> list[ConfigDefinition]:
        """Describe every key of a connector's configuration (KIP-769)."""
        return [_definition(key) for key in _reference(plugin)]

    @router.put("/connector-plugins/{plugin}/config/validate", responses=errors(400, 404, 415))
    def validate(plugin: Name, config: RawConfig, providers: TheProviders) -> ConfigInfos:
        """Check whether a connector could start with a configuration; return each key with its problems."""
        given = {"connector.class": plugin, **as_strings(config, plugin)}
        if given["connector.class"] != plugin:
            raise ConfigException(
                f"'connector.class' is {given['connector.class']} in the configuration, but {plugin} in the "
                f"path"
            )
        return _validated(plugin, given, providers)

    return router


def _reference(plugin: str, config: Mapping[str, str] | None = None) -> list[ConfigKey]:
    try:
        return list(load_class(plugin).config_class.reference_for(config or {}))
    except ConfigException as error:
        raise NotFoundException(str(error)) from error


def _validated(plugin: str, given: dict[str, str], providers: ConfigProviders) -> ConfigInfos:
    keys, shown = _reference(plugin, given), redacted(given)
    checked = check_config(given, providers)
    odd = {option.key: [option.sentence] for option in checked.odd}
    wrong: dict[str, list[str]] = {}
    for problem in (*checked.problems, *checked.unmet):
        found = _KEY.search(problem)
        wrong.setdefault(found.group(1) if found else "connector.class", []).append(problem)

    def value(name: str, default: str | None = None) -> ConfigValue:
        return ConfigValue(
            name=name,
            value=shown.get(name, default),
            errors=wrong.pop(name, []),
            warnings=odd.pop(name, []),
        )

    count = sum(map(len, wrong.values()))
    rows = [ConfigInfo(definition=_definition(key), value=value(key.name, _default(key))) for key in keys]
    groups = list(dict.fromkeys(group for key in keys if (group := _group(key))))
    groups.sort(key=lambda group: _GROUPS.index(group) if group in _GROUPS else len(_GROUPS))
    # Keys of the configuration that the connector does not have.
    rows += [ConfigInfo(definition=None, value=value(name)) for name in {**wrong, **odd}]
    return ConfigInfos(name=plugin, error_count=count, groups=groups, configs=rows)


def _default(key: ConfigKey) -> str | None:
    return key.default or ("" if key.type == "list" else None)


def _group(key: ConfigKey) -> str | None:
    if key.group is not None or key.name in _COMMON:
        return key.group or "Common"
    if key.name in ("transforms", "predicates"):
        return key.name.capitalize()
    return "Error Handling" if key.name.startswith("errors.") else None


def _definition(key: ConfigKey) -> ConfigDefinition:
    return ConfigDefinition(
        name=key.name,
        type=_TYPES.get(key.type, "STRING"),
        required=key.required,
        default_value=None if key.required else key.default,
        importance="HIGH" if key.required else "MEDIUM",
        documentation=key.meaning,
        group=_group(key),
        display_name=key.name,
    )
