"""Checks configurations without external systems, and displays them without secrets."""

from __future__ import annotations

import functools
import inspect
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

from sinksdk.compatibility import Meaning, Option
from sinksdk.config import ConnectorConfig
from sinksdk.connector import BatchPolicy, Connector, SinkConnector
from sinksdk.errors import ConfigException, ConnectException, RetriableException
from sinksdk.plugins.classes import DROP_IN_NAMES, ConnectorType, connector_class
from sinksdk.settings.file import read_config
from sinksdk.settings.model import ConfigModel, call_author, sentences_of
from sinksdk.settings.references import ALL_PROVIDERS, CONFIG_PROVIDERS, ConfigProviders
from sinksdk.settings.texts import Kind
from sinksdk.source.config import SourceConnectorConfig
from sinksdk.source.connector import SourceConnector
from sinksdk.support.confidential import HIDDEN, Secrets, without_passwords_in_urls

_REFERENCE: Final = re.compile(r"\$\{(\w+):[^}]*\}")


@contextmanager
def collecting(problems: list[str], unavailable: list[RetriableException] | None = None) -> Iterator[None]:
    try:
        yield
    except ConfigException as error:
        problems += error.problems
    except RetriableException as error:
        if unavailable is None:
            raise
        unavailable.append(error)


_CHECKED_BY_SPARK: Final = ("records.sql", "records.transform")


@dataclass(frozen=True, slots=True)
class Checked:
    """A configuration file and the results of its check.

    Args:
        connector: None if its class cannot be loaded.
        problems: all reasons why it cannot start.
        unmet: reasons why it cannot deliver records of Kafka or a topic directory.
        notes: missing keys whose default differs from the replaced connector's, with the difference.
    """

    raw: Mapping[str, str]
    connector: SinkConnector | SourceConnector | None = None
    config: ConnectorConfig | SourceConnectorConfig | None = None
    problems: Sequence[str] = ()
    unmet: Sequence[str] = ()
    warnings: Sequence[str] = ()
    options: Sequence[Option] = ()
    notes: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.raw.get("name", "")

    @property
    def is_startable(self) -> bool:
        """Whether ``sinksdk run`` would start it, unless something is ``unmet``."""
        return not self.problems

    @property
    def unchecked(self) -> Sequence[str]:
        return [key for key in _CHECKED_BY_SPARK if self.raw.get(key)]

    @property
    def other_problems(self) -> Sequence[str]:
        unsupported = {option.sentence for option in self.options}
        return [problem for problem in self.problems if problem not in unsupported]

    @property
    def odd(self) -> Sequence[Option]:
        """Accepted keys whose effect differs from Kafka Connect's, or that have no effect."""
        meanings = (Meaning.UNKNOWN, Meaning.IGNORED, Meaning.DIFFERS)
        return [option for option in self.options if option.verdict.meaning in meanings]

    def having(self, meaning: Meaning) -> Sequence[Option]:
        return [option for option in self.options if option.verdict.meaning is meaning]


def check_file(config: Mapping[str, Any] | str | os.PathLike[str]) -> Checked:
    file = read_config(config)
    found = check_config(file.config)
    return replace(
        found,
        config=None if file.problems or nested_problems(file.nested, file.config) else found.config,
        problems=[*file.problems, *nested_problems(file.nested, file.config), *found.problems],
        warnings=[*file.warnings, *found.warnings],
    )


def nested_problems(nested: Mapping[str, Kind], config: Mapping[str, str]) -> list[str]:
    if not nested:
        return []
    try:
        several = _loaded_model(config.get("connector.class", "")).multi_valued()
    except ConfigException:
        return []  # another problem is reported already; only the class knows which keys are lists
    wanted = {"list": "a list or a string", "map": "an object or a string"}
    return [
        f"'{key}' must be {wanted.get(several.get(key, ''), 'a string, a number or a boolean')}"
        for key, kind in nested.items()
        if several.get(key) != kind
    ]


def check_config(raw: Mapping[str, str], providers: ConfigProviders = ALL_PROVIDERS) -> Checked:
    """Check a configuration without I/O, except for its references. No problem quotes a secret."""
    if refused := providers.problems(raw):
        return Checked(raw, problems=refused)
    found = _check_config(raw)
    model = found.connector.config_class if found.connector else ConnectorConfig
    secrets = Secrets()
    secrets.add(model.secrets(raw))
    return replace(found, problems=[secrets.hide(problem) for problem in found.problems])


def _check_config(raw: Mapping[str, str]) -> Checked:
    try:
        connector = _connector(raw.get("connector.class", ""))
    except ConfigException as error:
        # Without the connector's class, only problems that sinks and sources share are certain.
        _, of_sinks = ConnectorConfig.check(raw)
        _, of_sources = SourceConnectorConfig.check(raw)
        common = [problem for problem in of_sinks if problem in of_sources]
        return Checked(raw, problems=[*error.problems, *common])
    model = connector.config_class
    options = model.judge(raw)
    config, problems = model.check(raw)
    warnings: Sequence[str] = ()
    unmet: Sequence[str] = ()
    if config is not None:
        problems = connector_problems(connector, config)
        with collecting(problems):
            warnings = sentences_of(f"{model.__name__}.warnings()", config.warnings)
            if isinstance(connector, SinkConnector) and not problems:
                unmet = sentences_of(f"{type(connector).__name__}.unmet()", connector.unmet, config)
    return Checked(
        raw,
        connector,
        None if problems else config,
        problems,
        [] if problems else unmet,
        [*_unresolved(options, raw), *warnings],
        options,
        _notes(model, raw),
    )


def _unresolved(options: Sequence[Option], raw: Mapping[str, str]) -> Iterator[str]:
    for option in options:  # references to unknown config providers are taken literally
        for provider in sorted(set(_REFERENCE.findall(raw[option.key])) - CONFIG_PROVIDERS):
            if option.verdict.is_applied:
                yield (
                    f"'{option.key}' is not resolved: ${{{provider}:…}} names an unknown config provider; "
                    f"write ${{env:NAME}} or ${{file:/path:key}}"
                )


def _notes(model: type[ConfigModel], raw: Mapping[str, str]) -> Mapping[str, str]:
    if raw["connector.class"] not in DROP_IN_NAMES:
        return {}
    return {key: note for key, note in model.other_defaults_for(raw).items() if key not in raw}


def _connector(name: str) -> SinkConnector | SourceConnector:
    cls = load_class(name)
    if inspect.isabstract(cls) or not hasattr(cls, "task_class"):
        task = "SourceTask" if issubclass(cls, SourceConnector) else "SinkTask"
        raise ConfigException(f"'connector.class': {name} has no task_class: set it to a subclass of {task}")
    _expect_creatable(name, cls.task_class)
    try:
        return cls()
    except (Exception, SystemExit) as error:
        raise ConfigException(
            f"'connector.class': {name} cannot be created: {type(error).__name__}: {error}"
        ) from error


def _expect_creatable(name: str, task: type) -> None:
    # Executors instantiate it without arguments.
    what = f"'connector.class': task_class {task.__qualname__} of {name} cannot be created"
    if missing := sorted(getattr(task, "__abstractmethods__", ())):
        raise ConfigException(f"{what}: it does not implement {', '.join(missing)}")
    try:
        inspect.signature(task).bind()
    except ValueError:
        return  # a class written in C has no signature
    except TypeError as error:
        raise ConfigException(
            f"{what} without arguments: {error}; a task gets its configuration in start()"
        ) from error


def load_class(name: str) -> type[SinkConnector | SourceConnector]:
    """Load the connector's class; modules in the working directory precede installed ones."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return connector_class(name)
    except ConfigException:
        raise
    except (Exception, SystemExit) as error:  # a script without a main guard may call sys.exit on import
        raise ConfigException(
            f"'connector.class': importing {name} failed: {type(error).__name__}: {error}"
        ) from error


def connector_type(name: str) -> ConnectorType:
    return _type_of(name, str(Path.cwd()))


@functools.cache
def _type_of(name: str, here: str) -> ConnectorType:  # noqa: ARG001 - load_class searches it
    try:
        return "source" if issubclass(load_class(name), SourceConnector) else "sink"
    except ConfigException:
        return "unknown"


def connector_problems(connector: Connector, config: ConfigModel) -> list[str]:
    cls = type(connector).__name__
    try:
        problems = sentences_of(f"{cls}.validate()", connector.validate, config)
        if isinstance(connector, SourceConnector):
            problems += sentences_of(f"{cls}.unmet()", connector.unmet, config)
        elif isinstance(connector, SinkConnector) and not problems:
            policy: object = call_author(f"{cls}.batch_policy()", connector.batch_policy, config)
            if not isinstance(policy, BatchPolicy):
                return [f"{cls}.batch_policy() returned {policy!r}; it must return a BatchPolicy"]
    except ConfigException as error:
        return list(error.problems)
    return problems


def task_configs_of(connector: Connector, name: str, tasks_max: int) -> list[dict[str, str]]:
    what = f"connector {name}: task_configs({tasks_max})"
    returned = connector.task_configs(tasks_max)
    try:
        # The method may return an endless generator.
        configs = [dict(own) for own in islice(returned, tasks_max + 1)]
    except (TypeError, ValueError) as error:
        raise ConnectException(f"{what} must return a list of dictionaries: {error}") from error
    if len(configs) > tasks_max:
        raise ConnectException(f"{what} returned too many configurations; it must return at most tasks.max")
    if not configs and isinstance(connector, SinkConnector):
        raise ConnectException(
            f"{what} returned no configurations; a sink has topics to read, so it must return at least one"
        )
    if not all(isinstance(text, str) for own in configs for item in own.items() for text in item):
        raise ConnectException(f"{what} must return dictionaries of strings, as in Connect: {configs}")
    return configs


def redacted(config: Mapping[str, str]) -> dict[str, str]:
    """Return a configuration as written, with secrets hidden; references stay."""
    model = _model_of(config.get("connector.class", ""))
    return {
        key: HIDDEN if model.hides_text(key, value) else without_passwords_in_urls(value)
        for key, value in config.items()
    }


def with_secrets(config: Mapping[str, str], before: Mapping[str, str]) -> dict[str, str]:
    # A client sends back a configuration with hidden values, which stand for the current ones.
    shown = redacted(before)
    return {key: before[key] if shown.get(key) == value else value for key, value in config.items()}


def still_hidden(config: Mapping[str, str]) -> list[str]:
    return [
        f"'{key}' is hidden and has no current value to keep: set it"
        for key, value in config.items()
        if HIDDEN in value
    ]


def _model_of(connector_class: str) -> type[ConfigModel]:
    try:
        return _loaded_model(connector_class)
    except ConfigException:
        return ConnectorConfig


@functools.lru_cache(maxsize=256)
def _loaded_model(connector_class: str) -> type[ConfigModel]:
    return load_class(connector_class).config_class
