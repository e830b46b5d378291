"""``/admin/loggers``: log levels, as Connect's clients read and change them."""

from __future__ import annotations

import logging
from typing import Final

from fastapi import APIRouter

from sinksdk.errors import ConfigException
from sinksdk.server.bodies import Level, LoggerLevel
from sinksdk.server.errors import NotFoundException, errors
from sinksdk.server.paths import Name

_LEVELS: Final = {
    "OFF": logging.CRITICAL + 1,
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": logging.DEBUG,
}
"""Log4j's levels, which Connect's clients send."""

_ROOT: Final = "root"
_OURS: Final = "sinksdk"
"""The logger that Connect's root stands for here: other libraries' are left alone."""


router = APIRouter(tags=["server"])
"""The paths of loggers."""


@router.get("/admin/loggers", responses=errors())
def loggers() -> dict[str, LoggerLevel]:
    """Loggers of sinksdk with a level of their own, and ``root``, which stands for all of them."""
    names = sorted(name for name in logging.root.manager.loggerDict if _is_ours(name))
    own = {name: _level(name) for name in names if logging.getLogger(name).level}
    return {_ROOT: _level(_OURS), **own}


@router.get("/admin/loggers/{name}", responses=errors(404))
def logger(name: Name) -> LoggerLevel:
    """A logger's level."""
    if name != _ROOT and name not in logging.root.manager.loggerDict:
        raise NotFoundException(f"Logger {name} not found.")
    return _level(_OURS if name == _ROOT else name)


@router.put("/admin/loggers/{name}", responses=errors(400, 404, 415))
def set_level(name: Name, wanted: Level) -> list[str]:
    """Change the level of a logger; names of those that are changed."""
    if wanted.level.upper() not in _LEVELS:
        raise NotFoundException(f"invalid log level '{wanted.level}'; there are {', '.join(_LEVELS)}")
    if name != _ROOT and not _is_ours(name):
        raise ConfigException(f"logger '{name}' is none of sinksdk's")
    changed = [_OURS] if name == _ROOT else [name]
    for each in changed:
        logging.getLogger(each).setLevel(_LEVELS[wanted.level.upper()])
    return changed


def _is_ours(name: str) -> bool:
    return name.split(".", maxsplit=1)[0] == _OURS


def _level(name: str) -> LoggerLevel:
    level = logging.getLogger(name).getEffectiveLevel()
    return LoggerLevel(level=next((word for word, number in _LEVELS.items() if number == level), "INFO"))
