"""Tests of the verdicts on keys of other connectors, and of the effect of these keys on a configuration."""

from __future__ import annotations

import time
from typing import ClassVar

import pytest
from pydantic import Field

from sinksdk import ConnectorConfig, Meaning, Option, Verdict
from sinksdk.compatibility import judge, rule_for
from sinksdk.plugins.checks import check_config
from sinksdk.settings.connect_options import CONNECT_OPTIONS
from sinksdk.transforms.plugins import owners

FORMAT = Verdict.unsupported("only Avro is written").when(
    {"AvroFormat": Verdict.same(), "Json*": Verdict.unsupported("no JSON")}
)


class StandIn(ConnectorConfig):
    compatibility: ClassVar = {
        "flush.size": Verdict.same("exactly"),
        "format.class": FORMAT,
        "old.depth": Verdict.ignored("there is no depth"),
        "value.converter*": Verdict.ignored("nothing is converted"),
    }

    flush_size: int = Field(default=5, alias="flush.size", description="Records.")
    depth: int = Field(default=1, alias="old.depth", description="Depth.")
    colour: str = Field(default="", alias="colour", description="Colour.")


MINIMAL = {"name": "a", "topics": "t"}


# -- verdicts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "meaning", "why"),
    [
        ("io.confluent.connect.s3.format.avro.AvroFormat", Meaning.SAME, ""),
        ("AvroFormat", Meaning.SAME, ""),
        ("org.example.JsonLinesFormat", Meaning.UNSUPPORTED, "no JSON"),
        ("org.example.OtherFormat", Meaning.UNSUPPORTED, "only Avro is written"),
    ],
)
def test_verdict_depends_on_the_value(value: str, meaning: Meaning, why: str) -> None:
    verdict = FORMAT.of(value)

    assert (verdict.meaning, verdict.why) == (meaning, why)


@pytest.mark.parametrize("value", ["", "  "])
def test_verdict_on_an_empty_value_is_never_unsupported(value: str) -> None:
    assert FORMAT.of(value).meaning is Meaning.IGNORED
    assert Verdict.differs("a bit").of(value).meaning is Meaning.DIFFERS


def test_suggestion_is_never_a_refused_key() -> None:
    rules = {"other.store.endpoint": Verdict.unsupported("use store.url"), "s3.bucket.name": Verdict.same()}

    found = judge({"store.endpoint": "x", "s3.bucket.nam": "y"}, [rules], ["store.url"])

    assert [option.verdict.why for option in found] == ["", "did you mean 's3.bucket.name'?"]


def test_rule_for_prefers_the_key_then_the_longest_pattern() -> None:
    rules = {name: Verdict.same(name) for name in ("a.*", "a.b.*", "a.b.c")}
    common = {name: Verdict.same(f"common {name}") for name in ("a.b.d", "c.*")}

    found = {key: rule_for(key, rules, common) for key in ("a.b.c", "a.b.d", "a.x.y", "b", "c.d")}

    assert {key: rule and rule.why for key, rule in found.items()} == {
        "a.b.c": "a.b.c",
        "a.b.d": "a.b.*",
        "a.x.y": "a.*",
        "b": None,
        "c.d": "common c.*",
    }


@pytest.mark.parametrize(
    ("verdict", "sentence"),
    [
        (Verdict.unsupported("take it out"), "'k' is unsupported: take it out"),
        (Verdict.differs("a bit"), "'k' is applied with a difference: a bit"),
        (Verdict.ignored("why not"), "'k' has no effect here: why not"),
        (Verdict.same(), "'k' means the same here"),
        (Verdict(Meaning.OWN), "'k' is this connector's own"),
        (Verdict(Meaning.UNKNOWN), "'k' is not known to this connector and has no effect"),
        (
            Verdict(Meaning.UNKNOWN, "did you mean 'l'?"),
            "'k' is not known to this connector and has no effect; did you mean 'l'?",
        ),
    ],
)
def test_option_sentence_names_key_and_verdict(verdict: Verdict, sentence: str) -> None:
    assert Option("k", verdict).sentence == sentence


def test_unknown_key_gets_the_nearest_known_key_as_suggestion() -> None:
    values = dict.fromkeys(("flush.sise", "old.deepth", "entirely.different.thing"), "1")

    found = judge(values, [{"old.depth": Verdict.ignored("x")}], ["flush.size"])

    assert [(option.verdict.meaning, option.verdict.why) for option in found] == [
        (Meaning.UNKNOWN, "did you mean 'flush.size'?"),
        (Meaning.UNKNOWN, "did you mean 'old.depth'?"),
        (Meaning.UNKNOWN, ""),
    ]


# -- configurations ----------------------------------------------------------------------------------


def test_judge_returns_a_verdict_for_each_key_in_order() -> None:
    raw = {
        **MINIMAL,
        "flush.size": "1",
        "old.depth": "2",
        "colour": "red",
        "tasks.max.enforce": "true",
        "x": "1",
    }

    assert {option.key: str(option.verdict.meaning) for option in StandIn.judge(raw)} == {
        "name": "same",
        "topics": "same",
        "flush.size": "same",
        "old.depth": "ignored",
        "colour": "own",
        "tasks.max.enforce": "ignored",
        "x": "unknown",
    }


def test_unsupported_key_is_a_problem() -> None:
    _, problems = StandIn.check({**MINIMAL, "format.class": "x.JsonFormat", "flush.size": "many"})

    assert problems[0] == "'format.class' is unsupported: no JSON"
    assert problems[1].startswith("'flush.size': ")
    assert len(problems) == 2


def test_ignored_key_may_have_an_invalid_value_or_reference() -> None:
    config, problems = StandIn.check(
        {
            **MINIMAL,
            "old.depth": "deep",
            "value.converter": "io.confluent.connect.avro.AvroConverter",
            "value.converter.basic.auth.user.info": "${file:/nowhere:user}",
        }
    )

    assert problems == []
    assert config is not None
    assert (config.depth, config.value_converter) == (1, "bytes")


def test_reference_of_an_applied_key_must_be_resolvable() -> None:
    _, problems = StandIn.check({**MINIMAL, "flush.size": "${file:/nowhere:size}"})

    assert problems[0] == "'flush.size': ${file:/nowhere:size}: No such file or directory"


def test_verdict_depends_on_the_resolved_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORMAT", "AvroFormat")

    (option,) = StandIn.judge({"format.class": "${env:FORMAT}"})

    assert option.verdict.meaning is Meaning.SAME


def test_reference_omits_ignored_keys() -> None:
    keys = {key.name for key in StandIn.reference()}

    assert {"flush.size", "colour", "key.converter"} <= keys
    assert keys & {"old.depth", "value.converter"} == set()


def test_connect_keys_with_an_applied_verdict_exist() -> None:
    applied = {
        key for key, verdict in CONNECT_OPTIONS.items() if verdict.meaning in (Meaning.SAME, Meaning.DIFFERS)
    }

    own = {key for key in applied if not key.startswith(("consumer.override.", "producer.override."))}
    own -= {"transforms.*", "transforms.*.type", "predicates.*"}  # every transform may have these keys
    namespaced = {
        f"{side}.converter.schema.registry.basic.auth.{key}"
        for side in ("key", "value")
        for key in ("credentials.source", "user.info")
    }
    # Confluent's client ignores the namespace of these keys.
    assert own - set(ConnectorConfig.keys()) == namespaced


def test_ignored_and_refused_connect_keys_have_a_reason() -> None:
    silent = [
        key
        for key, verdict in CONNECT_OPTIONS.items()
        if not verdict.why and verdict.meaning is not Meaning.SAME
    ]

    assert silent == []


def test_consumer_overrides_are_passed_on() -> None:
    raw = {
        **MINIMAL,
        "consumer.override.auto.offset.reset": "latest",
        "consumer.override.fetch.max.bytes": "7",
    }

    config = StandIn.parse(raw)

    assert config.overrides("consumer.override.")["fetch.max.bytes"] == "7"
    assert config.auto_offset_reset == "latest"


# -- many keys ---------------------------------------------------------------------------------------

MANY = 5_000
S3 = {**MINIMAL, "connector.class": "s3-archiver", "s3.bucket.name": "bucket", "flush.size": "1"}
NAMES = ",".join(f"t{number}" for number in range(MANY))
OF_KAFKA = "org.apache.kafka.connect.transforms"


def numbered(key: str, value: str) -> dict[str, str]:
    return {key.format(number): value for number in range(MANY)}


@pytest.mark.extended
@pytest.mark.parametrize(
    ("keys", "problems"),
    [
        (numbered("flush.siz{}", "1"), 0),
        (numbered("s3.endpoint.{}", "x"), MANY),
        ({**numbered("s3.endpoint.{}", "x"), "transforms": NAMES}, 2 * MANY),
        ({"transforms": NAMES, **numbered("transforms.t{}.type", f"{OF_KAFKA}.ValueToKey"),
          **numbered("transforms.t{}.fields", "a")}, 0),
        ({"predicates": NAMES, **numbered("predicates.t{}.type", f"{OF_KAFKA}.predicates.RecordIsTombstone")}, 0),
        ({"transforms": NAMES, **numbered("transforms.t{}.type", f"{OF_KAFKA}.ValueToKey"),
          **numbered("transforms.t{}.fields", "a"), **numbered("transforms.t{}.predicate", "absent"),
          "predicates": NAMES, **numbered("predicates.t{}.type", f"{OF_KAFKA}.predicates.RecordIsTombstone")}, MANY),
    ],
    ids=["unknown", "unsupported", "unsupported and wrong", "transforms", "predicates", "wrong predicates"],
)  # fmt: skip
def test_judge_takes_linear_time(keys: dict[str, str], problems: int) -> None:
    # A validate request with many keys could keep the server's interpreter busy for minutes.
    config = {"value.converter": "json", **S3, **keys}
    began = time.process_time()
    found = check_config(config)
    assert time.process_time() - began < 6
    assert [option.key for option in found.options] == list(config)
    assert len(found.problems) == problems


def test_map_entries_are_gathered_in_linear_time() -> None:
    class WithMap(ConnectorConfig):
        labels: dict[str, str] = Field(default={}, alias="labels", description="Labels.")

    entries = numbered("labels.{}", "x")
    began = time.process_time()
    config = WithMap.parse({**MINIMAL, "connector.class": "x", "labels": "a:b", **entries})
    assert time.process_time() - began < 6
    assert config.labels == {"a": "b", **{str(number): "x" for number in range(MANY)}}


def test_suggestions_are_limited_to_twenty_unknown_keys() -> None:
    options = judge({f"flush.siz{number}": "" for number in range(30)}, [], ["flush.size"])
    assert {option.verdict.meaning for option in options} == {Meaning.UNKNOWN}
    assert [option.verdict.why for option in options] == ["did you mean 'flush.size'?"] * 20 + [""] * 10


def test_transform_key_belongs_to_the_longest_matching_name() -> None:
    owner = owners("transforms", ["a", "a.b"])
    assert [owner(f"transforms.{key}") for key in ("a.type", "a.b.type", "a.c.d", "a", "b.type")] == [
        "a", "a.b", "a", None, None,
    ]  # fmt: skip
    assert owner("predicates.a.type") is None
