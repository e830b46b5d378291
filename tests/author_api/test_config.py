"""Configurations: dotted names, references, problems, and secrets."""

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
from sinksdk.settings.model import _CALLED, _MODELS, HOOKS, reserved_names, sentences_of
from sinksdk.settings.references import resolve_references
from sinksdk.source import SourceConnectorConfig
from sinksdk.support.hooks import HookError

MINIMAL = {"name": "archive", "topics": "flights"}


class SinkConfig(ConnectorConfig):
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


def test_parse_converts_text_to_typed_fields() -> None:
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


def test_parse_accepts_json_scalars() -> None:
    config = SinkConfig.parse({**MINIMAL, "flush.size": 5, "errors.log.enable": False, "tasks.max": 3})
    assert (config.flush_size, config.errors_log_enable, config.tasks_max) == (5, False, 3)


def test_parse_applies_defaults() -> None:
    config = ConnectorConfig.parse(MINIMAL)
    assert config.tasks_max == 1
    assert config.offset_flush_interval_ms == 60_000
    assert config.errors_tolerance == "none"
    assert config.errors_retry_timeout == 300_000
    assert config.graceful_timeout_ms == 60_000
    assert (config.key_converter, config.value_converter) == ("bytes", "bytes")


def test_configuration_is_frozen() -> None:
    with pytest.raises(ValidationError):
        ConnectorConfig.parse(MINIMAL).name = "other"


def test_python_field_names_are_unknown_keys() -> None:
    raw = {**MINIMAL, "tasks_max": "7"}
    assert ConnectorConfig.parse(raw).tasks_max == 1
    assert ConnectorConfig.judge(raw)[-1].sentence.endswith("no effect; did you mean 'tasks.max'?")
    assert ConnectorConfig(name="c", topics=("t",), tasks_max=7).tasks_max == 7


# -- problems ----------------------------------------------------------------------------------------


def test_parse_reports_all_problems_without_values() -> None:
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


def test_missing_required_key_is_named() -> None:
    with pytest.raises(ConfigException, match=r"'flush\.size' is required and not set"):
        SinkConfig.parse(MINIMAL)


@pytest.mark.parametrize(
    "topics", [{}, {"topics": ""}, {"topics": " , "}, {"topics": "a", "topics.regex": "b"}]
)
def test_exactly_one_of_topics_and_topics_regex_is_required(topics: dict[str, str]) -> None:
    with pytest.raises(ConfigException, match=r"exactly one of 'topics' and 'topics\.regex' must be set"):
        ConnectorConfig.parse({"name": "c", **topics})


def test_invalid_topics_regex_is_a_problem() -> None:
    with pytest.raises(ConfigException, match=r"'topics\.regex' is not a regular expression"):
        ConnectorConfig.parse({"name": "c", "topics.regex": "flights-("})
    assert ConnectorConfig.parse({"name": "c", "topics.regex": "flights-.*"}).topics == ()


def test_empty_name_is_a_problem() -> None:
    with pytest.raises(ConfigException, match="'name'"):
        ConnectorConfig.parse({"name": "", "topics": "t"})


def test_problems_of_a_subclass_are_added() -> None:
    class Picky(SinkConfig):
        def problems(self) -> list[str]:
            return [*super().problems(), "'flush.size' must be even"]

    _, problems = Picky.check({"name": "c", "flush.size": "1"})
    assert problems == ["exactly one of 'topics' and 'topics.regex' must be set", "'flush.size' must be even"]


def test_wrong_key_has_no_problems_with_other_keys() -> None:
    _, problems = ConnectorConfig.check({"name": "c", "topics": 7})
    assert problems == ["'topics': input should be a valid tuple"]


def test_check_returns_problems_that_parse_raises() -> None:
    config, problems = SinkConfig.check(OWN)
    assert (config.flush_size, problems) == (100, [])
    assert SinkConfig.check({**OWN, "tasks.max": "0"}) == (
        None,
        ["'tasks.max': input should be greater than or equal to 1"],
    )


# -- unknown keys ------------------------------------------------------------------------------------


def test_unknown_keys_are_accepted() -> None:
    assert SinkConfig.parse({**OWN, "task.max": "2"}).tasks_max == 1


# -- references --------------------------------------------------------------------------------------


def test_env_references_are_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPIC", "flights")
    monkeypatch.setenv("SIZE", "25")
    config = SinkConfig.parse(
        {"name": "c", "topics": "${env:TOPIC},${env:TOPIC}-dead", "flush.size": "${env:SIZE}"}
    )
    assert config.topics == ("flights", "flights-dead")
    assert config.flush_size == 25


def test_file_references_are_resolved(tmp_path: Path) -> None:
    file = tmp_path / "a:b.properties"
    file.write_text("# secrets\nuser = me\npassword= p=ss #1 \n\nempty=\n")
    assert resolve_references(f"${{file:{file}:user}}:${{file:{file}:password}}") == "me:p=ss #1"
    assert resolve_references(f"<${{file:{file}:empty}}>") == "<>"


@pytest.mark.parametrize("text", ["", "plain", "$", "${", "${}", "${other:x}", "$env:HOME", "${env:HOME"])
def test_text_without_references_stays(text: str) -> None:
    assert resolve_references(text) == text


def test_referenced_text_is_not_resolved_again(monkeypatch: pytest.MonkeyPatch) -> None:
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
        ("${file:{folder}/bytes:key}", "is not UTF-8"),
        ("${file:/no/key}", "must name a file and a key"),
    ],
)
def test_unresolvable_reference_is_named_without_file_content(
    reference: str, said: str, tmp_path: Path
) -> None:
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
    monkeypatch.setenv("PASSWORD", "hunter2")
    return SinkConfig.parse(
        {**OWN, "db.password": "${env:PASSWORD}", "topics.dir": "user:${env:PASSWORD}@host"}
    )


def test_secret_value_is_available(secret: SinkConfig) -> None:
    assert secret.password.get_secret_value() == "hunter2"
    assert secret.folder == "user:hunter2@host"


def test_secrets_are_not_in_repr(secret: SinkConfig) -> None:
    for text in (repr(secret), str(secret), f"{secret}", repr([secret])):
        assert "hunter2" not in text
    assert "folder='user:${env:PASSWORD}@host'" in repr(secret)
    assert "flush_size=100" in repr(secret)
    with_url = SinkConfig.parse({**OWN, "topics.dir": "https://me:hunter2@host/a"})
    assert "folder='https://me:********@host/a'" in repr(with_url)


def test_pickle_contains_references_not_secrets(secret: SinkConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    pickled = pickle.dumps(secret)
    assert b"hunter2" not in pickled
    monkeypatch.setenv("PASSWORD", "on the executor")
    opened = pickle.loads(pickled)  # noqa: S301 - our own
    assert opened.password.get_secret_value() == "on the executor"
    assert (type(opened), opened.flush_size) == (SinkConfig, 100)
    assert b"hunter2" not in pickle.dumps(secret.model_copy())
    assert b"hunter2" not in pickle.dumps(copy.deepcopy(secret))


def test_configuration_created_in_python_cannot_be_pickled() -> None:
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(SinkConfig(name="c", topics=("t",), flush_size=1, password="hunter2"))


def test_changed_copy_cannot_be_pickled(secret: SinkConfig) -> None:
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(secret.model_copy(update={"flush_size": 7}))


def test_errors_quote_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_configurations_of_equal_text_are_equal() -> None:
    assert SinkConfig.parse(OWN) == SinkConfig.parse(dict(OWN))
    assert SinkConfig.parse(OWN) != SinkConfig.parse({**OWN, "flush.size": "101"})


# -- the reference page ------------------------------------------------------------------------------


def test_reference_lists_every_key_once_own_keys_first() -> None:
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
def test_reference_states_type_and_default(name: str, kind: str, default: str, required: bool) -> None:
    (key,) = [key for key in SinkConfig.reference() if key.name == name]
    assert (key.type, key.default, key.required) == (kind, default, required)


def test_missing_key_hides_no_other_problem() -> None:
    config, problems = ConnectorConfig.check({"tasks.max": "many"})

    assert config is None
    assert len(problems) == 3
    assert any("'name' is required" in problem for problem in problems)
    assert any(problem.startswith("'tasks.max'") for problem in problems)
    assert any("'topics'" in problem for problem in problems)


def test_client_overrides_are_known_by_prefix() -> None:
    # See KIP-458.
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
def test_auto_offset_reset_may_be_a_consumer_override(keys: dict[str, str], reset: str) -> None:
    assert ConnectorConfig.parse({"name": "c", "topics": "t", **keys}).auto_offset_reset == reset


def test_invalid_auto_offset_reset_override_is_a_problem_of_its_key() -> None:
    _, problems = ConnectorConfig.check(
        {"name": "c", "topics": "t", "consumer.override.auto.offset.reset": "middle"}
    )

    assert problems == ["'auto.offset.reset': input should be 'earliest', 'latest' or 'none'"]


class Several(ConnectorConfig):
    columns: list[str] = Field(default=["id"], alias="table.columns", description="Columns.")
    sizes: set[int] | None = Field(default=None, alias="table.sizes", description="Sizes.")
    labels: dict[str, int] = Field(default_factory=dict, alias="table.labels", description="Labels.")


def several(**settings: object) -> Several:
    return Several.parse({"name": "c", "topics": "t", **settings})


def test_lists_and_maps_are_parsed_from_text() -> None:
    config = several(**{"table.columns": "a, b,c", "table.sizes": "3,1", "table.labels": "x:1, y: 2"})
    assert (config.columns, config.sizes, config.labels) == (["a", "b", "c"], {1, 3}, {"x": 1, "y": 2})
    assert several(**{"table.columns": ["a"], "table.labels": {"x": 1}}).labels == {"x": 1}
    assert several(**{"table.columns": ""}).columns == []
    assert pickle.loads(pickle.dumps(config)) == config  # noqa: S301 - our own bytes


def test_invalid_list_or_map_is_a_problem_of_its_key() -> None:
    _, problems = Several.check(
        {"name": "c", "topics": "t", "table.sizes": "1,many", "table.labels": "x:1,y"}
    )
    assert problems[0].startswith("'table.sizes': item 2: input should be a valid integer")
    assert (
        "'table.labels': must be pairs of key:value, separated by commas, each key once; or a JSON object"
        in problems
    )


def test_validator_of_a_list_field_receives_the_text() -> None:
    class Own(ConnectorConfig):
        rows: list[str] = Field(default=[], alias="rows", description="Rows.")

        @field_validator("rows", mode="before")
        @classmethod
        def _by_semicolon(cls, value: object) -> object:
            return value.split(";") if isinstance(value, str) else value

    assert Own.parse({"name": "c", "topics": "t", "rows": "a,b;c"}).rows == ["a,b", "c"]


def test_reference_shows_lists_and_maps() -> None:
    rows = {key.name: (key.type, key.default) for key in Several.reference()}
    assert rows["table.columns"] == ("list", "id")
    assert rows["table.sizes"] == ("list", "")
    assert rows["table.labels"] == ("map", "")


class InOrder(ConnectorConfig):
    least: int = Field(default=1, description="The smaller one.")
    most: int = Field(default=1, description="The larger one.")

    @model_validator(mode="after")
    def order(self) -> Self:
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
def test_model_validator_error_is_a_sentence_of_its_own(fields: dict[str, str], sentence: str) -> None:
    assert InOrder.check({"name": "c", "topics": "t", **fields}) == (None, [sentence])
    with pytest.raises(ConfigException) as raised:
        InOrder.parse({"name": "c", "topics": "t", "tasks.max": "0", **fields})
    assert any("tasks.max" in problem for problem in raised.value.problems)


def test_field_validator_error_follows_the_key() -> None:
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


def test_model_validator_that_returns_none_is_named() -> None:
    class Forgets(ConnectorConfig):
        @model_validator(mode="after")
        def order(self) -> None:
            pass

    with pytest.raises(
        ConfigException, match="a model_validator of Forgets returned None: it must return self"
    ):
        Forgets.parse({"name": "c", "topics": "t"})


@pytest.mark.parametrize("name", sorted(reserved_names(ConnectorConfig)))
def test_field_that_clashes_with_sinksdk_is_refused(name: str) -> None:
    namespace = {"__annotations__": {name: int}, name: Field(default=1, alias="key.fields")}
    with pytest.raises(
        TypeError, match=rf"^Mine\.{name} would replace \w+\.{name}, .*give the field another"
    ):
        type("Mine", (ConnectorConfig,), namespace)


@pytest.mark.parametrize("name", sorted(reserved_names(SourceConnectorConfig).keys() - HOOKS))
def test_method_that_clashes_with_sinksdk_is_refused(name: str) -> None:
    with pytest.raises(
        TypeError, match=rf"^Mine\.{name} would replace \w+\.{name}, .*the method another name"
    ):
        type("Mine", (SourceConnectorConfig,), {name: lambda self: None})
    mixin = type("Mixin", (), {name: lambda self: None})
    with pytest.raises(TypeError, match=rf"^Mixin\.{name} would replace"):
        type("Mine", (mixin, SourceConnectorConfig), {})


@pytest.mark.parametrize("name", ["problems", "warnings"])
def test_problems_may_return_one_text_but_not_none(name: str) -> None:
    def returning(result: object) -> type[ConnectorConfig]:
        return type("Mine", (ConnectorConfig,), {name: lambda self: result})

    raw = {"name": "c", "topics": "t"}
    assert sentences_of("x", lambda: "too large") == ["too large"]
    assert sentences_of("x", lambda: "") == sentences_of("x", lambda: ()) == []
    if name == "problems":
        assert returning("too large").check(raw) == (None, ["too large"])
        assert returning(None).check(raw) == (
            None,
            ["Mine.problems() returned None; it must return a list of sentences"],
        )
    else:
        assert returning("too large").parse(raw).warnings() == "too large"


def test_model_hook_that_is_a_generator_is_refused() -> None:
    def problems(self: object) -> Any:
        yield "too large"

    with pytest.raises(HookError, match=r"Mine\.problems is a generator"):
        type("Mine", (ConnectorConfig,), {"problems": problems})


def _declaring(name: str, kind: object, value: object, base: type = ConnectorConfig) -> type:
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
def test_field_declared_again_must_keep_its_key(
    name: str, kind: object, field: object, keys: tuple[str, str]
) -> None:
    # A key that begins with a table's name would lead commits into the table.
    with pytest.raises(TypeError, match=rf"^Mine\.{name} ") as raised:
        _declaring(name, kind, field)
    assert all(key in str(raised.value) for key in keys)
    assert "give the field another name" in str(raised.value)
    assert f"alias={keys[1]}" in str(raised.value)


@pytest.mark.parametrize(("name", "kind"), [("topics", str), ("tasks_max", str), ("errors_log_enable", int)])
def test_field_declared_again_must_keep_or_narrow_its_type(name: str, kind: type) -> None:
    alias = ConnectorConfig.model_fields[name].alias
    with pytest.raises(
        TypeError, match=rf"^Mine\.{name} is of type {kind.__name__}, .*give the field another"
    ):
        _declaring(name, kind, Field(default=kind(), alias=alias))


def test_field_declared_again_may_have_another_default() -> None:
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


def test_field_declared_again_keeps_its_bounds() -> None:
    # Pydantic would accept values outside of these bounds, but sinksdk's code relies on the bounds.

    class Again(ConnectorConfig):
        tasks_max: int = Field(default=2, alias="tasks.max")
        # Sinksdk itself requires at least 10.
        poll_interval_ms: int = Field(default=2, ge=1, alias="poll.interval.ms")
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
def test_field_that_clashes_with_pydantic_is_refused(name: str) -> None:
    namespace = {"__annotations__": {name: str}, name: Field(default="d", alias="its.key")}
    with pytest.raises(
        TypeError, match=rf"^Mine\.{name} would replace BaseModel\.{name}, which pydantic calls: .*the alias"
    ):
        type("Mine", (ConnectorConfig,), namespace)


@pytest.mark.parametrize("name", sorted(_CALLED))
def test_method_that_pydantic_or_sinksdk_calls_is_refused(name: str) -> None:
    with pytest.raises(TypeError, match=rf"^Mine\.{name} would replace BaseModel\.{name}, .*another name"):
        type("Mine", (ConnectorConfig,), {name: lambda self: None})


@pytest.mark.parametrize("name", ["schema", "json", "copy", "dict", "validate", "construct", "parse_raw"])
def test_field_may_have_a_deprecated_pydantic_name(name: str) -> None:
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
def test_method_over_a_sinksdk_field_is_refused(name: str, wrap: Callable[[Any], Any]) -> None:
    function = wrap(lambda self: None)
    with pytest.raises(TypeError, match=rf"^Mine\.{name} would replace \w+\.{name}, .*another name"):
        type("Mine", (ConnectorConfig,), {name: function})
    with pytest.raises(TypeError, match=rf"^Mixin\.{name} would replace"):
        type("Mine", (type("Mixin", (), {name: function}), ConnectorConfig), {})


@pytest.mark.parametrize("name", ["_resolve", "_written", "_rules", "_is_changed", "_validated"])
def test_private_name_of_sinksdk_is_refused(name: str) -> None:
    with pytest.raises(TypeError, match=rf"^Mine\.{name} would replace ConfigModel\.{name}, .*another name"):
        type("Mine", (ConnectorConfig,), {name: lambda self: None})


@pytest.mark.parametrize("kind", [ClassVar, ClassVar[Mapping[str, Verdict]]])
def test_compatibility_may_be_annotated_as_classvar(kind: object) -> None:
    made = _declaring("compatibility", kind, {"old.key": Verdict.ignored("it is old")})
    assert made.compatibility.keys() == {"old.key"}  # type: ignore[attr-defined]


@pytest.mark.parametrize("alias", ["b.x", AliasChoices("b.x", "b.y"), AliasPath("b", 0)])
def test_validation_alias_is_refused(alias: Any) -> None:
    with pytest.raises(TypeError, match=r"^Mine\.size has a validation_alias.*Field\(alias="):
        _declaring("size", int, Field(default=1, validation_alias=alias))


def test_alias_generator_names_keys() -> None:
    class Generated(ConnectorConfig):
        model_config = ConfigDict(alias_generator=lambda name: name.replace("_", "."))
        flush_size: int = 1

    assert Generated.parse({"name": "c", "topics": "t", "flush.size": "7"}).flush_size == 7


class Silent(ConnectorConfig):
    size: int = Field(default=1, alias="flush.size", description="How much.")
    mode: str = ""

    @field_validator("size")
    @classmethod
    def at_least(cls, size: int) -> int:
        if size == 2:
            raise AssertionError  # the text of an assert that pytest has not rewritten
        if size == 3:
            raise ValueError
        return {4: {}, 1: 1}[size]["celsius"] if size == 4 else size  # type: ignore[index]

    @model_validator(mode="after")
    def fits(self) -> Self:
        if self.mode:
            raise AssertionError
        return self

    def problems(self) -> list[str]:
        return [*super().problems(), *([str(statistics.mean([]))] if self.size == 5 else [])]

    def warnings(self) -> list[str]:
        return [*super().warnings(), *([{}["celsius"]] if self.size == 6 else [])]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"flush.size": "2"}, "'flush.size': refused without a reason by Silent.at_least"),
        ({"flush.size": "3"}, "'flush.size': refused without a reason by Silent.at_least"),
        ({"mode": "x"}, "the configuration is refused without a reason by Silent.fits"),
    ],
)
def test_validator_without_a_message_is_named(fields: dict[str, str], sentence: str) -> None:
    [problem] = Silent.check({"name": "c", "topics": "t", **fields})[1]
    assert problem == f"{sentence}: let it raise ValueError with a sentence"


@pytest.mark.parametrize(
    ("size", "where", "hook", "error"),
    [
        ("4", "a validator of Silent", "at_least", "KeyError: 'celsius'"),
        ("5", "Silent.problems()", "problems", "StatisticsError: mean requires at least one data point"),
    ],
)
def test_error_in_an_authors_model_names_class_hook_and_line(
    size: str, where: str, hook: str, error: str
) -> None:
    place = rf"{re.escape(where)} failed: {error} at Silent\.{hook} \(test_config\.py, line \d+\)"
    [problem] = Silent.check({"name": "c", "topics": "t", "flush.size": size})[1]
    assert re.fullmatch(place, problem)
    with pytest.raises(ConfigException, match=place):
        Silent.parse({"name": "c", "topics": "t", "flush.size": size})


def test_config_exception_of_a_validator_adds_its_problems() -> None:
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
def test_unresolvable_reference_is_the_only_problem_of_its_key(keys: dict[str, str]) -> None:
    key = next(key for key, text in keys.items() if "${" in text)
    _, problems = ConnectorConfig.check({"name": "c", "topics": "t", **keys})
    assert len(problems) == 1, problems
    assert problems[0].startswith(f"'{key}': ${{")
    _, problems = ConnectorConfig.check({"name": "c", "topics": "t", "poll.interval.ms": "x", **keys})
    assert len(problems) == 2, problems


def test_unresolvable_reference_in_a_map_is_the_only_problem() -> None:
    class Mapped(ConnectorConfig):
        labels: dict[str, int] = Field(alias="table.labels", description="Labels.")

    raw = {"name": "c", "topics": "t"}
    for keys in ({"table.labels.a": "${env:NOT_SET}"}, {"table.labels": "a:1, b:${env:NOT_SET}"}):
        [problem] = Mapped.check({**raw, **keys})[1]
        assert "NOT_SET is not set here" in problem
