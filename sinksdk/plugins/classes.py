"""Finds connector classes by entry point, by module and class, or by the replaced connector's name."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Final, Literal, TypeAlias, TypeVar

from sinksdk.connector import SinkConnector
from sinksdk.errors import ConfigException
from sinksdk.source.connector import SourceConnector
from sinksdk.transforms.plugins import import_classes

GROUP: Final = "sinksdk.connectors"

# Kafka Connect's class names; not all of their configurations can run here.
DROP_IN_NAMES: Final[Mapping[str, str]] = {
    "io.confluent.connect.s3.S3SinkConnector": "s3-archiver",
    "io.aiven.kafka.connect.s3.AivenKafkaConnectS3SinkConnector": "s3-archiver",
    "io.aiven.kafka.connect.s3.S3SinkConnector": "s3-archiver",
    "io.lenses.streamreactor.connect.aws.s3.sink.S3SinkConnector": "s3-archiver",
    "com.datamountaineer.streamreactor.connect.aws.s3.sink.S3SinkConnector": "s3-archiver",
    "S3_SINK": "s3-archiver",
}


# Former module paths, which stored configurations may contain.
_MOVED: Final[Mapping[str, str]] = {
    "connectors.s3_archiver:S3ArchiverConnector": "s3-archiver",
    "connectors.s3_archiver.S3ArchiverConnector": "s3-archiver",
}
C = TypeVar("C", SinkConnector, SourceConnector)
ConnectorType: TypeAlias = Literal["sink", "source", "unknown"]


def plugins() -> list[EntryPoint]:
    return sorted(entry_points(group=GROUP), key=lambda entry: entry.name)


def preload() -> None:
    for entry in entry_points(group=GROUP):  # an error is raised again when the connector is used
        with contextlib.suppress(Exception, SystemExit):
            entry.load()


def sink_class(name: str) -> type[SinkConnector]:
    return _of_kind(SinkConnector, name)


def sink_of(config: Mapping[str, str]) -> type[SinkConnector]:
    # The classes are imported before the configuration is parsed, so that it finds the transforms.
    import_classes(config)
    return sink_class(config.get("connector.class", ""))


def source_class(name: str) -> type[SourceConnector]:
    return _of_kind(SourceConnector, name)


def _of_kind(kind: type[C], name: str) -> type[C]:
    found = connector_class(name)
    if not issubclass(found, kind):
        raise ConfigException(
            f"'connector.class': {name} is {_kind(found)}, not a subclass of {kind.__name__}"
        )
    return found


def connector_class(name: str) -> type[SinkConnector | SourceConnector]:
    if not name:
        raise ConfigException(f"'connector.class' is required and not set; installed are {_installed()}")
    entry = _entry_point({**DROP_IN_NAMES, **_MOVED}.get(name, name))
    loaded = _load(name, entry.value if entry else name)
    if not (isinstance(loaded, type) and issubclass(loaded, (SinkConnector, SourceConnector))):
        raise ConfigException(
            f"'connector.class': {name} is {_kind(loaded)}, not a subclass of SinkConnector or of "
            f"SourceConnector"
        )
    return loaded


def _kind(loaded: object) -> str:
    # The message does not contain the value: a name may lead to any object, including secrets.
    if isinstance(loaded, type):
        return f"the class {loaded.__qualname__}"
    return f"of type {type(loaded).__name__}"


def _entry_point(name: str) -> EntryPoint | None:
    if ":" in name:
        # Only ``module:Class`` is imported; searching all packages would take 8 ms at each task's start.
        return None
    return next(iter(entry_points(group=GROUP, name=name)), None)


def _load(name: str, path: str) -> object:
    module, separator, attribute = path.partition(":")
    if not separator:
        module, _, attribute = path.rpartition(".")
    if not module or not attribute:
        raise ConfigException(
            f"'connector.class': no connector is called '{name}'; installed are {_installed()}; write your "
            f"own as module:Class"
        )
    if module == "__main__":
        raise ConfigException(
            f"'connector.class': {name} is in the running program, which executors cannot import: put the "
            f"class into a module of its own and write module:{attribute}"
        )
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise ConfigException(
                f"'connector.class': {name} needs the package '{error.name}', which is not installed"
            ) from error
        raise ConfigException(
            f"'connector.class': cannot import module '{module}' for '{name}': run from its folder or "
            f"install it; installed connectors are {_installed()}"
        ) from error
    except AttributeError as error:
        raise ConfigException(f"'connector.class': module '{module}' has no '{attribute}'") from error


def _installed() -> str:
    return ", ".join(plugin.name for plugin in plugins()) or "none"
