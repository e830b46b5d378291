"""Write the generated parts of these pages in place: ``python docs/generate.py``.

A part stands between two comments, ``<!-- generated: NAME -->`` and ``<!-- end -->``. Everything else
on a page is written by hand and left alone. Running it twice changes nothing.
"""
# ruff: noqa: INP001 - a script beside the pages it writes

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import itertools
import json
import re
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import sinksdk
import sinksdk.source
from examples import exactly_once_folder_sink, folder_sink, webhook_sink
from examples.upsert_sink import UpsertTask
from sinksdk import (
    ClosingReason,
    ConnectorConfig,
    ConnectorContext,
    Meaning,
    SinkConnector,
    SinkRecords,
    SinkTask,
    SinkTaskContext,
    Verdict,
    testing,
)
from sinksdk.cli.output import ExitCode
from sinksdk.config import ConfigKey
from sinksdk.connectors.s3_archiver.compatibility.verdicts import AIVEN, CONFLUENT_CLOUD, LENSES
from sinksdk.connectors.s3_archiver.config import S3ArchiverConfig
from sinksdk.connectors.s3_archiver.formats.schema import RECORD_SCHEMA
from sinksdk.metrics.connect import CONNECT_METRICS
from sinksdk.metrics.metric import Metric
from sinksdk.metrics.own import OWN_METRICS
from sinksdk.model.measures import Phase
from sinksdk.records import RECORD_COLUMNS
from sinksdk.settings.connect_options import CONNECT_OPTIONS
from sinksdk.settings.converter_keys import CONVERTER_KEYS
from sinksdk.settings.model import HOOKS, ConfigModel, reserved_names
from sinksdk.source import (
    OffsetStorageReader,
    SourceConnector,
    SourceConnectorConfig,
    SourceTask,
    SourceTaskContext,
    TransactionContext,
)
from sinksdk.source import records as source_records
from sinksdk.source.config import SOURCE_OPTIONS
from sinksdk.testing import (
    Capabilities,
    FaultKind,
    FaultPlan,
    Guarantee,
    SinkTaskHarness,
    SourceCapabilities,
    Trial,
)
from sinksdk.testing.contract import Subject
from sinksdk.testing.source_kit.subject import SourceSubject
from sinksdk.testing.source_kit.trial import STEPS as SOURCE_STEPS
from sinksdk.testing.source_kit.trial import Event, SourceTrial
from sinksdk.testing.trial import STEPS
from sinksdk.transforms.headers import TombstoneHandler
from sinksdk.transforms.plugins import KEY_OR_VALUE_TRANSFORMS, PREDICATES, RECORD_TRANSFORMS
from tests.project.test_imports import ARCHIVER_FLOORS, FLOORS

DOCS: Final = Path(__file__).parent
TWO_PHASES: Final = ("begin", "pre_commit", "publish", "discard")
_PART: Final = re.compile(r"(<!-- generated: (?P<name>[a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_ENUM_MEMBER: Final = re.compile(r"<(\w+\.\w+): [^>]*>")
_SPHINX_ROLE: Final = re.compile(r":[a-z]+:`~?(?:[\w.]*\.)?(\w+)`")


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |" for line in lines)


def listed(rows: Iterable[Sequence[str]]) -> str:
    """Return names with what they are, as a list like those of keys and metrics."""
    return "\n".join(f"- {name}: {text}" for name, text in rows)


def sentence(thing: object) -> str:
    """Return the first paragraph of a docstring, as Markdown."""
    return as_markdown((inspect.getdoc(thing) or "").partition("\n\n")[0])


def as_markdown(text: str) -> str:
    """Return a docstring's text on one line, with roles and double backticks as plain code."""
    return _SPHINX_ROLE.sub(r"`\1`", " ".join(text.split())).replace("``", "`").removesuffix("::")


def attribute_docs(thing: type | ModuleType) -> Iterator[tuple[str, str]]:
    """Yield attributes of a class, or names of a module, with the docstrings below them."""
    body = ast.parse(textwrap.dedent(inspect.getsource(thing))).body
    if isinstance(body[0], ast.ClassDef) and isinstance(thing, type):
        body = body[0].body
    for node, below in itertools.pairwise(body):
        match node, below:
            case (
                ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                yield name, as_markdown(text)


# -- configuration -------------------------------------------------------------------------------------


def config_keys(found: Iterable[ConfigKey]) -> str:
    keys = list(found)
    twins = {(key.name, key.type, key.default, key.meaning) for key in keys}
    # Keys of `key.converter` are those of `value.converter`.
    return "\n".join(
        _key_line(key)
        for key in keys
        if not key.name.startswith("key.converter")
        or (
            key.name.replace("key.", "value.", 1),
            key.type,
            key.default,
            key.meaning.replace("keys", "values"),
        )
        not in twins
    )


def _key_line(key: ConfigKey) -> str:
    options = [option for option in key.type.split(" | ") if option]
    kind = key.type if len(options) == 1 else " or ".join(f"`{option}`" for option in options)
    default = "**required**" if key.required else f"default `{key.default}`" if key.default else ""
    return f"- `{key.name}` ({', '.join(filter(None, [kind, default]))}): {key.meaning}"


def common_keys() -> str:
    return config_keys(ConnectorConfig.reference())


def source_keys() -> str:
    """Return the keys of all sources that sinks lack, or that have another meaning there."""
    common = list(ConnectorConfig.reference())
    return config_keys(key for key in SourceConnectorConfig.reference() if key not in common)


def reserved() -> str:
    """Return the names of :class:`ConfigModel` that may be overridden, and the others."""
    owners = {**reserved_names(SourceConnectorConfig), **reserved_names(ConnectorConfig)}
    attributes = dict(attribute_docs(ConfigModel))
    hooks = table(
        ("name to override", "what it is"),
        (
            (f"`{name}`", attributes.get(name) or sentence(inspect.getattr_static(owners[name], name)))
            for name in sorted(HOOKS)
        ),
    )
    return f"{hooks}\n\nTaken: {', '.join(f'`{name}`' for name in sorted(owners.keys() - set(HOOKS)))}."


def own_keys(config: type[ConnectorConfig]) -> Iterator[ConfigKey]:
    """Return the keys that a sink has besides the common ones, or with another meaning."""
    common = list(ConnectorConfig.reference())
    return (key for key in config.reference() if key not in common)


# -- what keys of others mean here ----------------------------------------------------------------------


def meanings() -> str:
    return listed((Meaning[name].value, text) for name, text in attribute_docs(Meaning))


def verdicts(rules: Mapping[str, Verdict], prefix: str = "") -> str:
    """Return the keys by meaning, without ``prefix``; of those that differ, with the difference."""
    groups: dict[Meaning, dict[str, dict[str, list[str]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for key, rule in rules.items():
        if not _is_twin(key, rules):
            for value, verdict in _cases(rule):
                why = as_cell(verdict.why) if verdict.meaning is Meaning.DIFFERS else ""
                groups[verdict.meaning][why][key.removeprefix(prefix)].append(value)
    differing = ((_keys(keys), why) for why, keys in groups[Meaning.DIFFERS].items())
    lists = (
        f"**{meaning.capitalize()}:** {_keys(groups[meaning][''])}."
        for meaning in (Meaning.UNSUPPORTED, Meaning.IGNORED, Meaning.SAME)
    )
    return "\n\n".join((table(("differs", "difference"), differing), *lists))


_PACKAGES: Final = ("io.confluent.", "?*.")


def _is_twin(key: str, rules: Mapping[str, Verdict]) -> bool:
    """Whether a key of ``key.converter`` has the verdict of its twin of ``value.converter``."""
    twin = key.replace("key.converter", "value.converter", 1)
    text = repr(rules[key]).replace("key.converter", "value.converter")
    return key.startswith("key.converter") and twin in rules and text == repr(rules[twin])


def _cases(verdict: Verdict) -> Iterator[tuple[str, Verdict]]:
    for value, special in verdict.cases.items():
        is_packaged = value.startswith(_PACKAGES) and value.endswith(tuple({*verdict.cases} - {value, ""}))
        is_spelling = value != value.lower() and value.lower() in verdict.cases
        if not (is_packaged or is_spelling or value.startswith("*$")):  # a short name says the same
            yield f"`{value}`" if value else "empty", special
    yield "else" if verdict.cases else "", verdict


def _keys(values_of: Mapping[str, Sequence[str]]) -> str:
    return ", ".join(itertools.starmap(_key, values_of.items()))


def _key(key: str, values: Sequence[str]) -> str:
    if "else" in values:
        return f"`{key}` (other values)"
    return f"`{key}` = {' or '.join(values)}" if any(values) else f"`{key}`"


def as_cell(text: str) -> str:
    """Return a sentence of a verdict as Markdown: quoted keys become code."""
    return re.sub(r"(?<!\w)'([^' ][^']*)'(?!\w)", r"`\1`", text)


def transforms(classes: Iterable[Any]) -> str:
    """Return Kafka's transforms or predicates: what each does, and its keys."""
    return table(("type", "what it does", "keys"), map(_transform_row, classes))


def _transform_row(cls: Any) -> tuple[str, str, str]:
    name = cls.__name__
    of_both = cls in KEY_OR_VALUE_TRANSFORMS
    types = ", ".join(f"`{name}${part}`" for part in ("Key", "Value")) if of_both else f"`{name}`"
    fields = [ConfigKey.of_field(*field) for field in cls.keys_class.model_fields.items()]
    keys = [_transform_key(key) for key in fields if key.name != "replace.null.with.default"]
    return types, sentence(cls), "<br>".join(keys)


def _transform_key(key: ConfigKey) -> str:
    default = " (required)" if key.required else f" (`{key.default}`)" if key.default else ""
    return f"`{key.name}`{default}: {key.meaning}"


def other_defaults() -> str:
    rows = ((f"`{key}`", as_cell(text)) for key, text in S3ArchiverConfig.other_defaults.items())
    return table(("key", "what changes where it is not set"), rows)


def confluents() -> Mapping[str, Verdict]:
    others = {*AIVEN, *LENSES, *CONFLUENT_CLOUD}
    return {key: verdict for key, verdict in S3ArchiverConfig.compatibility.items() if key not in others}


# -- running -------------------------------------------------------------------------------------------


def exit_codes() -> str:
    rows = ((str(ExitCode[name].value), f"`{name}`", text) for name, text in attribute_docs(ExitCode))
    return table(("code", "name", "meaning"), rows)


def closing_reasons() -> str:
    return listed((f"`{name}`", text) for name, text in attribute_docs(ClosingReason))


# -- metrics -------------------------------------------------------------------------------------------

_STARTS = "Starts are counted by no record of the store; a connector that cannot start has `status` failed."
_GROUP = "There is no worker group. `sinksdk_connector_generation` counts reassignments."
_RATIO = "Use the average of `status` over time; a paused task has ended."
_RATE = "Use `rate()` of the total."
_LATE = "A commit waits for its response: it never completes late."

LEFT_OUT: Final[Mapping[tuple[str, str], str]] = {
    **{
        ("connect-worker-metrics", f"{what}-startup-{count}"): _STARTS
        for what in ("connector", "task")
        for count in (
            *("attempts-total", "success-total", "success-percentage"),
            *("failure-total", "failure-percentage"),
        )
    },
    (
        "connect-worker-metrics",
        "connector-destroyed-task-count",
    ): "A task that is gone leaves nothing to count.",
    **{
        ("connect-worker-rebalance-metrics", attribute): _GROUP
        for attribute in (
            *("completed-rebalances-total", "connect-protocol", "epoch", "leader-name"),
            *("rebalance-avg-time-ms", "rebalance-max-time-ms", "rebalancing"),
            "time-since-last-rebalance-ms",
        )
    },
    (
        "connector-metrics",
        "connector-version",
    ): "The server does not load the class. `GET /connector-plugins` has it.",
    ("connector-task-metrics", "running-ratio"): _RATIO,
    ("connector-task-metrics", "pause-ratio"): _RATIO,
    ("sink-task-metrics", "sink-record-send-rate"): _RATE,
    ("sink-task-metrics", "offset-commit-completion-rate"): _RATE,
    ("sink-task-metrics", "offset-commit-skip-rate"): _LATE,
    ("sink-task-metrics", "offset-commit-skip-total"): _LATE,
    ("source-task-metrics", "source-record-poll-rate"): _RATE,
}
"""Connect's metrics that sinksdk does not have, and why."""


def metrics(found: Iterable[Metric[Any]]) -> str:
    """Return the metrics with their type and meaning, by labels."""
    by_labels = itertools.groupby(
        sorted(found, key=lambda metric: metric.labels), lambda metric: metric.labels
    )
    return "\n\n".join(
        f"{_labels(labels)}\n\n"
        + "\n".join(f"- `{metric.prometheus_name}` ({metric.kind}): {metric.description}" for metric in same)
        for labels, same in by_labels
    )


def _labels(labels: Sequence[str]) -> str:
    return f"Labels {', '.join(f'`{label}`' for label in labels)}:" if labels else "No labels:"


def metric_names(found: Iterable[Metric[Any]]) -> str:
    """Return the names of Connect's metrics by group and labels."""
    lines = []
    for (group, labels), same in itertools.groupby(found, key=lambda metric: (metric.group, metric.labels)):
        prefix = f"kafka_connect_{group.replace('-', '_')}_"
        names = ", ".join(f"`{metric.prometheus_name.removeprefix(prefix)}`" for metric in same)
        lines.append(f"- `{prefix}…`, {_labels(labels).lower()} {names}")
    return "\n".join(lines)


def metrics_left_out() -> str:
    by_reason: dict[str, list[str]] = defaultdict(list)
    for (_, attribute), reason in LEFT_OUT.items():
        by_reason[reason].append(f"`{attribute}`")
    return "\n".join(f"- {', '.join(names)}: {reason}" for reason, names in by_reason.items())


def phases() -> str:
    return "\n".join(f"- `{Phase[name].value}`: {text}" for name, text in attribute_docs(Phase))


# -- the author's names --------------------------------------------------------------------------------


def public_names() -> str:
    return names_of(sinksdk)


def names_of(module: ModuleType) -> str:
    aliases = dict(attribute_docs(source_records))
    rows = ((f"`{name}`", aliases.get(name) or sentence(getattr(module, name))) for name in module.__all__)
    return table(("name", "what it is"), rows)


def methods(*classes: type) -> str:
    """Return the public methods and properties of a class and of its bases, each once."""
    found: dict[str, tuple[str, str]] = {}
    for cls in classes:
        for name, member in vars(cls).items():
            if _is_documented(name, member):
                found.setdefault(name, (f"`{_signature(name, member)}`", sentence(getattr(cls, name))))
    return listed(found.values())


def _is_documented(name: str, member: Any) -> bool:
    is_method = callable(member) or isinstance(member, property | classmethod)
    return is_method and not isinstance(member, type) and not name.startswith("_")


def _signature(name: str, member: Any) -> str:
    if isinstance(member, property):
        return name
    parameters = list(inspect.signature(getattr(member, "__func__", member)).parameters.values())[1:]
    shown = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters]
    return _ENUM_MEMBER.sub(r"\1", f"{name}{inspect.Signature(shown)}")


# -- the test kit --------------------------------------------------------------------------------------


def capabilities(declared: type) -> str:
    found = re.findall(r"^    (\w+): (.*?)(?=^    \w+: |\Z)", _arguments(declared), re.DOTALL | re.MULTILINE)
    defaults = {field.name: field for field in dataclasses.fields(declared)}
    return listed(
        (f"`{name}` (default `{defaults[name].default}`)", as_markdown(text)) for name, text in found
    )


def _arguments(thing: Any) -> str:
    return (inspect.getdoc(thing) or "").partition("Args:\n")[2]


def options(check: Callable[..., Any], typed: type, subject: type) -> str:
    """Return the options of a function of the kit: its own parameters, and those shared with others."""
    defaults = {field.name: _default_of(field) for field in dataclasses.fields(subject)}
    own = inspect.signature(inspect.unwrap(check), follow_wrapped=False).parameters
    defaults |= {name: parameter.default for name, parameter in own.items()}
    texts = dict(_described(check, *own) | _described(typed, *inspect.get_annotations(typed)))
    names = [*(name for name in own if name != "options"), *inspect.get_annotations(typed)]
    return table(
        ("option", "default", "meaning", "use it"),
        ((f"`{name}`", _shown(defaults[name]), *_use_of(texts[name])) for name in names),
    )


def _described(thing: Any, *names: str) -> Mapping[str, str]:
    arguments = _arguments(thing).partition("\n\n")[0]
    found = re.split(rf"^    ({'|'.join(names)}): ", arguments, flags=re.MULTILINE)[1:]
    return dict(zip(found[::2], map(as_markdown, found[1::2]), strict=True))


def _use_of(text: str) -> tuple[str, str]:
    meaning, _, use = text.partition(" Use it")
    return meaning, use.lstrip(", ") or "always"


def _default_of(field: dataclasses.Field[Any]) -> object:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _shown(default: object) -> str:
    if default in (dataclasses.MISSING, inspect.Parameter.empty):
        return "**required**"
    if isinstance(default, Capabilities | SourceCapabilities):
        return f"`{type(default).__name__}()`"
    if isinstance(default, tuple) and default:
        return ", ".join(f"`{item}`" for item in default)
    return f"`{getattr(default, '__name__', repr(default))}`"


def members(enum: type) -> str:
    return listed((f"`{enum.__name__}.{name}`", text) for name, text in attribute_docs(enum))


def steps(trial: type, names: Iterable[str]) -> str:
    return listed(
        (f"`{_signature(name, getattr(trial, name))}`", sentence(getattr(trial, name))) for name in names
    )


def source(*things: type | Callable[..., Any]) -> str:
    """Return the source of an example's classes, or of some of their methods."""
    return python(textwrap.dedent(inspect.getsource(thing)) for thing in things)


def arguments(thing: type) -> str:
    found = inspect.signature(thing).parameters
    texts = _described(thing, *found)
    return listed(
        (f"`{name}` ({_shown(parameter.default)})", texts[name]) for name, parameter in found.items()
    )


def python(parts: Iterable[str]) -> str:
    return "```python\n" + "\n\n".join(parts) + "```"


def columns() -> str:
    return table(
        ("column", "Arrow type"), ((f"`{name}`", f"`{kind}`") for name, kind in RECORD_COLUMNS.items())
    )


def avro_schema() -> str:
    """Return the schema with a line for each field."""
    fields = [
        json.dumps(field, separators=(",", ":"), ensure_ascii=False) for field in RECORD_SCHEMA["fields"]
    ]
    head = json.dumps({key: value for key, value in RECORD_SCHEMA.items() if key != "fields"})
    return "```json\n" + head[:-1] + ', "fields": [\n' + ",\n".join(fields) + "\n]}\n```"


def rooms() -> str:
    """Return the rooms of sinksdk from the top floor down, with the first sentence of each."""
    rows = [
        (f"`{room}{'' if hasattr(module, '__path__') else '.py'}`", sentence(module))
        for names in reversed(FLOORS)
        for room in names
        if not room.startswith("__")
        for module in [importlib.import_module(f"sinksdk.{room}")]
    ]
    return listed(rows)


def floors(plans: Mapping[str, Sequence[Sequence[str]]]) -> str:
    """Return the floors of folders next to each other, with the ground floor at the bottom."""
    columns = []
    for folder, plan in plans.items():
        rooms = (" · ".join(room for room in floor if not room.startswith("__")) for floor in plan)
        columns.append([*filter(None, rooms), folder])
    left, right = columns
    lines = reversed([*itertools.zip_longest(left, right, fillvalue="")])
    return "```text\n" + "".join(f"{f'{a:28}{b}'.rstrip()}\n" for a, b in lines) + "```"


PARTS: Final[Mapping[str, Callable[[], str]]] = {
    "floors": lambda: floors({"sinksdk/": FLOORS, "connectors/s3_archiver/": ARCHIVER_FLOORS}),
    "rooms": rooms,
    "archiver-keys": lambda: config_keys(own_keys(S3ArchiverConfig)),
    "avro-schema": avro_schema,
    "check-sink-options": lambda: options(testing.check_sink, testing.SinkOptions, Subject),
    "check-source-options": lambda: options(testing.check_source, testing.SourceOptions, SourceSubject),
    "capabilities": lambda: capabilities(Capabilities),
    "closing-reasons": closing_reasons,
    "columns": columns,
    "common-keys": common_keys,
    "confluent-verdicts": lambda: verdicts(confluents()),
    "connect-metrics": lambda: metric_names(CONNECT_METRICS),
    "connect-verdicts": lambda: verdicts(CONNECT_OPTIONS),
    "converter-verdicts": lambda: verdicts(CONVERTER_KEYS, "value.converter."),
    "exactly-once-task": lambda: source(
        *(getattr(exactly_once_folder_sink.FolderTask, name) for name in TWO_PHASES)
    ),
    "exit-codes": exit_codes,
    "fault-plan": lambda: methods(FaultPlan),
    "faults": lambda: members(FaultKind),
    "folder-config": lambda: source(folder_sink.FolderConfig),
    "folder-connector": lambda: source(folder_sink.FolderSink),
    "folder-task": lambda: source(folder_sink.FolderTask),
    "guarantees": lambda: members(Guarantee),
    "kafka-transforms": lambda: transforms([*KEY_OR_VALUE_TRANSFORMS, *RECORD_TRANSFORMS, TombstoneHandler]),
    "kafka-predicates": lambda: transforms(PREDICATES),
    "meanings": meanings,
    "metrics-left-out": metrics_left_out,
    "other-defaults": other_defaults,
    "own-metrics": lambda: metrics(OWN_METRICS),
    "phases": phases,
    "public-names": public_names,
    "offset-storage-reader": lambda: methods(OffsetStorageReader),
    "reserved-names": reserved,
    "sink-connector": lambda: methods(SinkConnector, *SinkConnector.__bases__),
    "sink-records": lambda: methods(SinkRecords),
    "sink-task": lambda: methods(SinkTask),
    "sink-task-context": lambda: methods(SinkTaskContext),
    "sink-task-harness": lambda: methods(SinkTaskHarness),
    "sink-task-harness-arguments": lambda: arguments(SinkTaskHarness),
    "source-capabilities": lambda: capabilities(SourceCapabilities),
    "connector-context": lambda: methods(ConnectorContext),
    "source-connector": lambda: methods(SourceConnector),
    "source-keys": source_keys,
    "source-names": lambda: names_of(sinksdk.source),
    "source-events": lambda: members(Event),
    "source-steps": lambda: steps(SourceTrial, SOURCE_STEPS),
    "source-task": lambda: methods(SourceTask),
    "source-task-context": lambda: methods(SourceTaskContext),
    "source-verdicts": lambda: verdicts(SOURCE_OPTIONS),
    "steps": lambda: steps(Trial, STEPS),
    "transaction-context": lambda: methods(TransactionContext),
    "upsert-apply": lambda: source(UpsertTask.apply, UpsertTask.lock),
    "upsert-offsets": lambda: source(UpsertTask.open, UpsertTask.pre_commit),
    "webhook-put": lambda: source(webhook_sink.WebhookTask.put, webhook_sink.WebhookTask.deliver),
    "webhook-ids": lambda: source(webhook_sink.WebhookTask.events),
}
"""The generated parts by name."""


def render(page: str) -> str:
    """Return a page with its generated parts renewed. Raises KeyError for an unknown part."""
    return _PART.sub(lambda found: f"{found[1]}{PARTS[found['name']]()}\n{found[3]}", page)


def main() -> None:
    for path in DOCS.rglob("*.md"):
        before = path.read_text(encoding="utf-8")
        after = render(before)
        if after != before:
            path.write_text(after, encoding="utf-8")


if __name__ == "__main__":
    main()
