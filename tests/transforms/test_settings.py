"""A configuration's chain: what is refused before the start, and what each key means."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import pytest

from sinksdk import ConfigException, ConnectorConfig, Meaning, SinkRecords
from sinksdk.connectors.s3_archiver.config import S3ArchiverConfig
from sinksdk.plugins.checks import redacted
from sinksdk.support.confidential import HIDDEN

BASE = {"name": "c", "topics": "t", "value.converter": "json", "key.converter": "json"}
KAFKA = "org.apache.kafka.connect.transforms."


def problems(**more: str) -> list[str]:
    """Return problems of a sink with further keys; ``__`` stands for a dot."""
    config = {**BASE, **{key.replace("__", "."): value for key, value in more.items()}}
    return ConnectorConfig.check(config)[1]


class Leaving:
    def __init__(self) -> None:
        sys.exit(2)

    def apply(self, given: object) -> object:
        return given


def one(kind: str, **keys: str) -> list[str]:
    return problems(
        transforms="a", transforms__a__type=kind, **{f"transforms__a__{k}": v for k, v in keys.items()}
    )


class Own:
    def configure(self, config: Mapping[str, str]) -> None:
        if not config["limit"].isdecimal():
            message = "'limit' must be a number"
            raise ConfigException(message)

    def apply(self, records: SinkRecords) -> SinkRecords:
        return records


class Bare:
    def apply(self, records: SinkRecords) -> SinkRecords:
        return records


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (problems(transforms="a"), "'transforms.a.type' is required and not set"),
        (
            problems(transforms="a,a", transforms__a__type="Filter"),
            "'transforms': Duplicate alias provided: a",
        ),
        (
            problems(transforms="a", transforms__a__type=f"{KAFKA}MaskField"),
            (
                "'transforms.a.type': Transformation is abstract and cannot be created. Did you mean MaskField$Key or "
                "MaskField$Value?"
            ),
        ),
        (
            problems(
                transforms="a", transforms__a__type="org.radarbase.kafka.connect.transforms.DebeziumRecord"
            ),
            (
                "'transforms.a.type': org.radarbase.kafka.connect.transforms.DebeziumRecord is a Java class "
                "that sinksdk does not implement; it implements only Kafka's own: write a Python class that"
            ),
        ),
        (one("Maskfield"), "'transforms.a.type': there is no transform 'Maskfield'; built in are Cast$Key,"),
        (
            one(":Own"),
            "'transforms.a.type': :Own does not name a class: write it as package.module:Class",
        ),
        (
            one("a:b:c"),
            "'transforms.a.type': a:b:c does not name a class: write it as package.module:Class",
        ),
        (one("MaskField$Value"), "'transforms.a.fields' is required and not set"),
        (one("MaskField$Value", fields=""), "'transforms.a.fields': must have at least one entry"),
        (
            one("MaskField$Value", filds="x", fields="y"),
            "'transforms.a.filds' is not a key of MaskField; did you mean 'fields'?",
        ),
        (
            one("ReplaceField$Value", blacklist="x"),
            "'transforms.a.blacklist' is not a key of ReplaceField; its keys are",
        ),
        (one("ReplaceField$Value", renames="x"), "'transforms.a.type': Invalid rename mapping: x"),
        (one("InsertField$Value"), "'transforms.a.type': No field insertion configured"),
        (
            one("Cast$Value", spec="a:int"),
            "'transforms.a.spec': Invalid type found in casting spec: int; types are int8,",
        ),
        (
            one("TimestampConverter$Value", target__type="string"),
            "'transforms.a.type': TimestampConverter requires format option to be specified",
        ),
        (
            one("TimestampConverter$Value", target__type="string", format="YYYY"),
            "'transforms.a.type': the letter 'Y' in the pattern YYYY is not supported; supported are",
        ),
        (
            one("TimestampConverter$Value", target__type="text"),
            "'transforms.a.target.type': input should be 'string'",
        ),
        (one("RegexRouter"), "'transforms.a.type' is unsupported: records keep their topic"),
        (
            one(f"{KAFKA}TimestampRouter"),
            "'transforms.a.type' is unsupported: records keep their topic",
        ),
        (
            one("Filter", predicate="p"),
            "'transforms.a.predicate' is p, which is not declared in 'predicates': it declares none",
        ),
        (
            one("Filter", negate="true"),
            (
                "Config 'transforms.a.negate' was provided but there is no config 'transforms.a.predicate' defining a "
                "predicate to be negated"
            ),
        ),
        (problems(predicates="p"), "'predicates.p.type' is required and not set"),
        (
            problems(predicates="p", predicates__p__type="TopicNameMatches", predicates__p__pattern="("),
            "'predicates.p.pattern': Invalid regex: ",
        ),
        (
            problems(predicates="p", predicates__p__type="TopicNameMatches", predicates__p__pattern="[a&&]"),
            "'predicates.p.pattern': Invalid regex: '&&' has nothing after it",
        ),
        (
            one("nowhere.at:All"),
            "'transforms.a.type': nowhere.at:All cannot be imported: ModuleNotFoundError",
        ),
        (one(f"{__name__}:Nothing"), f"'transforms.a.type': module '{__name__}' has no 'Nothing'"),
        (
            one(f"{__name__}:KAFKA"),
            f"'transforms.a.type': {__name__}:KAFKA is not a transform: it must be a class with a method 'apply'",
        ),
        (one(f"{__name__}:Own", limit="x"), "'transforms.a.type': 'limit' must be a number"),
        (
            one(f"{__name__}:Own"),
            (
                f"'transforms.a.type': {__name__}:Own cannot be created: KeyError: 'limit' at Own.configure "
                f"(test_settings.py, line "
            ),
        ),
        (
            one(f"{__name__}:Leaving"),
            f"'transforms.a.type': {__name__}:Leaving cannot be created: SystemExit: 2 at Leaving.__init__",
        ),
        (
            one(f"{__name__}:Bare", limit="x"),
            f"'transforms.a.type': {__name__}:Bare has no method 'configure'",
        ),
    ],
)
def test_invalid_chain_is_a_problem_of_its_key(found: list[str], expected: str) -> None:
    assert len(found) == 1
    assert found[0].startswith(expected), found


def test_chain_reports_all_problems() -> None:
    found = problems(transforms="a,b", transforms__a__type="Filter2", flush="x", tasks__max="none")
    assert [problem.split("'")[1] for problem in found] == [
        "tasks.max",
        "transforms.a.type",
        "transforms.b.type",
    ]


def test_chain_is_parsed_in_order() -> None:
    config = ConnectorConfig.parse(
        {
            **BASE,
            "transforms": "drop-it, mask",
            "transforms.drop-it.type": f"{KAFKA}Filter",
            "transforms.drop-it.predicate": "tomb",
            "transforms.mask.type": f"{KAFKA}MaskField$Value",
            "transforms.mask.fields": "a, b",
            "predicates": "tomb",
            "predicates.tomb.type": f"{KAFKA}predicates.RecordIsTombstone",
        }
    )
    chain = config.chain()
    assert chain is not None
    assert [step.name for step in chain.steps] == ["drop-it", "mask"]
    assert [step.predicate is None for step in chain.steps] == [False, True]


def test_chain_is_none_without_transforms() -> None:
    assert ConnectorConfig.parse({**BASE, "transforms": ""}).chain() is None


@pytest.mark.parametrize(
    ("converter", "steps", "complaint"),
    [
        ("bytes", {"a": ("MaskField$Value", {"fields": "x"})}, "'transforms.a.type' needs fields, and "),
        ("string", {"a": ("ValueToKey", {"fields": "x"})}, "'transforms.a.type' needs fields, and "),
        ("json", {"a": ("MaskField$Value", {"fields": "x"})}, ""),
        ("bytes", {"a": ("Filter", {})}, ""),
        ("bytes", {"a": ("Cast$Value", {"spec": "string"})}, ""),
        ("bytes", {"h": ("HoistField$Value", {"field": "x"}), "a": ("MaskField$Value", {"fields": "x"})}, ""),
        (
            "bytes",
            {"f": ("Filter", {}), "a": ("MaskField$Value", {"fields": "x"})},
            "'transforms.a.type' needs fields, and ",
        ),
        (
            "json",
            {"k": ("ValueToKey", {"fields": "x"}), "a": ("ExtractField$Key", {"field": "x"})},
            "",
        ),
        ("bytes", {"o": (f"{__name__}:Bare", {}), "a": ("MaskField$Value", {"fields": "x"})}, ""),
    ],
)
def test_transform_of_fields_requires_a_converter_with_fields(
    converter: str, steps: dict[str, tuple[str, dict[str, str]]], complaint: str
) -> None:
    keys = {"transforms": ",".join(steps)}
    for name, (kind, own) in steps.items():
        keys |= {f"transforms.{name}.type": kind, **{f"transforms.{name}.{k}": v for k, v in own.items()}}
    _, found = ConnectorConfig.check(
        {**BASE, "value.converter": converter, "key.converter": "string", **keys}
    )
    assert [problem[: len(complaint)] for problem in found] == ([complaint] if complaint else [])


def verdicts(model: type[ConnectorConfig], config: dict[str, str]) -> dict[str, Meaning]:
    return {option.key: option.verdict.meaning for option in model.judge(config)}


def test_keys_of_unused_transforms_are_ignored() -> None:
    found = verdicts(
        ConnectorConfig,
        {
            "transforms": "a",
            "transforms.a.type": "Filter",
            "transforms.b.type": "RegexRouter",
            "predicates.p.x": "",
        },
    )
    assert list(found.values()) == [Meaning.SAME, Meaning.SAME, Meaning.IGNORED, Meaning.IGNORED]


def test_archiver_applies_its_converters_if_it_has_transforms() -> None:
    keys = {"value.converter": "json", "errors.tolerance": "all", "errors.deadletterqueue.topic.name": "d"}
    chain = {"transforms": "a", "transforms.a.type": "Filter"}
    assert set(verdicts(S3ArchiverConfig, keys).values()) == {Meaning.IGNORED}
    assert set(verdicts(S3ArchiverConfig, {**keys, **chain}).values()) == {Meaning.SAME}


_REAL: dict[str, tuple[dict[str, Any], str]] = {
    # Keys that the published file leaves out are filled in, because Connect itself refuses these two files.
    "e20": (
        {
            "value.converter": "json",
            "transforms": "RenameField,insertStaticField1",
            "transforms.RenameField.type": f"{KAFKA}ReplaceField$Value",
            "transforms.RenameField.renames": "c:country",
            "transforms.insertStaticField1.type": f"{KAFKA}InsertField$Value",
            "transforms.insertStaticField1.static.field": "source",
            "transforms.insertStaticField1.static.value": "web",
        },
        "",
    ),
    "e20 as it was published": (
        {
            "value.converter": "json",
            "transforms": "RenameField,insertStaticField1",
            "transforms.RenameField.type": f"{KAFKA}ReplaceField$Value",
            "transforms.insertStaticField1.type": f"{KAFKA}InsertField$Value",
        },
        "'transforms.insertStaticField1.type': No field insertion configured",
    ),
    "i03": (
        {
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "key.converter.schemas.enable": False,
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": True,
            "transforms": "createKey",
            "transforms.createKey.fields": "id",
            "transforms.createKey.type": f"{KAFKA}ValueToKey",
        },
        "",
    ),
    "r33": (
        {
            "transforms": "dropTombstones",
            "transforms.dropTombstones.type": "io.confluent.connect.transforms.TombstoneHandler",
            "transforms.dropTombstones.behavior": "ignore",
        },
        "",
    ),
    "e17, of a third party": (
        {
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "false",
            "transforms": "DebeziumRecord",
            "transforms.DebeziumRecord.type": "org.radarbase.kafka.connect.transforms.DebeziumRecord",
        },
        "'transforms.DebeziumRecord.type': org.radarbase.kafka.connect.transforms.DebeziumRecord is a Java class",
    ),
}
"""The chains of published configurations of Confluent's sink."""


@pytest.mark.parametrize("name", _REAL)
def test_common_chains_are_accepted(name: str) -> None:
    chain, complaint = _REAL[name]
    archive = {
        "name": "a",
        "topics": "t",
        "s3.bucket.name": "archive",
        "s3.region": "us-east-1",
        "flush.size": "10",
    }
    config, found = S3ArchiverConfig.check({**archive, **chain})
    if complaint:
        assert [problem[: len(complaint)] for problem in found] == [complaint]
    else:
        assert found == []
        assert config is not None
        assert config.chain() is not None


def test_transform_alias_does_not_make_a_key_secret() -> None:
    config = {
        "transforms.maskToken.type": f"{KAFKA}MaskField$Value",
        "transforms.maskToken.predicate": "hasPassword",
        "predicates.hasPassword.type": f"{KAFKA}predicates.HasHeaderKey",
        "transforms.own.api.token": "abcdefgh",
    }
    shown = redacted(config)
    assert {key for key, value in shown.items() if value == HIDDEN} == {"transforms.own.api.token"}
    assert set(ConnectorConfig.secrets(config)) == {"abcdefgh"}
