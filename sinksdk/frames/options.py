"""The options of ``df.write.format("sinksdk")``: a connector's keys, the store and the topic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from sinksdk.compatibility import Meaning
from sinksdk.config import ConnectorConfig
from sinksdk.connector import SinkConnector
from sinksdk.engine.encoding import becoming_bytes
from sinksdk.errors import ConfigException
from sinksdk.offsets import is_topic_name
from sinksdk.plugins.checks import check_config, collecting, load_class
from sinksdk.settings.connect_options import CONNECT_OPTIONS
from sinksdk.settings.references import ALL_PROVIDERS
from sinksdk.source.connector import SourceConnector
from sinksdk.store import absolute_store_url
from sinksdk.transforms.parts import Part

CLASS: Final = "connector.class"
STORE: Final = "store"
TOPIC: Final = "topic"

# Spark passes its own options to every data source.
_OF_SPARK: Final = frozenset({"checkpointlocation", "queryname"})
_FORMAT: Final = 'df.write.format("sinksdk")'


@dataclass(frozen=True, slots=True)
class FrameOptions:
    """Checked options; references in ``raw`` and ``store_url`` are unresolved."""

    raw: Mapping[str, str]
    store_url: str
    topic: str
    config: ConnectorConfig

    @property
    def as_bytes(self) -> Mapping[Part, str]:
        """Return the parts (key, value) that become bytes, with the reason."""
        takes_bytes = _sink(self.raw[CLASS]).task_class.takes_bytes
        return becoming_bytes(self.config, takes_bytes=takes_bytes)


def read_options(options: Mapping[str, str]) -> FrameOptions:
    # Spark passes keys in lower case.
    given = {key.lower(): value for key, value in options.items() if key.lower() not in _OF_SPARK}
    own, problems = {key: given.pop(key, "") for key in (CLASS, STORE, TOPIC)}, list[str]()
    problems += [f"option '{key}' is required and not set: {_MISSING[key]}" for key in own if not own[key]]
    store_url = own[STORE]
    if store_url:
        with collecting(problems):
            store_url = absolute_store_url(store_url)
    if own[TOPIC] and not is_topic_name(own[TOPIC]):
        problems.append(
            f"option '{TOPIC}': '{own[TOPIC]}' is not a valid topic name: use at most 249 letters, digits, "
            f"'.', '_' and '-'"
        )
    if not own[CLASS]:
        raise ConfigException(problems)
    problems += _refused(given)
    sink = _sink(own[CLASS])
    raw = {**_declared(given, sink), CLASS: own[CLASS], "topics": own[TOPIC] or TOPIC}
    checked = check_config(raw, ALL_PROVIDERS)
    problems += checked.problems
    for option in checked.having(Meaning.UNKNOWN):
        nearest = f"; {option.verdict.why}" if option.verdict.why else ""
        problems.append(f"option '{option.key}' is not known to {own[CLASS]}{nearest}")
    if problems or not isinstance(checked.config, ConnectorConfig):
        raise ConfigException(problems)
    return FrameOptions(checked.raw, store_url, own[TOPIC], checked.config)


_MISSING: Final = {
    CLASS: f"name the sink, as in {_FORMAT}.option('{CLASS}', 's3-archiver')",
    STORE: "offsets are stored there; use sqlite:///FILE, postgresql://… or s3://BUCKET/PREFIX",
    TOPIC: "rows become records of a topic; use any name that Kafka allows",
}


def _refused(given: dict[str, str]) -> Iterator[str]:
    for key, instead in (
        ("path", "call save() or start() without a path; the sink's own keys name its destination"),
        ("topics", "name the topic of the rows with 'topic'"),
        ("topics.regex", "name the topic of the rows with 'topic'"),
        ("records.sql", "transform the DataFrame before the write"),
        ("records.transform", "transform the DataFrame before the write"),
        ("transforms", "transform the DataFrame before the write"),
    ):
        if given.pop(key, None) is not None:
            yield f"option '{key}' cannot be used with {_FORMAT}: {instead}"


def _sink(name: str) -> type[SinkConnector]:
    found = load_class(name)
    if issubclass(found, SourceConnector):
        raise ConfigException(f"'{CLASS}': {name} is a source, but a DataFrame is written by a sink")
    return found


def _declared(given: Mapping[str, str], sink: type[SinkConnector]) -> dict[str, str]:
    # Only declared keys regain their case; entries of a map do not.
    model = sink.config_class
    known = {key.lower(): key for key in (*CONNECT_OPTIONS, *model.compatibility, *model.keys())}
    maps = {key.lower(): key for key, kind in model.multi_valued().items() if kind == "map"}

    def declared(key: str) -> str:
        of = max((name for name in maps if key.startswith(f"{name}.")), key=len, default="")
        return known.get(key) or maps.get(of, "") + key[len(of) :]

    return {declared(key): value for key, value in given.items()}
