"""Connector configurations: Connect's flat dotted names, validated into typed, frozen models.

A configuration is written as text (``{"flush.size": "100000", …}``) and may hold references,
``${env:NAME}`` and ``${file:/path:key}`` (Connect's config providers, KIP-297). The text travels and
is stored; references are resolved where the model is made, so that secrets named by reference are
in no pickle, no store and no log.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal, Self, get_args, get_origin
from urllib.parse import quote

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, SecretStr, ValidationError
from pydantic_core import PydanticUndefined

from sinksdk.compatibility import Option, Rules, Verdict, judge, rule_for
from sinksdk.confidential import (
    HIDDEN,
    SECRETS,
    passwords_in,
    sounds_secret,
    without_passwords_in_urls,
)
from sinksdk.connect_options import CONNECT_OPTIONS
from sinksdk.converter_settings import ConverterSettings
from sinksdk.error_settings import ErrorSettings
from sinksdk.errors import ConfigException
from sinksdk.references import references, resolve_references

CONSUMER_OVERRIDES = "consumer.override."
"""What keys of the clients that read Kafka begin with."""
LONGEST_NAME: Final = 450
"""Characters of a connector's name, percent-encoded: a key of any store stays below S3's 1,024 bytes."""
_RESET_OVERRIDE = f"{CONSUMER_OVERRIDES}auto.offset.reset"


def _split(value: object) -> object:
    """Connect writes lists as ``a, b``."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


NameList = Annotated[tuple[str, ...], BeforeValidator(_split)]
"""A comma separated list of names."""


class ConnectorConfig(ErrorSettings, ConverterSettings):
    """What every connector can be told. Connectors subclass it and add their own fields.

    Fields are named in Python's way with the dotted name as alias: ``flush_size: int =
    Field(alias="flush.size", description="…")``. The description becomes the reference page.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True, hide_input_in_errors=True)

    compatibility: ClassVar[Mapping[str, Verdict]] = {}
    """What the keys of the connector that this one stands in for mean here, by name or pattern.

    Keys of Kafka Connect itself have their verdicts already; one given here goes before it. Those that
    are unsupported keep a configuration from starting.
    """

    other_defaults: ClassVar[Mapping[str, str]] = {}
    """Keys whose default is not what it is there, each with what that changes.

    Told by ``sinksdk validate`` of a file that names the other connector and leaves the key out.
    """

    _written: Mapping[str, Any] | None = PrivateAttr(default=None)
    """The text it was parsed from, references unresolved."""
    _is_changed: bool = PrivateAttr(default=False)
    """Whether it is a copy that differs from that text."""

    name: str = Field(min_length=1, description="Name of the connector; its state is kept under it.")
    connector_class: str = Field(
        default="",
        alias="connector.class",
        description="An entry point's name, or module:Class of a connector.",
    )
    tasks_max: int = Field(
        default=1, ge=1, alias="tasks.max", description="Most tasks a generation is divided into."
    )
    topics: NameList = Field(default=(), description="Topics to read, separated by commas.")
    topics_regex: str | None = Field(
        default=None,
        alias="topics.regex",
        description="Topics to read, as a regular expression that matches the whole name.",
    )
    offset_flush_interval_ms: int = Field(
        default=60_000,
        ge=1,
        alias="offset.flush.interval.ms",
        description="Milliseconds between periodic commits within a generation.",
    )
    generation_max_records: int = Field(
        default=50_000_000,
        ge=1,
        alias="generation.max.records",
        description="Most records (by offsets) one task reads in one generation; a larger backlog is "
        "cut into several.",
    )
    closing_poll_ms: int | None = Field(
        default=None,
        ge=10,
        alias="closing.poll.ms",
        description="Milliseconds between a running task's looks whether it shall close, give or take a "
        "fifth. By default 500 with a store in SQLite, 1,000 in PostgreSQL, 5,000 on S3.",
    )
    poll_interval_ms: int = Field(
        default=1_000,
        ge=10,
        alias="poll.interval.ms",
        description="Milliseconds between the driver's looks for new records while there is nothing to do.",
    )
    graceful_timeout_ms: int = Field(
        default=60_000,
        ge=0,
        alias="task.shutdown.graceful.timeout.ms",
        description="Milliseconds a generation that was asked to close may take to flush and commit; "
        "then its Spark job is cancelled. (Connect's 5,000 is too short for uploads.)",
    )
    connector_shutdown_timeout_ms: int = Field(
        default=5_000,
        ge=0,
        alias="connector.shutdown.graceful.timeout.ms",
        description="Milliseconds the connector's own `stop` may take; then it is left behind and reported.",
    )
    task_hang_timeout_ms: int = Field(
        default=300_000,
        ge=0,
        alias="task.hang.timeout.ms",
        description="Milliseconds a task's own code (`put`, `pre_commit`, ...) may take without coming back; "
        "then it is reported, the other tasks close, the job is cancelled, and its partitions are opened "
        "again. Kafka's `max.poll.interval.ms`. 0: for ever.",
    )
    connector_start_timeout_ms: int = Field(
        default=300_000,
        ge=0,
        alias="connector.start.timeout.ms",
        description="Milliseconds the connector's own `start`, `subscribed` or `task_configs` may take; then "
        "it is left behind, and the connector is FAILED.",
    )
    restart_max_attempts: int = Field(
        default=5,
        ge=0,
        alias="restart.max.attempts",
        description="How often a failed partition is opened again before the connector is FAILED: in a row, "
        "or within `restart.window.ms`.",
    )
    restart_backoff_ms: int = Field(
        default=1_000,
        ge=0,
        alias="restart.backoff.ms",
        description="Milliseconds before a failed partition is opened again, give or take a fifth; doubles "
        "with each attempt.",
    )
    restart_backoff_max_ms: int = Field(
        default=60_000,
        ge=0,
        alias="restart.backoff.max.ms",
        description="Milliseconds that `restart.backoff.ms` grows to at most.",
    )
    restart_window_ms: int = Field(
        default=600_000,
        ge=0,
        alias="restart.window.ms",
        description="Milliseconds for which a failure counts, though the partition did well in between. With "
        "0 only failures in a row count.",
    )
    missing_topic_policy: Literal["fail", "wait"] = Field(
        default="fail",
        alias="missing.topic.policy",
        description="When a subscribed topic is not there, or was deleted and created again: `fail` the "
        "connector, once the others are committed, or `wait` for it and go on with the others.",
    )
    missing_topic_grace_ms: int = Field(
        default=10_000,
        ge=0,
        alias="missing.topic.grace.ms",
        description="Milliseconds for which a topic must be missing, and be looked for again, until it is "
        "taken for missing: what a broker says right after a topic's creation may be older than the topic.",
    )
    on_data_loss: Literal["fail", "skip"] = Field(
        default="fail",
        alias="on.data.loss",
        description="When the source no longer has what follows the commit: `fail`, or `skip` to the "
        "first record there is (logged and counted).",
    )

    auto_offset_reset: Literal["earliest", "latest", "none"] = Field(
        default="earliest",
        alias="auto.offset.reset",
        description="Where a connector that has never committed anything begins: at the first record there "
        "is, at the end, or (`none`) not at all. `consumer.override.auto.offset.reset` is the same. "
        "Partitions that come later begin at their first record.",
    )
    offset_source: Literal["store", "group"] = Field(
        default="store",
        alias="offset.source",
        description="`group`: a connector that has never committed anything begins where its Kafka consumer "
        "group stands (`connect-<name>`, or `consumer.override.group.id`): to move from Kafka Connect.",
    )
    offset_mirror: bool = Field(
        default=True,
        alias="offset.mirror",
        description="With Kafka: write each commit's offsets to the consumer group as well, where Kafka's "
        "tools look for the lag. The store stays the truth.",
    )

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Self:
        """Resolve references and validate. ``raw`` has dotted names, values as text or JSON scalars.

        Raises:
            ConfigException: with every problem at once, none of them echoing a value.
        """
        config, problems = cls.check(raw)
        SECRETS.add(cls.secrets(raw))  # whoever parses it is going to run with it
        if config is None:
            raise ConfigException(problems)
        return config

    @classmethod
    def check(cls, raw: Mapping[str, Any]) -> tuple[Self | None, list[str]]:
        """The model, or None and every problem found, each a sentence that names its key."""
        resolved, unresolved = _resolve(raw)
        options = cls._judge(resolved)
        problems = [unresolved[key] for key, verdict in options if key in unresolved and verdict.is_heeded]
        problems += [option.sentence for option in options if not option.is_supported]
        heeded = {key: resolved[key] for key, verdict in options if verdict.is_heeded}
        if _RESET_OVERRIDE in heeded:  # Connect has it among the consumer's properties only
            heeded.setdefault("auto.offset.reset", heeded[_RESET_OVERRIDE])
        try:
            config = cls.model_validate(heeded, by_alias=True, by_name=False)
        except ValidationError as error:
            problems += [_sentence(cls, detail) for detail in error.errors()]
            return None, problems + cls._problems_besides(heeded, error)
        config._written = dict(raw)  # noqa: SLF001 - of this very class
        problems += config.problems()
        return (None, problems) if problems else (config, [])

    @classmethod
    def secrets(cls, raw: Mapping[str, Any]) -> dict[str, str]:
        """Values that no message may quote, each with what is said instead.

        What a reference stands for is told as the reference; a secret that is written out (by its field's
        type, its key's name or its place in a URL) as asterisks.
        """
        written = {key: text for key, text in raw.items() if isinstance(text, str)}
        secret = cls.secret_keys()
        found = {}
        for key, text in written.items():
            found.update(dict.fromkeys(passwords_in(text), HIDDEN))
            if (key in secret or sounds_secret(key)) and not references(text):
                found[text] = HIDDEN
        for reference in {one for text in written.values() for one in references(text)}:
            try:
                found[resolve_references(reference)] = reference
            except ConfigException:
                continue  # there is nothing to tell
        return found

    @classmethod
    def secret_keys(cls) -> frozenset[str]:
        """Dotted names of the fields that are declared as secrets."""
        return frozenset(key.name for key in cls.reference() if key.type == "secret")

    @classmethod
    def judge(cls, raw: Mapping[str, Any]) -> list[Option]:
        """What becomes of each key of a configuration, in its order."""
        return cls._judge(_resolve(raw)[0])

    @classmethod
    def _judge(cls, resolved: Mapping[str, Any]) -> list[Option]:
        return judge(resolved, cls._rules(), cls.keys())

    @classmethod
    def _rules(cls) -> tuple[Rules, Rules]:
        return cls.compatibility, CONNECT_OPTIONS

    @classmethod
    def _problems_besides(cls, resolved: Mapping[str, Any], error: ValidationError) -> list[str]:
        """Problems between fields, found although some fields are wrong: between the others, that is."""
        wrong = {str(detail["loc"][0]) for detail in error.errors() if detail["loc"]}
        rest = {key: value for key, value in resolved.items() if key not in wrong}
        for name, field in cls.model_fields.items():
            if field.is_required():
                rest.setdefault(field.alias or name, "1")  # something that any text or number may be
        try:
            found = cls.model_validate(rest, by_alias=True, by_name=False).problems()
        except ValidationError:
            return []
        return [problem for problem in found if not any(f"'{key}'" in problem for key in wrong)]

    def problems(self) -> list[str]:
        """Problems between fields; a subclass adds its own to what ``super()`` finds. No I/O."""
        found = []
        if any(unicodedata.category(character) == "Cc" for character in self.name):
            found.append("'name' must have no control characters")
        if self.name in (".", ".."):
            found.append(f"'name' must not be '{self.name}': no path of the REST interface could name it")
        if len(quote(self.name, safe="")) > LONGEST_NAME:
            found.append(
                f"'name' is too long: at most {LONGEST_NAME} characters, of which one that is not ASCII "
                f"counts for six or more"
            )
        if bool(self.topics) == bool(self.topics_regex):
            found.append("exactly one of 'topics' and 'topics.regex' must be set")
        if self.topics_regex:
            try:
                re.compile(self.topics_regex)
            except re.error as error:
                found.append(f"'topics.regex' is no regular expression: {error}")
        found += self.converter_problems()
        found += self.dead_letter_problems(self.topics, self.topics_regex)
        return found

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """As it was written, where with a reference: what that stands for may be a secret. No passwords."""
        keys = {field: key for key, field in self.keys().items()}
        for name, value in super().__repr_args__():
            written = (self._written or {}).get(keys.get(name or "", ""))
            shown = written if isinstance(written, str) and references(written) else value
            yield name, without_passwords_in_urls(shown) if isinstance(shown, str) else shown

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy, with some fields replaced by name. Such a copy cannot be pickled."""
        copy = super().model_copy(update=update, deep=deep)
        copy._is_changed = self._is_changed or bool(update)  # noqa: SLF001 - of this very class
        return copy

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickle holds the text: references travel and are resolved again where it is opened."""
        if self._written is None or self._is_changed:
            message = (
                f"this {type(self).__name__} cannot be pickled: it was made or changed in Python, and "
                f"secrets must not travel; send the configuration's text and parse it where it is needed"
            )
            raise TypeError(message)
        return type(self).parse, (dict(self._written),)

    def keep_secrets(self) -> None:
        """From now on no message, stack trace or log line of this process quotes a secret of it."""
        SECRETS.add(self.secrets(self._written or {}))

    def overrides(self, prefix: str) -> dict[str, str]:
        """Properties for Kafka clients: keys that begin so, less the prefix, references resolved.

        Raises:
            ConfigException: a reference cannot be resolved.
        """
        written = self._written or {}
        return {
            key.removeprefix(prefix): resolve_references(str(value))
            for key, value in written.items()
            if key.startswith(prefix)
        }

    @classmethod
    def keys(cls) -> dict[str, str]:
        """Dotted name of each key and the field that holds it."""
        return {field.alias or name: name for name, field in cls.model_fields.items()}

    @classmethod
    def reference(cls) -> Iterator[ConfigKey]:
        """Every key that has an effect, with type, default and meaning, the connector's own first."""
        rules = cls._rules()
        places = {name: place for place, name in enumerate(_common_fields(), 1)}
        ordered = sorted(cls.model_fields.items(), key=lambda item: places.get(item[0], 0))
        for name, field in ordered:
            rule = rule_for(field.alias or name, *rules)
            if field.exclude or (rule is not None and not rule.is_heeded):
                continue
            yield ConfigKey(
                name=field.alias or name,
                type=_type_name(field.annotation),
                default="" if field.default is PydanticUndefined else _text(field.default),
                required=field.is_required(),
                meaning=field.description or "",
            )


class ConfigKey(BaseModel):
    """One row of a connector's configuration reference."""

    name: str
    type: str
    default: str
    required: bool
    meaning: str


def _common_fields() -> list[str]:
    """Fields of every connector: what it is and reads before its converters and errors."""
    names = list(ConnectorConfig.model_fields)
    return sorted(names, key=lambda name: name not in ConnectorConfig.__annotations__)


def _resolve(raw: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Values with their references replaced, and by key what is wrong with references that cannot be."""
    problems: dict[str, str] = {}

    def replace(key: str, value: object) -> object:
        if not isinstance(value, str):
            return value
        try:
            return resolve_references(value)
        except ConfigException as error:
            problems[key] = f"'{key}': {error}"
            return value

    return {key: replace(key, value) for key, value in raw.items()}, problems


def _sentence(cls: type[ConnectorConfig], detail: Any) -> str:
    path: Sequence[Any] = detail["loc"]
    name = str(path[0]) if path else "configuration"
    field = cls.model_fields.get(name)
    key = (field.alias if field else None) or name
    if detail["type"] == "missing":
        return f"'{key}' is required and not set"
    return f"'{key}': {detail['msg'][0].lower()}{detail['msg'][1:]}"


def _type_name(annotation: Any) -> str:
    """A type as an operator would call it."""
    if get_origin(annotation) is Literal:
        return " | ".join(str(choice) for choice in get_args(annotation) if choice != "")
    if get_origin(annotation) is Annotated:
        return _type_name(get_args(annotation)[0])
    arguments = [argument for argument in get_args(annotation) if argument is not type(None)]
    if arguments and get_origin(annotation) is not tuple:
        return _type_name(arguments[0])
    names = {int: "integer", float: "number", bool: "boolean", str: "text", SecretStr: "secret"}
    return names.get(annotation, "list" if get_origin(annotation) is tuple else "text")


def _text(default: Any) -> str:
    if default is None or default == ():
        return ""
    if isinstance(default, bool):
        return str(default).lower()
    return str(default)
