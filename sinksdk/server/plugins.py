"""``/connector-plugins``: what is installed, and whether a configuration is a good one."""

from __future__ import annotations

import re
from typing import Any

from fastapi import APIRouter

from sinksdk.config import ConfigKey
from sinksdk.errors import ConfigException
from sinksdk.plugins import connector_class, plugins
from sinksdk.runtime.checks import check_config
from sinksdk.runtime.redaction import redacted
from sinksdk.runtime.registry import texts
from sinksdk.server.bodies import Plugin, RawConfig
from sinksdk.server.errors import NotFoundException

_KEY = re.compile(r"'([\w.]+)'")


def plugins_router(version: str) -> APIRouter:
    """The paths of plugins.

    Args:
        version: of sinksdk.
    """
    router = APIRouter(tags=["plugins"])

    @router.get("/connector-plugins")
    def installed() -> list[Plugin]:
        """Connectors that ``connector.class`` may name."""
        return [Plugin.model_validate({"class": plugin.name, "version": version}) for plugin in plugins()]

    @router.get("/connector-plugins/{plugin}/config")
    def keys(plugin: str) -> list[dict[str, Any]]:
        """Every key of a connector's configuration (KIP-769)."""
        return [_definition(key) for key in _reference(plugin)]

    @router.put("/connector-plugins/{plugin}/config/validate")
    def validate(plugin: str, config: RawConfig) -> dict[str, Any]:
        """Whether a connector could start with a configuration: each key with what is wrong with it."""
        given = {**texts(config), "connector.class": texts(config).get("connector.class", plugin)}
        return _validated(plugin, given)

    return router


def _reference(plugin: str) -> list[ConfigKey]:
    try:
        return list(connector_class(plugin).config_class.reference())
    except ConfigException as error:
        raise NotFoundException(str(error)) from error


def _validated(plugin: str, given: dict[str, str]) -> dict[str, Any]:
    keys, shown = _reference(plugin), redacted(given)
    errors: dict[str, list[str]] = {}
    for problem in check_config(given).problems:
        found = _KEY.search(problem)
        errors.setdefault(found.group(1) if found else "connector.class", []).append(problem)
    rows: list[dict[str, Any]] = [
        {
            "definition": _definition(key),
            "value": {
                "name": key.name,
                "value": shown.get(key.name, key.default or None),
                "recommended_values": [],
                "errors": errors.pop(key.name, []),
                "visible": True,
            },
        }
        for key in keys
    ]
    rows += [
        {
            "definition": None,
            "value": {
                "name": name,
                "value": shown.get(name),
                "recommended_values": [],
                "errors": said,
                "visible": True,
            },
        }
        for name, said in errors.items()  # keys that the connector does not have
    ]
    count = sum(len(row["value"]["errors"]) for row in rows)
    return {"name": plugin, "error_count": count, "groups": [], "configs": rows}


def _definition(key: ConfigKey) -> dict[str, Any]:
    kind = {"integer": "INT", "boolean": "BOOLEAN", "list": "LIST", "secret": "PASSWORD", "number": "DOUBLE"}
    return {
        "name": key.name,
        "type": kind.get(key.type, "STRING"),
        "required": key.required,
        "default_value": None if key.required else key.default,
        "importance": "HIGH" if key.required else "MEDIUM",
        "documentation": key.meaning,
        "group": None,
        "width": "NONE",
        "display_name": key.name,
        "dependents": [],
        "order": -1,
    }
