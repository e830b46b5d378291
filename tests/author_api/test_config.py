"""Configurations: dotted names, references, every problem at once, and secrets that stay secret."""

from __future__ import annotations

import copy
import functools
import pickle
import re
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import pytest
from pydantic import (
    AliasChoices,
    AliasPath,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)

from sinksdk import ConfigException, ConnectorConfig, Meaning, Verdict
from sinksdk.config import NameList
from sinksdk.settings.model import _CALLED, _MODELS, HOOKS, reserved_names, sentences
from sinksdk.settings.references import resolve_references
from sinksdk.source import SourceConnectorConfig
from sinksdk.support.hooks import HookError

MINIMAL = {"name": "archive", "topics": "flights"}


class SinkConfig(ConnectorConfig):
    """A connector's own configuration."""

    flush_size: int = Field(ge=1, alias="flush.size", description="Records per file.")
    folder: str = Field(default="topics", alias="topics.dir", description="Where files go.")
    password: SecretStr | None = Field(default=None, alias="db.password", description="Password.")
    fields: NameList = Field(default=(), alias="fields.kept", description="Fields to keep.")
    ratio: float = Field(default=0.5, le=1, alias="ratio", description="A share.")

    @field_validator("folder")
    @classmethod
    def _relative(cls, folder: str) -> str:
        if folder.startswith("/"):
            message = "must not begin with a slash"
            raise ValueError(message)
        return folder


OWN = {**MINIMAL, "flush.size": "100"}


# -- names and types ---------------------------------------------------------------------------------


def test_text_becomes_typed() -> None:
    """parse: dotted names and text, as Connect writes them, become fields with types."""
    config = SinkConfig.parse(
        {
            "name": "archive",
            "topics": " flights, 007 ,,2024-01-01",
            "flush.size": "100000",
            "errors.log.enable": "true",
            "errors.tolerance": "all",
            "ratio": "0.25",
            "fields.kept": "a,b",
        }
    )
    assert config.topics == ("flights", "007", "2024-01-01")
    assert (config.flush_size, config.errors_log_enable, config.errors_tolerance) == (100_000, True, "all")
    assert (config.ratio, config.fields) == (0.25, ("a", "b"))


def test_json_scalars_will_do() -> None:
    """parse: numbers and booleans of a JSON file are as good as their text."""
    config = SinkConfig.parse({**MINIMAL, "flush.size": 5, "errors.log.enable": False, "tasks.max": 3})
    assert (config.flush_size, config.errors_log_enable, config.tasks_max) == (5, False, 3)


def test_defaults() -> None:
    """parse: what is not set has the default its description gives."""
    config = ConnectorConfig.parse(MINIMAL)
    assert config.tasks_max == 1
    assert config.offset_flush_interval_ms == 60_000
    assert config.errors_tolerance == "none"
    assert config.errors_retry_timeout == 300_000
    assert config.graceful_timeout_ms == 60_000
    assert (config.key_converter, config.value_converter) == ("bytes", "bytes")


def test_configurations_are_frozen() -> None:
    """A configuration cannot be changed."""
    with pytest.raises(ValidationError):
        ConnectorConfig.parse(MINIMAL).name = "other"


def test_python_names_are_for_python_only() -> None:
    """parse: a file's keys are the dotted names; Python's spelling is unknown there, and has no effect, as it says."""
    raw = {**MINIMAL, "tasks_max": "7"}
    assert ConnectorConfig.parse(raw).tasks_max == 1
    assert ConnectorConfig.judge(raw)[-1].sentence.endswith("no effect; did you mean 'tasks.max'?")
    assert ConnectorConfig(name="c", topics=("t",), tasks_max=7).tasks_max == 7


# -- problems ----------------------------------------------------------------------------------------


def test_every_problem_at_once() -> None:
    """parse: every problem at once, each a sentence that names its dotted key; what is wrong is not echoed."""
    with pytest.raises(ConfigException) as caught:
        SinkConfig.parse(
            {
                "tasks.max": "many",
                "flush.size": "0",
                "errors.tolerance": "some",
                "db.password": "${env:SINKSDK_NO_SUCH_VARIABLE}",
                "topics.dir": "/etc",
            }
        )
    assert sorted(caught.value.problems) == [
        (
            "'db.password': ${env:SINKSDK_NO_SUCH_VARIABLE}: the environment variable "
            "SINKSDK_NO_SUCH_VARIABLE is not set here"
        ),
        "'errors.tolerance': input should be 'none' or 'all'",
        "'flush.size': input should be greater than or equal to 1",
        "'name' is required and not set",
        "'tasks.max': input should be a valid integer, unable to parse string as an integer",
        "'topics.dir': must not begin with a slash",
        "exactly one of 'topics' and 'topics.regex' must be set",
    ]
    assert str(caught.value) == "\n".join(caught.value.problems)


def test_a_required_key() -> None:
    """parse: a required key that is missing is named."""
    with pytest.raises(ConfigException, match=r"'flush\.size' is required and not set"):
        SinkConfig.parse(MINIMAL)


@pytest.mark.parametrize(
    "topics", [{}, {"topics": ""}, {"topics": " , "}, {"topics": "a", "topics.regex": "b"}]
)
def test_exactly_one_way_to_name_topics(topics: dict[str, str]) -> None:
    """parse: exactly one of topics and topics.regex must be set."""
    with pytest.raises(ConfigException, match=r"exactly one of 'topics' and 'topics\.regex' must be set"):
        ConnectorConfig.parse({"name": "c", **topics})


def test_a_regular_expression_that_is_none() -> None:
    """parse: topics.regex must be a regular expression."""
    with pytest.raises(ConfigException, match=r"'topics\.regex' is no regular expression"):
        ConnectorConfig.parse({"name": "c", "topics.regex": "flights-("})
    assert ConnectorConfig.parse({"name": "c", "topics.regex": "flights-.*"}).topics == ()


def test_an_empty_name() -> None:
    """parse: a connector has a name."""
    with pytest.raises(ConfigException, match="'name'"):
        ConnectorConfig.parse({"name": "", "topics": "t"})


def test_problems_between_fields_are_added() -> None:
    """problems: a subclass adds its own to those of the base, and all are told."""

    class Picky(SinkConfig):
        def problems(self) -> list[str]:
            return [*super().problems(), "'flush.size' must be even"]

    _, problems = Picky.check({"name": "c", "flush.size": "1"})
    assert problems == ["exactly one of 'topics' and 'topics.regex' must be set", "'flush.size' must be even"]


def test_a_wrong_key_is_not_said_to_be_missing() -> None:
    """parse: what a wrong key has to do with others is not judged: it is told once what is wrong with it."""
    _, problems = ConnectorConfig.check({"name": "c", "topics": 7})
    assert problems == ["'topics': input should be a valid tuple"]


def test_check_returns_what_parse_raises() -> None:
    """check: the model and no problems, or None and all of them."""
    config, problems = SinkConfig.check(OWN)
    assert (config.flush_size, problems) == (100, [])
    assert SinkConfig.check({**OWN, "tasks.max": "0"}) == (
        None,
        ["'tasks.max': input should be greater than or equal to 1"],
    )


# -- unknown keys ------------------------------------------------------------------------------------


def test_unknown_keys_do_not_matter() -> None:
    """parse: a key that nobody knows is left alone."""
    assert SinkConfig.parse({**OWN, "task.max": "2"}).tasks_max == 1


# -- references --------------------------------------------------------------------------------------


def test_references_to_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """${env:NAME}: replaced where the model is made, also inside of a text, and several times."""
    monkeypatch.setenv("TOPIC", "flights")
    monkeypatch.setenv("SIZE", "25")
    config = SinkConfig.parse(
        {"name": "c", "topics": "${env:TOPIC},${env:TOPIC}-dead", "flush.size": "${env:SIZE}"}
    )
    assert config.topics == ("flights", "flights-dead")
    assert config.flush_size == 25


def test_references_to_a_file(tmp_path: Path) -> None:
    """${file:/path:key}: the value of a line key=value of that file; blanks around it do not count."""
    file = tmp_path / "a:b.properties"
    file.write_text("# secrets\nuser = me\npassword= p=ss #1 \n\nempty=\n")
    assert resolve_references(f"${{file:{file}:user}}:${{file:{file}:password}}") == "me:p=ss #1"
    assert resolve_references(f"<${{file:{file}:empty}}>") == "<>"


@pytest.mark.parametrize("text", ["", "plain", "$", "${", "${}", "${other:x}", "$env:HOME", "${env:HOME"])
def test_what_is_no_reference_stays(text: str) -> None:
    """References: anything else is plain text."""
    assert resolve_references(text) == text


def test_what_a_reference_gives_is_not_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    """References: a value that looks like a reference is not resolved again."""
    monkeypatch.setenv("ONE", "${env:TWO}")
    assert resolve_references("${env:ONE}") == "${env:TWO}"


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        (
            "${env:SINKSDK_NO_SUCH_VARIABLE}",
            "the environment variable SINKSDK_NO_SUCH_VARIABLE is not set here",
        ),
        ("${file:{folder}/none:key}", "No such file or directory"),
        ("${file:{folder}:key}", "Is a directory"),
        ("${file:{folder}/secrets:other}", "the file has no line 'other=…'"),
        ("${file:{folder}/bytes:key}", "is no UTF-8 text"),
        ("${file:/no/key}", "must name a file and a key"),
    ],
)
def test_references_that_lead_nowhere(reference: str, said: str, tmp_path: Path) -> None:
    """References: one that cannot be resolved is a ConfigException that names it, and shows nothing of the file."""
    (tmp_path / "secrets").write_text("key=hunter2\n")
    (tmp_path / "bytes").write_bytes(b"key=hunter2\xff\n")
    reference = reference.replace("{folder}", str(tmp_path))
    with pytest.raises(ConfigException) as caught:
        SinkConfig.parse({**OWN, "db.password": reference})
    (problem,) = caught.value.problems
    assert problem.startswith(f"'db.password': {reference}: ")
    assert said in problem
    error: BaseException | None = caught.value
    while error is not None:
        assert "hunter2" not in f"{error!r} {error}"
        error = error.__cause__ or error.__context__


# -- secrets -----------------------------------------------------------------------------------------


@pytest.fixture
def secret(monkeypatch: pytest.MonkeyPatch) -> SinkConfig:
    """A configuration with a password in a secret field, and one that is a part of a plain field."""
    monkeypatch.setenv("PASSWORD", "hunter2")
    return SinkConfig.parse(
        {**OWN, "db.password": "${env:PASSWORD}", "topics.dir": "user:${env:PASSWORD}@host"}
    )


def test_the_task_sees_the_secret(secret: SinkConfig) -> None:
    """Secrets: the resolved value is there for who asks for it."""
    assert secret.password.get_secret_value() == "hunter2"
    assert secret.folder == "user:hunter2@host"


def test_secrets_are_not_printed(secret: SinkConfig) -> None:
    """Secrets: neither repr nor str shows them, nor what a reference in any other field has become."""
    for text in (repr(secret), str(secret), f"{secret}", repr([secret])):
        assert "hunter2" not in text
    assert "folder='user:${env:PASSWORD}@host'" in repr(secret)
    assert "flush_size=100" in repr(secret)
    with_url = SinkConfig.parse({**OWN, "topics.dir": "https://me:hunter2@host/a"})
    assert "folder='https://me:********@host/a'" in repr(with_url)


def test_secrets_are_not_pickled(secret: SinkConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets: a pickle holds the configuration as written; references are resolved again where it is opened."""
    pickled = pickle.dumps(secret)
    assert b"hunter2" not in pickled
    monkeypatch.setenv("PASSWORD", "on the executor")
    opened = pickle.loads(pickled)  # noqa: S301 - our own
    assert opened.password.get_secret_value() == "on the executor"
    assert (type(opened), opened.flush_size) == (SinkConfig, 100)
    assert b"hunter2" not in pickle.dumps(secret.model_copy())
    assert b"hunter2" not in pickle.dumps(copy.deepcopy(secret))


def test_a_configuration_made_in_python_is_not_pickled() -> None:
    """Secrets: a model that was not parsed has no text to travel in its place, and says so."""
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(SinkConfig(name="c", topics=("t",), flush_size=1, password="hunter2"))


def test_a_changed_copy_is_not_pickled(secret: SinkConfig) -> None:
    """Secrets: a copy with changed fields is not what was written any more; a pickle would undo the change."""
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(secret.model_copy(update={"flush_size": 7}))


def test_secrets_are_in_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets: a wrong value is not echoed, wherever it came from."""

    class Strict(SinkConfig):
        password: SecretStr | None = Field(default=None, max_length=3, alias="db.password")

    monkeypatch.setenv("PASSWORD", "hunter2")
    for raw in (
        {**OWN, "db.password": "hunter2"},
        {**OWN, "tasks.max": "${env:PASSWORD}"},
        {**OWN, "errors.tolerance": "${env:PASSWORD}"},
    ):
        _, problems = Strict.check(raw)
        assert len(problems) == 1
        assert "hunter2" not in problems[0]
        with pytest.raises(ConfigException) as caught:
            Strict.parse(raw)
        assert "hunter2" not in repr(caught.value)


def test_equal_texts_make_equal_configurations() -> None:
    """Two configurations of the same text are equal."""
    assert SinkConfig.parse(OWN) == SinkConfig.parse(dict(OWN))
    assert SinkConfig.parse(OWN) != SinkConfig.parse({**OWN, "flush.size": "101"})


# -- the reference page ------------------------------------------------------------------------------


def test_the_reference_has_every_key_once() -> None:
    """reference: every key once, the connector's own before the common ones, each with its meaning."""
    keys = list(SinkConfig.reference())
    assert [key.name for key in keys][:5] == [
        "flush.size",
        "topics.dir",
        "db.password",
        "fields.kept",
        "ratio",
    ]
    assert len({key.name for key in keys}) == len(keys) == len(SinkConfig.model_fields)
    assert all(key.meaning for key in keys)


@pytest.mark.parametrize(
    ("name", "kind", "default", "required"),
    [
        ("flush.size", "integer", "", True),
        ("topics.dir", "text", "topics", False),
        ("db.password", "secret", "", False),
        ("fields.kept", "list", "", False),
        ("ratio", "number", "0.5", False),
        ("errors.log.enable", "boolean", "false", False),
        ("errors.tolerance", "none | all", "none", False),
        ("topics.regex", "text", "", False),
        ("name", "text", "", True),
    ],
)
def test_the_reference_says_type_and_default(name: str, kind: str, default: str, required: bool) -> None:
    """reference: type, default and whether it is required, as an operator would call them."""
    (key,) = [key for key in SinkConfig.reference() if key.name == name]
    assert (key.type, key.default, key.required) == (kind, default, required)


def test_problems_between_fields_are_told_together_with_wrong_fields() -> None:
    """A missing key hides no other problem: an operator corrects everything at once."""
    config, problems = ConnectorConfig.check({"tasks.max": "many"})

    assert config is None
    assert len(problems) == 3
    assert any("'name' is required" in problem for problem in problems)
    assert any(problem.startswith("'tasks.max'") for problem in problems)
    assert any("'topics'" in problem for problem in problems)


def test_properties_for_kafka_clients_are_known_by_their_prefix() -> None:
    """KIP-458: consumer.override.* and its like are no unknown keys; references in them are resolved."""
    raw = {"name": "c", "topics": "t", "consumer.override.fetch.max.bytes": "5", "consumer.overide.x": "1"}
    config = ConnectorConfig.parse(raw)

    assert config.overrides("consumer.override.") == {"fetch.max.bytes": "5"}
    unknown = [key for key, verdict in ConnectorConfig.judge(raw) if verdict.meaning is Meaning.UNKNOWN]
    assert unknown == ["consumer.overide.x"]


@pytest.mark.parametrize(
    ("keys", "reset"),
    [
        ({}, "earliest"),
        ({"auto.offset.reset": "none"}, "none"),
        ({"consumer.override.auto.offset.reset": "latest"}, "latest"),
        ({"auto.offset.reset": "none", "consumer.override.auto.offset.reset": "latest"}, "none"),
    ],
)
def test_where_to_begin_may_be_said_in_connects_way(keys: dict[str, str], reset: str) -> None:
    """Connect has auto.offset.reset among the consumer's properties; our own key wins."""
    assert ConnectorConfig.parse({"name": "c", "topics": "t", **keys}).auto_offset_reset == reset


def test_a_wrong_place_to_begin_is_a_problem_of_its_key() -> None:
    """As with any other choice."""
    _, problems = ConnectorConfig.check(
        {"name": "c", "topics": "t", "consumer.override.auto.offset.reset": "middle"}
    )

    assert problems == ["'auto.offset.reset': input should be 'earliest', 'latest' or 'none'"]


class Several(ConnectorConfig):
    """Fields that hold several values."""

    columns: list[str] = Field(default=["id"], alias="table.columns", description="Columns.")
    sizes: set[int] | None = Field(default=None, alias="table.sizes", description="Sizes.")
    labels: dict[str, int] = Field(default_factory=dict, alias="table.labels", description="Labels.")


def several(**settings: object) -> Several:
    return Several.parse({"name": "c", "topics": "t", **settings})


def test_lists_and_maps_are_set_by_text() -> None:
    """Connect's configurations are flat text: lists are separated by commas, maps are pairs of key:value."""
    config = several(**{"table.columns": "a, b,c", "table.sizes": "3,1", "table.labels": "x:1, y: 2"})
    assert (config.columns, config.sizes, config.labels) == (["a", "b", "c"], {1, 3}, {"x": 1, "y": 2})
    assert several(**{"table.columns": ["a"], "table.labels": {"x": 1}}).labels == {"x": 1}
    assert several(**{"table.columns": ""}).columns == []
    assert pickle.loads(pickle.dumps(config)) == config  # noqa: S301 - our own bytes


def test_what_is_no_list_or_map_is_a_problem_that_names_its_key() -> None:
    """Values are checked one by one, and a map must have a colon in each pair."""
    _, problems = Several.check(
        {"name": "c", "topics": "t", "table.sizes": "1,many", "table.labels": "x:1,y"}
    )
    assert problems[0].startswith("'table.sizes': item 2: input should be a valid integer")
    assert (
        "'table.labels': must be pairs of key:value, separated by commas, each key once; or a JSON object"
        in problems
    )


def test_a_fields_own_way_to_read_text_goes_first() -> None:
    """An author's validator that makes a list of text in its own way is not bypassed."""

    class Own(ConnectorConfig):
        rows: list[str] = Field(default=[], alias="rows", description="Rows.")

        @field_validator("rows", mode="before")
        @classmethod
        def _by_semicolon(cls, value: object) -> object:
            return value.split(";") if isinstance(value, str) else value

    assert Own.parse({"name": "c", "topics": "t", "rows": "a,b;c"}).rows == ["a,b", "c"]


def test_lists_and_maps_have_their_names_in_the_reference() -> None:
    """The reference page says list and map, and shows defaults as they are written."""
    rows = {key.name: (key.type, key.default) for key in Several.reference()}
    assert rows["table.columns"] == ("list", "id")
    assert rows["table.sizes"] == ("list", "")
    assert rows["table.labels"] == ("map", "")


class InOrder(ConnectorConfig):
    """Checks two fields in pydantic's way."""

    least: int = Field(default=1, description="The smaller one.")
    most: int = Field(default=1, description="The larger one.")

    @model_validator(mode="after")
    def order(self) -> Self:
        """Refuse them where they are not in order."""
        if self.most == 13:
            raise AssertionError("'most' must not be 13")
        if self.least > self.most:
            raise ValueError("'least' must not be more than 'most'")
        return self


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"least": "2"}, "'least' must not be more than 'most'"),
        ({"most": "13"}, "'most' must not be 13"),
    ],
)
def test_what_a_model_validator_refuses_is_a_sentence(fields: dict[str, str], sentence: str) -> None:
    """An error without a place, as pydantic's model_validator raises, is its own sentence."""
    assert InOrder.check({"name": "c", "topics": "t", **fields}) == (None, [sentence])
    with pytest.raises(ConfigException) as raised:
        InOrder.parse({"name": "c", "topics": "t", "tasks.max": "0", **fields})
    assert any("tasks.max" in problem for problem in raised.value.problems)


def test_a_field_validators_sentence_stands_alone() -> None:
    """A ValueError of a field's validator is shown as it is, after the key."""

    class Positive(ConnectorConfig):
        size: int = Field(default=1, alias="flush.size", description="How much.")

        @field_validator("size")
        @classmethod
        def positive(cls, size: int) -> int:
            if size < 1:
                raise ValueError("must be positive, or left out")
            return size

    assert Positive.check({"name": "c", "topics": "t", "flush.size": "-1"})[1] == [
        "'flush.size': must be positive, or left out"
    ]


def test_a_model_validator_that_returns_nothing_is_named() -> None:
    """A validator that forgets to return self is the author's mistake, and named."""

    class Forgets(ConnectorConfig):
        @model_validator(mode="after")
        def order(self) -> None:
            """Return nothing."""

    with pytest.raises(
        ConfigException, match="a model_validator of Forgets returned None: it must return self"
    ):
        Forgets.parse({"name": "c", "topics": "t"})


@pytest.mark.parametrize("name", sorted(reserved_names(ConnectorConfig)))
def test_a_field_with_a_name_of_sinksdks_is_refused(name: str) -> None:
    """A field that would replace what sinksdk calls is refused with its class, with both names."""
    namespace = {"__annotations__": {name: int}, name: Field(default=1, alias="key.fields")}
    with pytest.raises(
        TypeError, match=rf"^Mine\.{name} would replace \w+\.{name}, .*give the field another"
    ):
        type("Mine", (ConnectorConfig,), namespace)


@pytest.mark.parametrize("name", sorted(reserved_names(SourceConnectorConfig).keys() - HOOKS))
def test_a_method_with_a_name_of_sinksdks_is_refused(name: str) -> None:
    """So is a method, also a mixin's; hooks are for overriding."""
    with pytest.raises(
        TypeError, match=rf"^Mine\.{name} would replace \w+\.{name}, .*the method another name"
    ):
        type("Mine", (SourceConnectorConfig,), {name: lambda self: None})
    mixin = type("Mixin", (), {name: lambda self: None})
    with pytest.raises(TypeError, match=rf"^Mixin\.{name} would replace"):
        type("Mine", (mixin, SourceConnectorConfig), {})


@pytest.mark.parametrize("name", ["problems", "warnings"])
def test_a_hook_may_return_one_sentence(name: str) -> None:
    """problems() and warnings(): a text is one sentence, not a list of its letters; None is a mistake."""

    def returning(result: object) -> type[ConnectorConfig]:
        return type("Mine", (ConnectorConfig,), {name: lambda self: result})

    raw = {"name": "c", "topics": "t"}
    assert sentences("too large", "x") == ["too large"]
    assert sentences("", "x") == sentences((), "x") == []
    if name == "problems":
        assert returning("too large").check(raw) == (None, ["too large"])
        assert returning(None).check(raw) == (
            None,
            ["Mine.problems() returned None; it must return a list of sentences"],
        )
    else:
        assert returning("too large").parse(raw).warnings() == "too large"


def test_a_hook_of_a_model_that_is_a_generator_is_refused() -> None:
    """problems() with a yield is refused with its class, as a task's hooks are."""

    def problems(self: object) -> Any:
        yield "too large"

    with pytest.raises(HookError, match=r"Mine\.problems is a generator"):
        type("Mine", (ConnectorConfig,), {"problems": problems})


def _declaring(name: str, kind: object, value: object, base: type = ConnectorConfig) -> type:
    """A model with one annotated attribute."""
    return type("Mine", (base,), {"__annotations__": {name: kind}, name: value})


@pytest.mark.parametrize(
    ("name", "kind", "field", "keys"),
    [
        ("name", str, Field(default="", alias="table.name"), ("'table.name'", "'name'")),
        ("name", str, Field(alias="table.name"), ("'table.name'", "'name'")),
        ("topics", tuple[str, ...], Field(default=(), alias="my.topics"), ("'my.topics'", "'topics'")),
        ("transforms", tuple[str, ...], Field(default=(), alias="fx"), ("'fx'", "'transforms'")),
        ("tasks_max", int, 3, ("'tasks_max'", "'tasks.max'")),
    ],
)
def test_a_field_of_sinksdks_cannot_be_declared_again_under_another_key(
    name: str, kind: object, field: object, keys: tuple[str, str]
) -> None:
    """config.name would be a table's name, and commits would be stored under it."""
    with pytest.raises(TypeError, match=rf"^Mine\.{name} ") as raised:
        _declaring(name, kind, field)
    assert all(key in str(raised.value) for key in keys)
    assert "give the field another name" in str(raised.value)
    assert f"alias={keys[1]}" in str(raised.value)


@pytest.mark.parametrize(("name", "kind"), [("topics", str), ("tasks_max", str), ("errors_log_enable", int)])
def test_a_field_of_sinksdks_keeps_its_type(name: str, kind: type) -> None:
    """Declared again it may be narrower; a text where sinksdk reads a list would be read letter by letter."""
    alias = ConnectorConfig.model_fields[name].alias
    with pytest.raises(
        TypeError, match=rf"^Mine\.{name} is of type {kind.__name__}, .*give the field another"
    ):
        _declaring(name, kind, Field(default=kind(), alias=alias))


def test_a_field_of_sinksdks_may_have_another_default_and_a_narrower_type() -> None:
    """With the same key, a connector says what its users need not write."""

    class Narrow(ConnectorConfig):
        tasks_max: int = Field(default=2, le=3, alias="tasks.max")
        errors_tolerance: Literal["all"] = Field(default="all", alias="errors.tolerance")
        name: str = "mine"

    raw = {"topics": "t"}
    config = Narrow.parse(raw)
    assert (config.tasks_max, config.errors_tolerance, config.name) == (2, "all", "mine")
    assert Narrow.check({**raw, "errors.tolerance": "none"})[1] == [
        "'errors.tolerance': input should be 'all'"
    ]


def test_a_bound_that_is_left_out_stays_when_its_field_is_declared_again() -> None:
    """Pydantic drops it, and sinksdk's code relies on it; an author may state another bound of the same kind."""

    class Again(ConnectorConfig):
        tasks_max: int = Field(default=2, alias="tasks.max")
        poll_interval_ms: int = Field(default=2, ge=1, alias="poll.interval.ms")  # of sinksdk's at least 10
        max_poll_records: int = Field(default=0, le=9, alias="max.poll.records")
        topics: tuple[str, ...] = ("t",)

    class Derived(Again):
        generation_max_ms: Literal[-1, 5] = Field(default=5, alias="generation.max.ms")

    raw = {"name": "c", "max.poll.records": "1"}
    for model in (Again, Derived):
        assert model.parse({**raw, "topics": "a, b"}).topics == ("a", "b")
        assert model.check({**raw, "tasks.max": "0"})[1] == [
            "'tasks.max': input should be greater than or equal to 1"
        ]
        assert model.check({**raw, "poll.interval.ms": "1"})[1] == []
        assert model.check({"name": "c"})[1] == [
            "'max.poll.records': input should be greater than or equal to 1"
        ]
        assert model.check({"name": "c", "max.poll.records": "10", "tasks.max": "0"})[1] == [
            "'max.poll.records': input should be less than or equal to 9",
            "'tasks.max': input should be greater than or equal to 1",
        ]
    assert Derived.check({**raw, "generation.max.ms": 5})[1] == []


@pytest.mark.parametrize("name", sorted(_MODELS - {"model_config"}))
def test_a_field_with_a_name_of_pydantics_model_is_refused(name: str) -> None:
    """Models are parsed, copied and checked by these names."""
    namespace = {"__annotations__": {name: str}, name: Field(default="d", alias="its.key")}
    with pytest.raises(
        TypeError, match=rf"^Mine\.{name} would replace BaseModel\.{name}, which pydantic calls: .*the alias"
    ):
        type("Mine", (ConnectorConfig,), namespace)


@pytest.mark.parametrize("name", sorted(_CALLED))
def test_a_method_that_pydantic_or_sinksdk_calls_is_refused(name: str) -> None:
    """Other methods of pydantic's may be overridden: ``model_post_init`` is a hook."""
    with pytest.raises(TypeError, match=rf"^Mine\.{name} would replace BaseModel\.{name}, .*another name"):
        type("Mine", (ConnectorConfig,), {name: lambda self: None})


@pytest.mark.parametrize("name", ["schema", "json", "copy", "dict", "validate", "construct", "parse_raw"])
def test_a_field_may_have_a_name_that_pydantic_deprecates(name: str) -> None:
    """Sinksdk calls none of them; pydantic warns where the class is defined."""
    namespace = {"__annotations__": {name: str}, name: Field(default="d", alias=name)}
    with pytest.warns(UserWarning, match=f'Field name "{name}" in "Mine" shadows'):
        model: type[ConnectorConfig] = type("Mine", (ConnectorConfig,), namespace)

    config = model.parse({"name": "c", "topics": "t", name: "given"})
    changed = config.model_copy(update={"tasks_max": 2})
    rebuild, arguments = config.__reduce__()
    assert [getattr(each, name) for each in (config, changed, rebuild(*arguments))] == ["given"] * 3


@pytest.mark.parametrize("name", ["tasks_max", "topics", "name", "value_converter"])
@pytest.mark.parametrize(
    "wrap", [lambda function: function, property, functools.cached_property, classmethod]
)
def test_a_method_over_a_field_of_sinksdks_is_refused(name: str, wrap: Callable[[Any], Any]) -> None:
    """The function would be the field's default, or hide its value."""
    function = wrap(lambda self: None)
    with pytest.raises(TypeError, match=rf"^Mine\.{name} would replace \w+\.{name}, .*another name"):
        type("Mine", (ConnectorConfig,), {name: function})
    with pytest.raises(TypeError, match=rf"^Mixin\.{name} would replace"):
        type("Mine", (type("Mixin", (), {name: function}), ConnectorConfig), {})


@pytest.mark.parametrize("name", ["_resolve", "_written", "_rules", "_is_changed", "_validated"])
def test_a_private_name_of_sinksdks_is_refused(name: str) -> None:
    """A helper with the name of one of sinksdk's would be called in its place."""
    with pytest.raises(TypeError, match=rf"^Mine\.{name} would replace ConfigModel\.{name}, .*another name"):
        type("Mine", (ConnectorConfig,), {name: lambda self: None})


@pytest.mark.parametrize("kind", [ClassVar, ClassVar[Mapping[str, Verdict]]])
def test_a_verdict_may_be_annotated_as_a_class_variable(kind: object) -> None:
    """A connector's compatibility is for overriding, also in a module whose annotations are no texts."""
    made = _declaring("compatibility", kind, {"old.key": Verdict.ignored("it is old")})
    assert made.compatibility.keys() == {"old.key"}  # type: ignore[attr-defined]


@pytest.mark.parametrize("alias", ["b.x", AliasChoices("b.x", "b.y"), AliasPath("b", 0)])
def test_a_key_that_is_no_alias_is_refused(alias: Any) -> None:
    """Keys are aliases: with another the key would be unknown and its value ignored."""
    with pytest.raises(TypeError, match=r"^Mine\.size has a validation_alias.*Field\(alias="):
        _declaring("size", int, Field(default=1, validation_alias=alias))


def test_a_generated_alias_is_a_key() -> None:
    """Pydantic's alias_generator may name the keys of a connector's own fields."""

    class Generated(ConnectorConfig):
        model_config = ConfigDict(alias_generator=lambda name: name.replace("_", "."))
        flush_size: int = 1

    assert Generated.parse({"name": "c", "topics": "t", "flush.size": "7"}).flush_size == 7


class Silent(ConnectorConfig):
    """Validators that give no reason."""

    size: int = Field(default=1, alias="flush.size", description="How much.")
    mode: str = ""

    @field_validator("size")
    @classmethod
    def at_least(cls, size: int) -> int:
        """Refuse 2, 3 and 4."""
        if size == 2:
            raise AssertionError  # as an assert that pytest has not rewritten
        if size == 3:
            raise ValueError
        return {4: {}, 1: 1}[size]["celsius"] if size == 4 else size  # type: ignore[index]

    @model_validator(mode="after")
    def fits(self) -> Self:
        """Refuse a mode."""
        if self.mode:
            raise AssertionError
        return self

    def problems(self) -> list[str]:
        """Fail at one size."""
        return [*super().problems(), *([str(statistics.mean([]))] if self.size == 5 else [])]

    def warnings(self) -> list[str]:
        """Fail at another one."""
        return [*super().warnings(), *([{}["celsius"]] if self.size == 6 else [])]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"flush.size": "2"}, "'flush.size': refused without a reason by Silent.at_least"),
        ({"flush.size": "3"}, "'flush.size': refused without a reason by Silent.at_least"),
        ({"mode": "x"}, "the configuration is refused without a reason by Silent.fits"),
    ],
)
def test_a_validator_without_a_reason_is_named(fields: dict[str, str], sentence: str) -> None:
    """An assert or a ValueError without a text says at least which validator refuses what."""
    [problem] = Silent.check({"name": "c", "topics": "t", **fields})[1]
    assert problem == f"{sentence}: let it raise ValueError with a sentence"


@pytest.mark.parametrize(
    ("size", "where", "hook", "error"),
    [
        ("4", "a validator of Silent", "at_least", "KeyError: 'celsius'"),
        ("5", "Silent.problems()", "problems", "StatisticsError: mean requires at least one data point"),
    ],
)
def test_an_error_in_an_authors_model_says_where(size: str, where: str, hook: str, error: str) -> None:
    """Class, hook and line are the connector's, also where a library that it calls has raised the error."""
    place = rf"{re.escape(where)} failed: {error} at Silent\.{hook} \(test_config\.py, line \d+\)"
    [problem] = Silent.check({"name": "c", "topics": "t", "flush.size": size})[1]
    assert re.fullmatch(place, problem)
    with pytest.raises(ConfigException, match=place):
        Silent.parse({"name": "c", "topics": "t", "flush.size": size})


def test_a_configuration_that_a_validator_refuses_itself_has_its_problems() -> None:
    """ConfigException of a validator is not pydantic's, and its sentences are problems as any other's."""

    class Refusing(ConnectorConfig):
        @model_validator(mode="after")
        def fits(self) -> Self:
            raise ConfigException(["'a' is odd", "'b' is even"])

    assert Refusing.check({"name": "c", "topics": "t"}) == (None, ["'a' is odd", "'b' is even"])


@pytest.mark.parametrize(
    "keys",
    [
        {"tasks.max": "${env:NOT_SET}"},
        {"errors.log.enable": "x${file:/nowhere:key}"},
        {"errors.tolerance": "${env:NOT_SET}"},
        {"topics": "${env:NOT_SET}"},
        {"topics": "a, ${env:NOT_SET}"},
        {"name": "${env:NOT_SET}"},
        {"value.converter": "${env:NOT_SET}", "value.converter.schema": "a INT"},
        {"value.converter": "avro", "value.converter.schema.registry.url": "${env:NOT_SET}"},
        {
            "value.converter": "avro",
            "value.converter.schema.registry.url": "http://registry:8081",
            "value.converter.basic.auth.credentials.source": "USER_INFO",
            "value.converter.basic.auth.user.info": "${env:NOT_SET}",
        },
        {"value.converter": "json", "transforms": "m", "transforms.m.type": "${env:NOT_SET}"},
        {
            "value.converter": "json",
            "transforms": "m",
            "transforms.m.type": "HoistField$Value",
            "transforms.m.field": "${env:NOT_SET}",
        },
        {"consumer.override.max.poll.records": "${env:NOT_SET}"},
    ],
)
def test_a_reference_that_cannot_be_resolved_is_the_only_problem(keys: dict[str, str]) -> None:
    """What the reference's own text is not (a number, a converter, a URL) says nothing."""
    key = next(key for key, text in keys.items() if "${" in text)
    _, problems = ConnectorConfig.check({"name": "c", "topics": "t", **keys})
    assert len(problems) == 1, problems
    assert problems[0].startswith(f"'{key}': ${{")
    _, problems = ConnectorConfig.check({"name": "c", "topics": "t", "poll.interval.ms": "x", **keys})
    assert len(problems) == 2, problems


def test_a_reference_in_a_map_that_cannot_be_resolved_is_the_only_problem() -> None:
    """Nor is a map said to be missing whose entry is such a reference."""

    class Mapped(ConnectorConfig):
        labels: dict[str, int] = Field(alias="table.labels", description="Labels.")

    raw = {"name": "c", "topics": "t"}
    for keys in ({"table.labels.a": "${env:NOT_SET}"}, {"table.labels": "a:1, b:${env:NOT_SET}"}):
        [problem] = Mapped.check({**raw, **keys})[1]
        assert "NOT_SET is not set here" in problem
